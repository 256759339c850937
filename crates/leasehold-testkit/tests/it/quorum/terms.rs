//! The options of a lock, over several nodes.

use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::store::{Ask, Claim, Line, Store as _};
use leasehold::{Coexist, ErrorKind, Release, Ttl};
use leasehold_testkit::faults::{Fault, Request};

use super::{TTL, key, ms, play};

#[test]
fn a_plain_lock_is_taken_kept_and_released() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let plain = |client: &leasehold::Client| client.mutex("a").unqueued().fencing(false);
        scene.faults[0].next(Request::Acquire, Fault::Refuse);
        let guard = plain(&client).lock().await.expect("free");
        assert_eq!(guard.fencing_token(), None);
        assert!(plain(&other).try_lock().await.expect("asked").is_none());
        // A renewal fills the node, as for any other lock.
        scene.pass(TTL * 2).await;
        assert!(guard.is_held());
        assert_eq!(scene.held_by("a").await, vec![true; scene.nodes.len()]);
        let waiting = scene.host.task(async move { plain(&other).lock().await.map(drop) });
        scene.pass(ms(300)).await;
        drop(guard);
        let waited = scene.host.within(ms(1_100), waiting).await.expect("it polls");
        waited.expect("it becomes free");
        scene.pass(ms(100)).await;
        scene.assert_nothing_is_left("a", "after both").await;
    });
}

#[test]
fn a_lock_delay_keeps_every_node_for_longer_than_the_holder_counts_on() {
    play(&[3], 0..3, async |scene| {
        let store = scene.quorum(scene.faulty()).await;
        let builder = leasehold::Client::with_store(store).host(scene.host.clone()).ttl(TTL);
        let client = builder.lock_delay(ms(2_000)).connect().await.expect("connected");
        let other = scene.calm_client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        // A node that lost the lease gets it back with the lock delay.
        scene.forget(0, "a").await;
        guard.renew().await.expect("a majority renews it");
        scene.host.settle().await;
        let _left_to_expire = guard.detach();
        scene.pass(ms(4_900)).await;
        assert_eq!(scene.held_by("a").await, [true; 3]);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        scene.pass(ms(200)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn the_shortest_ttl_is_kept_while_a_minority_is_silent() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let (mutex, other) = (client.mutex("a").ttl(ms(10)), scene.calm_client().await);
        for faults in &scene.faults[..scene.minority()] {
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let guard = mutex.lock().await.expect("free");
        scene.pass(ms(500)).await;
        assert!(guard.is_held());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        drop(guard);
        scene.pass(ms(20)).await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

#[test]
fn a_shutdown_while_the_votes_are_split_leaves_nothing() {
    play(&[3], 0..10, async |scene| {
        let holder = scene.client().await;
        scene.faults[2].next(Request::Acquire, Fault::Refuse);
        let guard = holder.mutex("a").ttl(TTL * 10).lock().await.expect("free");
        let client = scene.far_client([ms(1), ms(1), ms(2)]).await;
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.map(drop) });
        scene.pass(ms(scene.host.seed() * 3 + 1)).await;
        let shut = client.shutdown(ms(100)).await;
        assert_eq!(shut.not_released, 0);
        assert_eq!(waiting.await.expect_err("closed").kind(), ErrorKind::Closed);
        scene.pass(ms(50)).await;
        assert_eq!(scene.held_by("a").await, [true, true, false]);
        drop(guard);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

/// A client of a single node has a place in line there.
#[test]
fn a_release_with_coexist_frees_every_node_and_hands_none_over() {
    play(&[3], 0..3, async |scene| {
        for coexists in [false, true] {
            let client = scene.client().await;
            let mutex = client.mutex("a");
            let mutex = if coexists { mutex.coexist(Coexist::On) } else { mutex };
            let guard = mutex.lock().await.expect("free");
            let alone = scene.client_of(scene.nodes[0].clone(), TTL).await;
            let waiting = scene.host.task(async move { alone.mutex("a").lock().await });
            scene.pass(ms(50)).await;
            let released = guard.release().await.expect("a majority lets go");
            assert_eq!(released, Release::Released);
            assert_eq!(scene.held_by("a").await, [!coexists, false, false]);
            let waited = scene.host.within(ms(1_100), waiting).await.expect("it is woken");
            drop(waited.expect("it is free there"));
            scene.pass(ms(50)).await;
        }
    });
}

/// The release is repeated in the same way, since a hand-over at this node would keep out clients
/// that poll.
#[test]
fn a_client_with_coexist_hands_no_key_over_at_a_node_that_missed_the_release() {
    play(&[3], 0..3, async |scene| {
        for coexists in [false, true] {
            let client = scene.client().await;
            let mutex = client.mutex("a");
            let mutex = if coexists { mutex.coexist(Coexist::On) } else { mutex };
            let guard = mutex.lock().await.expect("free");
            let refused = scene.nodes[0].acquire(another_in_line()).await.expect("it is in memory");
            assert!(refused.is_taken(), "{refused:?}");
            scene.faults[0].next(Request::Release, Fault::Refuse);
            assert_eq!(guard.release().await.expect("two let go"), Release::Released);
            assert_eq!(scene.held_by("a").await, [true, false, false]);
            scene.pass(ms(100)).await;
            assert_eq!(scene.held_by("a").await, [!coexists, false, false]);
            scene.pass(TTL + ms(100)).await;
            scene.assert_nothing_is_left("a", "once nobody asks any more").await;
        }
    });
}

fn another_in_line() -> Ask {
    let owner = OwnerToken::new("another").expect("a token");
    let ttl = Ttl::new(TTL).expect("within bounds");
    let mut ask = Ask::new(key("a"), owner, Claim::Exclusive, ttl);
    let inbox = ClientId::new("Nn23PXTR8zL5").expect("an id");
    ask.line = Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no: 1, inbox };
    ask
}
