//! The assertions of redsync's own tests, by label, and what those tests leave out.

use std::error::Error as _;

use leasehold::ErrorKind;
use leasehold_compat::redsync::Error;
use leasehold_testkit::servers::Reply;

use super::world::{NAME, Nodes, play, said, taken};
use crate::world::ms;

#[test]
fn s1_a_lock_is_the_same_value_on_every_node_and_nothing_beside_it() {
    play(8, async |nodes| {
        let mutex = nodes.mutex().await;
        assert_eq!((mutex.name(), mutex.value(), mutex.until()), (NAME, None, None));
        mutex.lock().await.expect("it is free");
        let value = mutex.value().expect("it is held");
        assert!(value.len() == 24 && value.ends_with("=="), "16 bytes in Base64");
        assert_eq!(nodes.holding(&value), 8);
        assert_eq!(nodes.lasts(), [8_000; 8]);
        assert_eq!(nodes.keys(), vec![[NAME]; 8]);
        assert!(mutex.unlock().await.expect("it is ours"));
        assert_eq!(nodes.keys(), vec![Vec::<String>::new(); 8]);
        assert_eq!(mutex.value(), Some(value.clone()), "an unlock resets nothing");
        mutex.lock().await.expect("it is free");
        assert_ne!(mutex.value(), Some(value), "a value for each lock");
    });
}

#[test]
fn s2_locks_of_different_names_do_not_mind_each_other() {
    play(8, async |nodes| {
        let redsync = nodes.redsync().await;
        let mut locking = Vec::new();
        for at in 0..8 {
            let mutex = redsync.new_mutex(format!("{NAME}:{at}"));
            locking.push(nodes.host.task(async move {
                mutex.lock().await.expect("it is free");
                mutex
            }));
        }
        for locked in locking {
            let mutex = locked.await;
            let value = mutex.value().expect("it is held");
            for node in 0..8 {
                assert_eq!(nodes.tell(node, &["GET", mutex.name()]).text(), value);
            }
            assert!(mutex.unlock().await.expect("it is ours"));
        }
    });
}

#[test]
fn s3_a_lock_that_was_tried_for_is_extended_at_once_and_still_held() {
    play(8, async |nodes| {
        let mutex = nodes.mutex().await;
        mutex.try_lock_within(ms(1_000)).await.expect("it is free");
        let value = mutex.value().expect("it is held");
        assert!(mutex.extend_within(ms(1_000)).await.expect("it is ours"));
        assert_eq!(nodes.holding(&value), 8);
        assert!(mutex.unlock_within(ms(1_000)).await.expect("it is ours"));
    });
}

#[test]
fn s4_a_try_of_a_held_name_is_told_which_nodes_hold_it() {
    play(4, async |nodes| {
        let (first, second) = (nodes.mutex().await, nodes.mutex().await);
        first.lock().await.expect("it is free");
        let error = second.try_lock().await.expect_err("it is held");
        assert_eq!(taken(&error), [0, 1, 2, 3]);
        assert_eq!(error.to_string(), "lock already taken, locked nodes: [0 1 2 3]");
        assert_eq!((second.value(), second.until()), (None, None));
        assert_eq!(nodes.holding(&first.value().expect("it is held")), 4);
    });
}

#[test]
fn s5_extending_makes_it_last_longer_on_every_node() {
    play(4, async |nodes| {
        let mutex = nodes.mutex().await;
        mutex.lock().await.expect("it is free");
        let until = mutex.until().expect("it is held");
        nodes.pass(ms(1_000)).await;
        assert_eq!(nodes.lasts(), [7_000; 4]);
        assert!(mutex.extend().await.expect("it is ours"));
        assert_eq!(nodes.lasts(), [8_000; 4]);
        assert_eq!(mutex.until(), Some(until + ms(1_000)));
    });
}

#[test]
fn s6_a_lock_that_has_ended_is_not_extended() {
    play(4, async |nodes| {
        let mutex = nodes.mutex().await.with_expiry(ms(500));
        mutex.lock().await.expect("it is free");
        let until = mutex.until();
        nodes.pass(ms(1_000)).await;
        let error = mutex.extend().await.expect_err("it has ended");
        assert_eq!(taken(&error), [0, 1, 2, 3]);
        assert_eq!(nodes.values(), vec![None; 4]);
        assert_eq!(mutex.until(), until);
    });
}

#[test]
fn s7_a_lock_that_has_ended_is_taken_anew_if_extending_may_set_it() {
    play(4, async |nodes| {
        let mutex = nodes.mutex().await.with_expiry(ms(500)).with_set_nx_on_extend();
        mutex.lock().await.expect("it is free");
        let value = mutex.value().expect("it is held");
        nodes.pass(ms(1_000)).await;
        assert!(mutex.extend().await.expect("it is free"));
        assert_eq!(nodes.holding(&value), 4);
        assert_eq!(nodes.lasts(), [500; 4]);
        assert_eq!(mutex.until(), Some(nodes.now() + ms(495)));
        nodes.pass(ms(200)).await;
        assert_eq!(nodes.tell(2, &["DEL", NAME]), Reply::Int(1), "one forgets it");
        assert!(mutex.extend().await.expect("it is ours"));
        assert_eq!((nodes.holding(&value), nodes.lasts()), (4, vec![500; 4]), "and is told again");
    });
}

/// redsync's test sets the option only after the call, so one of the two cases is not tested.
#[test]
fn s8_extending_a_lock_that_another_took_meanwhile_fails_and_leaves_it_alone() {
    for set_nx in [false, true] {
        play(4, async |nodes| {
            let first = nodes.mutex().await.with_expiry(ms(500));
            let first = if set_nx { first.with_set_nx_on_extend() } else { first };
            let second = nodes.mutex().await;
            first.lock().await.expect("it is free");
            nodes.pass(ms(1_000)).await;
            second.lock().await.expect("it has ended");
            nodes.pass(ms(100)).await;
            let until = first.until();
            let error = first.extend().await.expect_err("it is another's");
            assert_eq!(taken(&error), [0, 1, 2, 3], "set_nx {set_nx}");
            assert_eq!(first.until(), until);
            assert_eq!(nodes.holding(&second.value().expect("it is held")), 4);
            assert_eq!(nodes.lasts(), [7_900; 4]);
            assert!(second.valid().await.expect("an answer"));
        });
    }
}

#[test]
fn s9_unlocking_an_ended_lock_says_so() {
    play(4, async |nodes| {
        let mutex = nodes.mutex().await.with_expiry(ms(500));
        mutex.lock().await.expect("it is free");
        nodes.pass(ms(1_000)).await;
        let error = mutex.unlock().await.expect_err("it has ended");
        assert_eq!(said(&error), [(None, "expired"); 4]);
        // Only a quorum of the nodes held by others counts as taken.
        for node in 0..2 {
            assert!(nodes.takes(node, "theirs", 5_000));
        }
        let error = mutex.unlock().await.expect_err("it has ended");
        let expired = (None, "expired");
        assert_eq!(said(&error), [(Some(0), "taken"), (Some(1), "taken"), expired, expired]);
        assert!(nodes.takes(2, "theirs", 5_000));
        let error = mutex.unlock().await.expect_err("it is another's");
        assert_eq!(taken(&error), [0, 1, 2]);
        assert_eq!(nodes.holding("theirs"), 3);
    });
}

/// redsync's test cannot fail in the failure branch, and does not check what is left.
#[test]
fn s10_of_four_nodes_three_that_are_free_make_a_lock_and_fewer_leave_nothing() {
    play(4, async |nodes| {
        for mask in 0..16_u8 {
            let is_taken = |node: usize| mask & 1 << node != 0;
            let those: Vec<_> = (0..4).filter(|node| is_taken(*node)).collect();
            for node in 0..4 {
                nodes.tell(node, &["FLUSHALL"]);
                if is_taken(node) {
                    // Without an expiry, as in redsync's test.
                    nodes.tell(node, &["SET", NAME, "foobar"]);
                }
            }
            let mutex = nodes.mutex().await.with_tries(1);
            let locked = mutex.lock().await;
            let (has_it, value) = (locked.is_ok(), mutex.value());
            match locked {
                Ok(()) => assert!(those.len() <= 1, "mask {mask:04b}"),
                Err(error) if those.len() >= 3 => assert_eq!(taken(&error), those),
                Err(error) => {
                    let each: Vec<_> = those.iter().map(|node| (Some(*node), "taken")).collect();
                    assert_eq!((said(&error), those.len()), (each, 2), "mask {mask:04b}");
                }
            }
            assert_eq!(value.is_some(), has_it, "mask {mask:04b}");
            for (node, held) in nodes.values().into_iter().enumerate() {
                let expected = if is_taken(node) { Some("foobar") } else { value.as_deref() };
                assert_eq!(held.as_deref(), expected, "mask {mask:04b}, node {node}");
            }
        }
    });
}

#[test]
fn s11_a_lock_for_an_hour_is_valid_and_32_tries_do_not_get_it() {
    play(4, async |nodes| {
        let first = nodes.mutex().await.with_expiry(ms(3_600_000));
        let second = nodes.mutex().await.with_expiry(ms(3_600_000));
        first.lock().await.expect("it is free");
        assert!(first.valid().await.expect("an answer"));
        let began = nodes.now();
        let error = second.lock().await.expect_err("it is held");
        assert_eq!(taken(&error), [0, 1, 2, 3]);
        let took = nodes.now().since(began);
        assert!((ms(31 * 50)..=ms(31 * 249)).contains(&took), "{took:?}");
        let error = second.valid().await.expect_err("it has no value even");
        assert_eq!(taken(&error), [0, 1, 2, 3]);
        assert!(first.valid_within(ms(100)).await.expect("an answer"));
    });
}

#[test]
fn s12_a_mutex_with_the_value_of_another_unlocks_and_extends() {
    play(4, async |nodes| {
        let first = nodes.mutex().await;
        first.lock().await.expect("it is free");
        let value = first.value().expect("it is held");
        nodes.pass(ms(1_000)).await;
        let second = nodes.mutex().await.with_value(&value);
        assert_eq!(second.value(), Some(value));
        assert!(second.valid().await.expect("an answer"));
        assert!(second.extend().await.expect("it is ours"));
        assert_eq!(nodes.lasts(), [8_000; 4]);
        assert!(second.unlock().await.expect("it is ours"));
        assert_eq!(nodes.values(), vec![None; 4]);
        let stranger = nodes.mutex().await.with_value("not it");
        stranger.unlock().await.expect_err("no value of a lock");
        first.lock().await.expect("it is free");
        let stranger = nodes.mutex().await.with_value("not-it");
        assert_eq!(taken(&stranger.unlock().await.expect_err("not its own")), [0, 1, 2, 3]);
        assert_eq!(nodes.holding(&first.value().expect("it is held")), 4);
    });
}

#[test]
fn s13_the_error_of_a_node_is_found_inside_the_errors_around_it() {
    let cause = leasehold::Error::new(ErrorKind::Unavailable, "no such host");
    let redis = Error::Redis { node: 3, source: cause };
    assert_eq!(redis.to_string(), "node #3: no such host");
    let joined = Error::Joined(vec![Error::NodeTaken { node: 1 }, redis.clone()]);
    assert_eq!(joined.to_string(), "node #1: lock already taken\nnode #3: no such host");
    for error in [redis, joined] {
        let source = error.source().expect("there is a cause");
        let source = source.downcast_ref::<leasehold::Error>().expect("of that type");
        assert_eq!(source.kind(), ErrorKind::Unavailable);
        assert!(error.errors().iter().any(|one| matches!(one, Error::Redis { node: 3, .. })));
    }
    assert!(Error::Failed.source().is_none());
}

/// The digests are right if the server recognises each script by its digest after it has seen it.
#[test]
fn s14_scripts_are_asked_for_by_their_digests_and_sent_again_where_they_are_forgotten() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await;
        let every_call = async || {
            mutex.lock().await.expect("it is free");
            assert!(mutex.valid().await.expect("an answer"));
            assert!(mutex.extend().await.expect("it is ours"));
            assert!(mutex.unlock().await.expect("it is ours"));
            mutex.unlock().await.expect_err("it has ended");
        };
        let sent_whole = |nodes: &Nodes| {
            let stats = nodes.tell(1, &["INFO", "commandstats"]).text();
            assert!(stats.contains("cmdstat_evalsha:"), "{stats}");
            stats.contains("cmdstat_eval:") || stats.contains("cmdstat_script|load:")
        };
        every_call().await;
        nodes.tell(1, &["CONFIG", "RESETSTAT"]);
        every_call().await;
        assert!(!sent_whole(nodes), "the server knows them all");
        nodes.tell(1, &["SCRIPT", "FLUSH"]);
        every_call().await;
        assert!(sent_whole(nodes), "it had forgotten them");
    });
}
