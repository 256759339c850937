//! Worlds that once broke something, by name, and what every world must be.

use std::time::Duration;

use leasehold_testkit::history::{Invariant, check, summary};
use leasehold_testkit::simulation::{Fault, Kind, Plan, Ran, run};

const USUAL: Duration = Duration::from_secs(30);

/// Runs the world that `seed` stood for when it broke something: of the kinds that there were then.
#[track_caller]
fn holds(seed: u64) -> Ran {
    holds_in(&as_it_was(seed))
}

/// The world of a seed, of the kinds that there were at first.
fn as_it_was(seed: u64) -> Plan {
    Plan::among(seed, USUAL, &FIRST)
}

/// The kinds that there were when the first seeds got their names here.
const FIRST: [Kind; 4] = [Kind::Quorum, Kind::Coexist, Kind::Strict, Kind::Copies];

/// The kinds that there were next.
const SECOND: [Kind; 11] = [
    Kind::Quorum,
    Kind::Coexist,
    Kind::Strict,
    Kind::Copies,
    Kind::Long,
    Kind::Crowd,
    Kind::Detached,
    Kind::Evicting,
    Kind::Namespaced,
    Kind::Bare,
    Kind::Foreign,
];

/// The kinds that there are since all stores are simulated.
const THIRD: [Kind; 14] = [
    Kind::Quorum,
    Kind::Coexist,
    Kind::Strict,
    Kind::Copies,
    Kind::Long,
    Kind::Crowd,
    Kind::Detached,
    Kind::Evicting,
    Kind::Namespaced,
    Kind::Bare,
    Kind::Foreign,
    Kind::Fsync,
    Kind::Memory,
    Kind::Sqlite,
];

/// As [`holds`], of the kinds that there were next.
#[track_caller]
fn holds_among_the_second(seed: u64) -> Ran {
    holds_in(&Plan::among(seed, USUAL, &SECOND))
}

/// As [`holds`], of the kinds that there are since all stores are simulated.
#[track_caller]
fn holds_among_the_third(seed: u64) -> Ran {
    holds_in(&Plan::among(seed, USUAL, &THIRD))
}

/// Runs a world; nothing that is promised may break.
#[track_caller]
fn holds_in(plan: &Plan) -> Ran {
    let seed = plan.seed;
    let ran = run(plan);
    let broken: Vec<_> =
        check(&ran.events, &plan.bounds()).into_iter().filter(|one| one.promised).collect();
    assert!(broken.is_empty(), "{broken:#?}\nreplay: cargo xtask sim --seeds {seed}..{}", seed + 1);
    ran
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    for seed in 0..3 {
        let once = holds(seed);
        let again = holds(seed);
        assert_eq!(once.events, again.events, "seed {seed}");
        assert_eq!(once.hash, again.hash, "seed {seed}");
        assert_ne!(once.hash, holds(seed + 3).hash);
    }
}

/// What they read is real memory, or a real file: nothing of it may follow from anything but the
/// seed.
#[test]
fn the_same_seed_gives_the_same_history_of_a_store_without_a_server() {
    for kind in [Kind::Memory, Kind::Sqlite] {
        let plans = (0..20).map(|seed| Plan::asked_for(seed, USUAL, &[kind]));
        for plan in plans.filter(|plan| plan.is(kind)).take(2) {
            let (once, again) = (holds_in(&plan), holds_in(&plan));
            assert_eq!(once.events, again.events, "{kind}, seed {}", plan.seed);
            assert_eq!(once.hash, again.hash, "{kind}, seed {}", plan.seed);
        }
    }
}

#[test]
fn every_world_sees_enough_acquisitions_and_faults_to_mean_something() {
    for seed in 100..110 {
        let plan = as_it_was(seed);
        let summary = summary(&holds(seed).events, &plan.bounds());
        assert!(summary.acquisitions >= 100, "seed {seed}: {}", summary.acquisitions);
        let faults: u64 = summary.faults.values().map(|one| one.injected).sum();
        assert!(faults >= 5, "seed {seed}: {faults} faults");
    }
}

/// An ask was queued while the connection was made, its future dropped, and its release given up;
/// then the connection came, and the ask was sent.
#[test]
fn what_is_queued_for_a_connection_does_not_outlive_its_release() {
    for seed in [374, 855] {
        let _ran = holds(seed);
    }
}

/// A stopped server read a try's ask only when its release had been given up: the checker took a
/// longer call of another task for the try, and held the grant against it.
#[test]
fn what_reaches_the_server_after_its_call_is_held_against_nobody() {
    let _ran = holds(116_113_366_506_341);
}

/// A client was killed, or its runtime ended, while a release went on in the background: dropped,
/// it was spawned again, dropped there, spawned again, until the stack was full.
#[test]
fn a_release_at_a_quorum_goes_with_the_runtime_that_ends() {
    for seed in [32, 61] {
        assert!(as_it_was(seed).is_quorum());
        let _ran = holds(seed);
    }
}

/// A node forgot its scripts, and an ask that was still heard of in the background was sent once
/// more, behind the release of its token.
#[test]
fn an_ask_of_a_quorum_is_not_sent_again_behind_its_release() {
    let _ran = holds(22_720_061_101_191);
}

/// It sent something else when the server was back, and was killed before it tried the release
/// again, which is after a pause.
#[test]
fn who_dies_before_a_release_is_tried_again_owes_nothing() {
    let _ran = holds(89_300_801_333_133);
}

/// The store gave back what too few replicas had confirmed, and the next task of the client went on
/// by the same token, since the call that had asked was dropped meanwhile.
#[test]
fn a_token_is_left_whose_grant_was_given_back_for_want_of_copies() {
    for seed in [2_401, 2_512] {
        assert!(as_it_was(seed).copies.is_some());
        let _ran = holds(seed);
    }
}

/// Every node had evicted what it granted, and granted it to another, before the counters were
/// raised: the checker wanted it given back all the same.
#[test]
fn what_nodes_have_granted_to_another_since_need_not_be_given_back() {
    for seed in [35_653_087_294_977, 35_653_087_294_994] {
        let plan = as_it_was(seed);
        assert!(plan.faults.iter().any(|one| one.fault == Fault::Eviction), "seed {seed}");
        let broken = check(&run(&plan).events, &plan.bounds());
        // Nothing else is promised where nodes evict.
        assert!(broken.iter().all(|one| one.invariant != Invariant::NoOrphan), "seed {seed}");
    }
}

/// A node was being asked for a lease again when its guard was detached: the node got a release by
/// the token by which the lease went on.
#[test]
fn a_lease_that_is_detached_while_a_node_is_asked_for_it_is_not_given_back() {
    let _ran = holds_among_the_second(153);
}

/// A lock without fencing was handed over, its note was evicted, and its holder asked again.
#[test]
fn a_lock_without_fencing_has_no_fencing_token_of_another() {
    let _ran = holds_among_the_second(300_004);
}

/// Tasks that rush for one lock, which waits for copies and is not queued for, went on for minutes
/// after the end: what they still had was taken for what the dead leave behind.
#[test]
fn clients_that_rush_for_a_lock_stop_when_the_world_ends() {
    let _ran = holds_among_the_second(68_574_987_057_201);
}

/// A counter was evicted between two commands that a server had carried out in no time at all. A
/// new one begins at the clock, which had not moved.
#[test]
fn a_server_takes_time_for_each_command() {
    let _ran = holds_among_the_second(90_000_001_674);
}

/// The guards of everybody were looked at in turns because one client had a thousand: a renewal of
/// another was not seen before that one's lease ended.
#[test]
fn a_client_of_few_leases_is_looked_at_each_time_beside_a_crowd() {
    let _ran = holds_among_the_second(90_000_002_677);
}

/// A stopped server read an ask only when its release had been given up, while its call went on by
/// another token: the checker took that call for one that could have heard the answer.
#[test]
fn an_ask_that_comes_too_late_is_not_held_against_a_call_that_goes_on_by_another_token() {
    let _ran = holds_among_the_third(105_835_641_712_517);
}

/// As above, of an ask that took a place: the key was handed to it.
#[test]
fn a_hand_over_to_the_place_of_an_ask_that_comes_too_late_is_held_against_nobody() {
    let _ran = holds_among_the_third(700_003_853);
}

/// An ask waited for its connection while the key was handed to its token, and the process stood
/// still until that lease was lost. Then it was sent, and its release behind it.
#[test]
fn an_ask_that_waited_for_its_connection_may_be_sent_after_its_lease_was_lost() {
    let _ran = holds_among_the_third(700_007_607);
}

/// A kind of world that never comes to what it is there for tests nothing.
#[test]
fn every_kind_of_world_comes_to_what_others_lack() {
    for (kind, what) in [
        (Kind::Long, "held for longer than a counter is kept"),
        (Kind::Crowd, "held in a crowd"),
        (Kind::Detached, "renewed by token"),
        (Kind::Detached, "released by token"),
        (Kind::Evicting, "keys evicted"),
        (Kind::Bare, "asked by one command"),
        (Kind::Foreign, "granted to a foreigner"),
        (Kind::Foreign, "taken from a foreigner"),
        (Kind::Namespaced, "granted in a namespace"),
        (Kind::Fsync, "read from disk"),
        (Kind::Memory, "asked in memory"),
        (Kind::Sqlite, "asked in a file at once"),
        (Kind::Sqlite, "asked by the thread of a file"),
        (Kind::Sqlite, "file found locked"),
    ] {
        let worlds = (0..40).map(|seed| Plan::asked_for(seed, USUAL, &[kind]));
        let mut worlds = worlds.filter(|plan| plan.is(kind) && !plan.is(Kind::Quorum)).take(4);
        let did = |plan: Plan| holds_in(&plan).did.get(what).copied().unwrap_or_default();
        assert!(worlds.any(|plan| did(plan) > 0), "in no world of {kind} it was {what}");
    }
}
