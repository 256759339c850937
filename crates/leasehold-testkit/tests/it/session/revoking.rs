//! An operator asks a holder to let go, and the holder learns it in time.

use futures_util::FutureExt;
use leasehold::host::Host;
use leasehold::store::Revoked;
use leasehold::{Client, ErrorKind, Lost, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play};

/// A renewal is due after a third of the ttl, rounded up to a tick.
const SOON_MS: u64 = 1_100;

/// Asks every holder of the lock.
async fn ask(operator: &Client, name: &str) {
    let holders = operator.inspect(name).await.expect("asked").holders;
    assert!(!holders.is_empty(), "nobody holds it");
    for holder in holders {
        let answer = operator.revoke(name, &holder.token, "noon").await.expect("an answer");
        assert_eq!(answer, Revoked::Asked);
    }
}

/// Whether another client could have the lock now.
async fn is_free(other: &Client, name: &str) -> bool {
    other.mutex(name).try_lock().await.expect("asked").is_some()
}

#[test]
fn a_holder_learns_who_asks_and_why_within_a_third_of_its_ttl_and_keeps_the_lock() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let revoked = guard.revoked();
        scene.pass(ms(500)).await;
        let asked_at = scene.host.now();
        ask(&operator, "a").await;
        let revoked = revoked.await;
        assert!(scene.host.now() <= asked_at + ms(SOON_MS));
        assert_eq!((&*revoked.by, &*revoked.reason), ("anonymous", "noon"));
        scene.pass(ms(9_000)).await;
        assert!(guard.is_held() && !is_free(&operator, "a").await, "it was only asked");
        assert_eq!(guard.revoked().await, revoked, "as often as the holder looks");
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
        assert!(is_free(&operator, "a").await);
    });
}

#[test]
fn a_request_whose_renewal_was_answered_late_or_not_at_all_arrives_with_the_next() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Late(ms(50))] {
        play(0..3, async |scene| {
            let (client, operator) = (scene.client().await, scene.calm_client().await);
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.next(Request::Renew, fault);
            while scene.faults.count(Request::Renew) == 0 {
                scene.pass(ms(10)).await;
            }
            // The store has processed the renewal, and its answer is under way or lost.
            ask(&operator, "a").await;
            let asked_at = scene.host.now();
            assert_eq!(guard.revoked().await.reason, "noon");
            assert!(scene.host.now() <= asked_at + ms(SOON_MS));
            assert!(guard.is_held());
        });
    }
}

#[test]
fn the_next_holder_is_not_asked() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let seen = guard.token().as_str().as_bytes().to_vec();
        let revoked = guard.revoked();
        ask(&operator, "a").await;
        drop(guard);
        let next = client.mutex("a").lock().await.expect("free");
        let late = operator.revoke("a", &seen, "noon").await.expect("an answer");
        assert_eq!(late, Revoked::Changed, "it let go between the inspection and the request");
        next.renew().await.expect("held");
        assert!(next.revoked().now_or_never().is_none());
        assert!(revoked.now_or_never().is_none(), "its turn ended before it learned of it");
    });
}

#[test]
fn a_lock_that_was_asked_for_leaves_the_client_even_if_a_task_of_it_waits() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        // Use no fencing tokens, so that nothing else keeps the lease from being passed on.
        let mutex = client.mutex("a").fencing(false);
        let guard = mutex.lock().await.expect("free");
        let token = guard.token().clone();
        ask(&other, "a").await;
        guard.revoked().await;
        let next = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.host.settle().await;
        drop(guard);
        let next = next.await;
        assert_ne!(*next.token(), token, "the store was asked again");
        next.renew().await.expect("held");
        assert!(next.revoked().now_or_never().is_none(), "it is another holder");
    });
}

#[test]
fn a_task_that_got_the_lock_from_the_one_that_was_asked_is_told() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        // Use no fencing tokens, so that nothing else keeps the lease from being passed on.
        let mutex = client.mutex("a").fencing(false);
        let guard = mutex.lock().await.expect("free");
        let token = guard.token().clone();
        let next = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.host.settle().await;
        ask(&operator, "a").await;
        drop(guard);
        let next = next.await;
        assert_eq!(*next.token(), token, "it has the lease that was asked for");
        assert_eq!(next.revoked().await.reason, "noon");
    });
}

#[test]
fn an_idle_lock_that_is_asked_for_is_let_go_at_once() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let mutex = client.mutex("a").keep_idle(ms(3_600_000));
        drop(mutex.lock().await.expect("free"));
        scene.pass(ms(5_000)).await;
        assert!(!is_free(&other, "a").await, "it is kept");
        ask(&other, "a").await;
        scene.pass(ms(SOON_MS)).await;
        assert!(is_free(&other, "a").await);

        let guard = mutex.lock().await.expect("free");
        ask(&other, "a").await;
        guard.revoked().await;
        drop(guard);
        scene.host.settle().await;
        assert!(is_free(&other, "a").await, "it is not kept idle");
    });
}

#[test]
fn a_holder_that_was_asked_to_let_go_still_learns_of_a_loss() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let (guard, other) =
            (client.mutex("a").lock().await.expect("free"), client.mutex("b").lock().await);
        let other = other.expect("free");
        let lost_first = other.revoked();
        ask(&operator, "a").await;
        guard.revoked().await;
        scene.faults.all_from_now_on(Fault::LoseRequest);
        ask(&operator, "b").await;
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert!(guard.revoked().now_or_never().is_none());
        other.lost().await;
        assert!(lost_first.now_or_never().is_none());
        scene.faults.heal();
    });
}

#[test]
fn one_of_several_locks_is_named_and_a_renewal_by_hand_asks_at_once() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let guard = client.lock_all(["a", "b", "c"]).lock().await.expect("free");
        ask(&operator, "b").await;
        guard.renew().await.expect("held");
        let (name, revoked) = guard.revoked().now_or_never().expect("it knows already");
        assert_eq!((&*name, &*revoked.reason), ("b", "noon"));
    });
}

#[test]
fn a_lease_by_its_token_learns_of_a_request_with_its_renewal() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let token = client.mutex("a").lock().await.expect("free").detach();
        let lease = client.lease("a", token);
        ask(&operator, "a").await;
        assert!(lease.revoked().is_none(), "it has not asked");
        lease.renew(ms(3_000)).await.expect("held");
        assert_eq!(lease.revoked().expect("it was asked").reason, "noon");
    });
}

#[test]
fn a_request_without_a_reason_is_refused_before_the_store_is_asked() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        let token = guard.token().as_str().as_bytes();
        for (name, reason) in [("a", ""), ("a", " \n"), ("", "noon")] {
            for error in [
                client.revoke(name, token, reason).await.map(drop).expect_err("bad"),
                client.evict(name, token, reason).await.map(drop).expect_err("bad"),
            ] {
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            }
        }
        guard.renew().await.expect("held");
        assert!(guard.revoked().now_or_never().is_none());
    });
}

#[test]
fn a_reader_and_the_owner_of_a_permit_are_asked_as_any_holder() {
    play(0..3, async |scene| {
        let (client, operator) = (scene.client().await, scene.calm_client().await);
        let reader = client.rwlock("a").read().await.expect("free");
        let permit = client.semaphore("b", 3).acquire().await.expect("free");
        for name in ["a", "b"] {
            ask(&operator, name).await;
        }
        assert_eq!(reader.revoked().await.reason, "noon");
        assert_eq!(permit.revoked().await.reason, "noon");
        drop((reader, permit));
    });
}
