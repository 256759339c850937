//! Patterns for key names, as in `SCAN` and `KEYS`.

/// Whether `text` matches a pattern of `*`, `?`, `[a-z]`, `[^a]`, and `\` before a literal
/// character. Compares bytes, not letters.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // The pattern after the last star, and the text that the star has not swallowed yet.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (pattern, text) {
            ([b'*', rest @ ..], _) => {
                star = Some((rest, text));
                Some((rest, text))
            }
            ([], []) => return true,
            ([], _) | (_, []) => None,
            (_, [byte, after @ ..]) => one(pattern, *byte).map(|rest| (rest, after)),
        };
        match (step, star) {
            (Some(next), _) => (pattern, text) = next,
            (None, Some((rest, [_, after @ ..]))) => {
                star = Some((rest, after));
                (pattern, text) = (rest, after);
            }
            (None, _) => return false,
        }
    }
}

/// The rest of a pattern whose first piece matches the byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', class @ ..] => {
            let (matches, rest) = in_class(class, byte);
            matches.then_some(rest)
        }
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// Whether a class contains the byte, and the pattern after the class.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (mut class, negated) = match class {
        [b'^', rest @ ..] => (rest, true),
        _ => (class, false),
    };
    let mut has = false;
    loop {
        class = match class {
            [b'\\', literal, rest @ ..] => {
                has |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => return (has != negated, rest),
            // An unclosed class ends with the pattern.
            [] => return (has != negated, class),
            [from, b'-', to, rest @ ..] => {
                has |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                has |= *literal == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_what_they_say() {
        let table = [
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*b*:lh:*", "{ab}:lh:fence", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a]x", "ax", false),
            (r"\*x", "*x", true),
            (r"\*x", "ax", false),
            (r"a\[b\]", "a[b]", true),
            (r"[\]]", "]", true),
            ("", "", true),
            ("", "a", false),
            ("**a", "bba", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
