//! Escapes invisible characters: names and texts of other clients must not control a terminal, hide
//! in a line, or change its direction.

use std::fmt::Write as _;

/// Shows every [unseen](is_unseen) character as an escape, as in `\n` or `\u{202e}`.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Writes every unseen character of a JSON text as `\uXXXX`, which means the same to a program.
///
/// In JSON without white space, such characters appear only inside strings.
pub(crate) fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unseen(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").expect("memory takes it");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether a reader cannot see this character: control and format characters (such as those that
/// change the text direction), line separators, and what Unicode calls ignorable.
fn is_unseen(c: char) -> bool {
    c.is_control() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c))
}

/// The categories Cf, Zl and Zp, and the property `Default_Ignorable_Code_Point`, of Unicode 16.
const UNSEEN: [(char, char); 29] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
    // Code points that are not characters.
    ('\u{fdd0}', '\u{fdef}'),
    ('\u{fffe}', '\u{ffff}'),
    ('\u{1fffe}', '\u{1ffff}'),
    ('\u{10fffe}', '\u{10ffff}'),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
    use serde_json::Value;

    use super::*;

    #[test]
    fn invisible_characters_are_shown_as_escapes() {
        for (text, shown) in [
            ("release 2.4.1 — ünï 日本", "release 2.4.1 — ünï 日本"),
            ("\x1b[31mred", "\\u{1b}[31mred"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("abc\u{202e}txt", "abc\\u{202e}txt"),
            ("a\u{61c}b\u{200e}c", "a\\u{61c}b\\u{200e}c"),
            ("a\u{200b}b\u{feff}c\u{ad}d", "a\\u{200b}b\\u{feff}c\\u{ad}d"),
            ("\u{2066}x\u{2069}\u{2028}", "\\u{2066}x\\u{2069}\\u{2028}"),
            ("tag\u{e0041}\u{180e}\u{3164}", "tag\\u{e0041}\\u{180e}\\u{3164}"),
        ] {
            assert_eq!(escape(text), shown);
        }
    }

    #[test]
    fn json_says_the_same_without_anything_unseen() {
        for (text, json) in [
            ("a\nb", r#""a\nb""#),
            ("\u{9b}31m", r#""\u009b31m""#),
            ("abc\u{202e}txt", r#""abc\u202etxt""#),
            ("a\u{61c}b", r#""a\u061cb""#),
            ("\u{7f}", r#""\u007f""#),
            ("x\u{e0041}", r#""x\udb40\udc41""#),
            ("ünï \u{1f600}", "\"ünï \u{1f600}\""),
        ] {
            let written = serde_json::to_string(text).expect("text is JSON");
            assert_eq!(escape_json(&written), json);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_seen_whole_and_read_back_from_json(text in any::<String>()) {
            prop_assert!(!escape(&text).contains(is_unseen));
            let json = escape_json(&serde_json::to_string(&text).expect("text is JSON"));
            prop_assert!(!json.contains(is_unseen));
            prop_assert_eq!(serde_json::from_str::<Value>(&json).expect("it is JSON"), text);
        }

        /// Random texts rarely contain such characters.
        #[test]
        fn each_unseen_character_is_escaped_wherever_it_stands(
            at in 0..UNSEEN.len(), before in ".{0,3}", offset in 0_u32..4096,
        ) {
            let (first, last) = UNSEEN[at];
            let code = (u32::from(first) + offset).min(u32::from(last));
            let c = char::from_u32(code).expect("no range spans the surrogates");
            let text = format!("{before}{c}x");
            prop_assert!(!escape(&text).contains(c));
            let json = escape_json(&serde_json::to_string(&text).expect("text is JSON"));
            prop_assert!(!json.contains(c));
            prop_assert_eq!(serde_json::from_str::<Value>(&json).expect("it is JSON"), text);
        }
    }
}
