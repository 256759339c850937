//! Checks of a database of an SQL server.

use std::cmp::Ordering;
use std::time::Duration;

use super::Examined;
use super::check::{Check, Subject};
use super::survival::Deployment;
use super::texts::{advice_of, span};
use super::trials::{failed, release, round_trip};
use crate::core::ttl::Ttl;
use crate::store::{About, DatabaseFacts, HintsArrive, Keeping, MIGRATE};

const REACHABLE: Subject = Subject {
    id: "reachable",
    why: "Without its server, nobody gets a lock, and holders lose theirs.",
};

const TABLES: Subject = Subject {
    id: "tables",
    why: "Steps are functions in the database. Old functions lack the fixes of newer builds.",
};

const OFFSET: Subject = Subject {
    id: "clock-offset",
    why: "Fencing tokens follow the server's clock. If a server takes over, its clock must not be \
          behind that of the old server.",
};

const DURABLE: Subject = Subject {
    id: "durable",
    why: "A server that forgets its last commits in a crash may grant a lock that is held.",
};

const STANDBYS: Subject = Subject {
    id: "standbys",
    why: "A standby that takes over without the last commits may grant a lock that is held.",
};

const HINTS: Subject = Subject {
    id: "hints",
    why: "A waiter that no hint reaches learns of its turn when it asks again, up to a second \
          late.",
};

/// The largest offset without a warning, in addition to the round trip.
const OFFSET_MAX: Duration = Duration::from_secs(1);

pub(super) fn examined(facts: DatabaseFacts, ttl: Ttl) -> Examined {
    let (checks, deployment) = (checks(&facts, ttl), deployment(&facts));
    Examined { checks, deployment, refused: facts.refused }
}

fn checks(facts: &DatabaseFacts, ttl: Ttl) -> Vec<Check> {
    let about = facts.about.as_ref();
    let checks = [
        Some(reachable(facts)),
        about.map(tables),
        round_trip(&facts.round_trips, ttl, 20, "a closer server"),
        facts.lease.as_ref().map(|lease| release(lease, advice_of)),
        about.map(offset),
        about.map(|about| durable(&about.keeping)),
        about.map(|about| standbys(&about.keeping)),
        about.and_then(|about| about.hints.as_ref()).map(hints),
    ];
    checks.into_iter().flatten().map(|check| check.at(&facts.label)).collect()
}

/// The facts that decide what a lock there survives.
fn deployment(facts: &DatabaseFacts) -> Deployment {
    let (is_on_disk, has_replicas) = match facts.about.as_ref().map(|about| &about.keeping) {
        None => (false, false),
        #[cfg(feature = "mysql")]
        // Replicas are not known, since any server may follow the log.
        Some(Keeping::Mysql { flush, has_log, syncs_log }) => {
            (*flush == 1 && (*syncs_log || !has_log), *has_log)
        }
        #[cfg(feature = "postgres")]
        Some(Keeping::Postgres { commit, has_fsync, standbys, .. }) => {
            (*has_fsync && commit != "off", *standbys > 0)
        }
    };
    Deployment { has_log: true, is_on_disk, has_replicas, ..Deployment::default() }
}

fn reachable(facts: &DatabaseFacts) -> Check {
    match (&facts.refused, &facts.about) {
        (Some(error), _) => failed(REACHABLE, error, advice_of(error)),
        (None, Some(about)) => {
            REACHABLE.ok(format!("{}, with the tables of Leasehold", about.server))
        }
        (None, None) => REACHABLE.unknown("the server does not say what it is", "see its log"),
    }
}

/// Judges tables that this build can use. If it cannot, the database is not reachable for it.
fn tables(about: &About) -> Check {
    let About { version, ours, .. } = about;
    match version.cmp(ours) {
        Ordering::Less => TABLES.warn(
            format!("they are of version {version}, and the version of this build is {ours}"),
            MIGRATE,
        ),
        Ordering::Equal => TABLES.ok(format!("they are of version {version}, as in this build")),
        Ordering::Greater => TABLES.ok(format!(
            "they are of version {version}, and this build, whose version is {ours}, can use them"
        )),
    }
}

fn offset(about: &About) -> Check {
    let size = Duration::from_micros(about.ahead_us.unsigned_abs());
    let side = if about.ahead_us < 0 { "behind" } else { "ahead of" };
    let evidence = format!(
        "the server's time of day is {} {side} that of this machine, give or take {}",
        span(size),
        span(about.trip)
    );
    if size > OFFSET_MAX + about.trip {
        OFFSET.warn(evidence, "run a time service on both machines that slews the clock")
    } else {
        OFFSET.ok(evidence)
    }
}

fn durable(keeping: &Keeping) -> Check {
    match keeping {
        #[cfg(feature = "mysql")]
        Keeping::Mysql { flush, .. } if *flush != 1 => DURABLE.warn(
            format!("innodb_flush_log_at_trx_commit = {flush}"),
            "set `innodb_flush_log_at_trx_commit = 1` on the server",
        ),
        #[cfg(feature = "mysql")]
        Keeping::Mysql { has_log: true, syncs_log: false, .. } => {
            DURABLE.warn("sync_binlog is not 1", "set `sync_binlog = 1` on the server")
        }
        #[cfg(feature = "mysql")]
        Keeping::Mysql { .. } => DURABLE.ok("innodb_flush_log_at_trx_commit = 1"),
        #[cfg(feature = "postgres")]
        Keeping::Postgres { has_fsync: false, .. } => {
            DURABLE.warn("fsync = off", "set `fsync = on` on the server")
        }
        #[cfg(feature = "postgres")]
        Keeping::Postgres { commit, .. } if commit == "off" => {
            DURABLE.warn("synchronous_commit = off", "ALTER ROLE … SET synchronous_commit = on")
        }
        #[cfg(feature = "postgres")]
        Keeping::Postgres { commit, .. } => {
            DURABLE.ok(format!("fsync = on, synchronous_commit = {commit}"))
        }
    }
}

fn standbys(keeping: &Keeping) -> Check {
    match keeping {
        #[cfg(feature = "mysql")]
        Keeping::Mysql { has_log: false, .. } => STANDBYS.ok("no replica can follow it"),
        #[cfg(feature = "mysql")]
        Keeping::Mysql { has_log: true, .. } => {
            STANDBYS.unknown("replicas may follow its log", "make commits wait for one of them")
        }
        #[cfg(feature = "postgres")]
        Keeping::Postgres { standbys: 0, .. } => STANDBYS.ok("no standby is connected"),
        #[cfg(feature = "postgres")]
        Keeping::Postgres { commit, standbys, names_standbys, .. } => {
            if *names_standbys && matches!(&**commit, "on" | "remote_write" | "remote_apply") {
                STANDBYS.ok(format!("{standbys} connected"))
            } else {
                STANDBYS.warn(
                    format!("{standbys} connected, and commits do not wait for them"),
                    "set `synchronous_standby_names`, and `synchronous_commit = on`",
                )
            }
        }
    }
}

fn hints(hints: &HintsArrive) -> Check {
    match hints {
        HintsArrive::Yes => HINTS.ok("a message to a session that listens arrived"),
        HintsArrive::NotWithin(limit) => HINTS.warn(
            format!(
                "a message to a session that listens did not arrive within {}, as behind a proxy \
                 that runs each transaction on another connection",
                span(*limit)
            ),
            "connect to the server itself, or use the session mode of the proxy",
        ),
        HintsArrive::NotKnown => HINTS.unknown(
            "this could not be tried: no second connection was possible, or the server is slow",
            "try again, and check the server's limit of connections",
        ),
    }
}

#[cfg(feature = "postgres")]
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::core::error::{Error, ErrorKind};
    use crate::doctor::Verdict;

    fn keeping(commit: &str, has_fsync: bool, standbys: u32) -> Keeping {
        let (commit, names_standbys) = (commit.to_owned(), true);
        Keeping::Postgres { commit, has_fsync, standbys, names_standbys }
    }

    pub(in crate::doctor) fn healthy() -> DatabaseFacts {
        DatabaseFacts {
            label: "postgres://u@h/d".to_owned(),
            refused: None,
            about: Some(About {
                server: "PostgreSQL 15.4".to_owned(),
                version: 2,
                ours: 2,
                keeping: keeping("on", true, 0),
                hints: Some(HintsArrive::Yes),
                ahead_us: -40,
                trip: Duration::from_micros(100),
            }),
            round_trips: vec![Duration::from_micros(200); 20],
            lease: Some(Ok(true)),
        }
    }

    #[test]
    fn a_clock_is_compared_from_both_sides() {
        let judged = |ahead_us: i64| {
            let about = healthy().about.map(|about| About { ahead_us, ..about });
            let check = offset(&about.expect("it is known"));
            (check.verdict, check.evidence.contains("behind"))
        };
        // The question took 100 µs.
        for (offset_us, verdict) in [(1_000_100, Verdict::Ok), (1_000_101, Verdict::Warn)] {
            assert_eq!(judged(offset_us), (verdict, false));
            assert_eq!(judged(-offset_us), (verdict, true));
        }
    }

    /// The settings, the verdicts about durability and standbys, and what follows for a lock.
    type Kept = (Keeping, Verdict, Verdict, bool, bool);

    #[track_caller]
    fn assert_kept(table: &[Kept]) {
        for (keeping, is_durable, has_standbys, is_on_disk, has_replicas) in table {
            let mut facts = healthy();
            facts.about.as_mut().expect("it is known").keeping = keeping.clone();
            let found = (durable(keeping).verdict, standbys(keeping).verdict);
            assert_eq!(found, (*is_durable, *has_standbys), "{keeping:?}");
            let found = deployment(&facts);
            assert!(found.has_log, "a restart forgets nothing: {keeping:?}");
            assert_eq!((found.is_on_disk, found.has_replicas), (*is_on_disk, *has_replicas));
        }
    }

    #[test]
    fn commits_of_postgres_are_kept_as_its_settings_say() {
        use Verdict::{Ok, Warn};
        // Commits wait for the standbys that are named alone. By default, none is.
        let commit = "on".to_owned();
        let unnamed =
            Keeping::Postgres { commit, has_fsync: true, standbys: 1, names_standbys: false };
        assert_kept(&[
            (keeping("on", true, 0), Ok, Ok, true, false),
            (keeping("on", true, 1), Ok, Ok, true, true),
            (unnamed, Ok, Warn, true, true),
            (keeping("remote_write", true, 1), Ok, Ok, true, true),
            (keeping("remote_apply", true, 1), Ok, Ok, true, true),
            (keeping("local", true, 0), Ok, Ok, true, false),
            (keeping("local", true, 2), Ok, Warn, true, true),
            (keeping("off", true, 1), Warn, Warn, false, true),
            (keeping("on", false, 0), Warn, Ok, false, false),
        ]);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn commits_of_mysql_are_kept_as_its_settings_say() {
        use Verdict::{Ok, Unknown, Warn};
        let keeping = |flush, has_log, syncs_log| Keeping::Mysql { flush, has_log, syncs_log };
        assert_kept(&[
            (keeping(1, false, false), Ok, Ok, true, false),
            (keeping(1, true, true), Ok, Unknown, true, true),
            (keeping(1, true, false), Warn, Unknown, false, true),
            (keeping(0, false, true), Warn, Ok, false, false),
            (keeping(2, true, true), Warn, Unknown, false, true),
        ]);
    }

    #[test]
    fn each_fault_of_a_database_is_named() {
        type Change = fn(&mut DatabaseFacts);
        fn about(facts: &mut DatabaseFacts) -> &mut About {
            facts.about.as_mut().expect("it is known")
        }
        let table: &[(Change, &str, Verdict)] = &[
            (
                |it| it.refused = Some(Error::new(ErrorKind::Denied, "no right")),
                "reachable",
                Verdict::Fail,
            ),
            (|it| about(it).ours = 3, "tables", Verdict::Warn),
            (|it| it.round_trips = vec![Duration::from_secs(1)], "round-trip", Verdict::Warn),
            (|it| it.lease = Some(Ok(false)), "release", Verdict::Fail),
            (|it| about(it).ahead_us = 2_000_000, "clock-offset", Verdict::Warn),
            (|it| about(it).keeping = keeping("on", false, 0), "durable", Verdict::Warn),
            (|it| about(it).keeping = keeping("off", true, 0), "durable", Verdict::Warn),
            (|it| about(it).keeping = keeping("local", true, 1), "standbys", Verdict::Warn),
            (
                |it| about(it).hints = Some(HintsArrive::NotWithin(OFFSET_MAX)),
                "hints",
                Verdict::Warn,
            ),
            (|it| about(it).hints = Some(HintsArrive::NotKnown), "hints", Verdict::Unknown),
        ];
        let faults = |facts: &DatabaseFacts| -> Vec<_> {
            let checks = checks(facts, Ttl::DEFAULT);
            checks.into_iter().filter(|it| it.verdict != Verdict::Ok).collect()
        };
        assert_eq!(faults(&healthy()), []);
        let mut newer = healthy();
        about(&mut newer).version = 3;
        assert_eq!(faults(&newer), [], "it serves this build");
        for (change, id, verdict) in table {
            let mut facts = healthy();
            change(&mut facts);
            let found = faults(&facts);
            let [found] = &found[..] else { panic!("{id}: {found:?}") };
            assert_eq!((found.id, found.verdict), (*id, *verdict));
            assert!(found.remedy.is_some() && found.node == "postgres://u@h/d");
        }
    }
}
