//! The errors of acquisitions that end without a lease.

use std::sync::LazyLock;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::local_line::TASKS_MAX;
use crate::core::ttl::Ttl;
use crate::store::Quarantine;

/// The error for a wait that ended before the store answered. Every wait notes it before its first
/// ask.
pub(crate) static UNANSWERED: LazyLock<Error> = LazyLock::new(|| {
    let message = "the store did not answer before the wait ended; a late grant is released; check \
                   that the store is running";
    Error::new(ErrorKind::Unknown, message)
});

/// The error for a wait that ended while the lock was taken.
pub(crate) fn wait_elapsed() -> Error {
    Error::new(
        ErrorKind::WaitElapsed,
        "the lock or permit stayed taken until the wait ended; nothing was acquired; wait longer \
         or try again later",
    )
}

/// The error for a wait or a try that ended during a quarantine.
pub(super) fn quarantined(kind: ErrorKind, quarantine: &Quarantine) -> Error {
    Error::new(kind, format!("{quarantine}; nothing was acquired; wait or try again later"))
}

/// The error for a store whose grants come too late to use.
pub(super) fn too_slow(ttl: Ttl) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!(
            "the store answers too slowly for a ttl of {ttl:?}; its late grant is released; use a \
             longer ttl or period"
        ),
    )
}

/// The error for a task that was taken out of the line and told nothing, because the waker of
/// another task panicked.
pub(super) fn untold() -> Error {
    let message = "another task of this client panicked when it was woken; nothing was acquired; \
                   try again";
    Error::new(ErrorKind::Unavailable, message)
}

/// The error for one task too many in a local line.
pub(super) fn too_many(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{TASKS_MAX} tasks of this client already wait for this lock, which is the limit; no \
             request was sent; try again later"
        ),
    )
    .with_name(key.as_str())
}
