//! A holder learns of its loss at its own deadline, and nothing revives the lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::host::Host;
use leasehold::{ErrorKind, Lost, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{TOLD, ms, play};

/// This is before the store frees the key, for each way in which renewals fail.
#[test]
fn a_holder_whose_renewals_fail_is_told_exactly_at_its_deadline() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(0..5, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let sent = scene.host.now();
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.all_from_now_on(fault);
            let lost = guard.lost().await;
            assert_eq!((lost, scene.host.now()), (Lost::Deadline, sent + TOLD));
            assert!(!guard.is_held());
            assert_eq!(guard.remaining(), ms(0));
            let taken = other.mutex("a").try_lock().await.expect("asked");
            assert!(taken.is_none(), "the store keeps it for longer than its holder counts on it");
            scene.pass(ms(3_000) - TOLD + ms(1)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
        });
    }
}

/// The store has renewed the lease, but its reply was lost. The holder does not know of the
/// renewal, and must not rely on it.
#[test]
fn a_renewal_whose_reply_was_lost_does_not_count() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let sent = scene.host.now();
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::LoseReply);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(scene.host.now(), sent + TOLD);
    });
}

/// A lost token is never used again, so other clients need not wait for the rest of its ttl.
#[test]
fn a_lease_that_was_lost_at_its_deadline_is_given_back() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::LoseReply);
        guard.lost().await;
        // The renewals took effect, so without a release the store would keep the lease for longer.
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// The validity counts from before the request was sent, never from the reply.
#[test]
fn a_grant_whose_answer_came_late_is_valid_for_less() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let sent = scene.host.now();
        scene.faults.next(Request::Acquire, Fault::Late(ms(700)));
        let guard = client.mutex("a").lock().await.expect("free");
        assert_eq!(scene.host.now(), sent + ms(700));
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(scene.host.now(), sent + TOLD);
    });
}

/// The same holds for a renewal.
#[test]
fn a_renewal_whose_answer_came_late_is_valid_for_less() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.pass(ms(500)).await;
        scene.faults.next(Request::Renew, Fault::Late(ms(400)));
        let sent = scene.host.now();
        guard.renew().await.expect("held");
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(scene.host.now(), sent + TOLD);
    });
}

/// One successful renewal is enough.
#[test]
fn an_outage_shorter_than_the_lease_is_survived() {
    play(0..10, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        for _ in 0..5 {
            scene.faults.all_from_now_on(Fault::Refuse);
            scene.pass(ms(1_500)).await;
            scene.faults.heal();
            scene.pass(ms(1_500)).await;
            assert!(guard.is_held());
        }
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
    });
}

/// An answer after the deadline does not count, however much of the new ttl would be left.
#[test]
fn a_late_renewal_never_revives_a_lost_lease() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let sent = scene.host.now();
        let guard = client.mutex("a").lock().await.expect("free");
        // The renewal is sent after a third of the ttl, and answered shortly after the deadline.
        scene.faults.from_now_on(Request::Renew, Fault::Late(ms(2_100)));
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(scene.host.now(), sent + TOLD);
        for _ in 0..30 {
            scene.pass(ms(50)).await;
            assert!(!guard.is_held() && guard.remaining().is_zero());
        }
        assert_eq!(guard.renew().await.expect_err("lost").kind(), ErrorKind::Lost);
        assert_eq!(guard.release().await.expect("known"), Release::NotHeld);
    });
}

/// Even a renewal by hand does not help, although the store would still keep the lease.
#[test]
fn renewing_after_the_loss_says_lost() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::Refuse);
        let lost = guard.lost().await;
        scene.faults.heal();
        assert_eq!(guard.renew().await.expect_err("lost").kind(), ErrorKind::Lost);
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await, lost, "a later call is told the same");
    });
}

/// The holder is told at the next renewal at the latest.
#[test]
fn an_evicted_holder_is_told_that_the_lease_is_not_its_own() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
        let _ended = other.evict("a", &seen, "a test").await.expect("asked");
        let lost = scene.host.within(ms(1_200), guard.lost()).await;
        assert_eq!(lost, Some(Lost::NotOurs));
        let next = other.mutex("a").try_lock().await.expect("asked").expect("free");
        assert!(next.fencing_token() > guard.fencing_token());
        drop(guard);
        scene.pass(ms(10_000)).await;
        assert!(next.is_held(), "the loser's cleaning up does not touch the next holder");
    });
}

/// `with` drops the future of the work, so that it cannot go on.
#[test]
fn work_under_a_lost_lock_is_dropped_at_the_deadline() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let dropped = Arc::new(AtomicBool::new(false));
        let sent = scene.host.now();
        let result = client
            .mutex("a")
            .with(async |_| {
                let _tell = TellDrop(Arc::clone(&dropped));
                scene.faults.all_from_now_on(Fault::Refuse);
                std::future::pending::<()>().await;
            })
            .await;
        assert_eq!(result.expect_err("lost").kind(), ErrorKind::Lost);
        assert!(dropped.load(Ordering::Relaxed));
        assert_eq!(scene.host.now(), sent + TOLD);
    });
}

/// The work was done in time. The client repeats the release in the background.
#[test]
fn work_under_a_lock_that_could_not_be_released_keeps_its_result() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.next(Request::Release, Fault::Refuse);
        let result = client.mutex("a").with(async |_| 7).await;
        assert_eq!(result.expect("it was done"), 7);
        scene.pass(ms(200)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

struct TellDrop(Arc<AtomicBool>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While the machine sleeps, timers stand still, but the clock does not.
#[test]
fn a_machine_that_slept_past_the_deadline_holds_nothing_when_it_wakes() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.suspend(ms(3_000));
        assert!(!guard.is_held(), "known at once, by the clock");
        assert_eq!(guard.remaining(), ms(0));
        let lost = scene.host.within(ms(100), guard.lost()).await;
        assert_eq!(lost, Some(Lost::Deadline), "and told within a tick of the driver");
    });
}

/// No lease depends on the time of day.
#[test]
fn a_step_of_the_time_of_day_loses_nothing() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        for step_us in [86_400_000_000, -200_000_000_000] {
            scene.host.step_wall(step_us);
            scene.pass(ms(5_000)).await;
            assert!(guard.is_held());
        }
    });
}

/// The store keeps the lease for the lock delay, but nobody uses it any more. The guard notices the
/// loss before the driver.
#[test]
fn a_guard_that_ends_after_a_suspend_gives_its_lease_back() {
    play(0..3, async |scene| {
        let client = scene.client_with_delay(ms(60_000)).await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.host.suspend(ms(3_000));
        drop(guard);
        scene.pass(ms(100)).await;
        let other = scene.calm_client().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// The guard notices the loss before the driver, whose timers stood still.
#[test]
fn a_guard_that_ends_after_a_suspend_lets_the_next_task_of_its_client_ask() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.host.settle().await;
        scene.host.suspend(ms(20_000));
        drop(guard);
        let next = scene.host.within(ms(2_000), waiting).await;
        assert!(next.expect("it asks").is_held());
    });
}
