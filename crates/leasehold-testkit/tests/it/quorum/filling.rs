//! A node that voted for another client, or lost the lease, gets the lease as soon as it can.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::OwnerToken;
use leasehold::host::Host as _;
use leasehold::store::{Acquired, Ask, Claim, LeaseId, OnRelease, Released, Store as _};
use leasehold::{Guard, Release, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::fence;
use leasehold_testkit::faults::{Fault, Request};
use leasehold_testkit::virtual_host::SeededRandom;

use super::{Scene, TTL, key, ms, play, play_on};

/// A ttl so long that no renewal falls into the first seconds.
const LONG: Duration = ms(30_000);

fn theirs(name: &str) -> LeaseId {
    let owner = OwnerToken::new("another").expect("a token");
    LeaseId { key: key(name), owner, claim: Claim::Exclusive }
}

/// Gives the vote of one node to another client, for `ttl`.
async fn vote_for_another(scene: &Scene, node: usize, name: &str, ttl: Duration) {
    let LeaseId { key, owner, claim } = theirs(name);
    let ttl = Ttl::new(ttl).expect("within bounds");
    let mut ask = Ask::new(key, owner, claim, ttl);
    ask.reserve = 1;
    let granted = scene.nodes[node].acquire(ask).await.expect("it is in memory");
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
}

/// Takes the vote of that node back from the other client.
async fn give_back(scene: &Scene, node: usize, name: &str) {
    let released = scene.nodes[node].release(theirs(name), OnRelease::Free).await;
    assert_eq!(released.expect("it is in memory"), Released::Freed);
}

/// Which nodes have the lease of that guard.
async fn having(scene: &Scene, guard: &Guard) -> Vec<bool> {
    let mut having = Vec::new();
    for node in &scene.nodes {
        let seen = node.inspect(key(guard.name())).await.expect("it is in memory");
        having.push(seen.holders.iter().any(|one| one.token == guard.token().as_str().as_bytes()));
    }
    having
}

#[test]
fn a_node_that_voted_for_another_votes_for_the_holder_when_that_vote_ends() {
    play(&[3, 4, 5], 0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let minority = scene.minority();
        for node in 0..minority {
            vote_for_another(scene, node, "a", ms(500)).await;
        }
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        scene.pass(ms(499)).await;
        assert_eq!(having(scene, &guard).await.iter().filter(|has| !**has).count(), minority);
        scene.pass(ms(3)).await;
        assert!(having(scene, &guard).await.iter().all(|has| *has), "each node has it");
        // The votes of the filled nodes count, so as many other nodes may forget the lease now.
        for node in minority..2 * minority {
            scene.forget(node, "a").await;
        }
        let tried = other.mutex("a").try_lock().await.expect("asked");
        assert!(tried.is_none() && guard.is_held(), "two would hold it");
        assert_eq!(scene.counts(Request::Renew).iter().sum::<usize>(), minority, "raised, at once");
        let fence = guard.fencing_token().expect("it has one");
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
        let next = other.mutex("a").lock().await.expect("free");
        assert!(next.fencing_token().expect("it has one") > fence);
    });
}

/// A client that lost the vote releases its votes after a round trip, and not after its ttl.
#[test]
fn a_vote_that_is_given_back_early_goes_to_the_holder_soon() {
    play(&[3, 5], 0..5, async |scene| {
        let client = scene.client().await;
        for node in 0..scene.minority() {
            vote_for_another(scene, node, "a", ms(10_000)).await;
        }
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        scene.pass(ms(10)).await;
        for node in 0..scene.minority() {
            give_back(scene, node, "a").await;
        }
        // This is at most as long again as the votes lasted.
        scene.pass(ms(25)).await;
        assert!(having(scene, &guard).await.iter().all(|has| *has));
    });
}

#[test]
fn a_node_that_lost_the_lease_to_another_gets_it_back_when_that_vote_ends() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("free");
        scene.forget(0, "a").await;
        // The other vote ends 200 ms after the renewal.
        vote_for_another(scene, 0, "a", ms(500)).await;
        scene.pass(ms(300)).await;
        guard.renew().await.expect("a majority renews it");
        scene.pass(ms(199)).await;
        assert!(!having(scene, &guard).await[0]);
        scene.pass(ms(3)).await;
        assert!(having(scene, &guard).await[0]);
    });
}

/// Another client keeps the key at one node for good, as a foreign client may.
#[test]
fn a_node_that_stays_with_another_is_not_asked_all_the_time() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        vote_for_another(scene, 0, "a", ms(86_400_000)).await;
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        let asked = scene.counts(Request::Acquire)[0];
        scene.pass(LONG).await;
        let first = scene.counts(Request::Acquire)[0] - asked;
        // The pauses double, from a millisecond up to a third of the ttl.
        assert!((8..=20).contains(&first), "{first} asks in the first 30 s");
        scene.pass(LONG * 10).await;
        let later = scene.counts(Request::Acquire)[0] - asked - first;
        assert!((25..=80).contains(&later), "{later} asks in 300 s: one or two for each renewal");
        assert!(guard.is_held());
        drop(guard);
        scene.pass(LONG).await;
        assert_eq!(scene.host.tasks(), 0, "nobody asks any more");
    });
}

#[test]
fn a_release_at_any_moment_of_a_fill_after_the_grant_leaves_nothing() {
    for after in 0..60 {
        play(&[3], after..after + 1, async |scene| {
            let client = scene.far_client([ms(3), ms(8), ms(1)]).await;
            vote_for_another(scene, 1, "a", ms(30)).await;
            let guard = client.mutex("a").lock().await.expect("a majority is free");
            scene.pass(ms(after)).await;
            drop(guard);
            scene.pass(ms(70)).await;
            scene.assert_nothing_is_left("a", &format!("released after {after} ms")).await;
        });
    }
}

/// The process with the token may have released the lease, and this client does not learn of that.
#[test]
fn a_detached_lease_is_asked_for_no_more() {
    play(&[3], 0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        vote_for_another(scene, 0, "a", ms(500)).await;
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        let token = guard.detach();
        let released = other.lease("a", token).release().await.expect("asked");
        assert_eq!(released, Release::Released);
        scene.pass(LONG / 2).await;
        scene.assert_nothing_is_left("a", "after another process released it").await;
    });
}

/// The lease goes on without the client, so the client must not release what a node grants late.
#[test]
fn a_late_grant_of_a_detached_lease_is_kept() {
    play(&[3, 5], 0..5, async |scene| {
        let client = scene.client().await;
        vote_for_another(scene, 0, "a", ms(10_000)).await;
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        scene.pass(ms(10)).await;
        give_back(scene, 0, "a").await;
        scene.faults[0].from_now_on(Request::Acquire, Fault::Late(ms(100)));
        scene.pass(ms(25)).await;
        assert!(having(scene, &guard).await[0], "it has granted it, and the answer is on its way");
        let _token = guard.detach();
        scene.pass(ms(150)).await;
        assert!(scene.held_by("a").await.iter().all(|held| *held), "each node keeps it");
    });
}

/// A client asks again by the same token if the grant came too late.
#[test]
fn a_node_that_got_the_lease_later_votes_when_the_owner_asks_again() {
    play(&[3], 0..3, async |scene| {
        let quorum = scene.quorum(scene.faulty()).await;
        vote_for_another(scene, 2, "a", ms(100)).await;
        let owner = OwnerToken::new("ours").expect("a token");
        let ttl = Ttl::new(LONG).expect("within bounds");
        let mut ask = Ask::new(key("a"), owner, Claim::Exclusive, ttl);
        ask.reserve = 1;
        let first = fence(quorum.acquire(ask.clone()).await);
        scene.pass(ms(110)).await;
        assert_eq!(scene.held_by("a").await, [true; 3], "each node has it");
        // Now a majority needs the node that voted for another client.
        scene.faults[1].all_from_now_on(Fault::Refuse);
        let again = fence(quorum.acquire(ask.clone()).await);
        assert!(again > first, "{again:?} after {first:?}");
        let released = quorum.release(ask.lease(), OnRelease::Free).await;
        assert_eq!(released.expect("a majority answers"), Released::Freed);
        ask.owner = OwnerToken::new("next").expect("a token");
        let next = fence(quorum.acquire(ask).await);
        assert!(next > again, "{next:?} after {again:?}");
    });
}

/// If the other vote ends while the process stands still, the client does not ask afterwards.
#[test]
fn a_lease_that_has_ended_is_asked_for_nowhere() {
    play(&[3], 0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        vote_for_another(scene, 0, "a", TTL).await;
        let guard = client.mutex("a").lock().await.expect("a majority is free");
        scene.faults.iter().for_each(|faults| faults.from_now_on(Request::Renew, Fault::Refuse));
        scene.host.suspend(TTL);
        scene.host.settle().await;
        let taken = other.mutex("a").lock().await.expect("it has ended");
        scene.pass(TTL).await;
        assert!(!guard.is_held());
        assert!(having(scene, &taken).await.iter().all(|has| *has), "all three are the other's");
    });
}

/// Only the next renewal asks an unreachable node again.
#[test]
fn a_node_that_is_out_of_reach_is_left_to_the_next_renewal() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        vote_for_another(scene, 0, "a", ms(100)).await;
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("a majority is free");
        scene.faults[0].from_now_on(Request::Acquire, Fault::Refuse);
        let asked = scene.counts(Request::Acquire)[0];
        scene.pass(LONG / 4).await;
        assert_eq!(scene.counts(Request::Acquire)[0] - asked, 1, "it is not asked any more");
        scene.faults[0].heal();
        guard.renew().await.expect("a majority renews it");
        scene.host.settle().await;
        assert!(having(scene, &guard).await[0]);
    });
}

/// Lets clients contend for three far nodes. At some time, at least `settled` after a grant, a
/// random node forgets its holder. Returns how many windows there were, and how many of them
/// overlapped an earlier window.
fn contend(seed: u64, settled: Duration) -> (usize, usize) {
    let counts: Arc<std::sync::Mutex<(usize, usize, usize)>> = Arc::default();
    play_on(3, seed, async |scene| {
        let mut contenders = Vec::new();
        for contender in 0..4_u64 {
            let ways = (0..3_u64).map(|node| ms(1 + (contender * 7 + node * 4 + seed) % 5));
            let client = scene.far_client(ways).await;
            let (host, counts) = (scene.host.clone(), Arc::clone(&counts));
            let nodes = scene.nodes.clone();
            let mut random = SeededRandom::new(seed * 100 + contender);
            contenders.push(scene.host.task(async move {
                for _ in 0..8 {
                    let guard = client.mutex("a").lock().await.expect("it becomes free");
                    {
                        let mut counts = counts.lock().expect("no panic");
                        counts.0 += 1;
                        counts.1 += usize::from(counts.2 > 0);
                        counts.2 += 1;
                    }
                    pause(&host, settled).await;
                    let node = &nodes[random.below(3)];
                    let seen = node.inspect(key("a")).await.expect("it is in memory");
                    for holder in seen.holders {
                        use leasehold::store::Browse as _;
                        let evicted = node.evict(key("a"), holder.token, "a test".to_owned());
                        let _ended = evicted.await.expect("it is in memory");
                    }
                    pause(&host, ms(200)).await;
                    counts.lock().expect("no panic").2 -= 1;
                    drop(guard);
                }
            }));
        }
        for contender in contenders {
            scene.host.within(ms(600_000), contender).await.expect("it gets the lock");
        }
    });
    let (windows, overlaps, _) = *counts.lock().expect("no panic");
    (windows, overlaps)
}

async fn pause(host: &Arc<VirtualHost>, span: Duration) {
    host.sleep_until(host.now() + span).await;
}

/// Here, the node forgets ten round trips to the farthest node after the grant, or later.
#[test]
fn under_contention_one_node_may_forget_soon_after_a_grant() {
    let (mut windows, mut overlaps) = (0, 0);
    for seed in 0..21 {
        let (more, two) = contend(seed, ms(100));
        (windows, overlaps) = (windows + more, overlaps + two);
    }
    assert_eq!((windows, overlaps), (21 * 32, 0));
}

/// Its answer comes when the others have already granted the lock.
#[test]
fn a_node_that_says_late_that_it_voted_for_another_is_asked_again() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        vote_for_another(scene, 0, "a", ms(300)).await;
        scene.faults[0].next(Request::Acquire, Fault::Late(ms(100)));
        let guard = client.mutex("a").ttl(LONG).lock().await.expect("the others are free");
        assert!(!having(scene, &guard).await[0]);
        scene.pass(ms(1_000)).await;
        assert!(having(scene, &guard).await[0], "its vote for the other client has ended");
        drop(guard);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}
