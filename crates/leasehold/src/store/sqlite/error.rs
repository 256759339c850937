//! Turns SQLite errors into errors that tell the caller what to do.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rusqlite::ErrorCode;
use rustix::io::Errno;

use crate::core::error::{Error, ErrorKind};

/// Why a step has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The step was refused. The rest of its batch is not affected.
    Refused(Error),
    /// SQLite failed, and with it the whole batch.
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// How far a batch was when SQLite failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The batch was rolled back, or did not begin.
    Before,
    /// The batch was being committed.
    Commit,
}

/// A failure of SQLite, reported to every job of a batch.
#[derive(Clone, Debug)]
pub(super) struct SqlFailure {
    pub(super) cause: Arc<rusqlite::Error>,
    pub(super) stage: Stage,
}

impl SqlFailure {
    pub(super) fn new(cause: rusqlite::Error, stage: Stage) -> Self {
        Self { cause: Arc::new(cause), stage }
    }

    /// Whether another process had the file locked longer than the limit.
    pub(super) fn is_busy(&self) -> bool {
        is_busy(&self.cause)
    }

    /// Whether nothing was done, and jobs of the batch may succeed without the others. False if the
    /// file itself cannot be used. Then each job would fail by itself, and a broken disk takes long
    /// for each.
    pub(super) fn is_of_some_jobs(&self) -> bool {
        let is_of_all = matches!(
            self.cause.sqlite_error_code(),
            Some(
                ErrorCode::SystemIoFailure
                    | ErrorCode::CannotOpen
                    | ErrorCode::ReadOnly
                    | ErrorCode::NotADatabase
            )
        );
        self.stage == Stage::Before && !self.is_busy() && !is_of_all
    }

    /// The error for one caller. `label` names the store.
    pub(super) fn to_error(&self, label: &str) -> Error {
        let (kind, message) = match self.cause.sqlite_error_code() {
            Some(ErrorCode::CannotOpen) if is_out_of_descriptors() => OUT_OF_DESCRIPTORS,
            Some(ErrorCode::CannotOpen) if has_no_room(label) => NO_ROOM,
            code => explain(code, self.stage),
        };
        Error::new(kind, format!("{label}: {message}")).with_source(Arc::clone(&self.cause))
    }
}

/// Whether another process had the file locked.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether no file can be opened any more. SQLite does not say why it cannot open a file.
fn is_out_of_descriptors() -> bool {
    File::open("/dev/null").is_err_and(|error| {
        let errno = Errno::from_io_error(&error);
        matches!(errno, Some(Errno::MFILE | Errno::NFILE))
    })
}

/// Whether the file system of the store has no room for another file. Quotas do not show here.
fn has_no_room(label: &str) -> bool {
    let path = Path::new(label.strip_prefix("sqlite:").unwrap_or(label));
    let room = rustix::fs::statvfs(path.parent().unwrap_or(path));
    // Some file systems have no limit on the number of files, and say zero.
    room.is_ok_and(|it| it.f_bavail == 0 || it.f_files > 0 && it.f_favail == 0)
}

/// SQLite does not say why it cannot make the files beside its file.
const NO_ROOM: (ErrorKind, &str) = (
    ErrorKind::Unavailable,
    "the disk has no room for another file beside the database; nothing was changed and leases \
     cannot be renewed; free some space, or delete files if there are too many",
);

const OUT_OF_DESCRIPTORS: (ErrorKind, &str) = (
    ErrorKind::Unavailable,
    "this process or this machine has too many open files; nothing was changed; raise the limit \
     (`ulimit -n`), or close some",
);

/// Says what happened, in what state the locks are, and what to do.
fn explain(code: Option<ErrorCode>, stage: Stage) -> (ErrorKind, &'static str) {
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            "another process keeps the file locked; nothing was changed; try again, and look for \
             a process that is stopped or holds a transaction open",
        ),
        Some(ErrorCode::DiskFull) => (
            ErrorKind::Unavailable,
            "the disk is full; nothing was changed and leases cannot be renewed; free some space",
        ),
        Some(ErrorCode::SystemIoFailure) if stage == Stage::Commit => (
            ErrorKind::Unknown,
            "the disk failed while the change was written, so it may have taken effect; check the \
             disk and the quota of this user, and inspect the lock",
        ),
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unavailable,
            "the disk cannot be read or written; nothing was changed; check the disk and the quota \
             of this user",
        ),
        Some(
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
        ) => (
            ErrorKind::Denied,
            "this user has no right to write the file; nothing was changed; check the permissions \
             of the file and of its directory",
        ),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Denied,
            "the file or a file beside it cannot be opened; nothing was changed; \
             check the permissions of the file and of its directory",
        ),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Config,
            "the file is not a Leasehold store; nothing was changed; choose another path",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Config,
            "the file is damaged; nothing was changed; stop every process that uses it, move it \
             away and start again",
        ),
        _ if stage == Stage::Commit => (
            ErrorKind::Unknown,
            "SQLite failed while it wrote; the request may have taken effect; see the cause",
        ),
        _ => (
            ErrorKind::Unavailable,
            "SQLite refused the request; nothing was changed; see the cause",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_room_is_not_called_a_missing_right() {
        // `/proc` has no free blocks.
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
        let cause = rusqlite::Error::SqliteFailure(code, None);
        let error = SqlFailure::new(cause, Stage::Before).to_error("sqlite:/proc/x.db");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!has_no_room("sqlite:/nowhere/at-all/x.db"), "nobody knows");
    }

    #[test]
    fn a_failure_that_surely_did_nothing_is_never_called_unknown() {
        let table = [
            (Some(ErrorCode::DatabaseBusy), Stage::Commit, ErrorKind::Unavailable),
            (Some(ErrorCode::DiskFull), Stage::Commit, ErrorKind::Unavailable),
            (Some(ErrorCode::SystemIoFailure), Stage::Before, ErrorKind::Unavailable),
            (Some(ErrorCode::SystemIoFailure), Stage::Commit, ErrorKind::Unknown),
            (Some(ErrorCode::ReadOnly), Stage::Before, ErrorKind::Denied),
            (Some(ErrorCode::PermissionDenied), Stage::Before, ErrorKind::Denied),
            (Some(ErrorCode::CannotOpen), Stage::Before, ErrorKind::Denied),
            (Some(ErrorCode::NotADatabase), Stage::Before, ErrorKind::Config),
            (Some(ErrorCode::DatabaseCorrupt), Stage::Before, ErrorKind::Config),
            (None, Stage::Before, ErrorKind::Unavailable),
            (None, Stage::Commit, ErrorKind::Unknown),
            (Some(ErrorCode::OutOfMemory), Stage::Commit, ErrorKind::Unknown),
        ];
        for (code, stage, kind) in table {
            let (explained, message) = explain(code, stage);
            assert_eq!(explained, kind, "{code:?} at {stage:?}");
            let says_the_state =
                message.contains("nothing was changed") != (kind == ErrorKind::Unknown);
            assert!(says_the_state, "{message}");
        }
    }
}
