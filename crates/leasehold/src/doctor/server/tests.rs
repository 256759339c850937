//! Each fault of a server is named, and a healthy one has none. All checks are pure functions.

mod bounds;
mod cluster;
mod more;
mod strict;

use std::time::Duration;

use super::{checks, deployment, nodes};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::{Moment, WallTime};
use crate::core::ttl::Ttl;
use crate::doctor::check::{Check, Verdict};
use crate::store::redis::examine::{
    Copied, Epoch, Expiry, Facts, Gap, Info, Leftovers, Place, Reading, Release, SentinelFacts,
};
use crate::store::redis::{Copies, Replicas, Strict, Strictness, Terms};

type Change = fn(&mut Facts);

const YES: Strictness = Strictness::Yes(Strict::STANDARD);

const HEALTHY: [(&str, &str); 17] = [
    ("redis_version", "8.10.1"),
    ("redis_mode", "standalone"),
    ("role", "master"),
    ("run_id", "abcdef0123"),
    ("master_replid", "0123"),
    ("master_replid2", "0000"),
    ("uptime_in_seconds", "100000"),
    ("connected_clients", "7"),
    ("maxclients", "10000"),
    ("used_memory", "1000000"),
    ("maxmemory", "100000000"),
    ("maxmemory_policy", "noeviction"),
    ("evicted_keys", "0"),
    ("aof_enabled", "1"),
    ("rdb_last_bgsave_status", "ok"),
    ("connected_slaves", "0"),
    ("latest_fork_usec", "500"),
];

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A reading `ms` after the first one, when the server's clock has moved by `said_ms`.
fn reading(ms: u64, said_ms: u64) -> Reading {
    let at = |ms: u64| Moment::from_nanos((1_000 + ms) * 1_000_000);
    let wall = |ms: u64| WallTime::from_unix_micros(1_800_000_000_000_000 + ms * 1_000);
    Reading { sent: at(ms), heard: at(ms + 1), wall: wall(ms), said: wall(said_ms) }
}

pub(in crate::doctor) fn healthy() -> Facts {
    let place = Place {
        label: "redis://h:6379/0".to_owned(),
        hosts: vec!["h".to_owned()],
        user: Some("app".to_owned()),
        has_login: true,
        has_tls: true,
        ..Place::default()
    };
    let info = HEALTHY.iter().fold(Info::default(), |info, (name, value)| info.with(name, value));
    Facts {
        round_trips: vec![millis(1); 20],
        hello: Ok(Info::default().with("mode", "standalone").with("role", "master")),
        info: Ok(info),
        role: Ok("master".to_owned()),
        appendfsync: Ok("everysec".to_owned()),
        second_run_id: Ok("abcdef0123".to_owned()),
        client_ids: Ok([7, 7]),
        clock: Ok(vec![reading(0, 0), reading(300, 300)]),
        write: Ok(()),
        expiry: Ok(Expiry { was_there: Some(true), stayed: false }),
        release_without_script: None,
        release: Ok(Release { by_wrong_token: false, by_right_token: true }),
        message: Ok(true),
        wait: Ok(0),
        fsync: Ok((1, millis(3))),
        epoch: Ok(Epoch::default()),
        powers: Ok(Vec::new()),
        leftovers: Ok(Leftovers { looked: 3, ..Leftovers::default() }),
        ..Facts::unasked(place, Terms::default())
    }
}

fn info(facts: &mut Facts, pairs: &[(&str, &str)]) {
    let mut info = facts.info.clone().expect("a healthy server");
    for (name, value) in pairs {
        info = info.with(name, value);
    }
    facts.info = Ok(info);
}

fn refused(text: &str) -> Gap {
    let code = text.split(' ').next().expect("a first word").to_owned();
    Gap::Refused { code, text: text.to_owned() }
}

/// The checks that are not fine, after a change of healthy facts.
fn faults(change: impl Fn(&mut Facts)) -> Vec<Check> {
    let mut facts = healthy();
    change(&mut facts);
    let all = checks(&facts, Ttl::DEFAULT);
    all.into_iter().filter(|check| check.verdict != Verdict::Ok).collect()
}

/// Asserts that each change makes exactly this check end like this, with these words.
#[track_caller]
fn assert_found(table: &[(Change, &str, Verdict, &str)]) {
    for (number, (change, id, verdict, words)) in table.iter().enumerate() {
        let found = faults(change);
        let [check] = &found[..] else { panic!("{number} {id}: {found:?}") };
        assert_eq!((check.id, check.verdict), (*id, *verdict), "{number}: {check:?}");
        let remedy = check.remedy.as_deref().expect("a remedy");
        let is_said = check.evidence.contains(words) || remedy.contains(words);
        assert!(is_said, "{number}: {words}: {check:?}");
        assert!(check.node == "redis://h:6379/0" && !check.why.is_empty());
    }
}

#[test]
fn a_healthy_server_has_no_fault() {
    assert_eq!(faults(|_| {}), []);
}

#[test]
fn a_server_that_is_the_wrong_one_is_named() {
    use Verdict::{Fail, Unknown, Warn};
    assert_found(&[
        (|it| it.fell_silent = true, "reachable", Fail, "fell silent"),
        (|it| it.round_trips = vec![millis(200); 20], "round-trip", Warn, "at least 20 s"),
        (|it| it.round_trips = vec![millis(1_100); 20], "round-trip", Fail, "p99"),
        (|it| it.round_trips.clear(), "round-trip", Unknown, "PING"),
        (|it| info(it, &[("redis_version", "6.0.16")]), "version", Fail, "6.2 or later"),
        (|it| info(it, &[("redis_version", "7.0.15")]), "version", Warn, "no fixes"),
        (|it| info(it, &[("redis_version", "8.2.8")]), "version", Warn, "8.2.9"),
        (|it| info(it, &[("redis_version", "strange")]), "version", Unknown, "strange"),
        (|it| it.role = Ok("slave".to_owned()), "role", Fail, "is a replica"),
        (
            |it| it.hello = Ok(Info::default().with("mode", "cluster")),
            "mode",
            Fail,
            "redis+cluster://",
        ),
        (
            |it| it.hello = Ok(Info::default().with("mode", "sentinel")),
            "mode",
            Fail,
            "redis+sentinel://",
        ),
        (|it| it.client_ids = Ok([7, 8]), "one-server", Fail, "7 and 8"),
        (|it| it.second_run_id = Ok("ff".to_owned()), "one-server", Fail, "and ff"),
        (|it| it.ended_at = vec!["TIME".to_owned()], "one-server", Fail, "at TIME, as with"),
    ]);
    let valkey: Change = |it| info(it, &[("valkey_version", "8.1.0"), ("redis_version", "7.2.4")]);
    assert_eq!(faults(valkey), []);
}

#[test]
fn a_server_that_cannot_be_reached_has_one_check_that_says_why() {
    for (kind, words) in [
        (ErrorKind::Denied, "correct the user and the password"),
        (ErrorKind::Config, "correct the URL"),
        (ErrorKind::Unavailable, "start the server"),
    ] {
        let mut facts = Facts::unasked(Place::default(), Terms::default());
        facts.unreached = Some(Error::new(kind, "it is so"));
        let [check] = &checks(&facts, Ttl::DEFAULT)[..] else { panic!("one check") };
        assert_eq!((check.verdict, check.evidence.as_str()), (Verdict::Fail, "it is so"));
        assert!(check.remedy.as_deref().expect("a remedy").starts_with(words), "{check:?}");
    }
}

#[test]
fn a_clock_that_ends_leases_at_the_wrong_time_is_named() {
    use Verdict::{Fail, Warn};
    assert_found(&[
        (|it| it.clock = Ok(vec![reading(0, 5), reading(300, 5)]), "clock", Fail, "stands still"),
        (|it| it.clock = Ok(vec![reading(0, 5), reading(300, 8)]), "clock", Fail, "stands still"),
        (|it| it.clock = Ok(vec![reading(0, 9), reading(300, 5)]), "clock", Fail, "went back"),
        (|it| it.clock = Ok(vec![reading(0, 0), reading(300, 320)]), "clock", Warn, "320 ms"),
        (|it| it.clock = Ok(vec![reading(0, 0), reading(300, 290)]), "clock", Warn, "290 ms"),
        (
            |it| it.clock = Ok(vec![reading(0, 9_000), reading(300, 9_300)]),
            "clock-offset",
            Warn,
            "ahead of",
        ),
        (
            |it| it.expiry = Ok(Expiry { was_there: Some(true), stayed: true }),
            "expiry",
            Fail,
            "still there",
        ),
        (
            |it| it.expiry = Ok(Expiry { was_there: Some(false), stayed: false }),
            "expiry",
            Fail,
            "gone at once",
        ),
    ]);
    // Within the tolerance of 1 % and 2 ms, and the time that the answers took.
    for said in [296, 300, 305] {
        assert_eq!(faults(|it| it.clock = Ok(vec![reading(0, 0), reading(300, said)])), []);
    }
    assert_eq!(faults(|it| it.expiry = Ok(Expiry { was_there: None, stayed: false })), []);
}

#[test]
fn a_right_that_is_missing_is_named_with_the_rule_that_gives_it() {
    use Verdict::{Fail, Unknown, Warn};
    assert_found(&[
        (|it| it.missing = vec!["pexpire"], "rights", Fail, "ACL SETUSER app +pexpire"),
        (|it| it.missing = vec!["zadd", "scan"], "rights", Fail, "+zadd +scan"),
        (|it| it.missing = vec!["mget"], "rights", Warn, "for `ls`"),
        (|it| it.release = Err(Gap::Denied), "release", Fail, "+eval +evalsha"),
        (|it| it.release = Err(Gap::Absent), "release", Fail, "no scripts"),
        (
            |it| (it.release, it.release_without_script) = (Err(Gap::Absent), Some("DELEX")),
            "release",
            Warn,
            "`DELEX` deletes by token: only locks that are `unqueued().fencing(false)`",
        ),
        (
            |it| {
                it.missing = vec!["eval", "evalsha"];
                it.release_without_script = Some("DELIFEQ");
            },
            "rights",
            Warn,
            "ACL SETUSER app +eval +evalsha",
        ),
        (
            |it| it.release = Ok(Release { by_wrong_token: true, by_right_token: true }),
            "release",
            Fail,
            "a wrong token",
        ),
        (
            |it| it.release = Ok(Release { by_wrong_token: false, by_right_token: false }),
            "release",
            Fail,
            "the right token",
        ),
        (|it| it.message = Ok(false), "wake-up", Warn, "did not arrive"),
        (|it| it.message = Err(Gap::Denied), "wake-up", Warn, "+publish +subscribe"),
        (|it| it.message = Err(Gap::DeniedChannel), "wake-up", Warn, "&:lh:inbox:*"),
        (|it| it.shard_channels = Err(Gap::Denied), "wake-up", Warn, "+spublish +ssubscribe"),
        (|it| it.leftovers = Err(Gap::Denied), "leftovers", Unknown, "ACL SETUSER app +scan"),
        (|it| it.leftovers = Err(Gap::DeniedKey), "leftovers", Unknown, "use --namespace"),
        (|it| it.clock = Err(Gap::Denied), "clock", Unknown, "ACL SETUSER app +time"),
        (|it| it.expiry = Err(Gap::DeniedKey), "expiry", Unknown, "--namespace"),
    ]);
    // Without INFO, what it would have told is unknown, and nothing fails.
    let found = faults(|it| {
        (it.info, it.second_run_id) = (Err(Gap::Denied), Err(Gap::NotAsked));
    });
    assert!(found.len() >= 6, "{found:?}");
    for check in found {
        assert_eq!(check.verdict, Unknown, "{check:?}");
        assert_eq!(check.remedy.as_deref(), Some("ACL SETUSER app +info"), "{check:?}");
    }
}

#[test]
fn a_server_that_does_not_keep_locks_is_named() {
    use Verdict::{Fail, Warn};
    assert_found(&[
        (|it| it.write = Err(refused("MISCONF no disk")), "writes", Fail, "BGSAVE"),
        (|it| it.write = Err(refused("OOM no memory")), "writes", Fail, "maxmemory"),
        (|it| info(it, &[("maxmemory_policy", "allkeys-lru")]), "eviction", Fail, "noeviction"),
        (|it| info(it, &[("maxmemory_policy", "volatile-ttl")]), "eviction", Fail, "volatile-ttl"),
        (|it| info(it, &[("evicted_keys", "5")]), "eviction", Warn, "5 keys"),
        (|it| info(it, &[("used_memory", "81000001")]), "memory", Warn, "81 %"),
        (
            |it| it.fsync = Err(refused("ERR WAITAOF cannot be used without appendonly")),
            "persistence",
            Warn,
            "CONFIG SET appendonly yes",
        ),
        (|it| it.appendfsync = Ok("no".to_owned()), "persistence", Warn, "everysec"),
        (
            |it| {
                // Before Redis 7.2.
                it.fsync = Err(Gap::Absent);
                info(it, &[("aof_enabled", "0")]);
            },
            "persistence",
            Warn,
            "CONFIG SET appendonly yes",
        ),
        (|it| info(it, &[("rdb_last_bgsave_status", "err")]), "saving", Warn, "bgsave"),
        (|it| info(it, &[("uptime_in_seconds", "3")]), "restart", Warn, "wait for 8 s"),
    ]);
    let unlimited: Change =
        |it| info(it, &[("maxmemory", "0"), ("maxmemory_policy", "allkeys-lru")]);
    assert_eq!(faults(unlimited), []);
}

#[test]
fn replicas_are_judged_by_what_the_clients_wait_for() {
    let replica = "ip=h,port=1,state=online,offset=9,lag=0";
    let with_replica = move |it: &mut Facts| {
        info(it, &[("connected_slaves", "1"), ("slave0", replica)]);
        it.wait = Ok(1);
    };
    let ids = |found: &[Check]| found.iter().map(|check| check.id).collect::<Vec<_>>();
    assert_eq!(ids(&faults(with_replica)), ["replicas", "min-replicas"]);
    let covered = move |it: &mut Facts| {
        with_replica(it);
        info(it, &[("min_slaves_good_slaves", "1")]);
        it.terms = Copies::new(Replicas::Majority, false).into();
    };
    assert_eq!(faults(covered), []);
    let late = faults(|it| {
        covered(it);
        it.wait = Ok(0);
    });
    assert_eq!(ids(&late), ["replicas"]);
    let lagging = faults(|it| {
        covered(it);
        info(it, &[("slave0", "ip=h,port=1,state=online,offset=9,lag=7")]);
    });
    assert!(lagging[0].evidence.contains("lag 7 s"), "{lagging:?}");
}

fn sentinel(down_after: &str, others: &str, quorum: &str) -> SentinelFacts {
    let primary = Info::default()
        .with("down-after-milliseconds", down_after)
        .with("num-other-sentinels", others)
        .with("quorum", quorum);
    SentinelFacts { label: "s:1".to_owned(), primary: Ok(primary), has_quorum: Ok(true) }
}

#[test]
fn sentinels_that_cannot_fail_over_in_time_are_named() {
    use Verdict::{Fail, Warn};
    assert_eq!(faults(|it| it.sentinels = vec![sentinel("5000", "2", "2")]), []);
    assert_found(&[
        (|it| it.sentinels = vec![sentinel("30000", "2", "2")], "down-after", Warn, "30 s"),
        (
            |it| it.sentinels = ["5000", "30000"].map(|ms| sentinel(ms, "2", "2")).into(),
            "down-after",
            Warn,
            "30 s",
        ),
        (|it| it.sentinels = vec![sentinel("5000", "1", "2")], "sentinels", Warn, "know 2"),
        (|it| it.sentinels = vec![sentinel("5000", "2", "1")], "sentinels", Warn, "quorum 2"),
        (
            |it| {
                let broken = SentinelFacts { has_quorum: Ok(false), ..sentinel("5000", "2", "2") };
                it.sentinels = vec![broken];
            },
            "sentinels",
            Fail,
            "no failover is possible",
        ),
        (
            |it| {
                let error = Error::new(ErrorKind::Unavailable, "no server listens there");
                let down = SentinelFacts { primary: Err(error), ..sentinel("", "", "") };
                it.sentinels = vec![sentinel("5000", "2", "2"), down];
            },
            "sentinels",
            Warn,
            "no server listens there",
        ),
    ]);
}

#[test]
fn access_and_load_are_judged_by_where_the_server_is() {
    use Verdict::Warn;
    assert_found(&[
        (|it| it.place.has_tls = false, "encryption", Warn, "the password"),
        (|it| it.place.has_login = false, "login", Warn, "--print-acl"),
        (|it| info(it, &[("connected_clients", "9000")]), "clients", Warn, "20000"),
        (|it| info(it, &[("latest_fork_usec", "600000")]), "fork", Warn, "600 ms"),
        (
            |it| {
                it.leftovers =
                    Ok(Leftovers { endless: vec!["x".to_owned()], ..Leftovers::default() });
            },
            "leftovers",
            Warn,
            "`x`",
        ),
    ]);
    let here: Change = |it| {
        it.place.has_tls = false;
        it.place.hosts = vec!["127.0.0.1".to_owned()];
    };
    assert_eq!(faults(here), []);
}

/// The checks that are not fine for three nodes, of which one is changed.
fn together(change: impl Fn(&mut Facts)) -> Vec<Check> {
    let mut all = [1, 2, 3].map(|number: usize| {
        let mut facts = healthy();
        facts.place.label = format!("n{number}");
        facts.place.url = number;
        facts.place.hosts = vec![format!("h{number}")];
        let id = number.to_string();
        info(&mut facts, &[("run_id", &id), ("master_replid", &id)]);
        facts.marks = (1..=3).map(|other| Ok(other == number)).collect();
        facts
    });
    change(&mut all[1]);
    let found = nodes::checks(3, &all.iter().collect::<Vec<_>>());
    found.into_iter().filter(|check| check.verdict != Verdict::Ok).collect()
}

#[test]
fn nodes_that_are_not_independent_are_named() {
    use Verdict::{Fail, Unknown, Warn};
    assert_eq!(together(|_| {}), []);
    let table: [(Change, &str, Verdict, &str); 8] = [
        (|it| it.terms.strict = YES, "same-terms", Fail, "n2 is strict, and n1"),
        (|it| it.marks[0] = Ok(true), "independent-nodes", Fail, "a write to n1 appears at n2"),
        (|it| info(it, &[("run_id", "1")]), "independent-nodes", Fail, "are one process"),
        (|it| info(it, &[("master_replid", "3")]), "independent-nodes", Fail, "are one history"),
        (|it| it.place.hosts = vec!["h1".to_owned()], "distinct-hosts", Warn, "2 of 3"),
        (
            |it| it.clock = Ok(vec![reading(0, 5_000), reading(300, 5_300)]),
            "clock-spread",
            Warn,
            "5000 ms apart",
        ),
        (|it| it.clock = Ok(vec![reading(0, 700_000)]), "clock-spread", Fail, "700 s apart"),
        (|it| it.clock = Err(Gap::Denied), "clock-spread", Unknown, "2 of 3 servers were read"),
    ];
    for (change, id, verdict, words) in table {
        let found = together(change);
        let [check] = &found[..] else { panic!("{id}: {found:?}") };
        assert_eq!((check.id, check.verdict), (id, verdict));
        assert!(check.evidence.contains(words) && check.node.is_empty(), "{check:?}");
    }
    // A node that was not reached may be like the others.
    assert_eq!(together(|it| it.terms.strict = Strictness::AsDatabase), []);
    let size = |count| nodes::checks(count, &[])[0].verdict;
    assert_eq!([2, 3, 4, 5].map(size), [Warn, Verdict::Ok, Warn, Verdict::Ok]);
}

#[test]
fn the_clocks_of_all_servers_are_compared_and_of_no_other_stores() {
    use Verdict::{Ok, Unknown, Warn};
    let (read, late) = (Some(0), Some(5_000));
    // The offsets of the servers, and the check. All have one URL, as the nodes of a cluster do.
    let table = [
        (&[][..], None, ""),
        (&[read], None, ""),
        (&[None], None, ""),
        (&[read, read], Some(Ok), "clocks of 2 servers are"),
        (&[read, late], Some(Warn), "5000 ms apart"),
        (&[read, None], Some(Unknown), "1 of 2 servers"),
        (&[read, read, read], Some(Ok), "clocks of 3 servers are"),
        (&[read, None, read], Some(Unknown), "2 of 3 servers"),
        (&[None, None, None], Some(Unknown), "0 of 3 servers"),
    ];
    for (said, verdict, words) in table {
        let facts = said.iter().map(|said| Facts {
            clock: said.map(|ms| vec![reading(0, ms)]).ok_or(Gap::Denied),
            ..healthy()
        });
        let facts: Vec<_> = facts.collect();
        let checks = nodes::checks(3, &facts.iter().collect::<Vec<_>>());
        let check = checks.iter().find(|check| check.id == "clock-spread");
        assert_eq!(check.map(|it| it.verdict), verdict, "{said:?}");
        assert!(check.is_none_or(|it| it.evidence.contains(words)), "{check:?}");
    }
}

#[test]
fn a_deployment_survives_what_all_of_its_servers_survive() {
    let with_file = deployment(&[healthy(), healthy()], &[]);
    assert!(with_file.has_log && !with_file.is_on_disk && !with_file.is_strict);
    let mut without = healthy();
    without.fsync = Err(refused("ERR WAITAOF cannot be used without appendonly"));
    info(&mut without, &[("maxmemory_policy", "allkeys-lru"), ("connected_slaves", "1")]);
    let one_without = deployment(&[healthy(), without], &[]);
    assert!(!one_without.has_log && one_without.evicts && one_without.has_replicas);
    let mut always = healthy();
    always.appendfsync = Ok("always".to_owned());
    assert!(deployment(&[always], &[]).is_on_disk);
}
