//! A failing store: unknown outcomes are repaired, losses are reported, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::validity::command_limit;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, Task};
use leasehold::{Client, Error, ErrorKind, Mutex, Release, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Hints, Request};

use super::{ms, play};

/// The same token asks again.
#[test]
fn a_lost_reply_to_an_ask_is_repaired_by_the_same_token() {
    play(0..10, async |scene| {
        for name in ["lock", "try_lock"] {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let mutex = client.mutex(name);
            let asks = scene.faults.count(Request::Acquire);
            scene.faults.next(Request::Acquire, Fault::LoseReply);
            let guard = match name {
                "lock" => mutex.lock().await.expect("repaired"),
                _ => mutex.try_lock().await.expect("repaired").expect("free"),
            };
            assert_eq!(scene.faults.count(Request::Acquire), asks + 2);
            let snapshot = other.inspect(name).await.expect("asked");
            assert_eq!(snapshot.holders[0].token, guard.token().as_str().as_bytes());
            assert_eq!(snapshot.fencing, guard.fencing_token(), "granted once");
        }
    });
}

/// `Unavailable` would wrongly say that no grant remains.
#[test]
fn a_refusal_after_a_request_without_an_answer_leaves_the_outcome_unknown() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        scene.faults.next(Request::Acquire, Fault::Refuse);
        let failed = client.mutex("a").try_lock().await.expect_err("no answer");
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
        assert!(client.mutex("a").try_lock().await.expect("an answer").is_some(), "released");
    });
}

#[test]
fn a_try_that_ends_unknown_is_released_in_the_background() {
    for fault in [Fault::LoseReply, Fault::LoseRequest] {
        play(0..5, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.from_now_on(Request::Acquire, fault);
            let error = client.mutex("a").try_lock().await.expect_err("unknown");
            assert_eq!(error.kind(), ErrorKind::Unknown);
            scene.host.settle().await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
        });
    }
}

/// Only the release was lost. The try behind it arrived.
#[test]
fn a_try_is_not_told_taken_because_of_a_release_that_failed_meanwhile() {
    play(0..10, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        for _ in 0..2 {
            scene.faults.next(Request::Release, Fault::LoseRequest);
        }
        let failed = command_limit(Ttl::MAX);
        scene.faults.next(Request::Acquire, Fault::Late(failed + ms(1)));
        drop(guard);
        // The next release may be lost as well. Then nobody knows.
        let again = client.mutex("a").try_lock().await;
        assert!(!matches!(again, Ok(None)), "nobody else has it");
    });
}

/// The first ask may still arrive when the key is free, over a connection that was given up, or at
/// a late node of a quorum.
#[test]
fn a_try_that_finds_the_key_taken_gives_back_what_an_ask_without_an_answer_may_get_later() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        scene.faults.next(Request::Acquire, Fault::LoseRequest);
        let taken = client.mutex("a").try_lock().await.expect("answered in the end");
        assert!(taken.is_none());
        scene.host.settle().await;
        assert_eq!(scene.faults.count(Request::Release), 1);
        // Without such an ask, there is nothing to give back.
        assert!(client.mutex("a").try_lock().await.expect("answered").is_none());
        scene.host.settle().await;
        assert_eq!(scene.faults.count(Request::Release), 1);
        assert_eq!(held.release().await.expect("answered"), Release::Released);
    });
}

/// This holds even if the release meets the same outage.
#[test]
fn a_release_in_the_background_is_repeated_until_the_store_answers() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Refuse] {
        play(0..5, async |scene| {
            let client = scene.client_of(ms(30_000)).await;
            let other = scene.calm_client().await;
            scene.faults.from_now_on(Request::Acquire, Fault::LoseReply);
            scene.faults.from_now_on(Request::Release, fault);
            let error = client.mutex("a").try_lock().await.expect_err("unknown");
            assert_eq!(error.kind(), ErrorKind::Unknown);
            scene.pass(ms(5_000)).await;
            scene.faults.heal();
            scene.pass(ms(1_025)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
        });
    }
}

/// Its place lives for 3 s, and the lease that the place is granted for 3 s more.
#[test]
fn a_waiter_that_gave_up_in_an_outage_releases_what_its_place_was_granted_afterwards() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client_of(ms(3_000)).await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock_timeout(ms(500)).await });
        scene.pass(ms(400)).await;
        scene.faults.all_from_now_on(Fault::Refuse);
        scene.faults.hints(Hints::AreLost);
        assert_eq!(waiting.await.expect_err("taken").kind(), ErrorKind::WaitElapsed);
        scene.pass(ms(2_000)).await;
        assert_eq!(held.release().await.expect("answered"), Release::Released);
        scene.pass(ms(1_500)).await;
        assert!(other.mutex("a").try_lock().await.expect("answered").is_none(), "handed over");
        scene.faults.heal();
        scene.pass(ms(1_025)).await;
        assert!(other.mutex("a").try_lock().await.expect("answered").is_some(), "given back");
    });
}

/// A caller must learn at once that the store was never reached.
#[test]
fn the_first_ask_reports_its_error() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        scene.faults.all_from_now_on(Fault::Refuse);
        let start = scene.host.now();
        for error in [
            client.mutex("a").lock().await.expect_err("refused"),
            client.mutex("a").try_lock().await.expect_err("refused"),
            client.mutex("a").lock_timeout(ms(60_000)).await.expect_err("refused"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(error.name(), Some("a"));
        }
        assert_eq!(scene.host.now(), start, "nobody waited");
    });
}

/// A waiter in line does not lose its turn to a short outage.
#[test]
fn an_outage_after_the_first_answer_is_waited_out() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
        play(0..5, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let held = other.mutex("a").lock().await.expect("free");
            let mutex = client.mutex("a");
            let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
            scene.pass(ms(500)).await;
            scene.faults.all_from_now_on(fault);
            // Hints come over the same network as the answers, so they are lost too.
            scene.faults.hints(Hints::AreLost);
            scene.pass(ms(10_000)).await;
            assert!(!waiting.is_finished());
            let asks = scene.faults.count(Request::Acquire);
            assert!(asks < 60, "{asks} asks in 10 s: it backs off");
            drop(held);
            scene.pass(ms(10_000)).await;
            scene.faults.heal();
            // This is the limit of the ask on its way, the longest pause, and the life of a
            // handed-over lease.
            let guard = scene.host.within(ms(750 + 1_000 + 3_000 + 100), waiting).await;
            assert!(guard.expect("granted soon after").is_held());
        });
    }
}

/// Even so, the client no longer holds the lock.
#[test]
fn a_release_that_could_not_be_asked_says_so_and_is_repeated() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        for (fault, kind) in [
            (Fault::Refuse, ErrorKind::Unavailable),
            (Fault::LoseRequest, ErrorKind::Unknown),
            (Fault::LoseReply, ErrorKind::Unknown),
        ] {
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.next(Request::Release, fault);
            let error = guard.release().await.expect_err("the store failed");
            assert_eq!(error.kind(), kind);
            scene.pass(ms(100)).await;
            let free = other.mutex("a").try_lock().await.expect("asked");
            assert!(free.is_some(), "{fault:?}: repeated soon");
            drop(free);
            scene.host.settle().await;
        }
    });
}

/// The first release took effect, so the second finds nothing. The caller is told that the lock was
/// released.
#[test]
fn a_release_whose_reply_was_lost_frees_the_key_once() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.next(Request::Release, Fault::LoseReply);
        drop(guard);
        scene.host.settle().await;
        let next = other.mutex("a").try_lock().await.expect("asked").expect("free");
        scene.pass(ms(5_000)).await;
        assert!(next.is_held(), "the repetition does not touch the next holder");
        assert_eq!(next.release().await.expect("asked"), Release::Released);
    });
}

/// The two ways to wait in line: with the other tasks of the client, and alone.
const WAYS: [fn(Mutex) -> Mutex; 2] = [std::convert::identity, Mutex::strict_fifo];

/// *Taken* and no answer of the store are different results.
#[test]
fn a_wait_for_a_store_that_cannot_be_asked_does_not_end_as_taken() {
    for (fault, answered_before, kind) in [
        (Fault::LoseRequest, false, ErrorKind::Unknown),
        (Fault::LoseRequest, true, ErrorKind::Unknown),
        (Fault::Refuse, true, ErrorKind::Unavailable),
    ] {
        play(0..5, async |scene| {
            for (name, way) in ["shared", "alone"].into_iter().zip(WAYS) {
                let (client, other) = (scene.client().await, scene.calm_client().await);
                let _held = other.mutex(name).lock().await.expect("free");
                if !answered_before {
                    scene.faults.all_from_now_on(fault);
                }
                let mutex = way(client.mutex(name));
                let waiting = scene.host.task(async move { mutex.lock_timeout(ms(4_000)).await });
                scene.pass(ms(100)).await;
                scene.faults.all_from_now_on(fault);
                let error = waiting.await.expect_err("no answer");
                let case = format!("{name}, {fault:?}, answered before: {answered_before}");
                assert_eq!(error.kind(), kind, "{case}: {error}");
                scene.faults.heal();
            }
        });
    }
}

/// `Unavailable` would say that no grant remains, but the request may be granted late.
#[test]
fn a_wait_that_ends_refused_after_a_request_without_an_answer_ends_as_unknown() {
    let ways: [fn(Mutex) -> Mutex; 3] = [WAYS[0], WAYS[1], Mutex::unqueued];
    play(0..3, async |scene| {
        for (name, way) in ["shared", "alone", "polling"].into_iter().zip(ways) {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let _held = other.mutex(name).lock().await.expect("free");
            let mutex = way(client.mutex(name));
            let waiting = scene.host.task(async move { mutex.lock_timeout(ms(4_000)).await });
            scene.pass(ms(100)).await;
            scene.faults.next(Request::Acquire, Fault::LoseReply);
            scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
            let error = waiting.await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{name}: {error}");
            assert!(error.to_string().contains("refused to order"), "{name}: {error}");
            scene.faults.heal();
        }
    });
}

/// The request was also made for the tasks behind the one that asks.
#[test]
fn a_wait_behind_a_request_without_an_answer_ends_as_unknown() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let (asker, next) = (client.mutex("a"), client.mutex("a"));
        let _asking = scene.host.task(async move { asker.lock().await.map(drop) });
        scene.pass(ms(100)).await;
        let waiting = scene.host.task(async move { next.lock_timeout(ms(4_000)).await });
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
        let error = waiting.await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        scene.faults.heal();
    });
}

/// A task that asked and leaves takes its knowledge of an outage along. The task behind it asks
/// anew, and gets an answer.
#[test]
fn a_wait_that_ends_after_an_outage_ends_as_taken() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let (asker, next) = (client.mutex("a"), client.mutex("a").ttl(ms(5_000)));
        let last = next.clone();
        let mut asking = Box::pin(asker.lock());
        assert!(scene.host.within(ms(10), &mut asking).await.is_none());
        let _next = scene.host.task(async move { next.lock().await.map(drop) });
        scene.pass(ms(10)).await;
        let waiting = scene.host.task(async move { last.lock_timeout(ms(4_000)).await });
        scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
        assert!(scene.host.within(ms(2_000), &mut asking).await.is_none());
        scene.faults.heal();
        drop(asking);
        let error = waiting.await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
    });
}

/// During an outage of a day, the client must not repeat the release forty times a second.
#[test]
fn a_release_that_is_not_answered_is_repeated_ever_more_rarely() {
    play(0..2, async |scene| {
        let client = scene.client_of(ms(24 * 3_600_000)).await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::Refuse);
        drop(guard);
        scene.pass(ms(3_600_000)).await;
        let count = scene.faults.count(Request::Release);
        assert!((3_000..10_000).contains(&count), "{count} releases in an hour of outage");
    });
}

/// A virtual host whose clock never shows the same moment twice, like a real one.
struct Ticking {
    host: Arc<VirtualHost>,
    looks: AtomicU64,
}

impl Host for Ticking {
    fn now(&self) -> Moment {
        self.host.now() + Duration::from_nanos(self.looks.fetch_add(1, Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        self.host.wall()
    }
    fn sleep_until(&self, at: Moment) -> Sleep {
        self.host.sleep_until(at)
    }
    fn spawn(&self, task: Task) {
        self.host.spawn(task);
    }
    fn spawn_blocking(&self, name: &str, task: Task) -> Result<(), Error> {
        self.host.spawn_blocking(name, task)
    }
    fn random(&self, bytes: &mut [u8]) {
        self.host.random(bytes);
    }
}

/// The waiter must not be told that another client had the lock.
#[test]
fn a_wait_for_a_store_that_never_answered_ends_as_unknown() {
    play(0..5, async |scene| {
        let host = Ticking { host: scene.host.clone(), looks: AtomicU64::new(1) };
        let store = scene.faults.decorate(scene.store().await);
        let builder = Client::with_store(store).host(Arc::new(host));
        let client = builder.connect().await.expect("connected");
        scene.faults.from_now_on(Request::Acquire, Fault::LoseReply);
        for way in WAYS {
            let error = way(client.mutex("a")).lock_timeout(ms(100)).await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
    });
}

/// The task that asks learns of the outage, and of its end. So does the task behind it.
#[test]
fn a_wait_behind_an_asker_that_saw_an_outage_end_ends_as_taken() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let (asker, next) = (client.mutex("a"), client.mutex("a"));
        let _asking = scene.host.task(async move { asker.lock().await.map(drop) });
        scene.pass(ms(10)).await;
        let waiting = scene.host.task(async move { next.lock_timeout(ms(6_000)).await });
        scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
        scene.pass(ms(2_000)).await;
        scene.faults.heal();
        let error = waiting.await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
    });
}

/// A task that continues the requests of another task also reports how they ended.
#[test]
fn a_task_that_goes_on_after_a_request_without_an_answer_ends_as_unknown() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
        let (first, second) = (client.mutex("a"), client.mutex("a"));
        let first = scene.host.task(async move { first.lock_timeout(ms(100)).await });
        scene.pass(ms(10)).await;
        let second = scene.host.task(async move { second.lock().await });
        for waiting in [first, second] {
            let error = waiting.await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
        scene.faults.heal();
    });
}

/// `Unavailable` would say that no grant remains.
#[test]
fn a_wait_that_ends_during_a_request_ends_as_unknown() {
    play(0..3, async |scene| {
        for (name, way) in ["shared", "alone"].into_iter().zip(WAYS) {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let _held = other.mutex(name).lock().await.expect("free");
            let mutex = way(client.mutex(name));
            let waiting = scene.host.task(async move { mutex.lock_timeout(ms(1_400)).await });
            scene.pass(ms(100)).await;
            scene.faults.from_now_on(Request::Acquire, Fault::Refuse);
            scene.pass(ms(1_000)).await;
            scene.faults.from_now_on(Request::Acquire, Fault::LoseRequest);
            let error = waiting.await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{name}: {error}");
            scene.faults.heal();
        }
    });
}

/// No other client has ever had the lock, and the store has been silent for a whole ttl.
#[test]
fn a_wait_behind_a_guard_that_an_outage_cost_does_not_end_as_taken() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock_timeout(ms(3_300)).await });
        scene.faults.all_from_now_on(Fault::LoseRequest);
        let error = waiting.await.expect_err("no answer");
        assert!(!held.is_held());
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        scene.faults.heal();
    });
}

/// The guard before it has ended, and the store does not say whether another client has the lock.
#[test]
fn a_wait_behind_a_release_without_an_answer_ends_as_unknown() {
    play(0..3, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock_timeout(ms(300)).await });
        scene.pass(ms(100)).await;
        // The lease has no fencing token for the next turn, so the store is asked.
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        drop(held);
        let error = waiting.await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("did not answer"), "{error}");
        scene.faults.heal();
    });
}

/// The lost answer is the first one of this task. The ask before belonged to the other task.
#[test]
fn a_task_that_goes_on_with_the_ask_of_another_repeats_an_unknown_outcome() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.next(Request::Acquire, Fault::Late(ms(200)));
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        let mutex = client.mutex("a");
        let first = scene.host.task(async move { mutex.lock_timeout(ms(100)).await });
        scene.pass(ms(10)).await;
        let mutex = client.mutex("a");
        let second = scene.host.task(async move { mutex.lock().await });
        assert_eq!(first.await.expect_err("no answer").kind(), ErrorKind::Unknown);
        assert!(second.await.expect("one lost answer is repaired").is_held());
    });
}

/// The late grant is released only afterwards, and the release may fail.
#[test]
fn a_store_whose_grants_come_too_late_leaves_the_outcome_unknown() {
    play(0..3, async |scene| {
        let client = scene.client_with_delay(ms(10_000)).await;
        scene.faults.from_now_on(Request::Acquire, Fault::Late(ms(60)));
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        let mutex = client.mutex("a").ttl(ms(100));
        let failed = mutex.try_lock().await.expect_err("too late to use");
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
    });
}
