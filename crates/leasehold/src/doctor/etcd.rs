//! Checks of an etcd cluster.

use super::Examined;
use super::check::{Check, Subject};
use super::members::Members;
use super::survival::{Deployment, Kind};
use super::texts::advice_of;
use super::trials::{release, round_trip};
use crate::core::ttl::Ttl;
use crate::store::EtcdFacts;

const VERSION: Subject = Subject {
    id: "version",
    why: "Before 3.4.31 and 3.5.13, a leader that stood still for a while may end leases that \
          another leader renewed. Then two clients may hold one lock.",
};

const ALARMS: Subject =
    Subject { id: "alarms", why: "A cluster with an alarm refuses writes, and so all locks." };

const SHORTEST: Subject = Subject {
    id: "shortest-lease",
    why: "A lock whose holder died is free after its ttl, rounded up to whole seconds, and never \
          before the shortest lease of the cluster.",
};

/// The oldest version that locks work on.
const OLDEST: (u32, u32, u32) = (3, 4, 0);

/// The first version of each series in which a replaced leader cannot end leases that were renewed.
const MENDED: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

pub(super) fn examined(facts: EtcdFacts, ttl: Ttl) -> Examined {
    let (checks, deployment) = (checks(&facts, ttl), deployment(&facts));
    Examined { checks, deployment, refused: facts.refused }
}

fn checks(facts: &EtcdFacts, ttl: Ttl) -> Vec<Check> {
    let checks = [
        Some(Members::reachable(facts.refused.as_ref())),
        Some(members(facts).check()),
        version(facts),
        alarms(facts),
        facts.shortest.map(|shortest| shortest_lease(shortest, ttl)),
        round_trip(&facts.round_trips, ttl, 20, "a closer cluster"),
        facts.lease.as_ref().map(|lease| release(lease, advice_of)),
    ];
    checks.into_iter().flatten().map(|check| check.at(&facts.label)).collect()
}

/// The facts that decide what a lock there survives.
fn deployment(facts: &EtcdFacts) -> Deployment {
    let has_failover = members(facts).answering() >= 3;
    Deployment { kind: Kind::Members, has_failover, ..Deployment::ON_DISK }
}

fn members(facts: &EtcdFacts) -> Members<'_> {
    let all = facts.members.iter().map(|it| (&*it.name, it.said.as_ref().err())).collect();
    Members { scheme: "etcd", all, roles: Vec::new() }
}

/// The answers of the members that told this user their state.
fn said(facts: &EtcdFacts) -> impl Iterator<Item = &(String, bool, Vec<String>)> {
    facts.members.iter().filter_map(|it| it.said.as_ref().ok()?.as_ref())
}

fn version(facts: &EtcdFacts) -> Option<Check> {
    let versions: Vec<_> = said(facts).map(|it| &*it.0).collect();
    let oldest = versions.iter().min_by_key(|version| numbers(version))?;
    let evidence = format!("etcd {}", oldest.escape_debug());
    let has_fault = |version: &&&str| {
        let ((_, minor, _), [old, new]) = (numbers(version), MENDED);
        numbers(version) < if minor == new.1 { new } else { old }
    };
    let faulty = versions.iter().find(has_fault).filter(|_| facts.members.len() > 1);
    Some(if numbers(oldest) < OLDEST {
        VERSION.fail(evidence, "use etcd 3.4 or newer")
    } else if let Some(faulty) = faulty {
        let advice = "use etcd 3.4.31, 3.5.13 or newer";
        VERSION.warn(format!("etcd {}", faulty.escape_debug()), advice)
    } else {
        VERSION.ok(evidence)
    })
}

fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers = version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

fn alarms(facts: &EtcdFacts) -> Option<Check> {
    let said: Vec<_> = said(facts).collect();
    if said.is_empty() {
        return None;
    }
    let mut errors: Vec<_> = said.iter().flat_map(|it| it.2.clone()).collect();
    errors.sort_unstable();
    errors.dedup();
    Some(if !errors.is_empty() {
        let advice = "see `etcdctl alarm list`; if it says NOSPACE, compact, defragment and disarm";
        ALARMS.warn(errors.join("; ").escape_debug().to_string(), advice)
    } else if said.iter().any(|it| !it.1) {
        ALARMS.warn("a member knows no leader", "check whether it reaches the others")
    } else {
        ALARMS.ok("none, and all members know a leader")
    })
}

fn shortest_lease(shortest: i64, ttl: Ttl) -> Check {
    let evidence = format!("{shortest} s");
    if shortest.unsigned_abs() > ttl.get().as_secs() {
        let advice = format!("use a ttl of at least {shortest} s, or a shorter election timeout");
        SHORTEST.warn(evidence, advice)
    } else {
        SHORTEST.ok(evidence)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::error::{Error, ErrorKind};
    use crate::doctor::Verdict;
    use crate::store::MemberFacts;

    fn healthy() -> EtcdFacts {
        let member = |name: &str| MemberFacts {
            name: name.to_owned(),
            said: Ok(Some(("3.5.13".to_owned(), true, Vec::new()))),
        };
        EtcdFacts {
            label: "etcd://a,b,c/x".to_owned(),
            refused: None,
            members: ["a:1", "b:1", "c:1"].map(member).into(),
            shortest: Some(2),
            round_trips: vec![Duration::from_micros(200); 20],
            lease: Some(Ok(true)),
        }
    }

    #[test]
    fn the_version_that_has_a_fault_is_named() {
        use Verdict::{Fail, Ok as Fine, Warn};
        let judged = |versions: &[&str]| {
            let mut facts = healthy();
            facts.members.truncate(versions.len());
            for (member, version) in facts.members.iter_mut().zip(versions) {
                member.said = Ok(Some(((*version).to_owned(), true, Vec::new())));
            }
            let check = version(&facts).expect("a member answers");
            (check.verdict, check.evidence)
        };
        for (versions, verdict, named) in [
            (&["3.5.13", "3.4.31"][..], Fine, "3.4.31"),
            (&["3.6.0", "3.5.13"], Fine, "3.5.13"),
            (&["3.6.0-rc.1", "3.6.0"], Fine, "3.6.0-rc.1"),
            (&["3.5.13", "3.4.30"], Warn, "3.4.30"),
            (&["3.4.31", "3.5.12"], Warn, "3.5.12"),
            (&["3.6.0", "3.4.0"], Warn, "3.4.0"),
            (&["3.6.0", "3.3.99"], Fail, "3.3.99"),
            // The fault needs a second leader.
            (&["3.5.12"], Fine, "3.5.12"),
        ] {
            assert_eq!(judged(versions), (verdict, format!("etcd {named}")), "{versions:?}");
        }
    }

    #[test]
    fn a_lease_may_be_as_short_as_the_ttl_and_three_members_survive_one() {
        let ttl = Ttl::DEFAULT;
        let verdict = |shortest| shortest_lease(shortest, ttl).verdict;
        assert_eq!([10, 11].map(verdict), [Verdict::Ok, Verdict::Warn]);
        let mut facts = healthy();
        assert!(deployment(&facts).has_failover);
        facts.members[2].said = Err(Error::new(ErrorKind::Unavailable, "it is gone"));
        assert!(!deployment(&facts).has_failover);
        // A user who is not root.
        facts.members.iter_mut().for_each(|member| member.said = Ok(None));
        assert!(deployment(&facts).has_failover && members(&facts).check().verdict == Verdict::Ok);
        assert!(version(&facts).is_none() && alarms(&facts).is_none());
    }

    #[test]
    fn each_fault_of_a_cluster_is_named() {
        type Change = fn(&mut EtcdFacts);
        fn down() -> Error {
            Error::new(ErrorKind::Unavailable, "no server listens there")
        }
        let table: &[(Change, &str, Verdict)] = &[
            (|it| it.refused = Some(down()), "reachable", Verdict::Fail),
            (|it| it.members[1].said = Err(down()), "members", Verdict::Warn),
            (|it| it.members.truncate(1), "members", Verdict::Warn),
            (|it| it.members.truncate(2), "members", Verdict::Warn),
            (
                |it| it.members[0].said = Ok(Some(("3.3.27".to_owned(), true, Vec::new()))),
                "version",
                Verdict::Fail,
            ),
            (
                |it| it.members[0].said = Ok(Some(("3.4.23".to_owned(), true, Vec::new()))),
                "version",
                Verdict::Warn,
            ),
            (
                |it| it.members[1].said = Ok(Some(("3.5.12".to_owned(), true, Vec::new()))),
                "version",
                Verdict::Warn,
            ),
            // The oldest member is mended.
            (
                |it| {
                    it.members[0].said = Ok(Some(("3.4.31".to_owned(), true, Vec::new())));
                    it.members[1].said = Ok(Some(("3.5.12".to_owned(), true, Vec::new())));
                },
                "version",
                Verdict::Warn,
            ),
            (
                |it| it.members[0].said = Ok(Some(("3.5.13".to_owned(), false, Vec::new()))),
                "alarms",
                Verdict::Warn,
            ),
            (
                |it| {
                    let alarm = vec!["NOSPACE".to_owned()];
                    it.members[2].said = Ok(Some(("3.6.0".to_owned(), true, alarm)));
                },
                "alarms",
                Verdict::Warn,
            ),
            (|it| it.shortest = Some(60), "shortest-lease", Verdict::Warn),
            (|it| it.round_trips = vec![Duration::from_secs(1)], "round-trip", Verdict::Warn),
            (|it| it.lease = Some(Ok(false)), "release", Verdict::Fail),
        ];
        let faults = |facts: &EtcdFacts| -> Vec<_> {
            let checks = checks(facts, Ttl::DEFAULT);
            checks.into_iter().filter(|it| it.verdict != Verdict::Ok).collect()
        };
        assert_eq!(faults(&healthy()), []);
        for (change, id, verdict) in table {
            let mut facts = healthy();
            change(&mut facts);
            let found = faults(&facts);
            let [found] = &found[..] else { panic!("{id}: {found:?}") };
            assert_eq!((found.id, found.verdict), (*id, *verdict));
            assert!(found.remedy.is_some() && found.node == "etcd://a,b,c/x");
        }
    }
}
