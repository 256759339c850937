//! Faults of users, certificates, other software and sentinels are named.

use super::*;

#[test]
fn other_causes_that_can_end_locks_are_named() {
    use Verdict::{Unknown, Warn};
    assert_found(&[
        (
            |it| sample(it, |all| all.lasting = vec!["old".to_owned()]),
            "leftovers",
            Warn,
            "more than 24 h: `old`",
        ),
        (
            |it| {
                sample(it, |all| {
                    (all.foreign, all.foreign_names) = (2, vec!["a".to_owned(), "b".to_owned()]);
                });
            },
            "foreign-holders",
            Warn,
            "2 have holders with other software: `a`, `b`",
        ),
        (|it| it.powers = Ok(vec!["FLUSHALL"]), "powers", Warn, "may run FLUSHALL"),
        (|it| it.powers = Ok(vec!["FLUSHALL", "CONFIG SET"]), "powers", Warn, "and CONFIG SET"),
        (|it| it.powers = Err(Gap::Denied), "powers", Unknown, "ACL DRYRUN app FLUSHALL"),
        (|it| buffer(it, "65536"), "message-buffer", Warn, "64 KiB of unread messages"),
        (
            |it| it.certificate = Some(Err(later("the server's certificate has expired"))),
            "certificate",
            Warn,
            "within 30 days",
        ),
        (
            |it| it.certificate = Some(Err(later("no server listens there"))),
            "certificate",
            Unknown,
            "no server listens",
        ),
    ]);
    let fine: [Change; 5] = [
        |it| buffer(it, "0"),
        |it| buffer(it, "33554432"),
        |it| it.buffers = Ok("nonsense".to_owned()),
        |it| it.certificate = Some(Ok(())),
        |it| sample(it, |all| all.looked = 0),
    ];
    for change in fine {
        assert_eq!(faults(change), []);
    }
}

fn sample(it: &mut Facts, change: fn(&mut Leftovers)) {
    change(it.leftovers.as_mut().expect("a healthy server"));
}

fn buffer(it: &mut Facts, hard: &str) {
    it.buffers = Ok(format!("normal 0 0 0 slave 256 64 60 pubsub {hard} 8 60"));
}

fn later(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}; no request was sent; renew it"))
}

/// A sentinel that names a primary.
fn naming(port: &str, epoch: &str) -> SentinelFacts {
    let facts = sentinel("5000", "2", "2");
    let primary = facts.primary.expect("it answers");
    let primary = primary.with("ip", "h").with("port", port).with("config-epoch", epoch);
    SentinelFacts { primary: Ok(primary), ..sentinel("5000", "2", "2") }
}

#[test]
fn sentinels_that_name_different_primaries_are_named() {
    let found = |views: &[(&str, &str)]| {
        let mut facts = healthy();
        facts.sentinels = views.iter().map(|(port, epoch)| naming(port, epoch)).collect();
        let all = checks(&facts, Ttl::DEFAULT);
        let views = all.into_iter().find(|check| check.id == "one-primary");
        views.map(|check| (check.verdict, check.evidence))
    };
    assert_eq!(found(&[("1", "5")]), None);
    let same = found(&[("1", "5"), ("1", "5"), ("1", "5")]).expect("they tell");
    assert_eq!(same.0, Verdict::Ok, "{same:?}");
    let behind = found(&[("1", "5"), ("1", "4")]).expect("they tell");
    assert_eq!(behind.0, Verdict::Warn, "{behind:?}");
    let other = found(&[("1", "5"), ("1", "5"), ("2", "5")]).expect("they tell");
    assert_eq!(other.0, Verdict::Fail, "{other:?}");
    assert!(other.1.ends_with("s:1 names h:2 of epoch 5"), "{other:?}");
}

#[test]
fn nodes_of_a_quorum_that_keep_locks_in_other_ways_are_named() {
    let table: [(Change, &str); 3] = [
        (
            |it| info(it, &[("maxmemory_policy", "allkeys-lru")]),
            "n1 has `noeviction`, and n2 has `allkeys-lru`",
        ),
        (|it| it.appendfsync = Ok("always".to_owned()), "n2 has `appendfsync always`"),
        (
            |it| it.fsync = Err(refused("ERR WAITAOF cannot be used without appendonly")),
            "n2 has `no append-only file`",
        ),
    ];
    for (change, words) in table {
        let found = together(change);
        let [check] = &found[..] else { panic!("{words}: {found:?}") };
        assert_eq!((check.id, check.verdict), ("same-settings", Verdict::Warn));
        assert!(check.evidence.contains(words), "{check:?}");
    }
}

#[test]
fn a_server_that_cannot_make_the_copies_of_the_url_grants_nothing() {
    use Verdict::{Fail, Unknown};
    fn copied(replicas: i64, is_on_disk: bool) -> Result<Copied, Gap> {
        Ok(Copied { wanted: 2, replicas, is_on_disk })
    }
    fn want(facts: &mut Facts, fsync: bool, copies: Result<Copied, Gap>) {
        facts.terms = Copies::new(Replicas::Count(2), fsync).into();
        facts.copies = Some(copies);
    }
    assert_eq!(faults(|it| want(it, true, copied(2, true))), []);
    assert_found(&[
        (|it| want(it, false, copied(1, true)), "copies", Fail, "at 2 of the replicas, and 1"),
        (|it| want(it, true, copied(2, false)), "copies", Fail, "not on disk in time"),
        (|it| want(it, false, Err(Gap::Denied)), "copies", Fail, "+wait"),
        (|it| want(it, true, Err(Gap::Denied)), "copies", Fail, "+waitaof"),
        (|it| want(it, true, Err(Gap::Absent)), "copies", Fail, "Redis 7.2"),
        (|it| want(it, true, Err(Gap::Silent)), "copies", Unknown, "no answer to `WAITAOF`"),
        (
            |it| want(it, true, Err(refused("ERR WAITAOF cannot be used, appendonly is off"))),
            "copies",
            Fail,
            "no append-only file",
        ),
    ]);
}

/// A sentinel on each host of an application is usual. The primary is elsewhere.
#[test]
fn a_primary_behind_a_local_sentinel_may_be_on_another_machine() {
    let of_primary_at = |ip: &str| {
        let found = faults(|it| {
            (it.place.has_tls, it.place.has_sentinels) = (false, true);
            it.place.hosts = vec!["localhost".to_owned()];
            let mut sentinel = sentinel("5000", "2", "2");
            sentinel.primary = sentinel.primary.map(|primary| primary.with("ip", ip));
            it.sentinels = vec![sentinel];
        });
        found.iter().any(|check| check.id == "encryption")
    };
    assert!(of_primary_at("10.0.0.5"));
    assert!(!of_primary_at("127.0.0.1"));
}

/// Such a server must not keep the diagnosis busy for ever.
#[test]
fn a_server_that_names_endless_replicas_and_sentinels_is_judged_at_once() {
    let endless = u64::MAX.to_string();
    let found = faults(|it| {
        info(it, &[("connected_slaves", &endless)]);
        it.sentinels = vec![sentinel("5000", &endless, &endless)];
    });
    assert!(found.iter().any(|check| check.id == "replicas"), "{found:?}");
}
