//! The texts of servers in errors.

use std::fmt;

use crate::core::error::{Error, ErrorKind};

/// How much of a server's text is repeated, in characters.
const SAID_MAX: usize = 300;

/// The advice if the tables are missing or old.
pub(crate) const MIGRATE: &str =
    "run `leasehold migrate --url URL` once, as a user who may create them";

/// The error of a server that has no database of the name in the URL.
pub(in crate::store) const NO_DATABASE: (ErrorKind, &str) = (
    ErrorKind::Config,
    "there is no such database on the server; no request was sent; correct its name in the URL, or \
     create it",
);

/// The error of a server that cannot write.
pub(in crate::store) const DISK_FULL: (ErrorKind, &str) = (
    ErrorKind::Unavailable,
    "the disk of the server is full; nothing was changed and leases cannot be renewed; free some \
     space",
);

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Stage {
    /// While connecting: no request was sent.
    Connecting,
    /// After a request was sent.
    Asking,
}

/// The error for a connection that failed or ended.
pub(in crate::store) fn broken(cause: String, stage: Stage, server: &str) -> Error {
    let (kind, message) = match stage {
        Stage::Connecting => (
            ErrorKind::Unavailable,
            format!(
                "no connection could be made ({cause}); no request was sent; check host and port, \
                 and whether a {server} server listens there"
            ),
        ),
        Stage::Asking => (
            ErrorKind::Unknown,
            format!(
                "the connection ended before the answer came ({cause}); the request may have taken \
                 effect; inspect the lock, or wait for one ttl"
            ),
        ),
    };
    Error::new(kind, message).with_source(Said::new(cause))
}

/// The text of the server, as the cause of an error.
#[derive(Debug)]
pub(in crate::store) struct Said {
    pub(in crate::store) text: String,
    /// Whether the text says that another transaction has locked a row.
    pub(in crate::store) is_row_locked: bool,
}

impl Said {
    /// A text about anything but a row.
    pub(in crate::store) fn new(text: String) -> Self {
        Self { text, is_row_locked: false }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server said `{}`", self.text)
    }
}

impl std::error::Error for Said {}

/// The error for a renewal that did not wait for its row.
pub(super) fn row_locked() -> Error {
    let message = "another transaction has locked the row of this lock; nothing was changed; look \
                   for an open transaction";
    let said = Said { text: "kept".to_owned(), is_row_locked: true };
    Error::new(ErrorKind::Unavailable, message).with_source(said)
}

/// Whether a step failed because another transaction had locked the row of its key.
pub(super) fn is_row_locked(error: &Error) -> bool {
    let said = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<Said>());
    said.is_some_and(|said| said.is_row_locked)
}

/// Text from outside, escaped and shortened for messages.
pub(in crate::store) fn shown(text: &str) -> String {
    let part: String = text.chars().take(SAID_MAX).collect();
    part.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// The error for a server that does not answer what every server of its kind answers.
pub(in crate::store) fn unknown_server(kind: &str) -> Error {
    let message = format!(
        "the server does not say what it is; no request was sent; check whether it is {kind}"
    );
    Error::new(ErrorKind::Config, message)
}

/// The error for an answer that has not the form of the procedures' answers.
pub(in crate::store) fn strange(what: &str) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!(
            "the server sent an answer that does not come from the functions of Leasehold \
             ({what}); the request may have taken effect; check which functions and procedures are \
             in the database"
        ),
    )
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
