//! Locks that a guard holds for a limited time.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold::host::Host;
use leasehold::{Client, ErrorKind, Lost, Mutex, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play};

/// The time limit, which is more than three ttls of the clients.
const LIMIT: Duration = ms(10_000);

fn report(client: &Client) -> Mutex {
    client.mutex("report").max_hold(LIMIT)
}

#[test]
fn a_holder_that_renews_for_ever_is_told_and_then_followed_when_its_time_is_over() {
    play(0..5, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = report(&ours).lock().await.expect("free");
        let granted = scene.host.now();
        let (mutex, host) = (report(&other), scene.host.clone());
        let next = scene.host.task(async move {
            let guard = mutex.lock().await.expect("in its turn");
            (host.now(), guard)
        });
        assert_eq!(guard.lost().await, Lost::MaxHold);
        let told = scene.host.now().since(granted);
        assert!((LIMIT - ms(5)..=LIMIT).contains(&told), "told after {told:?}");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        let (at, following) = next.await;
        assert!(at.since(granted) <= LIMIT + ms(30), "it is woken, and does not poll");
        assert!(following.fencing_token() > guard.fencing_token());
        assert_eq!(guard.release().await.expect("an answer"), Release::NotHeld);
        assert!(following.is_held(), "the late release ended nothing");
    });
}

#[test]
fn its_validity_never_passes_the_limit() {
    play(0..3, async |scene| {
        let guard = report(&scene.client().await).lock().await.expect("free");
        let limit = scene.host.now() + LIMIT;
        while guard.is_held() {
            assert!(scene.host.now() + guard.remaining() <= limit);
            if scene.host.now().since(limit.minus(ms(2_000))) > Duration::ZERO {
                // An explicit renewal does not move the limit either.
                let _late = guard.renew().await;
            }
            scene.pass(ms(97)).await;
        }
        assert!(scene.host.now() >= limit.minus(ms(5)), "not much earlier");
    });
}

/// The process can send nothing from shortly before its limit on, like one that was stopped.
#[test]
fn the_lease_of_a_holder_that_was_stopped_ends_by_itself_at_its_limit() {
    play(0..5, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = report(&ours).lock().await.expect("free");
        let granted = scene.host.now();
        scene.pass(LIMIT - ms(100)).await;
        assert!(guard.is_held(), "it was renewed all the time");
        scene.faults.all_from_now_on(Fault::LoseRequest);
        let following = report(&other).lock().await.expect("in its turn");
        let waited = scene.host.now().since(granted);
        // The margin for clocks is 1 % of the ttl and 2 ms.
        assert!((LIMIT..LIMIT + ms(60)).contains(&waited), "followed after {waited:?}");
        assert!(!guard.is_held() && following.is_held());
        scene.faults.heal();
    });
}

#[test]
fn a_loss_before_the_limit_has_its_own_reason() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let guard = report(&ours).lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(guard.lost().await, Lost::Deadline);
        scene.faults.heal();
    });
}

#[test]
fn each_guard_of_a_client_has_the_whole_time() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let first = report(&ours).keep_idle(ms(60_000)).lock().await.expect("free");
        let mutex = report(&ours).keep_idle(ms(60_000));
        let next = scene.host.task(async move { mutex.lock().await.expect("in its turn") });
        scene.pass(LIMIT - ms(1_000)).await;
        assert_eq!(first.release().await.expect("held until now"), Release::Released);
        let next = next.await;
        let granted = scene.host.now();
        assert_eq!(next.lost().await, Lost::MaxHold);
        assert!(scene.host.now().since(granted) >= LIMIT - ms(5));
    });
}

#[test]
fn a_guard_that_ends_in_time_is_released_as_usual() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = report(&ours).lock().await.expect("free");
        let lost = guard.lost();
        scene.pass(LIMIT / 2).await;
        assert_eq!(guard.release().await.expect("confirmed"), Release::Released);
        assert!(report(&other).try_lock().await.expect("asked").is_some());
        scene.pass(LIMIT).await;
        assert_eq!(lost.now_or_never(), None, "released, and not lost");
    });
}

#[test]
fn a_limit_below_the_ttl_or_the_least_hold_is_refused_before_anything_is_asked() {
    play(0..1, async |scene| {
        let ours = scene.client().await;
        let mutex = || ours.mutex("report").ttl(ms(3_000));
        for mutex in [
            mutex().max_hold(Duration::ZERO),
            mutex().max_hold(ms(2_999)),
            mutex().min_hold(ms(5_000)).max_hold(ms(4_999)),
        ] {
            let refused = mutex.try_lock().await.expect_err("too short");
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("report")));
            assert_eq!(mutex.lock().await.expect_err("as well").kind(), ErrorKind::Config);
        }
        assert_eq!(scene.faults.count(Request::Acquire), 0);
        let both = mutex().min_hold(ms(3_000)).max_hold(ms(3_000));
        assert!(both.try_lock().await.expect("allowed").is_some());
    });
}
