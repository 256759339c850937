//! The texts of servers in errors.

use crate::core::error::{Error, ErrorKind};
use crate::store::net::Said;

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
    /// After a statement of a migration was sent to MySQL.
    #[cfg(feature = "mysql")]
    Migrating,
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
        _ => (
            ErrorKind::Unknown,
            format!(
                "the connection ended before the answer came ({cause}); the request may have taken \
                 effect; inspect the lock, or wait for one ttl"
            ),
        ),
    };
    Error::new(kind, message).with_source(Said::new(cause))
}

/// The error for a renewal that did not wait for its row.
pub(super) fn row_locked() -> Error {
    let message = "another transaction has locked the row of this lock; nothing was changed; look \
                   for an open transaction";
    let said = Said { text: "kept".to_owned(), is_row_locked: true };
    Error::new(ErrorKind::Unavailable, message).with_source(said)
}

/// Whether a step failed because another transaction had locked the row of its key.
pub(super) fn is_row_locked(error: &Error) -> bool {
    said(error).is_some_and(|said| said.is_row_locked)
}

/// What the server said, if that is the cause of an error.
pub(in crate::store) fn said(error: &Error) -> Option<&Said> {
    std::error::Error::source(error)?.downcast_ref()
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
