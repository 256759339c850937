//! Checks of servers. Each is a pure function over the facts that an examination found.

mod access;
mod canary;
mod clock;
pub(super) mod cluster;
mod gap;
mod keeping;
pub(super) mod nodes;
mod reach;
mod replicas;
pub(super) mod rule;
mod strict;
#[cfg(test)]
pub(super) mod tests;

use super::check::{Check, Verdict};
use super::survival::Deployment;
use crate::core::ttl::Ttl;
use crate::store::redis::examine::Facts;
use crate::store::redis::examine::cluster::ClusterFacts;

/// The checks of all servers. Those of a cluster as a whole stand before those of its nodes.
pub(super) fn all_checks(servers: &[Facts], clusters: &[ClusterFacts], ttl: Ttl) -> Vec<Check> {
    let mut all: Vec<(usize, Check)> = Vec::new();
    for facts in clusters {
        all.extend(cluster::checks(facts).into_iter().map(|check| (facts.url, check)));
    }
    for facts in servers {
        all.extend(checks(facts, ttl).into_iter().map(|check| (facts.place.url, check)));
    }
    all.sort_by_key(|(url, _)| *url);
    all.into_iter().map(|(_, check)| check).collect()
}

/// How many nodes of a quorum these are. A cluster is one.
pub(super) fn count(servers: &[Facts], clusters: &[ClusterFacts]) -> usize {
    servers.iter().filter(|facts| facts.membership.is_none()).count() + clusters.len()
}

/// The checks of one server, in the order of their weight. If it does not answer, only the first.
pub(super) fn checks(facts: &Facts, ttl: Ttl) -> Vec<Check> {
    let mut checks = vec![reach::reachable(facts)];
    checks.extend(replicas::sentinels(facts, ttl));
    if facts.unreached.is_none() {
        checks.extend([
            reach::round_trip(facts, ttl),
            reach::version(facts),
            reach::role(facts),
            reach::mode(facts),
            reach::proxy(facts),
        ]);
        checks.extend(cluster::of_node(facts, ttl));
        checks.push(canary::writes(facts));
        checks.extend(canary::rights(facts));
        checks.extend([
            canary::release(facts),
            canary::waking(facts),
            clock::expiry(facts),
            clock::rate(facts),
        ]);
        checks.extend(clock::offset(facts));
        checks.extend([
            keeping::eviction(facts),
            keeping::memory(facts),
            keeping::persistence(facts),
            keeping::saving(facts),
            keeping::restart(facts, ttl),
        ]);
        // A cluster has no strict mode.
        if facts.membership.is_none() {
            checks.push(strict::strict(facts));
        }
        checks.extend(replicas::copies(facts));
        checks.push(replicas::replicas(facts));
        checks.extend(replicas::min_replicas(facts));
        checks.extend([
            access::encryption(facts),
            access::login(facts),
            access::powers(facts),
            access::clients(facts),
            access::leftovers(facts),
        ]);
        checks.extend(access::certificate(facts));
        checks.extend(access::buffers(facts));
        checks.extend(access::foreign(facts));
        checks.extend(reach::fork(facts, ttl));
    }
    checks.into_iter().map(|check| check.at(&facts.place.label)).collect()
}

/// The facts about servers that decide what a lock survives.
pub(super) fn deployment(servers: &[Facts], clusters: &[ClusterFacts]) -> Deployment {
    let all = |holds: fn(&Facts) -> bool| !servers.is_empty() && servers.iter().all(holds);
    let any = |holds: fn(&Facts) -> bool| servers.iter().any(holds);
    Deployment {
        has_log: all(|it| it.has_log() == Some(true)),
        is_on_disk: all(|it| {
            let is_synced = it.terms.copies.fsync || it.appendfsync.as_deref() == Ok("always");
            it.has_log() == Some(true) && is_synced
        }),
        is_strict: all(strict::stays_strict),
        has_failover: all(|it| it.place.has_sentinels || it.membership.is_some())
            && clusters.iter().all(cluster::can_fail_over),
        // If a server does not tell, assume that it has replicas.
        has_replicas: any(|it| it.number("connected_slaves").is_none_or(|count| count > 0))
            || clusters.iter().any(cluster::has_replicas),
        is_cluster: !clusters.is_empty(),
        evicts: any(|it| matches!(keeping::eviction(it).verdict, Verdict::Fail | Verdict::Unknown)),
        ..Deployment::default()
    }
}
