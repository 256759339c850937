//! Any text without the character NUL, which a text of PostgreSQL cannot have.

use std::borrow::Cow;

/// Begins a pair of characters that stands for one character. Few texts have it.
const ESCAPE: char = '\u{1a}';

/// The text without NUL.
pub(in crate::store) fn encode(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return Cow::Borrowed(text);
    }
    text.replace(ESCAPE, "\u{1a}1").replace('\0', "\u{1a}0").into()
}

/// The text that was [encoded](encode).
pub(super) fn decode(text: &str) -> String {
    text.replace("\u{1a}0", "\0").replace("\u{1a}1", "\u{1a}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_comes_back_as_it_was() {
        for text in ["", "plain", "a\0b", "\u{1a}", "\u{1a}0", "\u{1a}1\0", "\0\0"] {
            let encoded = encode(text);
            assert!(!encoded.contains('\0'), "{text:?}");
            assert_eq!(decode(&encoded), text);
        }
    }
}
