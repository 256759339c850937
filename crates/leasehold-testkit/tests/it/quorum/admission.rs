//! The nodes that may vote.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::{
    Acquired, AnyStore, Ask, BoxAnswer, Browse, MemoryStore, Quorum, Snapshot, Store,
};
use leasehold::{ErrorKind, Key};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, Request};

use super::far::Far;
use super::{Scene, TTL, hold_at, ms, play, play_on};

/// Asks now and then, so that the quorum tries the other nodes again.
async fn ask_for_a_while(scene: &Scene, client: &leasehold::Client) {
    for _ in 0..5 {
        let _taken_or_not = client.mutex("other").try_lock().await;
        scene.pass(ms(1_100)).await;
    }
}

#[test]
fn one_store_does_not_vote_twice() {
    play(&[2, 3], 0..3, async |scene| {
        let host: Arc<dyn Host> = scene.host.clone();
        let stores = scene.nodes.iter().chain([&scene.nodes[0]]).cloned();
        let error = Quorum::connect(stores, host).await.expect_err("two are the same");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("memory:n0"), "{error}");
    });
}

#[test]
fn a_number_of_nodes_that_makes_no_quorum_is_refused() {
    play(&[16], 0..1, async |scene| {
        let host: Arc<dyn Host> = scene.host.clone();
        let many = Quorum::connect(scene.nodes.clone(), host.clone()).await;
        assert_eq!(many.expect_err("too many").kind(), ErrorKind::Config);
        let none = Quorum::connect(Vec::<AnyStore>::new(), host).await;
        assert_eq!(none.expect_err("none").kind(), ErrorKind::Config);
    });
}

#[test]
fn without_a_majority_there_is_no_quorum() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(&[1, 2, 3, 4, 5], 0..1, async |scene| {
            for faults in &scene.faults[scene.minority()..] {
                faults.all_from_now_on(fault);
            }
            let host: Arc<dyn Host> = scene.host.clone();
            let error = Quorum::connect(scene.faulty(), host).await.expect_err("no majority");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            for number in scene.minority()..scene.nodes.len() {
                assert!(error.to_string().contains(&format!("memory:n{number}")), "{error}");
            }
        });
    }
}

#[test]
fn a_node_that_was_out_of_reach_votes_once_it_was_tried() {
    play(&[3], 0..3, async |scene| {
        scene.faults[2].all_from_now_on(Fault::Refuse);
        let client = scene.client().await;
        drop(client.mutex("a").lock().await.expect("a majority is there"));
        scene.faults[2].heal();
        ask_for_a_while(scene, &client).await;
        scene.faults[0].all_from_now_on(Fault::Refuse);
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        scene.pass(TTL * 2).await;
        assert!(guard.is_held());
    });
}

/// Four connections to only three stores. Two votes of the same store must not decide.
fn twins(scene: &Scene) -> (Vec<AnyStore>, Faults) {
    let faults = Faults::new(scene.host.clone());
    let twin = AnyStore::new(faults.decorate(scene.nodes[scene.nodes.len() - 1].clone()));
    (scene.faulty().into_iter().chain([twin]).collect(), faults)
}

#[test]
fn two_ways_to_one_store_that_were_closed_at_first_are_not_both_admitted() {
    play(&[4], 0..5, async |scene| {
        let (stores, twin) = twins(scene);
        scene.faults[3].all_from_now_on(Fault::Refuse);
        twin.all_from_now_on(Fault::Refuse);
        let client = scene.client_of(scene.quorum(stores).await, TTL).await;
        scene.faults[3].heal();
        twin.heal();
        ask_for_a_while(scene, &client).await;
        scene.faults[0].all_from_now_on(Fault::Refuse);
        scene.faults[1].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").try_lock().await.expect_err("two stores are not a majority");
        assert!(error.to_string().contains("same store"), "{error}");
    });
}

/// The answers to the probe lease and to its inspections may come in any order.
#[test]
fn one_store_has_never_two_votes_however_slowly_it_answers() {
    const LATE: [u64; 4] = [0, 40, 150, 400];
    for (ask, twin_ask) in LATE.into_iter().flat_map(|ask| LATE.map(|twin| (ask, twin))) {
        for (look, twin_look) in LATE.into_iter().flat_map(|look| LATE.map(|twin| (look, twin))) {
            play_on(1, 0, async |scene| {
                let (stores, twin) = twins(scene);
                for (faults, ask, look) in
                    [(&scene.faults[0], ask, look), (&twin, twin_ask, twin_look)]
                {
                    faults.from_now_on(Request::Acquire, Fault::Late(ms(ask)));
                    faults.from_now_on(Request::Inspect, Fault::Late(ms(look)));
                }
                let connected = Quorum::connect(stores, scene.host.clone()).await;
                let error = connected.expect_err("two of two would be a majority");
                assert_eq!(error.kind(), ErrorKind::Config, "{ask} {twin_ask} {look} {twin_look}");
                assert!(error.to_string().contains("same store"), "{error}");
            });
        }
    }
}

/// An inspection may come too late, or the process may stand still. Then the probe has expired, and
/// no node shows it.
#[test]
fn one_store_does_not_vote_twice_where_a_look_comes_after_the_lease_it_looks_for() {
    for way in [1_000, 2_000, 3_000, 10_000] {
        play_on(1, 0, async |scene| {
            let host: Arc<dyn Host> = scene.host.clone();
            let twins =
                [0, 0].map(|node| Far::new(&scene.host, scene.nodes[node].clone(), ms(way)));
            let error = Quorum::connect(twins, host).await.expect_err("two of two are one");
            let said = if way <= 2_000 { "same store" } else { "ended before" };
            assert!(error.to_string().contains(said), "{way}: {error}");
        });
    }
}

/// A connection to a store. Its inspection of another connection's probe arrives late.
#[derive(Clone)]
struct SlowToLook {
    store: MemoryStore,
    host: Arc<VirtualHost>,
    way: Duration,
    own: Arc<Mutex<HashSet<Key>>>,
}

impl Store for SlowToLook {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        self.own.lock().expect("no panic").insert(ask.key.clone());
        self.store.acquire(ask)
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        let is_own = self.own.lock().expect("no panic").contains(&key);
        let arrives = self.host.now() + if is_own { Duration::ZERO } else { self.way };
        let (store, host) = (self.store.clone(), self.host.clone());
        Box::pin(async move {
            host.sleep_until(arrives).await;
            store.inspect(key).await
        })
    }

    leasehold_testkit::forward!(store: renew, release, watch, rest);
}

/// The probe itself is answered at once, but the inspection that would find it comes too late.
#[test]
fn one_store_does_not_vote_twice_where_only_the_look_at_the_other_way_is_slow() {
    for way in [0, 1_000, 4_000, 4_940, 4_999, 5_000, 5_001, 6_000, 60_000] {
        play_on(1, 0, async |scene| {
            let (host, store) = (scene.host.clone(), scene.nodes[0].clone());
            let to_look = || SlowToLook {
                store: store.clone(),
                host: host.clone(),
                way: ms(way),
                own: Arc::default(),
            };
            let connected = Quorum::connect([to_look(), to_look()], host.clone()).await;
            let error = connected.expect_err("two of two are one");
            let said = if way < 5_000 { "same store" } else { "ended before" };
            assert!(error.to_string().contains(said), "{way}: {error}");
        });
    }
}

/// If one node after the other is restarted, the client never sees all of them at the same time.
#[test]
fn a_node_that_came_back_votes_although_another_one_is_down_by_now() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(&[3, 5], 0..3, async |scene| {
            let minority = scene.minority();
            scene.faults[..minority].iter().for_each(|faults| faults.all_from_now_on(fault));
            let client = scene.client().await;
            scene.faults.iter().for_each(Faults::heal);
            let others = &scene.faults[minority..2 * minority];
            others.iter().for_each(|faults| faults.all_from_now_on(fault));
            ask_for_a_while(scene, &client).await;
            let guard = client.mutex("a").lock().await.expect("a majority is there");
            scene.pass(TTL * 2).await;
            assert!(guard.is_held(), "{fault:?}");
            // These nodes come back, and the first nodes go away again.
            scene.faults.iter().for_each(Faults::heal);
            ask_for_a_while(scene, &client).await;
            scene.faults[..minority].iter().for_each(|faults| faults.all_from_now_on(fault));
            scene.pass(TTL * 2).await;
            assert!(guard.is_held(), "{fault:?}");
        });
    }
}

/// A failed inspection takes no vote away. The new node does not have the lease.
#[test]
fn a_node_that_is_away_during_a_look_still_renews() {
    play(&[3], 0..3, async |scene| {
        scene.faults[2].all_from_now_on(Fault::Refuse);
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        scene.faults[2].heal();
        scene.faults[2].from_now_on(Request::Renew, Fault::Refuse);
        scene.faults[1].from_now_on(Request::Inspect, Fault::Refuse);
        scene.pass(TTL * 3).await;
        assert!(guard.is_held());
    });
}

/// While a voting node does not answer, nobody can tell whether the new node is the same store.
#[test]
fn a_node_has_no_vote_beside_one_that_it_could_not_be_compared_with() {
    play(&[4], 0..5, async |scene| {
        let (stores, twin) = twins(scene);
        twin.all_from_now_on(Fault::Refuse);
        let client = scene.client_of(scene.quorum(stores).await, TTL).await;
        twin.heal();
        scene.faults[3].from_now_on(Request::Inspect, Fault::Refuse);
        ask_for_a_while(scene, &client).await;
        scene.faults[0].all_from_now_on(Fault::Refuse);
        scene.faults[1].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").try_lock().await.expect_err("two stores are not a majority");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("may be the same store"), "{error}");
        // The client finds this out once it can inspect the other node.
        scene.faults[3].heal();
        ask_for_a_while(scene, &client).await;
        let error = client.mutex("a").try_lock().await.expect_err("two stores are not a majority");
        assert!(error.to_string().contains("would vote twice"), "{error}");
    });
}

/// Once the voting node answers again, the new node votes too if it is another store.
#[test]
fn a_node_votes_beside_another_once_the_two_were_compared() {
    play(&[3], 0..3, async |scene| {
        scene.faults[2].all_from_now_on(Fault::Refuse);
        let client = scene.client().await;
        scene.faults[2].heal();
        scene.faults[1].from_now_on(Request::Inspect, Fault::Refuse);
        ask_for_a_while(scene, &client).await;
        scene.faults[0].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").try_lock().await.expect_err("they may be one store");
        assert!(error.to_string().contains("may be the same store"), "{error}");
        scene.faults[1].heal();
        ask_for_a_while(scene, &client).await;
        assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn the_probe_keys_of_nodes_are_gone_after_their_trial() {
    play(&[5], 0..1, async |scene| {
        let _client = scene.client().await;
        scene.host.settle().await;
        for node in &scene.nodes {
            let page = node.list("*", None).await.expect("it is in memory");
            assert!(page.keys.is_empty(), "{page:?}");
        }
    });
}

#[test]
fn connecting_and_locking_do_not_wait_for_silent_nodes() {
    play(&[3, 4, 5, 7], 0..5, async |scene| {
        for faults in &scene.faults[..scene.minority()] {
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let began = scene.host.now();
        let client = scene.client().await;
        let guard = client.mutex("a").try_lock().await.expect("a majority is there");
        assert!(guard.is_some());
        assert!(scene.host.now().since(began) < ms(5), "{:?}", scene.host.now().since(began));
    });
}

/// Without this wait, the vote of a node that answers later would be missing.
#[test]
fn a_node_that_is_still_tried_votes_where_its_vote_decides() {
    for late in [10, 20, 90] {
        play(&[3], 0..3, async |scene| {
            let _held = hold_at(scene, 0, "a").await;
            scene.faults[2].from_now_on(Request::Acquire, Fault::Late(ms(late)));
            let client = scene.client().await;
            let guard = client.mutex("a").try_lock().await.expect("asked");
            assert!(guard.is_some(), "{late}");
        });
    }
}

/// The client tries all nodes at the same time, and all answer late. When the last node answers,
/// the others have not decided yet.
#[test]
fn far_nodes_of_which_a_majority_is_free_grant_at_the_first_try() {
    for ways in [[100, 100, 100], [100, 120, 140], [140, 100, 120]] {
        for taken in 0..3 {
            play(&[3], 0..3, async |scene| {
                let _held = hold_at(scene, taken, "a").await;
                let client = scene.far_client(ways.map(ms)).await;
                let guard = client.mutex("a").try_lock().await.expect("asked");
                assert!(guard.is_some(), "{ways:?}, {taken}");
            });
        }
    }
}

/// A command opens the quorum and asks immediately.
#[test]
fn a_silent_node_costs_an_opening_and_a_first_lock_at_far_nodes_a_fifth_of_their_time_at_most() {
    let time = |silent: bool| {
        let took = std::cell::Cell::new(Duration::ZERO);
        play(&[3], 0..1, async |scene| {
            let way = if silent { 3_600_000 } else { 30 };
            let began = scene.host.now();
            let client = scene.far_client([30, 30, way].map(ms)).await;
            let guard = client.mutex("a").try_lock().await.expect("a majority is there");
            assert!(guard.is_some());
            took.set(scene.host.now().since(began));
        });
        took.get()
    };
    let (healthy, silent) = (time(false), time(true));
    assert!(silent <= healthy * 6 / 5 + ms(5), "{silent:?} after {healthy:?}");
}

#[test]
fn a_node_that_is_still_tried_is_not_waited_for_where_the_others_decide() {
    play(&[3, 5], 0..3, async |scene| {
        let mut held = Vec::new();
        for node in scene.minority()..scene.nodes.len() {
            held.push(hold_at(scene, node, "a").await);
        }
        for faults in &scene.faults[..scene.minority()] {
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let client = scene.client().await;
        let began = scene.host.now();
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(scene.host.now(), began);
    });
}

/// If a silent node's vote would decide, the client waits for it as for any late node.
#[test]
fn a_node_that_stays_silent_leaves_a_split_vote_and_no_leases() {
    play(&[3], 0..3, async |scene| {
        let held = hold_at(scene, 0, "a").await;
        scene.faults[2].all_from_now_on(Fault::LoseRequest);
        let client = scene.client().await;
        let began = scene.host.now();
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        // A node is late after a tenth of the ttl, and a split vote is repeated twice.
        assert!(scene.host.now().since(began) < TTL / 3, "{:?}", scene.host.now().since(began));
        drop(held);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after a split vote").await;
    });
}

#[test]
fn a_node_that_is_admitted_after_the_release_is_not_asked_any_more() {
    play(&[3, 5], 0..5, async |scene| {
        for faults in &scene.faults[..scene.minority()] {
            faults.from_now_on(Request::Acquire, Fault::Late(ms(50)));
        }
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        drop(guard);
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", "after the release").await;
        assert_eq!(scene.counts(Request::Acquire)[0], 1, "the probe alone");
    });
}

#[test]
fn a_caller_that_gives_up_while_a_node_is_tried_leaves_nothing() {
    play(&[3], 0..5, async |scene| {
        let held = hold_at(scene, 0, "a").await;
        scene.faults[2].from_now_on(Request::Acquire, Fault::Late(ms(50)));
        let client = scene.client().await;
        let asked = client.mutex("a");
        let given_up = scene.host.now() + ms(10);
        tokio::select! {
            biased;
            _granted = asked.try_lock() => panic!("the third node is not admitted yet"),
            () = scene.host.sleep_until(given_up) => {}
        }
        drop(held);
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", "after nobody wanted it").await;
    });
}

/// A request that shows all nodes waits for nodes that are still being tried.
#[test]
fn a_node_that_is_still_tried_is_inspected_and_listed() {
    play(&[3], 0..3, async |scene| {
        let owner = scene.calm_client().await;
        let held = owner.mutex("a").lock().await.expect("a majority is there");
        scene.host.settle().await;
        scene.forget(0, "a").await;
        scene.faults[2].from_now_on(Request::Acquire, Fault::Late(ms(50)));
        let quorum = scene.quorum(scene.faulty()).await;
        let seen = quorum.inspect(super::key("a")).await.expect("a majority is there");
        assert_eq!(seen.holders.len(), 1);
        let only_here = hold_at(scene, 2, "b").await;
        let quorum = scene.quorum(scene.faulty()).await;
        let browse = quorum.browse().expect("stores in memory can be browsed");
        let page = browse.list("*", None).await.expect("a majority is there");
        assert_eq!(page.keys, [super::key("a"), super::key("b")]);
        drop((held, only_here));
    });
}

#[test]
fn a_node_that_is_admitted_while_the_lock_is_held_gets_it_at_once() {
    play(&[3, 5], 0..3, async |scene| {
        for faults in &scene.faults[..scene.minority()] {
            faults.from_now_on(Request::Acquire, Fault::Late(ms(50)));
        }
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        // This is long before the next renewal.
        scene.pass(ms(200)).await;
        assert!(scene.held_by("a").await.iter().all(|held| *held));
        drop(guard);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

/// A command that releases a lease of another command does this.
#[test]
fn a_lease_of_another_client_is_released_at_nodes_that_are_still_tried() {
    play(&[3, 5], 0..3, async |scene| {
        let owner = scene.calm_client().await;
        let token = owner.mutex("a").lock().await.expect("a majority is there").detach();
        scene.host.settle().await;
        for faults in &scene.faults[..scene.minority()] {
            faults.from_now_on(Request::Acquire, Fault::Late(ms(50)));
        }
        let client = scene.client().await;
        let released = client.lease("a", token).release().await.expect("a majority is there");
        assert_eq!(released, leasehold::Release::Released);
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}
