//! Checks of the steps of a lock: write, release, and wake others. They were tried on canary keys.

use super::gap::unanswered;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{FREE_DISK, RAISE_MAXMEMORY};
use crate::store::redis::examine::rights::{CLUSTER, LOCK, SHARDS};
use crate::store::redis::examine::{Facts, Gap};

const WRITES: Subject = Subject {
    id: "writes",
    why: "A lock is a write, so a server that refuses writes grants nothing.",
};

const RELEASE: Subject = Subject {
    id: "release",
    why: "A release must delete the lock of its owner, and never that of the next holder.",
};

const RIGHTS: Subject = Subject {
    id: "rights",
    why: "Without one of these commands, acquiring, renewing or releasing a lock fails.",
};

const WAKING: Subject = Subject {
    id: "wake-up",
    why: "Waiters are woken by messages. Without them they poll, so each hand-over is slower.",
};

pub(super) fn writes(facts: &Facts) -> Check {
    let gap = match &facts.write {
        Ok(()) => return WRITES.ok("a key with a short ttl was written"),
        Err(gap) => gap,
    };
    let Gap::Refused { code, text } = gap else {
        if *gap == Gap::Denied {
            let rule = format!("ACL SETUSER {} +set", facts.user());
            return WRITES.fail("the user has no right to `SET`", rule);
        }
        return unanswered(WRITES, gap, facts.user(), "SET");
    };
    let remedy = match code.as_str() {
        "OOM" => RAISE_MAXMEMORY,
        "MISCONF" => FREE_DISK,
        "READONLY" => "name the primary in the URL",
        "NOREPLICAS" => "bring back the replicas that `min-replicas-to-write` demands",
        "CLUSTERDOWN" if facts.membership.is_some() => "see the check `cluster`",
        "CLUSTERDOWN" | "MOVED" | "ASK" => "name the cluster as `redis+cluster://HOST,HOST`",
        _ => "read the log of the server",
    };
    WRITES.fail(format!("the server refused a write: {text}"), remedy)
}

pub(super) fn release(facts: &Facts) -> Check {
    match &facts.release {
        Ok(tried) if tried.by_wrong_token => RELEASE.fail(
            "a wrong token deleted a key",
            "use Redis or Valkey: the scripts of this server do not compare",
        ),
        Ok(tried) if !tried.by_right_token => RELEASE.fail(
            "the right token did not delete its key",
            "use Redis or Valkey: the scripts of this server do not delete",
        ),
        Ok(_) => RELEASE.ok("a wrong token deleted nothing, and the right one deleted its key"),
        Err(Gap::Denied | Gap::Absent) if facts.release_without_script.is_some() => RELEASE.warn(
            format!(
                "there are no scripts for user `{}`, but `{}` deletes by token: only locks that \
                 are `unqueued().fencing(false)` work, and not the command `leasehold`",
                facts.user(),
                facts.release_without_script.unwrap_or_default()
            ),
            "allow `EVAL` and `EVALSHA`, or use only such locks, whose renewals fail while the \
             server is out of memory",
        ),
        Err(Gap::Denied) => RELEASE.fail(
            "the user has no right to scripts, or to a command in them",
            format!("ACL SETUSER {} {LOCK}", facts.user()),
        ),
        Err(Gap::Absent | Gap::Closed) => RELEASE.fail(
            "the server has no scripts",
            "use Valkey, or Redis 6.2 or later, without renamed commands",
        ),
        Err(gap) => unanswered(RELEASE, gap, facts.user(), "EVAL"),
    }
}

/// Says which commands the user has no right to run, if that could be tried.
pub(super) fn rights(facts: &Facts) -> Option<Check> {
    let user = facts.user();
    if facts.missing.is_empty() {
        return match &facts.write {
            Ok(()) => Some(RIGHTS.ok(format!("user `{user}` may run every command of a lock"))),
            // The check of writes says it.
            Err(Gap::Refused { .. }) => None,
            Err(gap) => Some(unanswered(RIGHTS, gap, user, "SET")),
        };
    }
    let rules: Vec<_> = facts.missing.iter().map(|right| format!("+{right}")).collect();
    let rules = rules.join(" ");
    let evidence = format!("user `{user}` lacks, or the server does not know: {rules}");
    let remedy = format!("ACL SETUSER {user} {rules}");
    let is_of = |list: &str| list.split(' ').any(|right| rules.split(' ').any(|it| it == right));
    let are_scripts = |right: &&str| ["eval", "evalsha"].contains(right);
    Some(if facts.release_without_script.is_some() && facts.missing.iter().all(are_scripts) {
        RIGHTS.warn(format!("{evidence} (for a line and fencing tokens)"), remedy)
    } else if is_of(LOCK) || is_of(CLUSTER) {
        RIGHTS.fail(evidence, remedy)
    } else {
        RIGHTS.warn(format!("{evidence} (for `ls` and `inspect`)"), remedy)
    })
}

pub(super) fn waking(facts: &Facts) -> Check {
    let user = facts.user();
    let may_not_shard = matches!(facts.shard_channels, Err(Gap::Denied | Gap::DeniedChannel));
    match &facts.message {
        Ok(true) if may_not_shard => WAKING.warn(
            format!("user `{user}` has no right to shard channels, so messages go to all nodes"),
            format!("ACL SETUSER {user} {SHARDS} &:lh:inbox:*"),
        ),
        Ok(true) => WAKING.ok("a message arrived on a second connection"),
        Ok(false) => WAKING.warn(
            "a message that was published did not arrive",
            "connect to the server itself: some proxies lose messages",
        ),
        Err(Gap::Denied | Gap::DeniedChannel) => WAKING.warn(
            format!("user `{user}` has no right to publish and subscribe"),
            format!("ACL SETUSER {user} +publish +subscribe &:lh:inbox:*"),
        ),
        Err(Gap::Absent | Gap::Closed) => WAKING.warn(
            "the server has no `PUBLISH` or no `SUBSCRIBE`, or a proxy in between does not know it",
            "use Valkey, or Redis 6.2 or later, without renamed commands and without a proxy",
        ),
        Err(gap) => unanswered(WAKING, gap, user, "PUBLISH"),
    }
}
