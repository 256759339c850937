//! Checks of a cluster: all slots have a node, and another node takes over in time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::gap::{SLOW_FAILOVER, unanswered, untold};
use crate::core::ttl::Ttl;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{advice_of, cause_of, span};
use crate::store::redis::examine::cluster::{ClusterFacts, Primary};
use crate::store::redis::examine::{Facts, Gap, Membership};

const REACHABLE: Subject = Subject {
    id: "reachable",
    why: "A client learns from the nodes of its URL where the locks are. One of them must answer.",
};

const SLOTS: Subject =
    Subject { id: "slots", why: "Nobody can take a lock whose slot has no node." };

const FAILOVER: Subject = Subject {
    id: "failover",
    why: "If a node fails and none takes over, the locks of its slots are lost and unavailable.",
};

const STATE: Subject =
    Subject { id: "cluster", why: "A node of a cluster that is down grants and renews no lock." };

const TIMEOUT: Subject = Subject { id: "node-timeout", why: SLOW_FAILOVER };

const COVERAGE: Subject = Subject {
    id: "full-coverage",
    why: "If every slot must have a node, the failure of one node stops the locks of all nodes.",
};

/// How many primaries must have slots, so that a majority is left after the loss of one.
const PRIMARIES_MIN: usize = 3;

/// The checks of a cluster as a whole.
pub(super) fn checks(facts: &ClusterFacts) -> Vec<Check> {
    let mut checks = vec![reachable(facts)];
    if !facts.primaries.is_empty() {
        checks.extend([slots(facts), failover(facts)]);
    }
    checks.into_iter().map(|check| check.at(&facts.label)).collect()
}

/// Whether a node of the URL refused this client for good.
pub(in crate::doctor) fn is_refused(facts: &ClusterFacts) -> bool {
    let mut errors = facts.seeds.iter().filter_map(|(_, error)| error.as_ref());
    facts.primaries.is_empty() && errors.any(|error| !error.is_retryable())
}

fn reachable(facts: &ClusterFacts) -> Check {
    let silent: Vec<_> = facts
        .seeds
        .iter()
        .filter_map(|(label, error)| Some(format!("{label}: {}", cause_of(error.as_ref()?))))
        .collect();
    let all = facts.seeds.len();
    if silent.is_empty() && facts.primaries.is_empty() {
        let evidence = "the nodes of the URL know no slots of a cluster";
        return REACHABLE.fail(evidence, "create the cluster: redis-cli --cluster create");
    }
    let evidence = format!("{} of {all} nodes of the URL answer", all - silent.len());
    if silent.is_empty() {
        return REACHABLE.ok(evidence);
    }
    let evidence = format!("{evidence}; {}", silent.join(" | "));
    if silent.len() < all {
        return REACHABLE.warn(evidence, "start these nodes, or remove them from the URL");
    }
    let advice = facts.seeds.iter().find_map(|(_, error)| advice_of(error.as_ref()?));
    REACHABLE.fail(
        evidence,
        advice.unwrap_or_else(|| "start the nodes, or name nodes of a cluster in the URL".into()),
    )
}

fn slots(facts: &ClusterFacts) -> Check {
    let nodes = facts.primaries.len();
    if facts.uncovered.is_empty() {
        return SLOTS.ok(format!("each slot has one of {nodes} primaries"));
    }
    let count: usize =
        facts.uncovered.iter().map(|(first, last)| usize::from(last - first) + 1).sum();
    let ranges = facts.uncovered.iter().take(5).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let ranges: Vec<_> = ranges.collect();
    let more = if facts.uncovered.len() > ranges.len() { ", …" } else { "" };
    SLOTS.fail(
        format!("{count} slots have no node: {}{more}", ranges.join(", ")),
        "redis-cli --cluster fix HOST:PORT, or CLUSTER ADDSLOTS on the node that must have them",
    )
}

/// Whether another node takes over if any primary fails.
fn failover(facts: &ClusterFacts) -> Check {
    let bare: Vec<_> = without_replica(facts).map(|it| it.label.as_str()).collect();
    let count = facts.primaries.len();
    let least = facts.primaries.iter().map(|primary| primary.replicas).min().unwrap_or(0);
    if !bare.is_empty() {
        let evidence = format!(
            "{} of {count} primaries have no replica that works: {}",
            bare.len(),
            bare.join(", ")
        );
        let remedy = "give each of them a replica on another machine: redis-cli --cluster add-node \
                      NEW:PORT OLD:PORT --cluster-slave";
        FAILOVER.warn(evidence, remedy)
    } else if count < PRIMARIES_MIN {
        let evidence = format!("primaries: {count}; if one fails, the others are not a majority");
        FAILOVER
            .warn(evidence, "spread the slots over three primaries: redis-cli --cluster reshard")
    } else {
        FAILOVER.ok(format!("each of {count} primaries has {least} or more replicas"))
    }
}

fn without_replica(facts: &ClusterFacts) -> impl Iterator<Item = &Primary> {
    facts.primaries.iter().filter(|primary| primary.replicas == 0)
}

/// Whether another node takes over if any primary fails.
pub(super) fn can_fail_over(facts: &ClusterFacts) -> bool {
    facts.primaries.len() >= PRIMARIES_MIN && without_replica(facts).next().is_none()
}

pub(super) fn has_replicas(facts: &ClusterFacts) -> bool {
    facts.primaries.iter().any(|primary| primary.replicas > 0)
}

/// Replaces the nodes of a cluster by the cluster if all of them fail. Otherwise leaves the nodes
/// out. Returns whether any were left out.
pub(in crate::doctor) fn merge<'a>(
    failing: &mut BTreeSet<&'a str>,
    servers: &'a [Facts],
    clusters: &'a [ClusterFacts],
) -> bool {
    let mut is_partial = false;
    for cluster in clusters {
        let of_url = servers.iter().filter(|facts| facts.place.url == cluster.url);
        let nodes: BTreeSet<_> = of_url.map(|facts| facts.place.label.as_str()).collect();
        let failed: Vec<_> = nodes.intersection(failing).copied().collect();
        for node in &failed {
            failing.remove(node);
        }
        if !nodes.is_empty() && failed.len() == nodes.len() {
            failing.insert(&cluster.label);
        }
        is_partial |= !failed.is_empty() && failed.len() < nodes.len();
    }
    is_partial
}

/// Checks what a node says about its cluster. Nothing to check if the URL names a single server.
pub(super) fn of_node(facts: &Facts, ttl: Ttl) -> Vec<Check> {
    let Some(membership) = &facts.membership else { return Vec::new() };
    vec![state(facts, membership), timeout(facts, membership, ttl), coverage(facts, membership)]
}

fn state(facts: &Facts, membership: &Membership) -> Check {
    let info = match &membership.info {
        Ok(info) => info,
        Err(gap) => return unanswered(STATE, gap, facts.user(), "CLUSTER INFO"),
    };
    let (failed, maybe) = (info.number("cluster_slots_fail"), info.number("cluster_slots_pfail"));
    let (failed, maybe) = (failed.unwrap_or(0), maybe.unwrap_or(0));
    let remedy = "CLUSTER NODES at this node shows which nodes it misses: start them, or repair \
                  the network between the nodes (each also needs its cluster bus port)";
    match info.text("cluster_state") {
        Some("ok") if failed == 0 && maybe == 0 => STATE.ok("the node says `cluster_state:ok`"),
        Some("ok") if failed == 0 => {
            STATE.warn(format!("{maybe} slots belong to nodes that may be down"), remedy)
        }
        Some("ok") => STATE.warn(
            format!("the node says `cluster_state:ok`; {failed} slots belong to nodes that failed"),
            remedy,
        ),
        Some(state) => STATE.fail(
            format!("the node says `cluster_state:{state}`; {failed} slots belong to failed nodes"),
            remedy,
        ),
        None => untold(STATE, "CLUSTER INFO"),
    }
}

/// How long a failover takes at least. As GUARANTEES.md says, this is the node timeout, half of it
/// again, and some seconds.
fn failover_time(timeout: Duration) -> Duration {
    timeout + timeout / 2 + Duration::from_secs(2)
}

fn timeout(facts: &Facts, membership: &Membership, ttl: Ttl) -> Check {
    let settings = match &membership.settings {
        Ok(settings) => settings,
        Err(gap) => return unset(TIMEOUT, gap, facts, "cluster-node-timeout"),
    };
    let Some(ms) = settings.number("cluster-node-timeout") else {
        return untold(TIMEOUT, "CONFIG GET");
    };
    let timeout = Duration::from_millis(ms);
    let (takes, ttl) = (failover_time(timeout), ttl.get());
    let evidence = format!(
        "a node counts as down after {}, so a failover takes about {}; the ttl is {}",
        span(timeout),
        span(takes),
        span(ttl)
    );
    if takes > ttl {
        let remedy = "CONFIG SET cluster-node-timeout 3000 at every node, and write it into their \
                      configuration; or use a longer ttl";
        TIMEOUT.warn(evidence, remedy)
    } else {
        TIMEOUT.ok(evidence)
    }
}

/// The check if the user has no right to read a setting.
fn unset(subject: Subject, gap: &Gap, facts: &Facts, name: &str) -> Check {
    let user = facts.user();
    match gap {
        // The right shows passwords, so no user for locks should have it.
        Gap::Denied => subject.unknown(
            format!("user `{user}` has no right to `CONFIG GET`, which also shows passwords"),
            format!("ask as an administrator: CONFIG GET {name}"),
        ),
        gap => unanswered(subject, gap, user, "CONFIG GET"),
    }
}

fn coverage(facts: &Facts, membership: &Membership) -> Check {
    let settings = match &membership.settings {
        Ok(settings) => settings,
        Err(gap) => return unset(COVERAGE, gap, facts, "cluster-require-full-coverage"),
    };
    match settings.text("cluster-require-full-coverage") {
        Some("no") => COVERAGE.ok("if a slot has no node, the other slots are still served"),
        Some("yes") => COVERAGE.warn(
            "`cluster-require-full-coverage yes`: no slot is served while one has no node",
            "run `CONFIG SET cluster-require-full-coverage no` at every node, and write it into \
             the configuration of each",
        ),
        _ => untold(COVERAGE, "CONFIG GET"),
    }
}
