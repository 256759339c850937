//! Checks of replicas, and of the sentinels that promote them.

use std::time::Duration;

use super::gap::{SLOW_FAILOVER, unanswered};
use super::keeping::no_info;
use super::strict::is_in_cluster;
use crate::core::ttl::Ttl;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{cause_of, span};
use crate::store::redis::Replicas;
use crate::store::redis::examine::{Copied, Facts, Gap, Info, SentinelFacts};

const COPIES: Subject = Subject {
    id: "copies",
    why: "A grant counts only with the copies that the URL wants. Without them, none is made.",
};

const REPLICAS: Subject = Subject {
    id: "replicas",
    why: "Replicas copy later than the server answers. A promoted replica may lack a lease.",
};

const MIN_REPLICAS: Subject = Subject {
    id: "min-replicas",
    why: "A primary that is cut off from its replicas grants locks, and so does a promoted one.",
};

const SENTINELS: Subject = Subject {
    id: "sentinels",
    why: "If too few sentinels agree, none names a new primary, and locks stay unavailable.",
};

const VIEWS: Subject = Subject {
    id: "one-primary",
    why: "If sentinels name two primaries, both may grant the same lock to different clients.",
};

const DOWN_AFTER: Subject = Subject { id: "down-after", why: SLOW_FAILOVER };

/// The lag of a replica, in seconds, that is worth a warning. A replica reports each second.
const LAG_MAX: u64 = 2;

/// How many entries of replicas to read. A server that names more is not believed.
const READ_MAX: u64 = 1_000;

/// Whether the server makes the copies that the URL wants. `None` if it wants none.
pub(super) fn copies(facts: &Facts) -> Option<Check> {
    let fsync = facts.terms.copies.fsync;
    let command = if fsync { "WAITAOF" } else { "WAIT" };
    Some(match facts.copies.as_ref()? {
        Ok(Copied { is_on_disk: false, .. }) => COPIES.fail(
            "the URL wants grants on disk, and a write was not on disk in time",
            "CONFIG SET appendfsync always, and write it into the server's configuration",
        ),
        Ok(Copied { wanted, replicas, .. }) if replicas < wanted => COPIES.fail(
            format!("the URL wants copies at {wanted} of the replicas, and {replicas} confirmed"),
            "start the replicas, or want fewer (`replicas`) in the URLs of all clients",
        ),
        Ok(Copied { replicas, .. }) => COPIES.ok(format!("replicas with a copy: {replicas}")),
        Err(Gap::Refused { text, .. }) if fsync && text.contains("appendonly") => COPIES.fail(
            "the URL wants grants on disk, and there is no append-only file",
            "CONFIG SET appendonly yes, and write it into the server's configuration",
        ),
        Err(Gap::Absent) if fsync => COPIES.fail(
            "the server does not know `WAITAOF`",
            "use Redis 7.2 or later, or leave `fsync` out of the URL of every client",
        ),
        Err(Gap::Denied) => {
            let user = facts.user();
            let rights = if facts.info.is_ok() { "" } else { " +info" };
            COPIES.fail(
                format!("user `{user}` has no right to ask for copies"),
                format!("ACL SETUSER {user} +{}{rights}", command.to_ascii_lowercase()),
            )
        }
        Err(gap) => unanswered(COPIES, gap, facts.user(), command),
    })
}

pub(super) fn replicas(facts: &Facts) -> Check {
    let Some(count) = facts.number("connected_slaves") else {
        return no_info(REPLICAS, facts);
    };
    if count == 0 {
        return REPLICAS.ok("the server has no replicas");
    }
    let lag = (0..count.min(READ_MAX))
        .filter_map(|number| lag_of(facts.text(&format!("slave{number}"))?))
        .max();
    let lag_text = lag.map_or_else(String::new, |lag| format!(", lag {lag} s at most"));
    let confirmed = facts.wait.as_ref().ok().copied().and_then(|wait| u64::try_from(wait).ok());
    let heard = confirmed.map_or_else(String::new, |it| format!(", {it} confirmed a write"));
    let evidence = format!("replicas: {count}{lag_text}{heard}");
    let is_late = confirmed.is_some_and(|it| it < count) || lag.is_some_and(|it| it > LAG_MAX);
    let is_covered =
        facts.terms.strict.strict().is_some() || facts.terms.copies.replicas != Replicas::Count(0);
    if is_late {
        let remedy = "see the logs of the replicas and their network: `INFO replication`";
        REPLICAS.warn(evidence, remedy)
    } else if is_covered {
        REPLICAS.ok(evidence)
    } else {
        let remedy = if is_in_cluster(facts) {
            "use several independent servers"
        } else {
            "add `?replicas=majority` or `?strict=yes` to the URL of every client, or use several \
             independent servers"
        };
        REPLICAS.warn(format!("{evidence}; the clients do not wait for them"), remedy)
    }
}

/// The lag in a line such as `ip=…,port=…,state=online,offset=…,lag=1`.
fn lag_of(line: &str) -> Option<u64> {
    line.split(',').find_map(|part| part.strip_prefix("lag="))?.parse().ok()
}

/// Whether an old primary stops taking writes. `None` without replicas.
pub(super) fn min_replicas(facts: &Facts) -> Option<Check> {
    let count = facts.number("connected_slaves").filter(|count| *count > 0)?;
    Some(match facts.number("min_slaves_good_slaves") {
        None if facts.membership.is_some() => {
            MIN_REPLICAS.ok("a node of a cluster that is cut off from most others stops by itself")
        }
        Some(good) => MIN_REPLICAS
            .ok(format!("`min-replicas-to-write` is set; replicas that are near enough: {good}")),
        None => MIN_REPLICAS.warn(
            format!("replicas: {count}; `min-replicas-to-write` is not set"),
            "CONFIG SET min-replicas-to-write 1, CONFIG SET min-replicas-max-lag 3, and write \
             both into the server's configuration",
        ),
    })
}

/// Checks what the sentinels say. Nothing to check without them.
pub(super) fn sentinels(facts: &Facts, ttl: Ttl) -> Vec<Check> {
    let all = &facts.sentinels;
    if all.is_empty() {
        return Vec::new();
    }
    let mut checks = vec![agreement(facts)];
    checks.extend(views(facts));
    let settings: Vec<_> = all.iter().filter_map(|it| it.primary.as_ref().ok()).collect();
    let down_after = settings.iter().filter_map(|it| it.number("down-after-milliseconds")).max();
    if let Some(ms) = down_after {
        let (after, ttl) = (Duration::from_millis(ms), ttl.get());
        let evidence =
            format!("a primary counts as down after {}; the ttl is {}", span(after), span(ttl));
        checks.push(if after > ttl {
            let to = u64::try_from((ttl / 2).as_millis()).unwrap_or(u64::MAX);
            let remedy = format!(
                "SENTINEL SET NAME down-after-milliseconds {to} at each sentinel, or a longer ttl"
            );
            DOWN_AFTER.warn(evidence, remedy)
        } else {
            DOWN_AFTER.ok(evidence)
        });
    }
    checks
}

/// Whether all sentinels name the same primary. `None` if fewer than two name one.
fn views(facts: &Facts) -> Option<Check> {
    let view = |it: &SentinelFacts| {
        let primary = it.primary.as_ref().ok()?;
        let (ip, port) = (primary.text("ip")?, primary.text("port")?);
        Some((it.label.clone(), format!("{ip}:{port}"), primary.number("config-epoch")?))
    };
    let views: Vec<_> = facts.sentinels.iter().filter_map(view).collect();
    let (_, first, epoch) = views.first().filter(|_| views.len() > 1)?;
    if views.iter().all(|view| view.1 == *first && view.2 == *epoch) {
        return Some(VIEWS.ok(format!("all sentinels name {first}, of epoch {epoch}")));
    }
    let said = views
        .iter()
        .map(|(label, primary, epoch)| format!("{label} names {primary} of epoch {epoch}"));
    let evidence = said.collect::<Vec<_>>().join("; ");
    let remedy = "if no failover is under way, run SENTINEL RESET NAME on the sentinels with the \
                  lower epoch, and repair the network between the sentinels";
    Some(if views.iter().all(|view| view.1 == *first) {
        VIEWS.warn(evidence, remedy)
    } else {
        VIEWS.fail(evidence, remedy)
    })
}

fn agreement(facts: &Facts) -> Check {
    let all = &facts.sentinels;
    let silent: Vec<_> = all
        .iter()
        .filter_map(|it| Some(format!("{}: {}", it.label, cause_of(it.primary.as_ref().err()?))))
        .collect();
    let first = all.iter().find_map(|it| it.primary.as_ref().ok());
    let Some(first) = first else {
        return SENTINELS.fail(silent.join(" | "), "start the sentinels, or correct the URL");
    };
    let number = |info: &Info, name| info.number(name).unwrap_or(0);
    let known = number(first, "num-other-sentinels").saturating_add(1);
    let quorum = number(first, "quorum");
    let evidence = format!(
        "{} of {} sentinels answer; they know {known}, and {quorum} must agree",
        all.len() - silent.len(),
        all.len()
    );
    if let Some(refused) = all.iter().find(|it| it.has_quorum == Ok(false)) {
        let evidence = format!("{evidence}; {} says that no failover is possible", refused.label);
        return SENTINELS
            .fail(evidence, "start more sentinels: SENTINEL CKQUORUM names the reason");
    }
    if !silent.is_empty() {
        let evidence = format!("{evidence}; {}", silent.join(" | "));
        return SENTINELS.warn(evidence, "start these sentinels, or remove them from the URL");
    }
    if known < 3 || quorum.saturating_mul(2) <= known {
        let remedy = "run at least three sentinels on separate machines, and let a majority agree: \
                      SENTINEL SET NAME quorum 2";
        return SENTINELS.warn(evidence, remedy);
    }
    match all.iter().find_map(|it| it.has_quorum.as_ref().err()) {
        Some(gap) => unanswered(SENTINELS, gap, "default", "SENTINEL CKQUORUM"),
        None => SENTINELS.ok(evidence),
    }
}
