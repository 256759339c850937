//! Checks of a ZooKeeper ensemble.

use std::time::Duration;

use super::Examined;
use super::check::{Check, Subject};
use super::members::Members;
use super::survival::{Deployment, Kind};
use super::texts::advice_of;
use super::trials::{release, round_trip};
use crate::core::ttl::Ttl;
use crate::store::ZookeeperFacts;

const VERSION: Subject = Subject {
    id: "version",
    why: "Before 3.5, ZooKeeper keeps the nodes of locks that nobody uses any more.",
};

const SESSION: Subject = Subject {
    id: "session",
    why: "A lock whose process died is free when the session ends. No lease may be longer than the \
          server surely keeps a session.",
};

/// The oldest version that locks work on.
const OLDEST: (u32, u32) = (3, 5);

pub(super) fn examined(facts: ZookeeperFacts, ttl: Ttl) -> Examined {
    let (checks, deployment) = (checks(&facts, ttl), deployment(&facts));
    Examined { checks, deployment, refused: facts.refused }
}

fn checks(facts: &ZookeeperFacts, ttl: Ttl) -> Vec<Check> {
    let checks = [
        Some(Members::reachable(facts.refused.as_ref())),
        Some(members(facts).check()),
        version(facts),
        facts.session.map(|it| session(it, facts.longest.unwrap_or_default(), ttl)),
        round_trip(&facts.round_trips, ttl, 20, "a closer ensemble"),
        facts.lease.as_ref().map(|lease| release(lease, advice_of)),
    ];
    checks.into_iter().flatten().map(|check| check.at(&facts.label)).collect()
}

/// The facts that decide what a lock there survives.
fn deployment(facts: &ZookeeperFacts) -> Deployment {
    let has_failover = members(facts).answering() >= 3;
    Deployment { kind: Kind::Members, has_failover, ..Deployment::ON_DISK }
}

fn members(facts: &ZookeeperFacts) -> Members<'_> {
    let all = facts.servers.iter().map(|it| (&*it.name, it.said.as_ref().err())).collect();
    let said = facts.servers.iter().filter_map(|it| it.said.as_ref().ok()?.as_ref());
    let roles = said.map(|(_, role)| role.escape_debug().to_string()).collect();
    Members { scheme: "zookeeper", all, roles }
}

/// Checks the version. `None` if no server may tell it.
fn version(facts: &ZookeeperFacts) -> Option<Check> {
    let said = facts.servers.iter().filter_map(|it| it.said.as_ref().ok()?.as_ref());
    let oldest = said.map(|it| &*it.0).min_by_key(|version| numbers(version))?;
    let evidence = format!("ZooKeeper {}", oldest.escape_debug());
    Some(if numbers(oldest) < OLDEST {
        VERSION.warn(evidence, "use ZooKeeper 3.5 or newer")
    } else {
        VERSION.ok(evidence)
    })
}

fn numbers(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next())
}

fn session((wanted, granted): (Duration, Duration), longest: Duration, ttl: Ttl) -> Check {
    let mut evidence = format!("{granted:?}, for a ttl of up to {longest:?}");
    if wanted != granted {
        evidence = format!("{evidence}; the URL wants {wanted:?}");
    }
    if longest < ttl.get() {
        let advice = "write a longer `session_timeout` in the URL, and raise `maxSessionTimeout` \
                      of the servers if they grant less; or use a shorter ttl";
        return SESSION.fail(evidence, advice);
    }
    SESSION.ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::{Error, ErrorKind};
    use crate::doctor::Verdict;
    use crate::store::ServerFacts;

    fn healthy() -> ZookeeperFacts {
        let server = |name: &str| ServerFacts {
            name: name.to_owned(),
            said: Ok(Some(("3.8.0".to_owned(), "follower".to_owned()))),
        };
        ZookeeperFacts {
            label: "zookeeper://a,b,c/x".to_owned(),
            refused: None,
            servers: ["a:1", "b:1", "c:1"].map(server).into(),
            session: Some((Duration::from_secs(15), Duration::from_secs(15))),
            longest: Some(Duration::from_millis(11_250)),
            round_trips: vec![Duration::from_micros(200); 20],
            lease: Some(Ok(true)),
        }
    }

    #[test]
    fn the_oldest_server_decides_and_a_session_outlives_the_ttl() {
        for (versions, verdict) in [
            (["3.5.0", "3.8.0", "3.9.1"], Verdict::Ok),
            (["3.9.1", "3.4.14", "3.8.0"], Verdict::Warn),
            (["3.10.0", "3.9.1", "3.8.0"], Verdict::Ok),
        ] {
            let mut facts = healthy();
            for (server, version) in facts.servers.iter_mut().zip(versions) {
                server.said = Ok(Some((version.to_owned(), "follower".to_owned())));
            }
            let check = version(&facts).expect("they say it");
            assert_eq!(check.verdict, verdict, "{versions:?}");
        }
        let (wanted, granted) = (Duration::from_secs(20), Duration::from_secs(15));
        let ttl = Ttl::DEFAULT;
        let judged = |longest| session((wanted, granted), longest, ttl);
        assert_eq!(judged(ttl.get()).verdict, Verdict::Ok);
        let short = judged(ttl.get() - Duration::from_nanos(1));
        assert_eq!(short.verdict, Verdict::Fail);
        assert!(short.evidence.starts_with("15s") && short.evidence.ends_with("wants 20s"));
        assert!(deployment(&healthy()).has_failover);
    }

    #[test]
    fn each_fault_of_an_ensemble_is_named() {
        type Change = fn(&mut ZookeeperFacts);
        fn down() -> Error {
            Error::new(ErrorKind::Unavailable, "no server listens there")
        }
        let table: &[(Change, &str, Verdict)] = &[
            (|it| it.refused = Some(down()), "reachable", Verdict::Fail),
            (|it| it.servers[1].said = Err(down()), "members", Verdict::Warn),
            (|it| it.servers.truncate(1), "members", Verdict::Warn),
            (
                |it| it.servers[0].said = Ok(Some(("3.8.0".to_owned(), "read-only".to_owned()))),
                "members",
                Verdict::Warn,
            ),
            (
                |it| it.servers[0].said = Ok(Some(("3.4.14".to_owned(), "leader".to_owned()))),
                "version",
                Verdict::Warn,
            ),
            (|it| it.longest = Some(Duration::from_secs(6)), "session", Verdict::Fail),
            (|it| it.round_trips = vec![Duration::from_secs(1)], "round-trip", Verdict::Warn),
            (|it| it.lease = Some(Ok(false)), "release", Verdict::Fail),
        ];
        let faults = |facts: &ZookeeperFacts| -> Vec<_> {
            let checks = checks(facts, Ttl::DEFAULT);
            checks.into_iter().filter(|it| it.verdict != Verdict::Ok).collect()
        };
        assert_eq!(faults(&healthy()), []);
        // Servers that may not say what they are.
        let mut silent = healthy();
        silent.servers.iter_mut().for_each(|server| server.said = Ok(None));
        assert_eq!(faults(&silent), []);
        for (change, id, verdict) in table {
            let mut facts = healthy();
            change(&mut facts);
            let found = faults(&facts);
            let [found] = &found[..] else { panic!("{id}: {found:?}") };
            assert_eq!((found.id, found.verdict), (*id, *verdict));
            assert!(found.remedy.is_some() && found.node == "zookeeper://a,b,c/x");
        }
    }
}
