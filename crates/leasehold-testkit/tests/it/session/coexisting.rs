//! `coexist`: foreign clients, which poll without a place in line, get their chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::host::Host;
use leasehold::store::{Hint, Snapshot, Store as _};
use leasehold::{Client, Coexist, Guard, Key, Mutex};
use leasehold_testkit::faults::{Fault, Request};
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, ms, play};

/// A key is left alone for at least this long, and for at most twice as long.
const LEFT_ALONE_MS: u64 = 5;

fn coexisting(client: &Client) -> Mutex {
    client.mutex("a").coexist(Coexist::On)
}

async fn look(scene: &Scene) -> Snapshot {
    let store = scene.store().await;
    store.inspect(Key::new("a").expect("a name")).await.expect("answered")
}

/// Makes `client` wait for the lock, and returns when all tasks are idle.
async fn wait(scene: &Scene, client: &Client) -> Joined<Guard> {
    let mutex = coexisting(client);
    let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
    scene.host.settle().await;
    assert!(!waiting.is_finished());
    waiting
}

/// Asserts that the key is free, with this many waiters in line.
#[track_caller]
fn assert_free(seen: &Snapshot, waiting: u32) {
    assert!(seen.holders.is_empty(), "{:?} is not the chance of others", seen.holders);
    assert_eq!(seen.waiting, waiting);
}

#[test]
fn a_release_frees_the_key_for_a_while_and_then_a_waiter_has_it() {
    for is_dropped in [false, true] {
        play(0..5, async |scene| {
            let (one, other) = (scene.calm_client().await, scene.calm_client().await);
            let held = coexisting(&one).lock().await.expect("free");
            let waiting = wait(scene, &other).await;
            if is_dropped {
                drop(held);
            } else {
                let _released = held.release().await.expect("asked");
            }
            scene.pass(ms(LEFT_ALONE_MS - 1)).await;
            assert_free(&look(scene).await, 1);
            assert!(!waiting.is_finished());
            // Simulated time goes on while a file or a server reports the release. A poll comes far
            // later.
            let until = scene.host.now() + ms(900);
            while !waiting.is_finished() {
                assert!(scene.host.now() < until, "woken, not found by a poll");
                // Send requests, since they take real time, as the notice from another process
                // does.
                for _ in 0..10 {
                    look(scene).await;
                }
                scene.pass(ms(1)).await;
            }
            assert!(waiting.await.is_held());
        });
    }
}

/// The cost of a key that no other client wants.
#[test]
fn a_lock_without_other_clients_is_taken_and_released_without_a_pause() {
    play(0..5, async |scene| {
        let client = scene.calm_client().await;
        let began = scene.host.now();
        for _ in 0..50 {
            let guard = coexisting(&client).lock().await.expect("free");
            let _released = guard.release().await.expect("asked");
        }
        assert_eq!(scene.host.now(), began);
    });
}

/// Otherwise its ask would find the key free, and hand it on before any other client knows.
#[test]
fn a_task_that_locks_again_at_once_leaves_the_key_alone_too() {
    play(0..5, async |scene| {
        let (one, other) = (scene.calm_client().await, scene.calm_client().await);
        let held = coexisting(&one).lock().await.expect("free");
        let waiting = wait(scene, &other).await;
        // In another process, SQLite learns of the waiter at the next renewal.
        scene.pass(ms(1_350)).await;
        drop(held);
        let mutex = coexisting(&one);
        let again = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(LEFT_ALONE_MS - 1)).await;
        assert_free(&look(scene).await, 1);
        scene.pass(ms(LEFT_ALONE_MS + 6)).await;
        let guard = waiting.await;
        assert!(guard.is_held() && !again.is_finished(), "the client that came first has it first");
        let _released = guard.release().await.expect("asked");
        assert!(again.await.is_held());
    });
}

/// A client that polls may come and go between two renewals, and must still get its chance.
#[test]
fn a_renewal_that_sees_nobody_does_not_forget_an_earlier_waiter() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let held = coexisting(&client).lock().await.expect("free");
        scene.faults.forge(&Hint::Wanted { key: Key::new("a").expect("a name") });
        held.renew().await.expect("held");
        let _released = held.release().await.expect("asked");
        let began = scene.host.now();
        let _again = coexisting(&client).lock().await.expect("free");
        let left_alone = scene.host.now().since(began);
        assert!(left_alone >= ms(LEFT_ALONE_MS), "{left_alone:?}");
    });
}

/// A wait that ends while the key is left alone does not mean an outage.
#[test]
fn a_wait_shorter_than_the_time_that_the_key_is_left_alone_elapses() {
    play(0..5, async |scene| {
        let (one, other) = (scene.calm_client().await, scene.calm_client().await);
        let held = coexisting(&one).lock().await.expect("free");
        let waiting = wait(scene, &other).await;
        scene.pass(ms(1_350)).await;
        drop(held);
        let error = coexisting(&one).lock_timeout(ms(1)).await.expect_err("others have their turn");
        assert_eq!(error.kind(), leasehold::ErrorKind::WaitElapsed);
        assert!(waiting.await.is_held());
    });
}

/// Polling clients are invisible, so we assume that one always waits.
#[test]
fn the_tasks_of_a_client_leave_the_lock_after_64_passes_or_20_ms() {
    // Columns: how long each task holds the lock, how many tasks have it before it is freed.
    for (holds_ms, most) in [(0, 65), (5, 5)] {
        play(0..5, async |scene| {
            let client = scene.client().await;
            let served = Arc::new(AtomicUsize::new(0));
            // Use no fencing tokens, since those are reserved only for the expected turns.
            let mutex = coexisting(&client).fencing(false);
            let held = mutex.lock().await.expect("free");
            let mut tasks = Vec::new();
            for _ in 0..200 {
                let (host, mutex) = (scene.host.clone(), mutex.clone());
                let served = served.clone();
                tasks.push(scene.host.task(async move {
                    let guard = mutex.lock().await.expect("in turn");
                    served.fetch_add(1, Ordering::Relaxed);
                    if holds_ms > 0 {
                        host.advance(ms(holds_ms)).await;
                    }
                    drop(guard);
                }));
            }
            scene.host.settle().await;
            drop(held);
            let until = scene.host.now() + ms(1_000);
            while scene.faults.count(Request::Release) == 0 && scene.host.now() < until {
                scene.pass(ms(1)).await;
            }
            let had_it = served.load(Ordering::Relaxed);
            assert!((1..=most).contains(&had_it), "{had_it} had it before it was freed");
            scene.pass(ms(LEFT_ALONE_MS - 2)).await;
            assert_free(&look(scene).await, 0);
            for task in tasks {
                task.await;
            }
            assert_eq!(served.load(Ordering::Relaxed), 200);
        });
    }
}

/// This holds even if the first request fails.
#[test]
fn a_release_that_is_repeated_in_the_background_frees_the_key_too() {
    for fault in [Fault::Refuse, Fault::LoseRequest] {
        play(0..5, async |scene| {
            let (one, other) = (scene.client().await, scene.calm_client().await);
            let held = coexisting(&one).lock().await.expect("free");
            let waiting = wait(scene, &other).await;
            scene.faults.next(Request::Release, fault);
            drop(held);
            let until = scene.host.now() + ms(2_500);
            while !look(scene).await.holders.is_empty() {
                assert!(scene.host.now() < until, "it was handed over, or left to run out");
                scene.pass(ms(LEFT_ALONE_MS - 2)).await;
            }
            assert!(!waiting.is_finished());
            assert!(waiting.await.is_held());
        });
    }
}

/// The grant that is on its way to the future is released, so that any client can get the lock.
#[test]
fn a_dropped_future_frees_the_key_too() {
    play(0..5, async |scene| {
        let (one, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.next(Request::Acquire, Fault::Late(ms(100)));
        let mutex = coexisting(&one);
        {
            let mut asking = std::pin::pin!(mutex.lock());
            std::future::poll_fn(|context| {
                assert!(asking.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            scene.host.settle().await;
            assert_eq!(look(scene).await.holders.len(), 1, "granted, and not told yet");
            let _waiting = wait(scene, &other).await;
        }
        scene.pass(ms(LEFT_ALONE_MS - 1)).await;
        assert_free(&look(scene).await, 1);
    });
}

/// The client treats the lease as lost, but the store still keeps it.
#[test]
fn a_lease_that_was_lost_is_released_for_everybody() {
    play(0..5, async |scene| {
        let (one, other) = (scene.client().await, scene.calm_client().await);
        let held = coexisting(&one).lock().await.expect("free");
        let waiting = wait(scene, &other).await;
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let _lost = held.lost().await;
        let lost_at = scene.host.now();
        scene.pass(ms(1)).await;
        assert_free(&look(scene).await, 1);
        assert!(!waiting.is_finished(), "it gives way first");
        assert!(waiting.await.is_held());
        assert!(scene.host.now().since(lost_at) < ms(100));
    });
}

/// The repetition in the background frees the key, too.
#[test]
fn a_release_that_its_client_repeats_before_it_asks_again_frees_the_key() {
    play(0..5, async |scene| {
        let (one, other) = (scene.client().await, scene.calm_client().await);
        let held = coexisting(&one).lock().await.expect("free");
        let _waiting = wait(scene, &other).await;
        scene.faults.from_now_on(Request::Release, Fault::Refuse);
        drop(held);
        scene.pass(ms(1_500)).await;
        scene.faults.heal();
        // The new ask would hand the key over.
        scene.faults.next(Request::Acquire, Fault::LoseRequest);
        let mutex = coexisting(&one);
        let _asking = scene.host.task(async move { mutex.lock().await });
        scene.host.settle().await;
        assert_free(&look(scene).await, 1);
    });
}
