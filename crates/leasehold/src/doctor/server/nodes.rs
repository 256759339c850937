//! Checks of several stores together: whether they fail one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::clock::offset_us;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::span;
use crate::store::FENCE_IDLE;
use crate::store::redis::Strictness;
use crate::store::redis::examine::Facts;

const COUNT: Subject = Subject {
    id: "quorum-size",
    why: "A majority must work: three nodes survive the loss of one, two nodes survive no loss.",
};

const INDEPENDENT: Subject = Subject {
    id: "independent-nodes",
    why: "Two nodes that are one server, or copy each other, have two votes and fail together.",
};

const TERMS: Subject = Subject {
    id: "same-terms",
    why: "If any node forgets its leases, the quorum may grant a lock twice. So either all nodes \
          must be strict, or none.",
};

const SETTINGS: Subject = Subject {
    id: "same-settings",
    why: "A fault that some nodes do not survive takes their votes.",
};

const HOSTS: Subject =
    Subject { id: "distinct-hosts", why: "Nodes on one machine fail together with it." };

const CLOCKS: Subject = Subject {
    id: "clock-spread",
    why: "Only fencing tokens depend on the clocks. A node whose clock is behind costs each grant \
          one more step. If it is ten minutes behind, a token may be lower after a pause.",
};

/// The largest spread of the clocks without a warning, in µs.
const SPREAD_MAX_US: u64 = 1_000_000;

/// The checks of all nodes together.
pub(in crate::doctor) fn checks(nodes: usize, servers: &[&Facts]) -> Vec<Check> {
    let all = [
        Some(count(nodes)),
        independent(servers),
        terms(servers),
        settings(servers),
        hosts(nodes, servers),
        clocks(servers),
    ];
    all.into_iter().flatten().collect()
}

fn count(nodes: usize) -> Check {
    let evidence = format!("there are {nodes} nodes, and {} must work", nodes / 2 + 1);
    match nodes {
        2 => COUNT.warn(evidence, "name three servers, or one"),
        _ if nodes.is_multiple_of(2) => {
            COUNT.warn(evidence, format!("name {} servers: as many of them may fail", nodes - 1))
        }
        _ => COUNT.ok(evidence),
    }
}

/// Whether a write on one node stays there, and no two nodes share a process or a history.
fn independent(servers: &[&Facts]) -> Option<Check> {
    let label = |number: usize| servers[number].place.label.as_str();
    let mut faults = Vec::new();
    let mut is_seen = false;
    for (number, facts) in servers.iter().enumerate() {
        let is_other = |other: &usize| servers[*other].place.url != facts.place.url;
        for (other, mark) in facts.marks.iter().enumerate().filter(|(other, _)| is_other(other)) {
            is_seen |= mark.is_ok();
            if *mark == Ok(true) && servers[other].write.is_ok() {
                let (from, to) = (label(other), label(number));
                faults.push(format!("a write to {from} appears at {to}"));
            }
        }
        for (other, earlier) in servers[..number].iter().enumerate() {
            if !is_other(&other) {
                continue;
            }
            for (name, what) in [("run_id", "one process"), ("master_replid", "one history")] {
                let id = facts.text(name);
                if id.is_some() && id == earlier.text(name) {
                    faults.push(format!("{} and {} are {what}", label(other), label(number)));
                }
            }
        }
    }
    const REMEDY: &str = "name independent servers, each with its own data and without a common \
                          primary";
    if !faults.is_empty() {
        Some(INDEPENDENT.fail(faults.join("; "), REMEDY))
    } else if is_seen {
        Some(INDEPENDENT.ok("a write to each node stays at that node"))
    } else if servers.len() > 1 {
        Some(INDEPENDENT.unknown("the nodes could not be compared", "see their other checks"))
    } else {
        None
    }
}

/// Whether all nodes are strict, or none. A node that was not reached may be either.
fn terms(servers: &[&Facts]) -> Option<Check> {
    let of = |strict: bool| {
        let is_known = |it: &&&Facts| it.terms.strict != Strictness::AsDatabase;
        let mut known = servers.iter().filter(is_known);
        known.find(|it| it.terms.strict.strict().is_some() == strict)
    };
    let (Some(strict), Some(other)) = (of(true), of(false)) else {
        return (!servers.is_empty()).then(|| TERMS.ok("all nodes are strict, or none is"));
    };
    let evidence = format!("{} is strict, and {} is not", strict.place.label, other.place.label);
    let remedy = "run `leasehold strict on` (or `off`) with all URLs; and write the same `strict` \
                  into all URLs, or none";
    Some(TERMS.fail(evidence, remedy))
}

/// Whether all nodes keep locks in the same way. Nothing to check if fewer than two tell.
fn settings(servers: &[&Facts]) -> Option<Check> {
    let policy = |facts: &Facts| facts.text("maxmemory_policy").map(str::to_owned);
    let file = |facts: &Facts| {
        let has_file = facts.has_log()?;
        let how = facts.appendfsync.as_deref().unwrap_or("everysec");
        Some(if has_file { format!("appendfsync {how}") } else { "no append-only file".into() })
    };
    let questions: [fn(&Facts) -> Option<String>; 2] = [policy, file];
    let (mut is_known, mut differences) = (false, Vec::new());
    for question in questions {
        let said = servers.iter().filter_map(|it| Some((&it.place.label, question(it)?)));
        let said: Vec<_> = said.collect();
        let Some((label, first)) = said.first().filter(|_| said.len() > 1) else { continue };
        is_known = true;
        if let Some((other, differs)) = said.iter().find(|(_, answer)| answer != first) {
            differences.push(format!("{label} has `{first}`, and {other} has `{differs}`"));
        }
    }
    if !differences.is_empty() {
        let remedy = "give all nodes the same `maxmemory-policy`, `appendonly` and `appendfsync`";
        return Some(SETTINGS.warn(differences.join("; "), remedy));
    }
    is_known.then(|| SETTINGS.ok("all nodes evict and save in the same way"))
}

fn hosts(nodes: usize, servers: &[&Facts]) -> Option<Check> {
    let mut all = BTreeMap::<&str, BTreeSet<usize>>::new();
    for facts in servers.iter().filter(|facts| !facts.place.has_sentinels) {
        let host = facts.place.hosts.first().map_or("this machine", String::as_str);
        all.entry(host).or_default().insert(facts.place.url);
    }
    let (host, most) = all.iter().max_by_key(|(_, urls)| urls.len())?;
    let most = most.len();
    let evidence = format!("{most} of {nodes} nodes are at {host}");
    Some(if most > 1 {
        HOSTS.warn(evidence, "put each server on a machine of its own")
    } else {
        HOSTS.ok("each node is at another host")
    })
}

/// How far apart the clocks of the servers are. `None` with fewer than two servers. The clocks of
/// other stores are not read here.
fn clocks(servers: &[&Facts]) -> Option<Check> {
    if servers.len() < 2 {
        return None;
    }
    let offsets: Vec<_> = servers.iter().filter_map(|facts| offset_us(facts)).collect();
    let first = offsets.iter().map(|(offset, _)| *offset).min().unwrap_or_default();
    let last = offsets.iter().map(|(offset, _)| *offset).max().unwrap_or_default();
    let error: u64 = offsets.iter().map(|(_, trip)| *trip).max().unwrap_or_default();
    let spread = last.abs_diff(first);
    let evidence = format!(
        "the clocks of {} servers are {} apart",
        offsets.len(),
        span(Duration::from_micros(spread))
    );
    let advice = "run a time service such as chrony on every node";
    Some(if Duration::from_micros(spread.saturating_sub(2 * error)) >= FENCE_IDLE {
        CLOCKS.fail(evidence, advice)
    } else if spread > SPREAD_MAX_US + 2 * error {
        CLOCKS.warn(evidence, advice)
    } else if offsets.len() < servers.len() {
        let (read, all) = (offsets.len(), servers.len());
        let evidence = format!("the clocks of {read} of {all} servers were read");
        CLOCKS.unknown(evidence, "make all of them answer `TIME`, then run this again")
    } else {
        CLOCKS.ok(evidence)
    })
}
