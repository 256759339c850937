//! The documented behaviour of ShedLock's `lockAtLeastFor`, `lockAtMostFor`, `LockExtender` and
//! `LockAssert`, with the means of Leasehold.

use leasehold::Client;

use super::{ms, play, play_on, stores_here};

const AT_LEAST: std::time::Duration = ms(300_000);

/// Here, `lockAtMostFor` only bounds the time after a crash. A task that takes longer keeps its
/// lock.
#[test]
fn a_task_that_takes_longer_than_its_ttl_still_runs_once() {
    play(0..2, async |scene| {
        let (ours, other) = (scene.client_of(ms(600)).await, scene.calm_client().await);
        let run = ours.once("task", ms(60_000)).start().await.expect("asked").expect("first");
        for _ in 0..50 {
            scene.pass(ms(600)).await;
            let second = other.once("task", ms(60_000)).start().await.expect("asked");
            assert!(second.is_none() && run.guard().is_held());
        }
        run.done().await.expect("confirmed");
    });
}

/// `lockAtLeastFor`: a short task runs once although the clocks of two nodes differ, even if one
/// node starts it a whole minute late.
#[test]
fn a_short_task_runs_once_although_the_clocks_of_the_nodes_differ() {
    for apart_us in [60_000_000, -60_000_000] {
        for &setup in stores_here() {
            play_on(setup, 0, async |scene| {
                let ours = scene.client().await;
                let mutex = |client: &Client| client.mutex("task").min_hold(AT_LEAST);
                let guard = mutex(&ours).try_lock().await.expect("asked").expect("first");
                drop(guard);
                scene.host.step_wall(apart_us);
                let other = scene.calm_client().await;
                for _ in 0..4 {
                    assert!(mutex(&other).try_lock().await.expect("asked").is_none());
                    scene.pass(ms(60_000)).await;
                }
                scene.pass(ms(60_060)).await;
                assert!(mutex(&other).try_lock().await.expect("asked").is_some());
            });
        }
    }
}

/// `LockExtender.extendActiveLock`: no lock needs to be extended, and no renewal shortens a lease.
#[test]
fn a_renewal_by_hand_never_ends_a_lease_earlier() {
    play(0..2, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let token = ours.mutex("task").ttl(ms(10_000)).lock().await.expect("free").detach();
        ours.lease("task", token).renew(ms(1_000)).await.expect("held");
        scene.pass(ms(9_900)).await;
        assert!(other.mutex("task").try_lock().await.expect("asked").is_none());
    });
}

/// `LockAssert.assertLocked`: here, code that needs the lock asks for a guard.
#[test]
fn a_guard_says_whether_the_lock_is_held() {
    play(0..1, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = ours.mutex("task").lock().await.expect("free");
        assert!(guard.is_held());
        let seen = guard.token().as_str().as_bytes().to_vec();
        let _evicted = other.evict("task", &seen, "a test").await.expect("asked");
        let _renewed = guard.renew().await.expect_err("it is gone");
        assert!(!guard.is_held());
    });
}
