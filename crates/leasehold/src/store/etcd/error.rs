//! Explains the errors of a cluster: what state the lock is in, and what to do.

use std::time::Duration;

use super::channel::Failure;
use crate::core::error::{Error, ErrorKind};
use crate::store::net::Effect;

/// Why a call of a step has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The call writes a key with a lease that has ended. Nothing was changed.
    NoLease,
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The codes of gRPC that have a meaning here.
pub(super) mod code {
    pub(super) const CANCELLED: u32 = 1;
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(in crate::store::etcd) const UNAVAILABLE: u32 = 14;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

impl Failure {
    /// Whether another connection may do better.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Refused { code, text } => {
                self.is_undone() || !(is_definite(*code, text) || is_full(*code, text))
            }
            _ => true,
        }
    }

    /// Whether the server certainly did nothing, and another connection may do better.
    pub(super) fn is_undone(&self) -> bool {
        matches!(self, Self::Unsent(_)) || self.wants_login_again() || self.is_cut_off()
    }

    /// Whether the login has run out, or the server was told to use another one, or it wants logins
    /// only since this connection was made.
    pub(super) fn wants_login_again(&self) -> bool {
        let texts = ["revision of auth store is old", "user name is empty"];
        matches!(self, Self::Refused { code, text }
            if *code == code::UNAUTHENTICATED || texts.iter().any(|it| text.contains(it)))
    }

    /// Whether the member knows no leader. The others may have one.
    fn is_cut_off(&self) -> bool {
        matches!(self, Self::Refused { text, .. } if has_no_leader(text))
    }

    /// Whether the cluster asks for no login.
    pub(super) fn needs_no_login(&self) -> bool {
        matches!(self, Self::Refused { code: code::FAILED_PRECONDITION, text }
            if text.contains("authentication is not enabled"))
    }

    pub(super) fn is_lease_gone(&self) -> bool {
        matches!(self, Self::Refused { code: code::NOT_FOUND, text } if text.contains("lease"))
    }
}

/// Whether the server certainly did nothing.
fn is_definite(code: u32, text: &str) -> bool {
    match code {
        code::INVALID_ARGUMENT
        | code::NOT_FOUND
        | code::PERMISSION_DENIED
        | code::FAILED_PRECONDITION
        | code::UNIMPLEMENTED
        | code::UNAUTHENTICATED => true,
        code::RESOURCE_EXHAUSTED => !is_full(code, text),
        _ => has_no_leader(text),
    }
}

/// Whether the database of the cluster is full. The server may answer that after it has made the
/// change, see [etcd issue 16659](https://github.com/etcd-io/etcd/issues/16659).
fn is_full(code: u32, text: &str) -> bool {
    code == code::RESOURCE_EXHAUSTED && text.contains("space")
}

fn has_no_leader(text: &str) -> bool {
    text.contains("no leader")
}

/// The error for a failed call.
pub(super) fn explain(failure: &Failure, effect: Effect) -> Error {
    let (state, unsure) = (effect.state(), effect.unanswered());
    let (kind, message) = match failure {
        Failure::Unsent(cause) => (
            ErrorKind::Unavailable,
            format!("the connection ended ({cause}); no request was sent; try again"),
        ),
        Failure::Broken(cause) => {
            (unsure, format!("the connection ended ({cause}) before an answer; {state}"))
        }
        Failure::Malformed => (
            if effect == Effect::Connects { ErrorKind::Config } else { unsure },
            format!("the server does not answer as etcd does; {state}; check host and port"),
        ),
        Failure::Silent(limit) => return silent(*limit, unsure, state),
        Failure::Refused { code, text } => return refused(*code, text, unsure, state),
    };
    Error::new(kind, message)
}

fn silent(limit: Duration, kind: ErrorKind, state: &str) -> Error {
    let message = format!(
        "the member did not answer within {limit:?}; {state}; check whether it is stopped, \
         overloaded, or cut off from the other members"
    );
    Error::new(kind, message)
}

fn refused(code: u32, text: &str, unsure: ErrorKind, state: &str) -> Error {
    let said = text.escape_debug();
    let has = |part: &str| text.contains(part);
    let (kind, rest) = match code {
        code::INVALID_ARGUMENT if has("authentication failed") => {
            (ErrorKind::Denied, "nothing was changed; correct the user and the password in the URL")
        }
        code::INVALID_ARGUMENT if has("user name is empty") => (
            ErrorKind::Denied,
            "nothing was changed; the cluster wants a login; write `etcd://USER:PASSWORD@HOST`",
        ),
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => (
            ErrorKind::Denied,
            "nothing was changed; grant a role of this user the right to read and write all keys \
             with the prefix of the URL",
        ),
        _ if is_full(code, text) => {
            let message = format!(
                "the cluster says `{said}`; {state}; its database is full: compact and defragment \
                 it, and disarm the alarm"
            );
            return Error::new(unsure, message);
        }
        code::UNIMPLEMENTED => {
            (ErrorKind::Config, "nothing was changed; locks need etcd 3.4 or newer")
        }
        _ if has_no_leader(text) => (
            ErrorKind::Unavailable,
            "nothing was changed; the members do not agree on a leader; try again or start the \
             missing ones",
        ),
        _ if is_definite(code, text) => {
            (ErrorKind::Unavailable, "nothing was changed; read the log of the server")
        }
        _ => {
            let help = match code {
                code::CANCELLED => {
                    "perhaps the member is stopping, so try again; if that does not help, the URL \
                     must name the members, and no gRPC proxy"
                }
                _ => "try again",
            };
            let message = format!("the cluster says `{said}`; {state}; {help}");
            return Error::new(unsure, message);
        }
    };
    Error::new(kind, format!("the cluster says `{said}`; {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_known_of_its_effect() {
        let refused = |code, text: &str| Failure::Refused { code, text: text.to_owned() };
        let cases = [
            (refused(7, "etcdserver: permission denied"), ErrorKind::Denied, "grant a role"),
            (
                refused(3, "etcdserver: authentication failed, invalid user ID or password"),
                ErrorKind::Denied,
                "the user and the password",
            ),
            (refused(3, "etcdserver: user name is empty"), ErrorKind::Denied, "wants a login"),
            (
                refused(8, "etcdserver: mvcc: database space exceeded"),
                ErrorKind::Unknown,
                "may have taken effect; its database is full: compact",
            ),
            (refused(8, "etcdserver: too many requests"), ErrorKind::Unavailable, "nothing was"),
            (refused(14, "etcdserver: no leader"), ErrorKind::Unavailable, "nothing was changed"),
            (refused(14, "etcdserver: request timed out"), ErrorKind::Unknown, "may have taken"),
            (refused(14, "etcdserver: leader changed"), ErrorKind::Unknown, "may have taken"),
            (refused(1, "context canceled"), ErrorKind::Unknown, "no gRPC proxy"),
            (refused(4, "context deadline exceeded"), ErrorKind::Unknown, "may have taken"),
            (refused(12, "unknown service"), ErrorKind::Config, "3.4 or newer"),
            (Failure::Malformed, ErrorKind::Unknown, "may have taken"),
            (Failure::Silent(Duration::from_secs(1)), ErrorKind::Unknown, "may have taken"),
        ];
        for (failure, kind, part) in cases {
            let error = explain(&failure, Effect::Changes);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            // A call that changes nothing leaves no doubt.
            assert_ne!(explain(&failure, Effect::Nothing).kind(), ErrorKind::Unknown);
        }
    }

    #[test]
    fn a_request_goes_again_only_if_it_surely_did_nothing() {
        let refused = |code, text: &str| Failure::Refused { code, text: text.to_owned() };
        for (failure, is_undone, ends) in [
            (refused(16, "etcdserver: invalid auth token"), true, true),
            (refused(14, "etcdserver: request timed out"), false, true),
            (refused(14, "etcdserver: no leader"), true, true),
            (refused(5, "etcdserver: requested lease not found"), false, false),
            (refused(8, "etcdserver: mvcc: database space exceeded"), false, false),
            (Failure::Silent(Duration::from_secs(1)), false, true),
            (Failure::Malformed, false, true),
            (Failure::Unsent(h2::Reason::CANCEL.into()), true, true),
            (Failure::Broken(h2::Reason::CANCEL.into()), false, true),
        ] {
            assert_eq!((failure.is_undone(), failure.ends_connection()), (is_undone, ends));
        }
    }
}
