//! Some nodes are down, refuse, stay silent or are slow.

use leasehold::ErrorKind;
use leasehold::core::Ttl;
use leasehold::core::token::OwnerToken;
use leasehold::core::validity::command_limit;
use leasehold::host::Host as _;
use leasehold::store::{Ask, Claim, Store as _};
use leasehold_testkit::faults::{Fault, Request};

use super::far::Far;
use super::{TTL, hold_at, key, ms, play};

const FAULTS: [Fault; 4] =
    [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply, Fault::Late(ms(400))];

#[test]
fn a_minority_that_fails_is_not_waited_for() {
    for fault in FAULTS {
        play(&[3, 4, 5, 7], 0..3, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            for faults in &scene.faults[..scene.minority()] {
                faults.all_from_now_on(fault);
            }
            let begun = scene.host.now();
            let guard = client.mutex("a").lock().await.expect("free");
            assert_eq!(scene.host.now(), begun, "{fault:?}");
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "{fault:?}");
            // Let several renewals pass.
            scene.pass(ms(20_000)).await;
            assert!(guard.is_held(), "{fault:?}");
            guard.renew().await.expect("a majority renews it");
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "{fault:?}");
            let begun = scene.host.now();
            let released = guard.release().await.expect("a majority lets go of it");
            assert_eq!(released, leasehold::Release::Released);
            assert_eq!(scene.host.now(), begun, "{fault:?}");
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "{fault:?}");
            scene.pass(TTL + ms(100)).await;
            scene.assert_nothing_is_left("a", &format!("after {fault:?}")).await;
        });
    }
}

#[test]
fn a_majority_that_fails_is_an_error_in_time_that_names_each_node_and_leaves_nothing() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
        play(&[1, 2, 3, 4, 5], 0..3, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let failing = scene.nodes.len() - scene.minority();
            for faults in &scene.faults[..failing] {
                faults.all_from_now_on(fault);
            }
            let begun = scene.host.now();
            let error = client.mutex("a").try_lock().await.expect_err("no majority answers");
            // There is one repetition if the outcome is unknown.
            let limit = command_limit(Ttl::new(TTL).expect("within bounds")) * 2;
            assert!(scene.host.now().since(begun) <= limit, "{fault:?}");
            let is_known = fault == Fault::Refuse && scene.minority() == 0;
            let kind = if is_known { ErrorKind::Unavailable } else { ErrorKind::Unknown };
            assert_eq!(error.kind(), kind, "{fault:?} {error}");
            for number in 0..scene.nodes.len() {
                assert!(error.to_string().contains(&format!("memory:n{number}")), "{error}");
            }
            scene.faults.iter().for_each(|faults| faults.heal());
            // This is the limit of a release on its way, and the pause before the next release.
            scene.pass(ms(1_000 + 1_000)).await;
            scene.assert_nothing_is_left("a", &format!("after {fault:?}")).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "{fault:?}");
        });
    }
}

#[test]
fn a_lock_that_a_majority_says_is_taken_is_refused_without_the_rest() {
    play(&[3, 4, 5], 0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        for faults in &scene.faults[..scene.minority()] {
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let begun = scene.host.now();
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(scene.host.now(), begun);
    });
}

/// A command that waits for a short time says that the lock was taken, and not that the store did
/// not answer.
#[test]
fn a_waiter_does_not_wait_for_a_node_that_is_still_tried_where_the_others_decide() {
    play(&[3, 5], 0..3, async |scene| {
        let mut held = Vec::new();
        for node in scene.minority()..scene.nodes.len() {
            held.push(hold_at(scene, node, "a").await);
        }
        for faults in &scene.faults[..scene.minority()] {
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let client = scene.client().await;
        let mutex = client.mutex("a");
        let error = mutex.lock_timeout(ms(200)).await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
        let waiting = async {
            let guard = mutex.lock_timeout(ms(900)).await;
            drop(guard.expect("it is free before the trial ends"));
        };
        let releasing = async {
            scene.pass(ms(300)).await;
            held.clear();
        };
        tokio::join!(waiting, releasing);
    });
}

/// Another client holds the lock by a majority, so the client releases the grants of the free
/// nodes.
#[test]
fn a_grant_that_comes_after_the_refusal_is_given_back() {
    for fault in [Fault::Late(ms(100)), Fault::LoseReply] {
        play(&[3, 5], 0..5, async |scene| {
            let (client, holder) = (scene.client().await, scene.client().await);
            let rest = || scene.faults[..scene.minority()].iter();
            rest().for_each(|faults| faults.next(Request::Acquire, Fault::Refuse));
            let guard = holder.mutex("a").ttl(ms(60_000)).lock().await.expect("free");
            for mutex in [client.mutex("a"), client.mutex("a").unqueued()] {
                rest().for_each(|faults| faults.next(Request::Acquire, fault));
                assert!(mutex.try_lock().await.expect("asked").is_none());
            }
            rest().for_each(|faults| faults.from_now_on(Request::Acquire, fault));
            let unqueued = client.mutex("a").unqueued();
            let error = unqueued.lock_timeout(ms(500)).await.expect_err("it is held");
            assert_eq!(error.kind(), ErrorKind::WaitElapsed);
            rest().for_each(|faults| faults.heal());
            scene.pass(ms(1_500)).await;
            let held = scene.held_by("a").await;
            let held = held.iter().filter(|held| **held).count();
            assert_eq!(held, scene.nodes.len() - scene.minority(), "{fault:?}");
            drop(guard);
            scene.host.settle().await;
            scene.assert_nothing_is_left("a", "after the release").await;
        });
    }
}

/// One node has put the client into its line, and the others refuse.
#[test]
fn a_lock_that_fails_leaves_no_place_in_the_line_of_a_node() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let other = OwnerToken::new("another").expect("a token");
        let ask = Ask::new(key("a"), other, Claim::Exclusive, Ttl::DEFAULT);
        let _granted = scene.nodes[2].acquire(ask).await.expect("it is in memory");
        for faults in &scene.faults[..2] {
            faults.next(Request::Acquire, Fault::Refuse);
        }
        let error = client.mutex("a").lock().await.expect_err("two of three nodes refuse");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        scene.host.settle().await;
        let seen = scene.nodes[2].inspect(key("a")).await.expect("it is in memory");
        assert_eq!((seen.holders.len(), seen.waiting), (1, 0), "{seen:?}");
    });
}

#[test]
fn a_waiter_gets_the_lock_although_a_minority_fails() {
    for fault in FAULTS {
        play(&[3, 5], 0..3, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let held = other.mutex("a").lock().await.expect("free");
            for faults in &scene.faults[..scene.minority()] {
                faults.all_from_now_on(fault);
            }
            let waiting = scene.host.task(async move { client.mutex("a").lock().await });
            scene.pass(ms(1_200)).await;
            drop(held);
            let guard = scene.host.within(ms(1_300), waiting).await.expect("in time");
            assert!(guard.expect("it is free").is_held(), "{fault:?}");
        });
    }
}

/// The quorum repeats a release at a node that missed it, but not for ever.
#[test]
fn a_release_that_a_node_missed_is_told_again() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(&[3, 5], 0..3, async |scene| {
            let client = scene.client().await;
            let long = client.mutex("a").ttl(ms(3_600_000));
            let guard = long.lock().await.expect("free");
            scene.faults[0].from_now_on(Request::Release, fault);
            drop(guard);
            scene.pass(ms(300)).await;
            assert!(scene.held_by("a").await[0]);
            scene.faults[0].heal();
            scene.pass(ms(1_100)).await;
            scene.assert_nothing_is_left("a", "although it was told again").await;

            // The client gives up on a node that never answers.
            let guard = long.lock().await.expect("free");
            scene.faults[0].from_now_on(Request::Release, fault);
            drop(guard);
            scene.pass(ms(15_000)).await;
            let told = scene.faults[0].count(Request::Release);
            scene.pass(ms(60_000)).await;
            assert_eq!(scene.faults[0].count(Request::Release), told, "{fault:?}");
        });
    }
}

/// Two of three nodes answered, and the error claims no more than that.
#[test]
fn a_release_with_three_different_answers_of_nodes_says_so() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.settle().await;
        scene.forget(0, "a").await;
        scene.faults[1].from_now_on(Request::Release, Fault::Refuse);
        let error = guard.release().await.expect_err("no majority either way");
        let says = "1 of 3 nodes released the lease, 1 did not have it and 1 failed";
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(scene.held_by("a").await, [false, true, false]);
    });
}

/// The session repeats unanswered releases, so the quorum must not do it as well.
#[test]
fn a_release_that_no_majority_hears_is_not_repeated_by_everybody() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").ttl(ms(60_000)).lock().await.expect("free");
        scene.faults.iter().for_each(|faults| faults.from_now_on(Request::Release, Fault::Refuse));
        drop(guard);
        scene.pass(ms(20_000)).await;
        // There is one release each second, apart from the first ones.
        let told = scene.faults[0].count(Request::Release);
        assert!(told < 60, "told {told} times");
        scene.faults.iter().for_each(|faults| faults.heal());
        scene.pass(ms(1_100)).await;
        scene.assert_nothing_is_left("a", "although it was released").await;
    });
}

/// The release does not wait for the silent node, whose store would wait for a second.
#[test]
fn a_node_that_refused_a_release_is_told_again_although_another_is_silent() {
    play(&[5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults[0].from_now_on(Request::Release, Fault::LoseRequest);
        scene.faults[1].next(Request::Release, Fault::Refuse);
        drop(guard);
        scene.pass(ms(50)).await;
        assert_eq!(scene.held_by("a").await, [true, false, false, false, false]);
    });
}

/// The other answers decide nothing, so the release waits for the silent node.
#[test]
fn a_node_that_refused_a_release_is_told_again_although_a_silent_one_decides() {
    play(&[5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.settle().await;
        scene.forget(2, "a").await;
        scene.forget(3, "a").await;
        let before = scene.faults[0].count(Request::Release);
        scene.faults[0].from_now_on(Request::Release, Fault::LoseRequest);
        scene.faults[1].next(Request::Release, Fault::Refuse);
        drop(guard);
        scene.pass(ms(300)).await;
        assert_eq!(scene.held_by("a").await, [true, false, false, false, false]);
        let told = scene.faults[0].count(Request::Release) - before;
        assert_eq!(told, 1, "it has not answered yet");
    });
}

/// A repetition finds nothing at a node where the first request released the lease. If the third
/// node is slow, the repetition is sent before the decision.
#[test]
fn a_release_whose_answers_are_lost_does_not_say_that_the_lease_was_lost() {
    for late in [0, 1_500] {
        play(&[3], 0..3, async |scene| {
            let client = scene.client().await;
            let guard = client.mutex("a").lock().await.expect("free");
            scene.host.settle().await;
            scene.faults[0].next(Request::Release, Fault::Late(ms(late)));
            for node in [1, 2] {
                scene.faults[node].next(Request::Release, Fault::LoseReply);
            }
            let answer = guard.release().await;
            assert!(!matches!(answer, Ok(leasehold::Release::NotHeld)), "it was held");
            scene.pass(ms(2_100)).await;
            scene.assert_nothing_is_left("a", "although it was released").await;
        });
    }
}

/// The silent node is not needed, because a node that failed first and released the lease later
/// counts.
#[test]
fn a_release_is_decided_by_a_node_that_refused_it_first() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.settle().await;
        scene.faults[0].from_now_on(Request::Release, Fault::LoseRequest);
        scene.faults[1].next(Request::Release, Fault::Refuse);
        let released = scene.host.within(ms(50), guard.release()).await.expect("in time");
        assert_eq!(released.expect("by two of three"), leasehold::Release::Released);
    });
}

/// One node is silent and one refuses, so that no majority gets the release.
#[test]
fn a_release_that_waits_for_a_silent_node_is_repeated_a_few_times_where_it_is_refused() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").ttl(ms(60_000)).lock().await.expect("free");
        scene.host.settle().await;
        scene.faults[0].from_now_on(Request::Release, Fault::LoseRequest);
        scene.faults[1].from_now_on(Request::Release, Fault::Refuse);
        let before = scene.faults[1].count(Request::Release);
        drop(guard);
        scene.pass(ms(20_000)).await;
        let told = scene.faults[1].count(Request::Release) - before;
        assert!(told < 80, "told {told} times");
        scene.faults.iter().for_each(|faults| faults.heal());
        scene.pass(ms(2_100)).await;
        scene.assert_nothing_is_left("a", "although it was released").await;
    });
}

/// There are more missed releases than the quorum repeats at a time. The other leases expire, and
/// cost nothing.
#[test]
fn many_releases_that_a_node_missed_are_not_told_without_end() {
    const LOCKS: usize = 1_500;
    play(&[3], 0..1, async |scene| {
        let client = scene.client().await;
        scene.faults[0].from_now_on(Request::Release, Fault::Refuse);
        for lock in 0..LOCKS {
            drop(client.mutex(format!("lock {lock}")).lock().await.expect("free"));
        }
        scene.pass(ms(15_000)).await;
        let told = scene.faults[0].count(Request::Release);
        assert!(told < LOCKS * 40, "told {told} times");
        scene.pass(ms(60_000)).await;
        assert_eq!(scene.faults[0].count(Request::Release), told);
    });
}

/// A refusal says nothing about how long the answers of the node take.
#[test]
fn a_node_that_refused_at_once_is_waited_for_as_long_as_before() {
    play(&[3], 0..3, async |scene| {
        let far = [15, 10, 10].into_iter().zip(&scene.nodes).zip(&scene.faults);
        let far = far.map(|((way, node), faults)| {
            faults.decorate(Far::new(&scene.host, node.clone(), ms(way)))
        });
        let client = scene.client_of(scene.quorum(far.collect()).await, TTL).await;
        // A counter that is behind would take another round trip.
        let mutex = client.mutex("a").fencing(false);
        scene.faults[0].all_from_now_on(Fault::Refuse);
        for _ in 0..40 {
            drop(mutex.lock().await.expect("a majority is free"));
            scene.pass(ms(100)).await;
        }
        scene.faults[0].heal();
        // One node voted for another client, so a majority needs the slowest node.
        let other = OwnerToken::new("another").expect("a token");
        let ask = Ask::new(key("a"), other, Claim::Exclusive, Ttl::DEFAULT);
        let _granted = scene.nodes[2].acquire(ask).await.expect("it is in memory");
        let begun = scene.host.now();
        let guard = mutex.try_lock().await.expect("asked");
        assert!(guard.is_some(), "two nodes of three are free");
        assert_eq!(scene.host.now().since(begun), ms(30));
    });
}

/// The others cannot make a majority, so the release does not wait for them.
#[test]
fn a_release_says_that_the_lease_was_lost_once_half_of_an_even_number_of_nodes_say_so() {
    play(&[2, 4], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.settle().await;
        let half = scene.nodes.len() / 2;
        for node in 0..half {
            scene.forget(node, "a").await;
        }
        for faults in &scene.faults[half..] {
            faults.next(Request::Release, Fault::LoseRequest);
        }
        let begun = scene.host.now();
        let released = guard.release().await.expect("half of them say so");
        assert_eq!(released, leasehold::Release::NotHeld);
        assert_eq!(scene.host.now(), begun);
        scene.pass(TTL + ms(100)).await;
        scene.assert_nothing_is_left("a", "after its ttl").await;
    });
}
