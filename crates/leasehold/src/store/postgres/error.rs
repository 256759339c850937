//! Turns a refusal of the server, or a missing answer, into advice for the caller.
//!
//! A message is one transaction. So an error of the server means that its steps changed nothing. If
//! the connection ended too, the message may have been committed. The same holds if the error comes
//! from a pooler that lost the server. Unlike the errors of servers, such an error does not say how
//! severe it is.

use std::error::Error as _;

use tokio_postgres::error::{DbError, Severity};

use super::guarded_stream::NOT_PRIVATE;
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{self, Said, shown};
use crate::store::sql::errors::{DISK_FULL, NO_DATABASE, Stage, broken};

/// The error for a failure that the client of the database reports.
pub(super) fn failure(error: &tokio_postgres::Error, stage: Stage) -> Error {
    if let Some(said) = error.as_db_error() {
        return refusal(said, stage);
    }
    let cause = cause_of(error);
    // The client of the database finds out by itself that a password is missing.
    if stage == Stage::Connecting && cause == "password missing" {
        let message = "the server wants a password, and the URL has none; no request was sent; \
                       write `postgres://USER:PASSWORD@…`";
        return Error::new(ErrorKind::Denied, message).with_source(Said::new(cause));
    }
    if cause == NOT_PRIVATE {
        return Error::new(ErrorKind::Denied, NOT_PRIVATE);
    }
    if stage == Stage::Connecting
        && let Some(refused) = refusal_of_tls(error)
    {
        return refused;
    }
    broken(cause, stage, "PostgreSQL")
}

/// The error if TLS failed. With TLS 1.3, a server judges the certificate of a client after the
/// handshake, so the first answer of the login says it.
fn refusal_of_tls(error: &tokio_postgres::Error) -> Option<Error> {
    let mut cause = error.source();
    while let Some(next) = cause {
        if let Some(refused) = next.downcast_ref().and_then(net::failure) {
            return Some(refused);
        }
        cause = next.source();
    }
    None
}

/// The innermost cause, because the outer ones say nothing.
fn cause_of(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    shown(&cause.to_string())
}

/// Whether the server refused a request, and so rolled it back, and the connection goes on.
pub(super) fn is_refusal(error: &tokio_postgres::Error) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|said| is_rolled_back(said.parsed_severity(), said.code().code()))
}

/// Whether the tables or functions that a request names are not in the database. A newer build may
/// have migrated. The checks of the next connection say so.
pub(super) fn is_missing(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| is_code_of_missing(said.code().code()))
}

/// Whether the server became read-only. It does not end its connections, and its name may lead to
/// another server now.
pub(super) fn is_read_only(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|said| said.code().code() == "25006")
}

fn is_code_of_missing(code: &str) -> bool {
    matches!(code, "3F000" | "42P01" | "42703" | "42883")
}

/// Whether an error proves that the transaction was rolled back.
fn is_rolled_back(severity: Option<Severity>, code: &str) -> bool {
    let is_about_connection = code.starts_with("08");
    severity == Some(Severity::Error) && !is_about_connection
}

fn refusal(said: &DbError, stage: Stage) -> Error {
    let code = said.code().code();
    let (kind, message) = match stage {
        Stage::Asking if !is_rolled_back(said.parsed_severity(), code) => (
            ErrorKind::Unknown,
            "the server, or a pooler in front of it, ended the connection; the request may have \
             taken effect; inspect the lock, or wait for one ttl",
        ),
        _ => explain(code),
    };
    let text = shown(&format!("{} ({code})", said.message()));
    Error::new(kind, message).with_source(Said { text, is_row_locked: code == "55P03" })
}

/// Says what an error code of SQL means, in what state the locks are, and what to do.
fn explain(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "28P01" | "28000" => (
            ErrorKind::Denied,
            "the server refuses this user or password; no request was sent; correct them in the \
             URL, or let `pg_hba.conf` of the server admit this user from here",
        ),
        "3D000" => NO_DATABASE,
        "42501" => (
            ErrorKind::Denied,
            "this user lacks a right; nothing was changed; let the owner of the schema `GRANT \
             USAGE ON SCHEMA`, `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA` and \
             `GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA` to it",
        ),
        code if is_code_of_missing(code) => (
            ErrorKind::Config,
            "the tables of Leasehold are not in this database and schema, or are of an older \
             version; nothing was changed; run `leasehold migrate --url URL` once, as a user who \
             may create them",
        ),
        "25006" => (
            ErrorKind::Unavailable,
            "the server is read-only; nothing was changed; name the primary in the URL, and \
             check the setting `default_transaction_read_only`",
        ),
        "55P03" => (
            ErrorKind::Unavailable,
            "another transaction has locked the row of this lock, its table or the queue of \
             messages; nothing was changed; look for an open transaction in `pg_stat_activity`",
        ),
        "57014" => (
            ErrorKind::Unavailable,
            "the server cancelled the request, by hand or after its `statement_timeout`; nothing \
             was changed; try again",
        ),
        "53300" => (
            ErrorKind::Unavailable,
            "the server has no connection left; nothing was changed; raise `max_connections` or \
             the limit of the user or the database, or close others",
        ),
        "57P03" => (
            ErrorKind::Unavailable,
            "the server is starting or stopping; nothing was changed; try again",
        ),
        "53100" => DISK_FULL,
        "40001" | "40P01" => (
            ErrorKind::Unavailable,
            "the server gave up the request in favour of another transaction; nothing was changed; \
             try again",
        ),
        _ => (
            ErrorKind::Unavailable,
            "the server refused the request; nothing was changed; see the cause",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql::errors::MIGRATE;

    #[test]
    fn each_refusal_says_the_state_and_what_to_do() {
        for (code, kind) in [
            ("28P01", ErrorKind::Denied),
            ("3D000", ErrorKind::Config),
            ("42501", ErrorKind::Denied),
            ("42P01", ErrorKind::Config),
            ("25006", ErrorKind::Unavailable),
            ("55P03", ErrorKind::Unavailable),
            ("57014", ErrorKind::Unavailable),
            ("53300", ErrorKind::Unavailable),
            ("57P03", ErrorKind::Unavailable),
            ("53100", ErrorKind::Unavailable),
            ("40001", ErrorKind::Unavailable),
            ("XX000", ErrorKind::Unavailable),
        ] {
            let (explained, message) = explain(code);
            assert_eq!(explained, kind, "{code}");
            let says = message.contains("nothing was changed") || message.contains("was sent");
            assert!(says, "{message}");
        }
        for code in ["3F000", "42P01", "42703", "42883"] {
            let (kind, message) = explain(code);
            assert_eq!(kind, ErrorKind::Config);
            assert!(message.contains(MIGRATE), "{message}");
        }
    }

    #[test]
    fn only_an_error_that_is_not_about_the_connection_proves_that_nothing_was_changed() {
        for (severity, code, expected) in [
            (Some(Severity::Error), "55P03", true),
            (Some(Severity::Error), "XX000", true),
            (Some(Severity::Fatal), "57P01", false),
            (Some(Severity::Panic), "XX000", false),
            // The errors of PgBouncer when it lost the server.
            (None, "08P01", false),
            (None, "58000", false),
            (Some(Severity::Error), "08006", false),
        ] {
            assert_eq!(is_rolled_back(severity, code), expected, "{severity:?} {code}");
        }
    }
}
