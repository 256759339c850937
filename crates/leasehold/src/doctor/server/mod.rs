//! Checks of servers. Each is a pure function over the facts that an examination found.

mod access;
mod canary;
mod clock;
mod gap;
mod keeping;
pub(super) mod nodes;
mod reach;
mod replicas;
pub(super) mod rule;
mod strict;
#[cfg(test)]
mod tests;

use super::check::{Check, Verdict};
use super::survival::Deployment;
use crate::core::ttl::Ttl;
use crate::store::redis::examine::Facts;

/// The checks of one server, in the order of their weight. Only the first ones if nobody answers.
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
            canary::writes(facts),
        ]);
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
            strict::strict(facts),
            replicas::replicas(facts),
        ]);
        checks.extend(replicas::min_replicas(facts));
        checks.extend([
            access::encryption(facts),
            access::login(facts),
            access::clients(facts),
            access::leftovers(facts),
        ]);
        checks.extend(reach::fork(facts, ttl));
    }
    checks.into_iter().map(|check| check.at(&facts.place.label)).collect()
}

/// The facts about servers that decide what a lock survives.
pub(super) fn deployment(servers: &[Facts]) -> Deployment {
    let all = |holds: fn(&Facts) -> bool| !servers.is_empty() && servers.iter().all(holds);
    let any = |holds: fn(&Facts) -> bool| servers.iter().any(holds);
    Deployment {
        has_log: all(|it| keeping::has_log(it) == Some(true)),
        is_on_disk: all(|it| it.terms.copies.fsync || it.appendfsync.as_deref() == Ok("always")),
        is_strict: all(keeping::stays_strict),
        has_failover: all(|it| it.place.has_sentinels),
        has_replicas: any(|it| it.number("connected_slaves").is_some_and(|count| count > 0)),
        evicts: any(|it| keeping::eviction(it).verdict == Verdict::Fail),
        ..Deployment::default()
    }
}
