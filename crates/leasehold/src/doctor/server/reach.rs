//! Checks whether the right server answers, and how fast.

use std::time::Duration;

use super::gap::unanswered;
use super::strict::is_in_cluster;
use crate::core::error::ErrorKind;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::doctor::check::{Check, Subject};
use crate::doctor::texts::{advice_of, cause_of, span};
use crate::store::redis::examine::{Facts, Gap};

const REACHABLE: Subject = Subject {
    id: "reachable",
    why: "Without its store, nobody gets a lock, and holders lose theirs.",
};

const ROUND_TRIP: Subject = Subject {
    id: "round-trip",
    why: "A renewal that takes too long loses the lock, and a slow acquire shortens the lease.",
};

const VERSION: Subject =
    Subject { id: "version", why: "An old server lacks commands, and fixes of known holes." };

const ROLE: Subject =
    Subject { id: "role", why: "A replica takes no writes, so it can grant no lock." };

const MODE: Subject = Subject {
    id: "mode",
    why: "A node of a cluster serves only some names, so most locks would be refused.",
};

const PROXY: Subject = Subject {
    id: "one-server",
    why: "Behind a proxy, two requests may reach two servers, and both may grant the same lock.",
};

/// The series of Redis that still get fixes, with the first release of each without the known
/// memory errors of connections that wait.
const REDIS_FIXED: [[u64; 3]; 5] = [[8, 2, 9], [8, 4, 6], [8, 6, 6], [8, 8, 2], [8, 10, 1]];

/// Whether the server could be reached at all.
pub(super) fn reachable(facts: &Facts) -> Check {
    let Some(error) = &facts.unreached else {
        return if facts.fell_silent {
            let evidence = "the server answered at first, and then fell silent";
            REACHABLE.fail(evidence, "read the log of the server, and run this again")
        } else {
            REACHABLE.ok("the server accepts connections and this login")
        };
    };
    let by_kind = match error.kind() {
        ErrorKind::Denied => "correct the user and the password in the URL",
        ErrorKind::Config | ErrorKind::Unsupported => "correct the URL, or name another server",
        _ => "start the server, or correct the host and the port in the URL",
    };
    REACHABLE.fail(cause_of(error), advice_of(error).unwrap_or_else(|| by_kind.to_owned()))
}

pub(super) fn round_trip(facts: &Facts, ttl: Ttl) -> Check {
    let mut all = facts.round_trips.clone();
    all.sort_unstable();
    let at = |percent: usize| all.get((all.len() * percent).div_ceil(100).saturating_sub(1));
    let (Some(&median), Some(&slow)) = (at(50), at(99)) else {
        return ROUND_TRIP
            .unknown("no answer to `PING` came in time", "see whether the server is overloaded");
    };
    let (ttl, limit) = (ttl.get(), command_limit(ttl));
    let evidence = format!(
        "p50 {}, p99 {} of {} requests; the ttl is {}",
        span(median),
        span(slow),
        all.len(),
        span(ttl)
    );
    let longer = format!("use a ttl of at least {}, or a nearer server", span(slow * 100));
    if slow > limit {
        ROUND_TRIP.fail(format!("{evidence}; a request may take {}", span(limit)), longer)
    } else if slow > ttl / 100 {
        ROUND_TRIP.warn(evidence, longer)
    } else {
        ROUND_TRIP.ok(evidence)
    }
}

pub(super) fn version(facts: &Facts) -> Check {
    let hello = facts.hello.as_ref().ok();
    let of_hello = |name| hello.and_then(|hello| hello.text(name));
    let valkey = facts.text("valkey_version");
    let redis = facts.text("redis_version").or_else(|| of_hello("version"));
    let is_valkey = valkey.is_some() || of_hello("server") == Some("valkey");
    let (name, text) = if is_valkey { ("Valkey", valkey.or(redis)) } else { ("Redis", redis) };
    let Some(text) = text else {
        let gap = facts.info.as_ref().err().or_else(|| facts.hello.as_ref().err());
        return gap.map_or_else(
            || VERSION.unknown("the server names no version", "use Valkey, or Redis 6.2 or later"),
            |gap| unanswered(VERSION, gap, facts.user(), "INFO"),
        );
    };
    let evidence = format!("{name} {text}");
    let mut parts = text.split('.').map(|part| part.parse::<u64>().ok());
    let mut next = || parts.next().flatten();
    let (Some(major), Some(minor)) = (next(), next()) else {
        return VERSION.unknown(evidence, "use Valkey, or Redis 6.2 or later");
    };
    let patch = next().unwrap_or(0);
    if is_valkey {
        return VERSION.ok(evidence);
    }
    if (major, minor) < (6, 2) {
        return VERSION.fail(evidence, "use Redis 6.2 or later, or Valkey");
    }
    if major < 8 && (major, minor) < (7, 4) {
        let evidence = format!("{evidence}, which gets no fixes any more");
        return VERSION.warn(evidence, "move to a release of Redis or Valkey that is maintained");
    }
    let fixed = REDIS_FIXED.iter().find(|fixed| fixed[..2] == [major, minor]);
    match fixed {
        Some(fixed) if patch < fixed[2] => {
            let [major, minor, patch] = fixed;
            let wanted = format!("install Redis {major}.{minor}.{patch} or later");
            VERSION.warn(format!("{evidence}, which lacks fixes of memory errors"), wanted)
        }
        _ => VERSION.ok(evidence),
    }
}

pub(super) fn role(facts: &Facts) -> Check {
    let of_hello = facts.hello.as_ref().ok().and_then(|hello| hello.text("role"));
    let said = facts.role.as_deref().ok().or_else(|| facts.text("role")).or(of_hello);
    match (said, &facts.role) {
        (Some("master"), _) => ROLE.ok("the server is a primary"),
        (Some(other), _) => {
            let primary = match (facts.text("master_host"), facts.text("master_port")) {
                (Some(host), Some(port)) => format!(" of {host}:{port}"),
                _ => String::new(),
            };
            let remedy = if is_in_cluster(facts) {
                "name the cluster as `redis+cluster://HOST,HOST`"
            } else {
                "name the primary in the URL, or write `redis+sentinel://` to follow it"
            };
            ROLE.fail(
                format!("the server is a {}{primary}", other.replace("slave", "replica")),
                remedy,
            )
        }
        (None, Err(gap)) => unanswered(ROLE, gap, facts.user(), "ROLE"),
        (None, Ok(_)) => ROLE.unknown("the server names no role", "use Valkey or Redis"),
    }
}

pub(super) fn mode(facts: &Facts) -> Check {
    match (facts.mode(), &facts.hello) {
        (Some("cluster"), _) if facts.membership.is_some() => {
            MODE.ok("the server is a node of the cluster")
        }
        (Some("cluster"), _) => MODE.fail(
            "the server is a node of a cluster, and the URL names it as a single server",
            "name the cluster as `redis+cluster://HOST,HOST`",
        ),
        (Some("sentinel"), _) => MODE.fail(
            "this is a sentinel, which keeps no data",
            "write `redis+sentinel://HOST1,HOST2,HOST3/NAME`",
        ),
        (Some(mode), _) => MODE.ok(format!("the server is {mode}")),
        (None, Err(gap)) => unanswered(MODE, gap, facts.user(), "HELLO"),
        (None, Ok(_)) => MODE.unknown("the server names no mode", "use Valkey or Redis"),
    }
}

/// Whether two connections lead to one process, and one connection keeps its id.
pub(super) fn proxy(facts: &Facts) -> Check {
    const REMEDY: &str = "connect to the server itself, or to a proxy that keeps each connection \
                          on one server";
    const ITSELF: &str = "connect to the server itself: nothing shows how many servers are behind \
                          this proxy";
    if !facts.ended_at.is_empty() {
        let evidence = format!(
            "the connection ends or falls silent at {}, as with a proxy such as twemproxy",
            facts.ended_at.join(", ")
        );
        return PROXY.fail(evidence, ITSELF);
    }
    let asked = [facts.info.as_ref().err(), facts.clock.as_ref().err()];
    if asked == [Some(&Gap::Absent); 2] {
        let evidence = "the server knows neither INFO nor TIME, as with some proxies";
        return PROXY.fail(evidence, ITSELF);
    }
    if let Ok([first, second]) = facts.client_ids
        && first != second
    {
        let evidence = format!("one connection has the ids {first} and {second}");
        return PROXY.fail(evidence, REMEDY);
    }
    match (facts.text("run_id"), &facts.second_run_id) {
        (Some(first), Ok(second)) if first != second => {
            let evidence = format!("two connections lead to the processes {first} and {second}");
            PROXY.fail(evidence, REMEDY)
        }
        (Some(run_id), Ok(_)) => {
            PROXY.ok(format!("two connections lead to one process, {}", short(run_id)))
        }
        (Some(_), Err(gap)) => unanswered(PROXY, gap, facts.user(), "INFO"),
        (None, _) => match &facts.info {
            Err(gap) => unanswered(PROXY, gap, facts.user(), "INFO"),
            Ok(_) => PROXY.warn("the server names no `run_id`, as some proxies do", REMEDY),
        },
    }
}

fn short(id: &str) -> String {
    id.chars().take(8).collect()
}

/// Whether the clients have to wait long for other work of the server.
pub(super) fn fork(facts: &Facts, ttl: Ttl) -> Option<Check> {
    const FORK: Subject =
        Subject { id: "fork", why: "While the server forks to save its data, it answers nobody." };
    let took = Duration::from_micros(facts.number("latest_fork_usec")?);
    let evidence = format!("the latest fork took {}", span(took));
    Some(if took > ttl.get() / 20 {
        let remedy = "disable transparent huge pages, give locks a small server of their own, or \
                      use a longer ttl";
        FORK.warn(evidence, remedy)
    } else {
        FORK.ok(evidence)
    })
}
