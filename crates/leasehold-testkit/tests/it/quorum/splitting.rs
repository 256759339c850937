//! Several clients split the votes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold_testkit::faults::{Fault, Faults, Request};

use super::far::Far;
use super::{TTL, ms, play};

/// Each contender is near to another node, and so gets the first vote of one node.
#[test]
fn all_clients_that_split_the_votes_get_the_lock_in_the_end() {
    play(&[2, 3, 4, 5], 0..10, async |scene| {
        let held = Arc::new(AtomicUsize::new(0));
        let fences: Arc<Mutex<Vec<u64>>> = Arc::default();
        let mut contenders = Vec::new();
        for contender in 0..6_u64 {
            let ways = (0..5_u64).map(|node| ms(1 + (contender * 7 + node * 4) % 9));
            let client = scene.far_client(ways).await;
            let (host, held, fences) = (scene.host.clone(), held.clone(), fences.clone());
            contenders.push(scene.host.task(async move {
                for _ in 0..4 {
                    let guard = client.mutex("a").lock().await.expect("it becomes free");
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    let fence = guard.fencing_token().expect("it has one").get();
                    fences.lock().expect("no panic").push(fence);
                    host.sleep_until(host.now() + ms(5)).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            }));
        }
        for contender in contenders {
            scene.host.within(ms(60_000), contender).await.expect("it gets the lock");
        }
        let fences = fences.lock().expect("no panic").clone();
        assert_eq!(fences.len(), 24);
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
        scene.pass(ms(500)).await;
        scene.assert_nothing_is_left("a", "after all have had it").await;
    });
}

/// A node that was down at the grant grants to waiters, again and again.
#[test]
fn waiters_that_split_the_votes_with_a_holder_do_not_hammer_the_nodes() {
    const WAITERS: usize = 5;
    play(&[3], 0..3, async |scene| {
        let holder = scene.client().await;
        scene.faults[2].next(Request::Acquire, Fault::Refuse);
        let guard = holder.mutex("a").ttl(ms(300_000)).lock().await.expect("free");
        let mut waiting = Vec::new();
        let mut far = Vec::new();
        for _ in 0..WAITERS {
            let way = Duration::from_micros(100);
            let node = |node: &_| Far::new(&scene.host, Clone::clone(node), way);
            let nodes: Vec<_> = scene.nodes.iter().map(node).collect();
            far.push(nodes[0].clone());
            let client = scene.client_of(scene.quorum(nodes).await, TTL).await;
            waiting.push(scene.host.task(async move {
                let guard = client.mutex("a").lock().await.expect("it becomes free");
                drop(guard);
            }));
        }
        scene.pass(ms(20_000)).await;
        let asks: usize = far.iter().map(Far::asks).sum();
        // There are two asks for each pause, which is 125 ms on average. One ask splits the votes,
        // and one follows the hint that another waiter released them. With pauses of 64 round
        // trips, there would be ten times as many.
        assert!(asks / WAITERS < 800, "each asked {} times in 20 s", asks / WAITERS);
        drop(guard);
        for waiter in waiting {
            scene.host.within(ms(5_000), waiter).await.expect("it gets the lock");
        }
    });
}

/// The client releases the grant as soon as it hears of it. The other node would answer later.
#[test]
fn a_grant_to_a_refused_try_is_released_although_another_node_is_silent() {
    play(&[5], 0..3, async |scene| {
        let (client, holder) = (scene.client().await, scene.client().await);
        for faults in &scene.faults[3..] {
            faults.next(Request::Acquire, Fault::Refuse);
        }
        let _guard = holder.mutex("a").ttl(ms(60_000)).lock().await.expect("a majority is free");
        scene.faults[3].next(Request::Acquire, Fault::Late(ms(10)));
        scene.faults[4].next(Request::Acquire, Fault::LoseRequest);
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(scene.held_by("a").await, [true, true, true, true, false]);
        scene.pass(ms(100)).await;
        assert_eq!(scene.held_by("a").await, [true, true, true, false, false]);
    });
}

/// Waiters release the vote of that node, so the holder's renewal finds it free.
#[test]
fn a_node_that_waiters_keep_asking_is_still_filled() {
    play(&[3], 0..5, async |scene| {
        let holder = scene.client().await;
        scene.faults[2].next(Request::Acquire, Fault::Refuse);
        let guard = holder.mutex("a").lock().await.expect("free");
        let mut waiting = Vec::new();
        for _ in 0..5 {
            let client = scene.far_client([ms(1); 3]).await;
            waiting.push(scene.host.task(async move { client.mutex("a").lock().await.map(drop) }));
        }
        scene.pass(ms(15_000)).await;
        let seen = holder.inspect("a").await.expect("asked");
        let ours = Ok(Some(guard.token().as_str().as_bytes().to_vec()));
        assert_eq!(seen.votes[2].holder, ours);
        drop(guard);
        for waiter in waiting {
            let locked = scene.host.within(ms(5_000), waiter).await.expect("it gets the lock");
            locked.expect("it becomes free");
        }
    });
}

/// The waiter repeats its asks, and each would make the vote last longer.
#[test]
fn a_waiter_that_reaches_one_node_alone_gives_its_vote_back() {
    play(&[3], 0..5, async |scene| {
        let holder = scene.client().await;
        scene.faults[2].next(Request::Acquire, Fault::Refuse);
        let guard = holder.mutex("a").lock().await.expect("free");
        let waiter = scene.client().await;
        let waiting = scene.host.task(async move { waiter.mutex("a").lock().await.map(drop) });
        scene.host.settle().await;
        for faults in &scene.faults[..2] {
            faults.from_now_on(Request::Acquire, Fault::Refuse);
        }
        scene.pass(ms(15_000)).await;
        let seen = holder.inspect("a").await.expect("asked");
        let ours = Ok(Some(guard.token().as_str().as_bytes().to_vec()));
        assert_eq!(seen.votes[2].holder, ours, "the holder's renewal found it free");
        scene.faults.iter().for_each(Faults::heal);
        drop(guard);
        let locked = scene.host.within(ms(20_000), waiting).await.expect("it gets the lock");
        locked.expect("it becomes free");
    });
}
