//! Checks whether a server keeps what it granted: memory, disk, restarts.

use std::time::Duration;

use super::gap::{unanswered, untold};
use super::strict::{YES_IN_ALL_URLS, is_in_cluster, stays_strict, switch_on};
use crate::core::ttl::Ttl;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{FREE_DISK, RAISE_MAXMEMORY, bytes, span};
use crate::store::redis::examine::{Facts, Gap};

const EVICTION: Subject =
    Subject { id: "eviction", why: "An evicted key is a lock that two holders can have." };

const MEMORY: Subject = Subject {
    id: "memory",
    why: "A server without memory grants nothing. Held locks are still renewed and released.",
};

const PERSISTENCE: Subject = Subject {
    id: "persistence",
    why: "A server that forgets its data in a restart grants locks that others still hold.",
};

const SAVING: Subject = Subject {
    id: "saving",
    why: "A server that cannot save may refuse all writes, releases included.",
};

const RESTART: Subject = Subject {
    id: "restart",
    why: "A server that started within the last ttl may have forgotten leases that still run.",
};

/// Whether the server may drop locks when its memory is full.
pub(super) fn eviction(facts: &Facts) -> Check {
    let (Some(policy), Some(max)) = (facts.text("maxmemory_policy"), facts.number("maxmemory"))
    else {
        return no_info(EVICTION, facts);
    };
    let evicted = facts.number("evicted_keys").unwrap_or(0);
    let bound =
        if max == 0 { "no `maxmemory`".to_owned() } else { format!("{} in all", bytes(max)) };
    let evidence = format!("`maxmemory-policy {policy}`, {bound}, {evicted} keys evicted");
    let remedy = "CONFIG SET maxmemory-policy noeviction, and write it into the server's \
                  configuration; or give locks a server of their own";
    if policy != "noeviction" && max > 0 {
        EVICTION.fail(evidence, remedy)
    } else if evicted > 0 {
        EVICTION.warn(evidence, "keep `maxmemory-policy noeviction`, and run CONFIG RESETSTAT")
    } else {
        EVICTION.ok(evidence)
    }
}

/// Whether the memory is nearly used up.
pub(super) fn memory(facts: &Facts) -> Check {
    let (Some(used), Some(max)) = (facts.number("used_memory"), facts.number("maxmemory")) else {
        return no_info(MEMORY, facts);
    };
    if max == 0 {
        return MEMORY.ok(format!("{} used, no limit", bytes(used)));
    }
    let percent = used.saturating_mul(100) / max;
    let evidence = format!("{} of {} used, {percent} %", bytes(used), bytes(max));
    if percent > 80 { MEMORY.warn(evidence, RAISE_MAXMEMORY) } else { MEMORY.ok(evidence) }
}

/// Whether grants reach a disk, and how fast.
pub(super) fn persistence(facts: &Facts) -> Check {
    let is_strict = facts.terms.strict.strict().is_some();
    let has_log = facts.has_log();
    let appendfsync = facts.appendfsync.as_deref().ok();
    match (has_log, &facts.fsync) {
        (Some(true), fsync) => {
            let how = appendfsync.map_or_else(String::new, |it| format!(", `appendfsync {it}`"));
            let confirmed = match fsync {
                Ok((1.., took)) => format!("; a write was on disk after {}", span(*took)),
                Ok(_) => "; a write was not on disk after 1 s".to_owned(),
                Err(_) => String::new(),
            };
            let evidence = format!("there is an append-only file{how}{confirmed}");
            if appendfsync == Some("no") && !is_strict {
                return PERSISTENCE.warn(
                    evidence,
                    "CONFIG SET appendfsync everysec, and write it into the server's configuration",
                );
            }
            PERSISTENCE.ok(evidence)
        }
        (Some(false), _) if stays_strict(facts) => PERSISTENCE.ok(
            "there is no append-only file; strict mode covers a restart by granting nothing for \
             65 s",
        ),
        (Some(false), _) if is_strict => PERSISTENCE.warn(
            "there is no append-only file: a restart forgets the leases, and also that the \
             database is switched to strict mode",
            YES_IN_ALL_URLS,
        ),
        (Some(false), _) => PERSISTENCE
            .warn("there is no append-only file: a restart forgets the leases", get_a_file(facts)),
        (None, Err(gap @ Gap::Denied)) => unanswered(PERSISTENCE, gap, facts.user(), "WAITAOF"),
        (None, _) => no_info(PERSISTENCE, facts),
    }
}

/// The remedy if a restart would forget the leases.
fn get_a_file(facts: &Facts) -> String {
    let file = "CONFIG SET appendonly yes, and write it into the server's configuration";
    if is_in_cluster(facts) {
        return file.to_owned();
    }
    format!("{file}; or {}, and {YES_IN_ALL_URLS}", switch_on(facts))
}

/// Whether the last writes to disk worked.
pub(super) fn saving(facts: &Facts) -> Check {
    let states = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"];
    let failed: Vec<_> =
        states.into_iter().filter(|name| facts.text(name) == Some("err")).collect();
    if facts.text(states[0]).is_none() {
        no_info(SAVING, facts)
    } else if failed.is_empty() {
        SAVING.ok("the last writes to disk worked")
    } else if matches!(&facts.write, Err(Gap::Refused { code, .. }) if code == "MISCONF") {
        let evidence = format!("{} is `err`, and the server refuses writes", failed.join(", "));
        SAVING.fail(evidence, FREE_DISK)
    } else {
        let evidence = format!("{} is `err`", failed.join(", "));
        SAVING.warn(evidence, FREE_DISK)
    }
}

/// Whether the server started a short time ago.
pub(super) fn restart(facts: &Facts, ttl: Ttl) -> Check {
    let Some(uptime) = facts.number("uptime_in_seconds").map(Duration::from_secs) else {
        return no_info(RESTART, facts);
    };
    let had_another_id =
        facts.text("master_replid2").is_some_and(|id| id.bytes().any(|digit| digit != b'0'));
    let before = if had_another_id { "; its replication id has changed since" } else { "" };
    let evidence = format!("the server started {} s ago{before}", uptime.as_secs());
    if uptime < ttl.get() && facts.terms.strict.strict().is_none() {
        let left = (ttl.get() - uptime).as_secs() + 1;
        RESTART.warn(evidence, format!("wait for {left} s before you rely on a lock"))
    } else {
        RESTART.ok(evidence)
    }
}

/// The check if INFO lacks what was asked for.
pub(super) fn no_info(subject: Subject, facts: &Facts) -> Check {
    match &facts.info {
        Err(gap) => unanswered(subject, gap, facts.user(), "INFO"),
        Ok(_) => untold(subject, "INFO"),
    }
}
