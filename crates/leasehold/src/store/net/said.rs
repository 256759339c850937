//! Text of a server in messages and as the cause of an error.

use std::fmt;

/// How much of a server's text is repeated, in characters.
const SAID_MAX: usize = 300;

/// The text of the server, as the cause of an error.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Whether the text says that another transaction has locked a row.
    pub(crate) is_row_locked: bool,
}

impl Said {
    /// A text about anything but a row.
    pub(crate) fn new(text: String) -> Self {
        Self { text, is_row_locked: false }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server said `{}`", self.text)
    }
}

impl std::error::Error for Said {}

/// Text from outside, escaped and shortened for messages.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(SAID_MAX) {
        match c {
            '\'' | '"' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_server_is_escaped_and_shortened() {
        assert_eq!(shown("a \"b\" 'c' \u{1b}[31m"), "a \"b\" 'c' \\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(1_000)).len(), SAID_MAX);
    }
}
