//! A node without the lease gets it with the next renewal.

use leasehold::core::token::OwnerToken;
use leasehold::host::Host as _;
use leasehold::{Client, ErrorKind, Lost, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, TTL, ms, play};

#[test]
fn a_node_that_was_down_at_the_grant_is_filled_on_renewal() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        scene.faults[0].next(Request::Acquire, Fault::Refuse);
        let guard = client.mutex("a").lock().await.expect("free");
        assert!(!scene.held_by("a").await[0]);
        scene.pass(TTL / 2).await;
        assert_eq!(scene.held_by("a").await, vec![true; scene.nodes.len()]);
        // The votes of the filled nodes count, so others of the majority may fail now.
        for faults in scene.faults.iter().rev().take(scene.minority()) {
            faults.all_from_now_on(Fault::Refuse);
        }
        scene.pass(TTL * 3).await;
        assert!(guard.is_held());
        scene.faults.iter().for_each(|faults| faults.heal());
        drop(guard);
        scene.host.settle().await;
        scene.pass(TTL).await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

/// A holder may send only renewals for hours, and still needs each node.
#[test]
fn a_node_that_was_never_there_is_admitted_by_renewals_alone_and_filled() {
    play(&[3, 5], 0..3, async |scene| {
        let minority = scene.minority();
        for faults in &scene.faults[..minority] {
            faults.all_from_now_on(Fault::Refuse);
        }
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        scene.faults.iter().for_each(|faults| faults.heal());
        scene.pass(TTL * 2).await;
        assert_eq!(scene.held_by("a").await, vec![true; scene.nodes.len()]);
        // The votes of the new nodes count, so others of the majority may fail now.
        for faults in scene.faults.iter().rev().take(minority) {
            faults.all_from_now_on(Fault::Refuse);
        }
        scene.pass(TTL * 3).await;
        assert!(guard.is_held());
    });
}

#[test]
fn a_node_that_lost_the_key_gets_it_back_on_renewal() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        for node in 0..scene.nodes.len() {
            scene.forget(node, "a").await;
            scene.pass(TTL / 2).await;
            assert!(scene.held_by("a").await[node]);
        }
        assert!(guard.is_held());
        drop(guard);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

#[test]
fn a_node_gets_nothing_back_while_no_majority_renews() {
    play(&[3], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.forget(0, "a").await;
        scene.faults[1].from_now_on(Request::Renew, Fault::Refuse);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert!(!scene.held_by("a").await[0]);
        scene.faults[1].heal();
        scene.pass(TTL).await;
        scene.assert_nothing_is_left("a", "after it was lost").await;
    });
}

#[test]
fn a_lease_that_a_majority_has_lost_is_lost_and_goes_everywhere() {
    play(&[3, 4, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        let majority = scene.nodes.len() / 2 + 1;
        for node in 0..majority {
            scene.forget(node, "a").await;
        }
        assert_eq!(guard.lost().await, Lost::NotOurs);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after it was lost").await;
        scene.pass(TTL).await;
        scene.assert_nothing_is_left("a", "later").await;
    });
}

/// Half of an even number of nodes is not a majority. The holder learns of the loss at the next
/// renewal.
#[test]
fn a_lease_that_half_of_an_even_number_of_nodes_have_lost_is_lost_and_goes_everywhere() {
    play(&[2, 4], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.pass(ms(100)).await;
        for node in 0..scene.nodes.len() / 2 {
            scene.forget(node, "a").await;
        }
        assert_eq!(guard.lost().await, Lost::NotOurs);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after it was lost").await;
    });
}

#[test]
fn an_evicted_lease_does_not_come_back() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let token = guard.token().as_str().as_bytes().to_vec();
        let evicted = operator.evict("a", &token, "stuck").await.expect("asked");
        assert_eq!(evicted, leasehold::store::Evicted::Evicted);
        assert_eq!(guard.lost().await, Lost::NotOurs);
        scene.pass(TTL * 2).await;
        scene.assert_nothing_is_left("a", "after the eviction").await;
    });
}

/// A release never overtakes a request that restores the lease at a node. So nothing is left,
/// whenever the release comes.
#[test]
fn a_release_at_any_moment_of_a_fill_leaves_nothing() {
    for after in 0..60 {
        play(&[3], after..after + 1, async |scene| {
            let client = scene.far_client([ms(3), ms(8), ms(1)]).await;
            let guard = client.mutex("a").lock().await.expect("free");
            scene.pass(ms(20)).await;
            let node = usize::try_from(after % 3).expect("small");
            scene.forget(node, "a").await;
            let renewing = async {
                guard.renew().await.expect("a majority renews it");
            };
            let _cut = scene.host.within(ms(after), renewing).await;
            drop(guard);
            scene.pass(ms(50)).await;
            scene.assert_nothing_is_left("a", &format!("released after {after} ms")).await;
        });
    }
}

#[test]
fn a_detached_lease_is_renewed_and_released_by_another_handle() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let token = client.mutex("a").lock().await.expect("free").detach();
        scene.pass(TTL / 2).await;
        let lease = other.lease("a", token.clone());
        lease.renew(TTL * 2).await.expect("a majority renews it");
        scene.pass(TTL).await;
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        // Another handle cannot know whether it may restore the lease at this node.
        scene.forget(0, "a").await;
        lease.renew(TTL * 2).await.expect("a majority renews it");
        scene.host.settle().await;
        assert!(!scene.held_by("a").await[0]);
        assert_eq!(lease.release().await.expect("asked"), Release::Released);
        scene.assert_nothing_is_left("a", "after the release").await;
        assert_eq!(lease.release().await.expect("asked"), Release::NotHeld);
        let error = lease.renew(TTL).await.expect_err("released");
        assert_eq!(error.kind(), ErrorKind::Lost);
        drop(client.lease("a", token));
    });
}

/// The client of a detached lease that the first two of three nodes have, and its token. From now
/// on, the second node answers the first request of a new client this late.
async fn detached_at_two(scene: &Scene, late: u64) -> (Client, OwnerToken) {
    let owner = scene.calm_client().await;
    let token = owner.mutex("a").ttl(TTL * 10).lock().await.expect("free").detach();
    scene.host.settle().await;
    scene.forget(2, "a").await;
    scene.faults[1].from_now_on(Request::Acquire, Fault::Late(ms(late)));
    (owner, token)
}

/// A command that renews a lease of another command does this.
#[test]
fn a_renewal_waits_for_a_node_that_is_still_tried_where_its_vote_decides() {
    play(&[3], 0..3, async |scene| {
        let (_owner, token) = detached_at_two(scene, 50).await;
        let client = scene.client().await;
        client.lease("a", token).renew(TTL * 20).await.expect("a majority renews it");
        scene.pass(TTL * 15).await;
        assert_eq!(scene.held_by("a").await, [true, true, false]);
    });
}

#[test]
fn a_release_waits_for_a_node_that_is_still_tried_where_its_answer_decides() {
    play(&[3], 0..3, async |scene| {
        let (_owner, token) = detached_at_two(scene, 50).await;
        let client = scene.client().await;
        let released = client.lease("a", token).release().await.expect("a majority answers");
        assert_eq!(released, Release::Released);
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

#[test]
fn a_release_that_is_given_up_while_a_node_is_tried_still_reaches_it() {
    play(&[3], 0..3, async |scene| {
        let (_owner, token) = detached_at_two(scene, 50).await;
        let client = scene.client().await;
        let lease = client.lease("a", token);
        let released = scene.host.within(ms(10), lease.release()).await;
        assert!(released.is_none(), "the second node is still tried");
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}

/// The limit of a command is a second at most. After that, a release goes on in the background.
#[test]
fn a_node_that_is_tried_for_long_is_waited_for_as_long_as_for_a_command() {
    play(&[3], 0..3, async |scene| {
        let (_owner, token) = detached_at_two(scene, 3_000).await;
        let client = scene.client().await;
        let lease = client.lease("a", token);
        let began = scene.host.now();
        let error = lease.renew(TTL * 10).await.expect_err("one of three answers");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        let error = lease.release().await.expect_err("one of three is missing");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(scene.host.now().since(began) < ms(2_100), "a second for each");
        assert_eq!(scene.held_by("a").await, [false, true, false]);
        scene.pass(ms(3_000)).await;
        scene.assert_nothing_is_left("a", "although the caller got an error").await;
    });
}

/// A process that stood still for longer than its ttl restores nothing.
#[test]
fn a_process_that_was_paused_past_its_lease_revives_nothing() {
    play(&[3], 0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults[0].next(Request::Renew, Fault::Refuse);
        scene.host.suspend(TTL * 2);
        let taken = other.mutex("a").lock().await.expect("its lease has ended");
        scene.pass(TTL / 2).await;
        assert!(!guard.is_held());
        assert!(taken.is_held());
        let seen = other.inspect("a").await.expect("asked");
        let theirs = Ok(Some(taken.token().as_str().as_bytes().to_vec()));
        assert!(seen.votes.iter().all(|vote| vote.holder == theirs), "{seen:?}");
    });
}

/// A majority has renewed the lease by then.
#[test]
fn a_node_that_says_late_that_it_lost_the_lease_gets_it_back_before_the_next_renewal() {
    play(&[3, 5], 0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").ttl(TTL * 10).lock().await.expect("free");
        scene.host.settle().await;
        scene.forget(0, "a").await;
        scene.faults[0].next(Request::Renew, Fault::Late(ms(100)));
        guard.renew().await.expect("by the others");
        assert!(!scene.held_by("a").await[0], "it has not answered yet");
        scene.pass(ms(500)).await;
        assert!(scene.held_by("a").await[0]);
        drop(guard);
        scene.host.settle().await;
        scene.assert_nothing_is_left("a", "after the release").await;
    });
}
