//! Fencing tokens over nodes that count separately.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use leasehold::core::token::ClientId;
use leasehold::store::{Acquired, Ask, Claim, LeaseId, MemoryStore, OnRelease, Store as _};
use leasehold::{OwnerToken, Ttl};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, key, ms, play};

/// Makes one node count further than the others.
async fn count_on(node: &MemoryStore, by: u32) {
    let client = ClientId::from_random([0; ClientId::CHARS]);
    let owner = OwnerToken::from_random([1; OwnerToken::RANDOM_BYTES], &client);
    let mut ask = Ask::new(key("a"), owner.clone(), Claim::Exclusive, Ttl::DEFAULT);
    ask.reserve = by;
    let granted = node.acquire(ask).await.expect("it is in memory");
    assert!(matches!(granted, Acquired::Granted { .. }));
    let lease = LeaseId { key: key("a"), owner, claim: Claim::Exclusive };
    node.release(lease, OnRelease::Free).await.expect("it is in memory");
}

async fn counters(scene: &Scene) -> Vec<u64> {
    let mut counters = Vec::new();
    for node in &scene.nodes {
        let seen = node.inspect(key("a")).await.expect("it is in memory");
        counters.push(seen.fencing.map_or(0, leasehold::FencingToken::get));
    }
    counters
}

#[test]
fn counters_in_step_cost_one_round_trip() {
    play(&[1, 3, 4, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let before = scene.counts(Request::Acquire);
        for round in 1..=5 {
            let guard = client.mutex("a").lock().await.expect("free");
            assert_eq!(guard.fencing_token().expect("it has one").get(), round);
            drop(guard);
            scene.host.settle().await;
        }
        let asked: Vec<_> = scene.counts(Request::Acquire);
        assert!(asked.iter().zip(&before).all(|(now, before)| now - before == 5));
        assert_eq!(scene.counts(Request::Renew), vec![0; scene.nodes.len()]);
    });
}

#[test]
fn counters_out_of_step_are_raised_before_the_lock_is_ours() {
    play(&[3, 5], 0..5, async |scene| {
        let client = scene.client().await;
        count_on(&scene.nodes[0], 100).await;
        let guard = client.mutex("a").lock().await.expect("free");
        let fence = guard.fencing_token().expect("it has one").get();
        scene.host.settle().await;
        let raised = counters(scene).await;
        let counted = raised.iter().filter(|counter| **counter >= fence).count();
        assert!(counted > scene.nodes.len() / 2, "{fence} {raised:?}");
        let renewed = scene.counts(Request::Renew);
        assert!(renewed.iter().all(|renewed| *renewed <= 1), "{renewed:?}");
        drop(guard);
        // Lock by a majority without the node that was ahead.
        scene.faults[0].all_from_now_on(Fault::Refuse);
        let guard = client.mutex("a").lock().await.expect("free");
        assert!(guard.fencing_token().expect("it has one").get() > fence);
    });
}

/// A node whose counter cannot be raised does not count.
#[test]
fn a_lock_is_not_ours_while_its_fencing_token_is_known_to_one_node_alone() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(&[3], 0..3, async |scene| {
            let client = scene.client().await;
            count_on(&scene.nodes[0], 100).await;
            scene.faults[1].from_now_on(Request::Renew, fault);
            scene.faults[2].all_from_now_on(Fault::Refuse);
            let error = client.mutex("a").try_lock().await.expect_err("one node is not a majority");
            assert!(error.to_string().contains("memory:n1"), "{error}");
            scene.faults.iter().for_each(|faults| faults.heal());
            scene.pass(ms(2_000)).await;
            scene.assert_nothing_is_left("a", "after the failure").await;
        });
    }
}

#[test]
fn tokens_rise_over_grants_by_different_majorities() {
    play(&[3, 4, 5], 0..5, async |scene| {
        let clients = [scene.client().await, scene.client().await];
        let mut last = 0;
        for round in 0..60_usize {
            let nodes = scene.nodes.len();
            for down in 0..scene.minority() {
                let fault = [Fault::Refuse, Fault::Late(ms(30))][round % 2];
                scene.faults[(round * 7 + down) % nodes].all_from_now_on(fault);
            }
            let reserve = [ms(0), ms(1)][round % 2];
            let mutex = clients[round / 3 % 2].mutex("a").keep_idle(reserve);
            let guard = mutex.lock().await.expect("a majority is there");
            let fence = guard.fencing_token().expect("it has one").get();
            assert!(fence > last, "{fence} after {last} in round {round}");
            last = fence;
            let released = guard.release().await.expect("a majority lets go of it");
            assert_eq!(released, leasehold::Release::Released);
            scene.faults.iter().for_each(|faults| faults.heal());
            // The quorum repeats releases at nodes that missed them.
            scene.pass(ms(200)).await;
        }
    });
}

/// Two clients reserve blocks of fencing tokens, and pass the lock on from task to task. One node
/// misses some requests.
#[test]
fn many_tasks_of_two_clients_have_tokens_of_their_own_that_rise() {
    play(&[3, 5], 0..5, async |scene| {
        let clients = [scene.client().await, scene.client().await];
        scene.faults[1].one_in(5);
        let fences: Arc<Mutex<Vec<u64>>> = Arc::default();
        let mut tasks = Vec::new();
        for task in 0..60_usize {
            let mutex = clients[task % 2].mutex("a").keep_idle(ms(50));
            let (host, fences) = (scene.host.clone(), fences.clone());
            tasks.push(scene.host.task(async move {
                use leasehold::host::Host as _;
                for _ in 0..5 {
                    let guard = mutex.lock().await.expect("it becomes free");
                    let fence = guard.fencing_token().expect("it has one").get();
                    fences.lock().expect("no panic").push(fence);
                    host.sleep_until(host.now() + ms(1)).await;
                }
            }));
        }
        for task in tasks {
            scene.host.within(ms(120_000), task).await.expect("it gets the lock");
        }
        let fences = fences.lock().expect("no panic").clone();
        assert_eq!(fences.iter().collect::<BTreeSet<_>>().len(), 300);
        assert!(fences.is_sorted(), "{fences:?}");
    });
}
