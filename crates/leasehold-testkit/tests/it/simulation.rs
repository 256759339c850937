//! Worlds that once broke a promise, by name, and the demands on every world.

use std::time::Duration;

use leasehold_testkit::history::{Invariant, check, summary};
use leasehold_testkit::simulation::{Fault, Kind, Plan, Ran, run};

const USUAL: Duration = Duration::from_secs(30);

/// Runs the world of a seed that broke a promise when only the first kinds of worlds existed.
#[track_caller]
fn holds(seed: u64) -> Ran {
    holds_in(&as_it_was(seed))
}

/// The world of a seed, drawn from the first kinds.
fn as_it_was(seed: u64) -> Plan {
    Plan::among(seed, USUAL, &FIRST)
}

/// The kinds that existed when the first seeds got their names here.
const FIRST: [Kind; 4] = [Kind::Quorum, Kind::Coexist, Kind::Strict, Kind::Copies];

/// The kinds that existed next.
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

/// The kinds that exist since all stores are simulated.
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

/// Like [`holds`], with the second set of kinds.
#[track_caller]
fn holds_among_the_second(seed: u64) -> Ran {
    holds_in(&Plan::among(seed, USUAL, &SECOND))
}

/// Like [`holds`], with the third set of kinds.
#[track_caller]
fn holds_among_the_third(seed: u64) -> Ran {
    holds_in(&Plan::among(seed, USUAL, &THIRD))
}

/// Runs a world and asserts that it breaks no promise.
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

/// These stores use real memory, or a real file. Still, everything in the history must follow from
/// the seed.
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

/// An ask was queued during connecting. Then its future was dropped, and its release was given up.
/// When the connection came, the ask was sent.
#[test]
fn a_request_that_is_queued_for_a_connection_does_not_outlive_its_release() {
    for seed in [374, 855] {
        let _ran = holds(seed);
    }
}

/// A stopped server read the ask of a try only after its release had been given up. The checker
/// confused the try with a longer call of another task, and blamed the call for the grant.
#[test]
fn a_request_that_arrives_after_its_call_is_blamed_on_no_other_call() {
    let _ran = holds(116_113_366_506_341);
}

/// A client was killed, or its runtime ended, during a release in the background. The dropped
/// release was spawned again, dropped again, and so on until the stack was full.
#[test]
fn a_release_at_a_quorum_goes_with_the_runtime_that_ends() {
    for seed in [32, 61] {
        assert!(as_it_was(seed).is_quorum());
        let _ran = holds(seed);
    }
}

/// A node forgot its scripts. So an ask whose answer was still awaited in the background was sent
/// again, behind the release of its token.
#[test]
fn an_ask_of_a_quorum_is_not_sent_again_behind_its_release() {
    let _ran = holds(22_720_061_101_191);
}

/// The client sent another request when the server was back. It was killed before it tried the
/// release again, which it does after a pause.
#[test]
fn a_client_that_dies_before_it_repeats_a_release_owes_nothing() {
    let _ran = holds(89_300_801_333_133);
}

/// The store released a grant that too few replicas had confirmed. The call that had asked was
/// dropped meanwhile, and the next task of the client went on with the same token.
#[test]
fn a_token_is_abandoned_after_its_grant_was_given_back_for_lack_of_copies() {
    for seed in [2_401, 2_512] {
        assert!(as_it_was(seed).copies.is_some());
        let _ran = holds(seed);
    }
}

/// Every node had evicted its grant and granted the key to another client, before the counters were
/// raised. The checker still demanded a release of the first grant.
#[test]
fn grants_that_nodes_have_replaced_since_need_not_be_given_back() {
    for seed in [35_653_087_294_977, 35_653_087_294_994] {
        let plan = as_it_was(seed);
        assert!(plan.faults.iter().any(|one| one.fault == Fault::Eviction), "seed {seed}");
        let broken = check(&run(&plan).events, &plan.bounds());
        // Nothing else is promised if nodes evict keys.
        assert!(broken.iter().all(|one| one.invariant != Invariant::NoOrphan), "seed {seed}");
    }
}

/// A guard was detached while a node was asked again for its lease. The node then got a release by
/// the very token that the detached lease still used.
#[test]
fn a_lease_that_is_detached_while_a_node_is_asked_for_it_is_not_given_back() {
    let _ran = holds_among_the_second(153);
}

/// A lock without fencing was handed over, its note was evicted, and its holder asked again.
#[test]
fn a_lock_without_fencing_has_no_fencing_token_of_another() {
    let _ran = holds_among_the_second(300_004);
}

/// Tasks that rush for one lock, which waits for copies and has no queue, went on for minutes after
/// the end. Their leases looked like leases that dead clients leave behind.
#[test]
fn clients_that_rush_for_a_lock_stop_when_the_world_ends() {
    let _ran = holds_among_the_second(68_574_987_057_201);
}

/// The server carried out two commands in no time at all, and a counter was evicted between them. A
/// new counter begins at the clock, which had not moved.
#[test]
fn a_server_takes_time_for_each_command() {
    let _ran = holds_among_the_second(90_000_001_674);
}

/// The guards of all clients were checked a part at a time, because one client had a thousand. A
/// renewal of another client was not seen before its lease ended.
#[test]
fn a_client_of_few_leases_is_looked_at_each_time_beside_a_crowd() {
    let _ran = holds_among_the_second(90_000_002_677);
}

/// A stopped server read an ask only after its release had been given up, while its call went on
/// with another token. The checker thought that this call could have received the answer.
#[test]
fn an_ask_that_comes_too_late_is_not_held_against_a_call_that_goes_on_by_another_token() {
    let _ran = holds_among_the_third(105_835_641_712_517);
}

/// The same for an ask that took a place: the key was handed to it.
#[test]
fn a_hand_over_to_the_place_of_an_ask_that_comes_too_late_breaks_no_rule() {
    let _ran = holds_among_the_third(700_003_853);
}

/// An ask waited for its connection while the key was handed to its token, and the process stood
/// still until that lease was lost. Then it was sent, and its release behind it.
#[test]
fn an_ask_that_waited_for_its_connection_may_be_sent_after_its_lease_was_lost() {
    let _ran = holds_among_the_third(700_007_607);
}

/// A request of a client that does not wait arrived twice. The first was answered *taken*, and its
/// copy got the key, which had become free in between. No client got that answer.
#[test]
fn a_copy_of_an_answered_request_breaks_no_rule() {
    let _ran = holds_among_the_third(900_004_699);
}

/// A kind of world tests nothing if the special events of that kind never happen.
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
        (Kind::Shared, "read"),
        (Kind::Shared, "downgraded"),
        (Kind::Permits, "took permits"),
        (Kind::Keeping, "left taken"),
        (Kind::Keeping, "ended early"),
        (Kind::Several, "taken together"),
        (Kind::Permits, "resized"),
        (Kind::Permits, "permits added"),
        (Kind::Permits, "permits taken away"),
        (Kind::Limited, "started within a limit"),
        (Kind::Limited, "refused by a limit"),
        (Kind::Latched, "counted down"),
        (Kind::Latched, "waited for a latch"),
        (Kind::Meeting, "passed a barrier"),
        (Kind::Meeting, "came after all had arrived"),
        (Kind::Once, "done once"),
        (Kind::Operated, "evicted by an operator"),
        (Kind::Operated, "too late to evict"),
        (Kind::Operated, "let go when asked"),
        (Kind::Elected, "led"),
        (Kind::Elected, "resigned"),
        (Kind::Elected, "crashed as a leader"),
        (Kind::Elected, "saw a leader"),
        (Kind::Bounded, "held for as long as allowed"),
        (Kind::Refusing, "scripts refused"),
        (Kind::Refusing, "scripts denied"),
    ] {
        let worlds = (0..40).map(|seed| Plan::asked_for(seed, USUAL, &[kind]));
        let mut worlds = worlds.filter(|plan| plan.is(kind) && !plan.is(Kind::Quorum)).take(4);
        let did = |plan: Plan| holds_in(&plan).did.get(what).copied().unwrap_or_default();
        assert!(worlds.any(|plan| did(plan) > 0), "in no world of {kind} it was {what}");
    }
}
