//! Explains the errors of an ensemble: what state the lock is in, and what to do.

use std::time::Duration;

use super::jute::Malformed;
use crate::core::error::{Error, ErrorKind};
use crate::store::errors::after_a_change;
use crate::store::net::Effect;

/// Why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The request was not sent, for this reason.
    Unsent(Error),
    /// The connection ended after the request was sent.
    Broken(String),
    /// The server refused the request with this code.
    Refused(i32),
    /// The answer cannot be read.
    Malformed,
    /// The answer is longer than any that is read.
    TooLong,
    /// There was no answer in time.
    Silent(Duration),
    /// The session has ended, and its nodes with it.
    SessionOver,
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// Why a request of a step has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// The node does not exist. Nothing was changed.
    NoNode,
    /// The node exists already. Nothing was changed.
    NodeExists,
    /// The node was written meanwhile. Nothing was changed.
    OtherVersion,
    /// The server does not know this kind of request. Nothing was changed.
    Unknown,
    /// The session has ended, and its nodes with it.
    SessionOver,
    Error(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The codes of ZooKeeper that have a meaning here.
mod code {
    pub(super) const CONNECTION_LOSS: i32 = -4;
    pub(super) const UNIMPLEMENTED: i32 = -6;
    pub(super) const TIMEOUT: i32 = -7;
    pub(super) const NO_NODE: i32 = -101;
    pub(super) const NO_AUTH: i32 = -102;
    pub(super) const BAD_VERSION: i32 = -103;
    pub(super) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(super) const NODE_EXISTS: i32 = -110;
    pub(super) const SESSION_EXPIRED: i32 = -112;
    pub(super) const INVALID_ACL: i32 = -114;
    pub(super) const AUTH_FAILED: i32 = -115;
    pub(super) const SESSION_MOVED: i32 = -118;
    pub(super) const NOT_READ_ONLY: i32 = -119;
    pub(super) const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;
    pub(super) const WANTS_LOGIN: i32 = -124;
    pub(super) const QUOTA_EXCEEDED: i32 = -125;
    pub(super) const THROTTLED: i32 = -127;
}

impl Failure {
    /// The failure of the requests that had no answer when this one ended their connection.
    pub(super) fn of_others(self) -> Self {
        Self::Broken(match self {
            Self::Broken(cause) => cause,
            Self::Silent(limit) => format!("the server was silent for {limit:?}"),
            _ => "the server sent something that is not the protocol".to_owned(),
        })
    }

    /// The fault of a step. `label` names the ensemble.
    pub(super) fn fault(self, effect: Effect, label: &str) -> Fault {
        match self {
            Self::Refused(code::NO_NODE) => Fault::NoNode,
            Self::Refused(code::NODE_EXISTS) => Fault::NodeExists,
            Self::Refused(code::BAD_VERSION) => Fault::OtherVersion,
            Self::Refused(code::UNIMPLEMENTED) => Fault::Unknown,
            Self::Refused(code::SESSION_EXPIRED) | Self::SessionOver => Fault::SessionOver,
            failure => Fault::Error(explain(failure, effect).at(label)),
        }
    }
}

impl Fault {
    /// The fault of a step that has already changed the lock. `Unavailable` would say that it has
    /// not.
    pub(super) fn after_a_change(self) -> Self {
        match self {
            Self::Error(error) => Self::Error(after_a_change(error)),
            fault => fault,
        }
    }
}

/// The error of a step that does not handle the fault itself.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let (kind, message) = match fault {
            Fault::Error(error) => return error,
            Fault::NoNode | Fault::NodeExists | Fault::OtherVersion => (
                ErrorKind::Unavailable,
                "other clients change the nodes of this lock again and again; nothing was \
                 changed; try again",
            ),
            Fault::Unknown => (
                ErrorKind::Config,
                "the server does not know a request that locks need; nothing was changed; use \
                 ZooKeeper 3.5 or newer",
            ),
            Fault::SessionOver => (
                ErrorKind::Unavailable,
                "the session of this client has ended, and all its locks with it; the request was \
                 not carried out; try again",
            ),
        };
        Self::new(kind, message)
    }
}

/// The error for a failed request.
pub(super) fn explain(failure: Failure, effect: Effect) -> Error {
    let (state, unsure) = (effect.state(), effect.unanswered());
    let (kind, message) = match failure {
        Failure::Unsent(error) => return error,
        Failure::SessionOver => return Fault::SessionOver.into(),
        Failure::Broken(cause) if effect == Effect::Connects => (
            ErrorKind::Unavailable,
            format!(
                "the server closed the connection ({cause}); {state}; check whether a majority of \
                 the servers runs, and whether this machine has too many connections \
                 (`maxClientCnxns`)"
            ),
        ),
        Failure::Broken(cause) => {
            (unsure, format!("the connection ended ({cause}) before an answer; {state}; try again"))
        }
        Failure::Malformed => (
            if effect == Effect::Connects { ErrorKind::Config } else { unsure },
            format!("the server does not answer as ZooKeeper does; {state}; check host and port"),
        ),
        Failure::TooLong => (
            unsure,
            format!(
                "the answer is longer than 16 MiB, and was dropped; {state}; use a path in the URL \
                 that has fewer names below"
            ),
        ),
        Failure::Silent(limit) => (
            unsure,
            format!(
                "the server did not answer within {limit:?}; {state}; check whether it is stopped, \
                 overloaded, or cut off from the other servers"
            ),
        ),
        Failure::Refused(code) => return refused(code, unsure, state),
    };
    Error::new(kind, message)
}

fn refused(code: i32, unsure: ErrorKind, state: &str) -> Error {
    let (kind, what, advice) = match code {
        code::NO_AUTH => (
            ErrorKind::Denied,
            "this client has no right to the nodes of the lock",
            "nothing was changed; use the login that made them, or give it all rights to the path \
             of the URL and to all nodes below",
        ),
        code::INVALID_ACL => (
            ErrorKind::Denied,
            "the server does not accept the login of this client as the owner of a node",
            "nothing was changed; enable `DigestAuthenticationProvider` on the server",
        ),
        code::EPHEMERAL_ON_LOCAL_SESSION => (
            ErrorKind::Config,
            "a lock needs ephemeral nodes, and the server makes none in a local session",
            "nothing was changed; set `localSessionsUpgradingEnabled` on the server",
        ),
        code::AUTH_FAILED => (
            ErrorKind::Denied,
            "the server refuses the login",
            "nothing was changed; correct the user and the password in the URL",
        ),
        code::WANTS_LOGIN => (
            ErrorKind::Denied,
            "the server wants a login of another kind, or any login",
            "nothing was changed; write the user and the password in the URL, or allow digest \
             logins on the server (`enforce.auth.schemes`)",
        ),
        code::NO_CHILDREN_FOR_EPHEMERALS => (
            ErrorKind::Config,
            "a node of another program with this name ends with its session, so nothing can be \
             below it",
            "nothing was changed; choose another name",
        ),
        code::NOT_READ_ONLY => (
            ErrorKind::Unavailable,
            "the server has lost the majority and only reads",
            "nothing was changed; start the other servers",
        ),
        code::QUOTA_EXCEEDED => (
            ErrorKind::Unavailable,
            "the quota of the path is used up",
            "nothing was changed; raise the quota",
        ),
        code::THROTTLED => (
            ErrorKind::Unavailable,
            "the server has too many requests",
            "nothing was changed; try again",
        ),
        code::SESSION_MOVED => (
            ErrorKind::Unavailable,
            "the client has moved to another server meanwhile",
            "nothing was changed; try again",
        ),
        code::CONNECTION_LOSS | code::TIMEOUT => {
            (unsure, "the server lost the majority of the others", state)
        }
        _ => (unsure, "the server refuses the request", state),
    };
    let message = format!("{what}, code {code}; {advice}");
    Error::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_is_known_of_its_effect() {
        let cases = [
            (Failure::Refused(-102), ErrorKind::Denied, "no right"),
            (Failure::Refused(-115), ErrorKind::Denied, "the user and the password"),
            (Failure::Refused(-114), ErrorKind::Denied, "nothing was changed"),
            (Failure::Refused(-120), ErrorKind::Config, "nothing was changed"),
            (Failure::Refused(-124), ErrorKind::Denied, "nothing was changed"),
            (Failure::Refused(-108), ErrorKind::Config, "nothing was changed"),
            (Failure::Refused(-119), ErrorKind::Unavailable, "nothing was changed"),
            (Failure::Refused(-118), ErrorKind::Unavailable, "nothing was changed"),
            (Failure::Refused(-1), ErrorKind::Unknown, "code -1; the request may have"),
            (Failure::Refused(-4), ErrorKind::Unknown, "lost the majority"),
            (Failure::Refused(-7), ErrorKind::Unknown, "may have taken effect"),
            (Failure::Broken("reset".to_owned()), ErrorKind::Unknown, "may have taken effect"),
            (Failure::Silent(Duration::from_secs(1)), ErrorKind::Unknown, "may have taken effect"),
            (Failure::Malformed, ErrorKind::Unknown, "may have taken effect"),
            (Failure::TooLong, ErrorKind::Unknown, "16 MiB"),
            (Failure::SessionOver, ErrorKind::Unavailable, "has ended"),
        ];
        for (failure, kind, part) in cases {
            let error = explain(failure.clone(), Effect::Changes);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            // A request that changes nothing leaves no doubt.
            assert_ne!(explain(failure, Effect::Nothing).kind(), ErrorKind::Unknown);
        }
        let strange = explain(Failure::Malformed, Effect::Connects);
        assert_eq!(strange.kind(), ErrorKind::Config);
    }

    #[test]
    fn the_requests_of_a_connection_learn_why_it_ended() {
        let silent = || Failure::Silent(Duration::from_millis(2_500));
        for (failure, cause) in [
            (silent(), "the connection ended (the server was silent for 2.5s)"),
            (Failure::Malformed, "something that is not the protocol"),
            (Failure::Broken("it was closed".to_owned()), "(it was closed)"),
        ] {
            let error = explain(failure.of_others(), Effect::Changes);
            assert!(error.message().contains(cause), "{error}");
        }
    }

    #[test]
    fn some_refusals_are_answers_for_a_step() {
        let fault = |code| Failure::Refused(code).fault(Effect::Changes, "zookeeper://h/x");
        assert!(matches!(fault(-101), Fault::NoNode));
        assert!(matches!(fault(-110), Fault::NodeExists));
        assert!(matches!(fault(-103), Fault::OtherVersion));
        assert!(matches!(fault(-112), Fault::SessionOver));
        assert!(matches!(fault(-6), Fault::Unknown));
        assert!(matches!(fault(-102), Fault::Error(error) if error.to_string().contains("h/x")));
    }
}
