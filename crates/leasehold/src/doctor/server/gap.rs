//! A check without an answer: says why there is none, and which right would allow it.

use crate::doctor::check::{Check, Subject};
use crate::store::redis::examine::Gap;

/// Why a slow failover is worth a check.
pub(super) const SLOW_FAILOVER: &str =
    "If a failover takes longer than the ttl, the holders lose their locks.";

/// The check if the answer to a command lacks what was asked for.
pub(super) fn untold(subject: Subject, command: &str) -> Check {
    subject.unknown(format!("`{command}` does not say"), "ask the operator of this server")
}

/// The check for a question that this user asked by `command`.
pub(super) fn unanswered(subject: Subject, gap: &Gap, user: &str, command: &str) -> Check {
    let right = match command {
        "CLUSTER INFO" => "cluster|info".to_owned(),
        _ => command.split(' ').next().unwrap_or_default().to_ascii_lowercase(),
    };
    match gap {
        Gap::Denied => subject.unknown(
            format!("user `{user}` has no right to `{command}`"),
            format!("ACL SETUSER {user} +{right}"),
        ),
        Gap::DeniedKey => subject.unknown(
            format!("user `{user}` has no right to the keys of this check"),
            format!(
                "use --namespace with the prefix that the user may write, or: ACL SETUSER {user} \
                 ~leasehold:probe:*"
            ),
        ),
        Gap::DeniedChannel => subject.unknown(
            format!("user `{user}` has no right to the channel of this check"),
            format!("ACL SETUSER {user} &:lh:inbox:*"),
        ),
        Gap::Absent => subject.unknown(
            format!("the server does not know `{command}`"),
            "use Valkey, or Redis 6.2 or later, without renamed commands",
        ),
        Gap::Refused { text, .. } => subject.unknown(
            format!("the server refused `{command}`: {text}"),
            "read the other checks, and the log of the server",
        ),
        Gap::Silent => subject.unknown(
            format!("no answer to `{command}` came in time"),
            "run the command again, and read the log of the server",
        ),
        Gap::Closed => subject.unknown(
            format!("the connection ends at `{command}`"),
            "connect to the server itself: a proxy in between may not know the command",
        ),
        Gap::Strange => subject.unknown(
            format!("the answer to `{command}` is not that of a Redis server"),
            "use Valkey, or Redis 6.2 or later",
        ),
        Gap::NotAsked => subject
            .unknown("an earlier question failed", "see the other checks, and run this again"),
    }
}
