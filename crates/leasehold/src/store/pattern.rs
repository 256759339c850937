//! Patterns for names of locks.

/// Whether `name` matches `pattern`. `*` matches any run of characters, and `?` any single
/// character. Other characters match themselves.
///
/// Takes at most `pattern × name` steps, so a hostile pattern costs little.
///
/// ```
/// use leasehold::store::matches_pattern;
///
/// assert!(matches_pattern("order:*", "order:42"));
/// assert!(!matches_pattern("order:?", "order:42"));
/// ```
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to continue if the text after the last `*` does not match: behind the `*`, one
    // character further.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == '*' {
            retry = Some((p + 1, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((after_star, from)) = retry {
            (p, n) = (after_star, from + 1);
            retry = Some((after_star, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|part| *part == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match_and_all_else_is_literal() {
        let table = [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("order:*", "order:42", true),
            ("order:*", "orders", false),
            ("*:42", "order:42", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("o?der", "order", true),
            ("o?der", "oder", false),
            ("[a]%_", "[a]%_", true),
            ("[a]", "a", false),
            ("ü?", "üß", true),
        ];
        for (pattern, name, matches) in table {
            assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(200), "a".repeat(199));
        assert!(!matches_pattern(&pattern, &name), "and ends soon");
    }
}
