//! Turns a refusal of the server, or a missing answer, into advice for the caller.
//!
//! A step is one message and one transaction. So an error of the server means that the step changed
//! nothing. Only if the connection ended too, it may have been committed.

use std::fmt;

use tokio_postgres::error::{DbError, Severity};

use crate::core::error::{Error, ErrorKind};

/// How much of a server's text is repeated, in characters.
const SAID_MAX: usize = 300;

/// When an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// While connecting: no request was sent.
    Connecting,
    /// After a request was sent.
    Asking,
}

/// The error for a failure that the client of the database reports.
pub(super) fn failure(error: &tokio_postgres::Error, stage: Stage) -> Error {
    if let Some(said) = error.as_db_error() {
        return refusal(said, stage);
    }
    let cause = cause_of(error);
    let (kind, message) = match stage {
        // The client of the database finds that out by itself.
        Stage::Connecting if cause == "password missing" => (
            ErrorKind::Denied,
            "the server wants a password, and the URL has none; no request was sent; write \
             `postgres://USER:PASSWORD@…`"
                .to_owned(),
        ),
        Stage::Connecting => (
            ErrorKind::Unavailable,
            format!(
                "no connection could be made ({cause}); no request was sent; check host and port, \
                 and whether a PostgreSQL server listens there"
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
    Error::new(kind, message).with_source(Said(cause))
}

/// The innermost cause, which is the one that says something.
fn cause_of(error: &tokio_postgres::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    shown(&cause.to_string())
}

fn refusal(said: &DbError, stage: Stage) -> Error {
    let is_end = matches!(said.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
    let (kind, message) = match stage {
        Stage::Asking if is_end => (
            ErrorKind::Unknown,
            "the server ended the connection; the request may have taken effect; inspect the lock, \
             or wait for one ttl",
        ),
        _ => explain(said.code().code()),
    };
    let said = format!("{} ({})", said.message(), said.code().code());
    Error::new(kind, message).with_source(Said(shown(&said)))
}

/// What to run where the tables are missing or old.
pub(super) const MIGRATE: &str = "run `leasehold migrate --url URL` once, as a user who may create \
                                  them";

/// Says what an error code of SQL means, in what state the locks are, and what to do.
fn explain(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "28P01" | "28000" => (
            ErrorKind::Denied,
            "the server refuses this user or password; no request was sent; correct them in the \
             URL, or let `pg_hba.conf` of the server admit this user from here",
        ),
        "3D000" => (
            ErrorKind::Config,
            "there is no such database on the server; no request was sent; correct its name in the \
             URL, or create it",
        ),
        "42501" => (
            ErrorKind::Denied,
            "this user lacks a right; nothing was changed; let the owner of the schema `GRANT \
             USAGE ON SCHEMA` and `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA` \
             to it",
        ),
        "3F000" | "42P01" | "42883" => (
            ErrorKind::Config,
            "the tables of Leasehold are not in this database and schema, or are of an older \
             version; nothing was changed; run `leasehold migrate --url URL` once, as a user who \
             may create them",
        ),
        "25006" => (
            ErrorKind::Unavailable,
            "the server is read-only; nothing was changed; name the primary in the URL, and look \
             for `default_transaction_read_only`",
        ),
        "55P03" => (
            ErrorKind::Unavailable,
            "another transaction keeps the row of this lock; nothing was changed; look for an open \
             transaction in `pg_stat_activity`",
        ),
        "57014" => (
            ErrorKind::Unavailable,
            "the server cancelled the request, by hand or after its `statement_timeout`; nothing \
             was changed; try again",
        ),
        "53300" => (
            ErrorKind::Unavailable,
            "the server has no connection left; nothing was changed; raise `max_connections`, or \
             close others",
        ),
        "57P03" => (
            ErrorKind::Unavailable,
            "the server is starting or stopping; nothing was changed; try again",
        ),
        "53100" => (
            ErrorKind::Unavailable,
            "the disk of the server is full; nothing was changed and leases cannot be renewed; \
             free some space",
        ),
        "40001" | "40P01" => (
            ErrorKind::Unavailable,
            "the server gave up the request for another transaction; nothing was changed; try \
             again",
        ),
        _ => (
            ErrorKind::Unavailable,
            "the server refused the request; nothing was changed; see the cause",
        ),
    }
}

/// The text of the server, as the cause of an error.
#[derive(Debug)]
struct Said(String);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server said `{}`", self.0)
    }
}

impl std::error::Error for Said {}

/// Text from outside, escaped and shortened for messages.
fn shown(text: &str) -> String {
    let part: String = text.chars().take(SAID_MAX).collect();
    part.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// The error for an answer that is not of the form that the functions have.
pub(super) fn strange(what: &str) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!(
            "the server answered something that is no answer of Leasehold ({what}); the request \
             may have taken effect; check which functions are in the schema"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(explain("42P01").1.contains(MIGRATE));
    }

    #[test]
    fn text_of_a_server_is_escaped_and_shortened() {
        assert_eq!(shown("a \"b\" 'c' \u{1b}[31m"), "a \"b\" 'c' \\u{1b}[31m");
        assert_eq!(shown(&"x".repeat(1_000)).len(), SAID_MAX);
    }
}
