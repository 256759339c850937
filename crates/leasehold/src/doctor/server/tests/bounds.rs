//! Each check warns only beyond its bound, and judges the value that it names.

use super::*;

/// Asserts that none of these changes is a fault.
#[track_caller]
fn assert_fine(changes: &[Change]) {
    for (number, change) in changes.iter().enumerate() {
        assert_eq!(faults(change), [], "{number}");
    }
}

#[test]
fn a_server_is_as_slow_as_its_slowest_answers() {
    use Verdict::Warn;
    assert_fine(&[|it| it.round_trips = vec![millis(100); 20]]);
    assert_found(&[
        (|it| it.round_trips = vec![millis(101); 20], "round-trip", Warn, "at least 10 s"),
        (|it| it.round_trips = vec![millis(1_000); 20], "round-trip", Warn, "at least 100 s"),
        (|it| it.round_trips[7] = millis(200), "round-trip", Warn, "p50 1.0 ms, p99 200 ms"),
    ]);
}

#[test]
fn a_server_is_warned_about_its_load_only_beyond_a_bound() {
    use Verdict::Warn;
    assert_fine(&[
        |it| info(it, &[("used_memory", "80999999")]),
        |it| info(it, &[("connected_clients", "8000")]),
        |it| info(it, &[("latest_fork_usec", "500000")]),
        |it| info(it, &[("uptime_in_seconds", "10")]),
        |it| it.buffers = Ok("pubsub 1048576 8 60".to_owned()),
    ]);
    assert_found(&[
        (|it| info(it, &[("used_memory", "81000000")]), "memory", Warn, "81 %"),
        (|it| info(it, &[("connected_clients", "8001")]), "clients", Warn, "8001 of 10000"),
        (|it| info(it, &[("latest_fork_usec", "500001")]), "fork", Warn, "500 ms"),
        (|it| info(it, &[("uptime_in_seconds", "9")]), "restart", Warn, "wait for 2 s"),
        (
            |it| it.buffers = Ok("pubsub 1048575 8 60".to_owned()),
            "message-buffer",
            Warn,
            "1024 KiB",
        ),
    ]);
}

#[test]
fn each_version_is_judged_by_its_own_row_of_releases() {
    use Verdict::{Fail, Warn};
    assert_fine(&[
        |it| info(it, &[("redis_version", "7.4.0")]),
        |it| info(it, &[("redis_version", "8.2.9")]),
        |it| info(it, &[("redis_version", "8.3.0")]),
        |it| info(it, &[("redis_version", "9.0.0")]),
    ]);
    assert_found(&[
        (|it| info(it, &[("redis_version", "6.1.99")]), "version", Fail, "use Redis 6.2"),
        (|it| info(it, &[("redis_version", "6.2.0")]), "version", Warn, "no fixes"),
        (|it| info(it, &[("redis_version", "7.3.9")]), "version", Warn, "no fixes"),
        (|it| info(it, &[("redis_version", "8.4.5")]), "version", Warn, "Redis 8.4.6"),
        (|it| info(it, &[("redis_version", "8.10.0")]), "version", Warn, "Redis 8.10.1"),
    ]);
    let mut valkey = healthy();
    info(&mut valkey, &[("valkey_version", "8.1.0"), ("redis_version", "7.2.4")]);
    let checks = checks(&valkey, Ttl::DEFAULT);
    let version = checks.iter().find(|check| check.id == "version").expect("it is judged");
    assert_eq!(version.evidence, "Valkey 8.1.0");
}

#[test]
fn a_clock_is_compared_with_that_of_this_machine_from_both_sides() {
    use Verdict::Warn;
    // The answers took one millisecond, which the comparison allows for.
    assert_fine(&[
        |it| it.clock = Ok(vec![reading(0, 1_001), reading(300, 1_301)]),
        |it| it.clock = Ok(vec![reading(1_001, 0), reading(1_301, 300)]),
    ]);
    assert_found(&[
        (
            |it| it.clock = Ok(vec![reading(0, 1_002), reading(300, 1_302)]),
            "clock-offset",
            Warn,
            "ahead of",
        ),
        (
            |it| it.clock = Ok(vec![reading(1_002, 0), reading(1_302, 300)]),
            "clock-offset",
            Warn,
            "behind that of this machine",
        ),
    ]);
    let apart = |change: Change| together(change).into_iter().map(|it| it.verdict).next();
    assert_eq!(apart(|it| it.clock = Ok(vec![reading(0, 1_002)])), None);
    assert_eq!(apart(|it| it.clock = Ok(vec![reading(0, 1_003)])), Some(Warn));
    assert_eq!(apart(|it| it.clock = Ok(vec![reading(0, 600_001)])), Some(Warn));
    assert_eq!(apart(|it| it.clock = Ok(vec![reading(0, 600_002)])), Some(Verdict::Fail));
}

#[test]
fn a_write_that_is_refused_has_the_remedy_for_its_reason() {
    use Verdict::Fail;
    assert_found(&[
        (|it| it.write = Err(refused("READONLY it is")), "writes", Fail, "name the primary"),
        (|it| it.write = Err(refused("NOREPLICAS few")), "writes", Fail, "min-replicas-to-write"),
        (|it| it.write = Err(refused("CLUSTERDOWN it is")), "writes", Fail, "redis+cluster://"),
        (|it| it.write = Err(refused("MOVED 7 h:1")), "writes", Fail, "redis+cluster://"),
        (|it| it.write = Err(refused("ERR strange")), "writes", Fail, "read the log"),
        (
            |it| {
                it.role = Ok("slave".to_owned());
                info(it, &[("master_host", "p1"), ("master_port", "6380")]);
            },
            "role",
            Fail,
            "a replica of p1:6380",
        ),
        (
            |it| {
                it.role = Err(Gap::Denied);
                info(it, &[("role", "slave")]);
            },
            "role",
            Fail,
            "is a replica",
        ),
    ]);
}

#[test]
fn sentinels_need_more_than_half_of_their_number_and_less_than_the_ttl() {
    use Verdict::Warn;
    assert_fine(&[
        |it| it.sentinels = vec![sentinel("10000", "2", "2")],
        |it| it.sentinels = vec![sentinel("5000", "3", "3")],
        |it| it.sentinels = vec![sentinel("5000", "4", "3")],
    ]);
    assert_found(&[
        (|it| it.sentinels = vec![sentinel("10001", "2", "2")], "down-after", Warn, "5000 at each"),
        (|it| it.sentinels = vec![sentinel("5000", "3", "2")], "sentinels", Warn, "know 4"),
        (|it| it.sentinels = vec![sentinel("5000", "4", "2")], "sentinels", Warn, "know 5"),
    ]);
}

#[test]
fn replicas_are_late_if_one_did_not_confirm_or_lags_for_three_seconds() {
    let faults_of = |confirmed: i64, lags: [u32; 2]| {
        let found = faults(|it| {
            let [first, second] = lags.map(|lag| format!("ip=h,port=1,state=online,lag={lag}"));
            let replicas = [("slave0", &*first), ("slave1", &*second), ("connected_slaves", "2")];
            info(it, &replicas);
            info(it, &[("min_slaves_good_slaves", "2")]);
            it.terms = Copies::new(Replicas::Majority, false).into();
            it.wait = Ok(confirmed);
        });
        found.into_iter().map(|check| check.id).collect::<Vec<_>>()
    };
    assert_eq!(faults_of(2, [0, 2]), [""; 0]);
    for (confirmed, lags) in [(1, [0, 0]), (2, [3, 0]), (2, [0, 3])] {
        assert_eq!(faults_of(confirmed, lags), ["replicas"], "{confirmed} {lags:?}");
    }
}

#[test]
fn a_server_that_does_not_tell_counts_as_one_that_loses_locks() {
    let silent = Facts { info: Err(Gap::Denied), ..healthy() };
    let found = deployment(&[healthy(), silent], &[]);
    assert!(found.has_replicas && found.evicts);
    let found = deployment(&[healthy()], &[]);
    assert!(!found.has_replicas && !found.evicts && !found.has_failover);
    let waits = || Facts { terms: Copies::new(Replicas::Majority, true).into(), ..healthy() };
    assert!(deployment(&[waits()], &[]).is_on_disk);
    assert!(!deployment(&[waits(), healthy()], &[]).is_on_disk);
}
