//! Turns a refusal of the server, or a missing answer, into advice for the caller.
//!
//! A step is one call and one transaction, and so is a list of renewals. Its procedure rolls the
//! transaction back before it passes an error on. So an error of the server that is known here
//! means that the step changed nothing. If the call was cut off, by a kill or a limit of time, it
//! may have been committed. Any other code may come from a proxy that lost the server, so the step
//! may have been committed too.

use super::conn::Failure;
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{Said, shown};
use crate::store::sql::errors::{DISK_FULL, NO_DATABASE, Stage, broken};

/// The error for a request without an answer.
pub(super) fn failure(failure: &Failure, stage: Stage) -> Error {
    match failure {
        Failure::Said(said) => {
            let (kind, message) = match stage {
                Stage::Asking | Stage::Migrating if is_cut_off(said.code) => (
                    ErrorKind::Unknown,
                    "the server cut the request off; the request may have taken effect; inspect \
                     the lock, or wait for one ttl",
                ),
                Stage::Asking if is_procedure_missing(said.code) => (
                    ErrorKind::Unavailable,
                    "a procedure of Leasehold is missing in this database, as in the middle of a \
                     migration; nothing was changed; if it stays so, run `leasehold migrate --url \
                     URL` once, as a user who may create it, or use a newer build if the database \
                     is newer",
                ),
                Stage::Asking => explain(said.code).unwrap_or((
                    ErrorKind::Unknown,
                    "the server, or a proxy in front of it, failed; the request may have taken \
                     effect; see the cause",
                )),
                Stage::Migrating => explain(said.code).unwrap_or((
                    ErrorKind::Unavailable,
                    "the server refused a statement; see the cause",
                )),
                Stage::Connecting => explain(said.code).unwrap_or((
                    ErrorKind::Unavailable,
                    "the server refused the connection; no request was sent; see the cause",
                )),
            };
            let text = match said.code {
                code if quotes_request(code) => format!("error {code}, with a part of the request"),
                code => format!("{} ({code})", shown(&said.text)),
            };
            let is_row_locked = is_row_locked(said.code);
            Error::new(kind, message).with_source(Said { text, is_row_locked })
        }
        Failure::Unsent => {
            let message = "the connection ended before the request was sent; nothing was changed; \
                           try again";
            Error::new(ErrorKind::Unavailable, message)
        }
        Failure::Tls(refused) if stage == Stage::Connecting => refused.clone(),
        Failure::Tls(refused) => broken(refused.to_string(), stage, "MySQL or MariaDB"),
        Failure::Broken(cause) => broken(shown(cause), stage, "MySQL or MariaDB"),
        Failure::Login(message) => Error::new(ErrorKind::Denied, *message),
    }
}

impl Failure {
    /// Whether the error proves that the later calls of the message were not carried out. A proxy
    /// that lost the server may have lost the answers of all of them.
    pub(super) fn spares_others(&self) -> bool {
        matches!(self, Self::Said(said) if !is_cut_off(said.code) && explain(said.code).is_some())
    }

    /// Whether the connection is of no use any more.
    pub(super) fn ends_connection(&self) -> bool {
        let Self::Said(said) = self else { return true };
        // A newer build may have migrated. The checks of the next connection say so. A missing
        // procedure (1305) does not end the connection, because MySQL lacks each one for a moment
        // while any migration replaces it.
        if said.code == OTHER_ARGUMENTS {
            return true;
        }
        // If a step was cut off, its transaction may still be open and keep rows locked. A server
        // that became read-only does not end its connections, and its name may lead to another
        // server now.
        let has_ended = is_cut_off(said.code) || said.code == IDLE_FOR_LONG;
        has_ended || is_read_only(said.code) || is_apart(said.code)
    }
}

/// Whether another transaction has locked a row.
const fn is_row_locked(code: u16) -> bool {
    code == 1205
}

const fn is_read_only(code: u16) -> bool {
    matches!(code, 1290 | 1792 | 1836)
}

/// Whether a node of a cluster serves nobody, because it does not reach most of the others.
const fn is_apart(code: u16) -> bool {
    code == 1047
}

/// Whether a procedure is not there, or takes other arguments. This also happens between two
/// statements of a migration.
const fn is_procedure_missing(code: u16) -> bool {
    matches!(code, 1305 | OTHER_ARGUMENTS)
}

/// The server ended the connection, since no request came for its `wait_timeout`.
const IDLE_FOR_LONG: u16 = 4031;

/// A procedure takes another number of arguments.
const OTHER_ARGUMENTS: u16 = 1318;

/// Whether the text of an error has a part of the request in it, and so maybe an owner token.
const fn quotes_request(code: u16) -> bool {
    matches!(code, 1062 | 1064 | 1366)
}

/// Whether the server ended a request from outside, maybe after its commit: a stop, a kill, or a
/// limit of time.
const fn is_cut_off(code: u16) -> bool {
    matches!(code, 1053 | 1317 | 1927 | 1969 | 3024)
}

/// Says what an error code of the server means, in what state the locks are, and what to do. Each
/// code here proves that the step changed nothing, unless it says that the request was [cut
/// off](is_cut_off). `None` for any other code.
fn explain(code: u16) -> Option<(ErrorKind, &'static str)> {
    Some(match code {
        1045 | 1698 => (
            ErrorKind::Denied,
            "the server refuses this user or password; no request was sent; correct them in the \
             URL, or let the server admit this user from here",
        ),
        1129 | 1130 => (
            ErrorKind::Denied,
            "the server admits nobody from this host; no request was sent; allow the user to log \
             in from this host, or run `mysqladmin flush-hosts` on the server",
        ),
        3159 => (
            ErrorKind::Config,
            "the server wants encrypted connections; no request was sent; write `sslmode=require` \
             or `sslmode=verify-full`",
        ),
        1044 | 1142 | 1143 | 1227 | 1370 => (
            ErrorKind::Denied,
            "this user lacks a right; nothing was changed; let an administrator `GRANT SELECT, \
             INSERT, UPDATE, DELETE, EXECUTE ON DATABASE.*` to it, or to migrate, `SELECT, INSERT, \
             UPDATE, CREATE, ALTER, CREATE ROUTINE, ALTER ROUTINE`",
        ),
        1049 => NO_DATABASE,
        1054 | 1146 | 1305 | OTHER_ARGUMENTS => (
            ErrorKind::Config,
            "the tables of Leasehold are not in this database, or are of an older version; nothing \
             was changed; run `leasehold migrate --url URL` once, as a user who may create them",
        ),
        _ if is_read_only(code) => (
            ErrorKind::Unavailable,
            "the server is read-only; nothing was changed; name the primary in the URL, and \
             check the setting `read_only`",
        ),
        _ if is_apart(code) => (
            ErrorKind::Unavailable,
            "this node of a cluster does not reach most of the others; nothing was changed; name \
             another node in the URL, or wait until it is back",
        ),
        1665 => (
            ErrorKind::Config,
            "the server logs statements, which needs repeatable reads; nothing was changed; set \
             `binlog_format` to `ROW` on the server",
        ),
        _ if is_row_locked(code) => (
            ErrorKind::Unavailable,
            "another transaction has locked a row of this lock; nothing was changed; look for an \
             open transaction in `information_schema.innodb_trx`",
        ),
        1213 | 1020 => (
            ErrorKind::Unavailable,
            "the server undid the request in favour of another one; nothing was changed; try again",
        ),
        1040 | 1203 | 1226 => (
            ErrorKind::Unavailable,
            "the server has no connection left for this user; nothing was changed; raise \
             `max_connections` or the limit of the user, or close others",
        ),
        IDLE_FOR_LONG => (
            ErrorKind::Unavailable,
            "the server ended the connection, which had been idle for long; nothing was changed; \
             try again",
        ),
        1021 | 1114 | 3675 => DISK_FULL,
        1053 | 1927 => {
            (ErrorKind::Unavailable, "the server is stopping; nothing was changed; try again")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::mysql::packet;
    use crate::store::sql::errors::MIGRATE;

    #[test]
    fn each_refusal_says_the_state_and_what_to_do() {
        for (code, kind) in [
            (1045, ErrorKind::Denied),
            (1130, ErrorKind::Denied),
            (3159, ErrorKind::Config),
            (1370, ErrorKind::Denied),
            (1665, ErrorKind::Config),
            (1049, ErrorKind::Config),
            (1146, ErrorKind::Config),
            (1305, ErrorKind::Config),
            (1047, ErrorKind::Unavailable),
            (1290, ErrorKind::Unavailable),
            (1836, ErrorKind::Unavailable),
            (1205, ErrorKind::Unavailable),
            (1213, ErrorKind::Unavailable),
            (1040, ErrorKind::Unavailable),
            (1114, ErrorKind::Unavailable),
            (4031, ErrorKind::Unavailable),
        ] {
            let (explained, message) = explain(code).expect("it is known");
            assert_eq!(explained, kind, "{code}");
            let says = message.contains("nothing was changed") || message.contains("was sent");
            assert!(says, "{message}");
        }
        assert!(explain(1305).is_some_and(|(_, message)| message.contains(MIGRATE)));
    }

    #[test]
    fn a_request_that_was_cut_off_may_have_taken_effect() {
        let said = |code| Failure::Said(packet::Said { code, text: "text".to_owned() });
        for (code, asking, connecting) in [
            (1317, ErrorKind::Unknown, ErrorKind::Unavailable),
            (1053, ErrorKind::Unknown, ErrorKind::Unavailable),
            (1927, ErrorKind::Unknown, ErrorKind::Unavailable),
            (3024, ErrorKind::Unknown, ErrorKind::Unavailable),
            (1205, ErrorKind::Unavailable, ErrorKind::Unavailable),
            // A migration may be under way. A request that comes then is repeated.
            (1305, ErrorKind::Unavailable, ErrorKind::Config),
            (1318, ErrorKind::Unavailable, ErrorKind::Config),
            // The errors of ProxySQL when it lost the server, or waited for too long.
            (2013, ErrorKind::Unknown, ErrorKind::Unavailable),
            (1907, ErrorKind::Unknown, ErrorKind::Unavailable),
            (1180, ErrorKind::Unknown, ErrorKind::Unavailable),
        ] {
            assert_eq!(failure(&said(code), Stage::Asking).kind(), asking, "{code}");
            assert_eq!(failure(&said(code), Stage::Connecting).kind(), connecting, "{code}");
        }
        // 1558: the system tables are damaged. The statement did nothing.
        for (code, migrating) in [(1558, ErrorKind::Unavailable), (1317, ErrorKind::Unknown)] {
            assert_eq!(failure(&said(code), Stage::Migrating).kind(), migrating, "{code}");
        }
        let broken = Failure::Broken("it ended".to_owned());
        assert_eq!(failure(&broken, Stage::Asking).kind(), ErrorKind::Unknown);
        assert_eq!(failure(&broken, Stage::Connecting).kind(), ErrorKind::Unavailable);
        let unsent = failure(&Failure::Unsent, Stage::Asking);
        assert_eq!(unsent.kind(), ErrorKind::Unavailable, "{unsent}");
    }

    #[test]
    fn the_calls_behind_a_refused_one_are_sent_again_only_if_none_of_them_was_carried_out() {
        let said = |code| Failure::Said(packet::Said { code, text: "text".to_owned() });
        for (code, spares) in [
            (1205, true),
            (1213, true),
            (1305, true),
            (1290, true),
            (4031, true),
            (1317, false),
            (1927, false),
            // The errors of ProxySQL when it lost the server, or waited for too long.
            (2013, false),
            (1907, false),
            (1180, false),
        ] {
            assert_eq!(said(code).spares_others(), spares, "{code}");
        }
        assert!(!Failure::Broken("it ended".to_owned()).spares_others());
    }

    #[test]
    fn a_connection_ends_after_a_step_that_was_cut_off_and_where_a_server_is_read_only() {
        let said = |code| Failure::Said(packet::Said { code, text: "text".to_owned() });
        for (code, ends) in [
            (1053, true),
            (1317, true),
            (1927, true),
            (1969, true),
            (3024, true),
            (1792, true),
            (1290, true),
            (1836, true),
            (1047, true),
            (1318, true),
            (4031, true),
            (1205, false),
            (1305, false),
        ] {
            assert_eq!(said(code).ends_connection(), ends, "{code}");
        }
    }

    /// The text of a request has the owner token.
    #[test]
    fn a_request_that_the_server_quotes_is_not_repeated() {
        for (code, is_shown) in [(1064, false), (1062, false), (1366, false), (1205, true)] {
            let text = "near 'CALL leasehold_renew(X'61',X'7365637265742e'".to_owned();
            let said = Failure::Said(packet::Said { code, text });
            let error = format!("{:?}", failure(&said, Stage::Asking));
            assert!(error.contains(&code.to_string()), "{error}");
            assert_eq!(error.contains("7365637265742e"), is_shown, "{error}");
        }
    }
}
