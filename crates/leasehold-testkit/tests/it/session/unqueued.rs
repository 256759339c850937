//! Waiting without a place in line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::host::Host;
use leasehold::{Client, Mutex};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play};

fn unqueued(client: &Client) -> Mutex {
    client.mutex("a").unqueued()
}

fn plain(client: &Client) -> Mutex {
    unqueued(client).fencing(false)
}

async fn waiters(scene: &Scene) -> u32 {
    let store = scene.store().await;
    let key = leasehold::Key::new("a").expect("a name");
    leasehold::store::Store::inspect(&store, key).await.expect("answered").waiting
}

#[test]
fn a_waiter_without_a_line_asks_again_until_the_key_is_free() {
    play(0..5, async |scene| {
        for way in [unqueued, plain] {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let held = way(&other).lock().await.expect("free");
            let mutex = way(&client);
            let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
            scene.pass(ms(10_000)).await;
            assert!(!waiting.is_finished());
            assert_eq!(waiters(scene).await, 0);
            let before = scene.faults.count(Request::Acquire);
            scene.pass(ms(10_000)).await;
            let asks = scene.faults.count(Request::Acquire) - before;
            assert!((36..=81).contains(&asks), "{asks} asks in 10 s");
            drop(held);
            scene.pass(ms(1_001)).await;
            assert!(waiting.is_finished());
            let guard = waiting.await;
            assert!(guard.is_held());
            let _released = guard.release().await.expect("asked");
        }
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_nothing_behind() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = plain(&other).lock().await.expect("free");
        assert!(plain(&client).lock_timeout(ms(500)).await.is_err());
        scene.pass(ms(10)).await;
        assert_eq!(scene.faults.count(Request::Release), 0, "there is nothing to give back");
        let _released = held.release().await.expect("asked");
        assert!(plain(&client).try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn a_lost_reply_is_repaired_by_asking_again() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        for _ in 0..2 {
            drop(plain(&client).lock().await.expect("free"));
        }
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        let guard = plain(&client).lock().await.expect("asked again");
        scene.pass(ms(2_900)).await;
        assert!(guard.is_held());
    });
}

/// Polling clients are invisible, so we assume that one always waits.
#[test]
fn the_tasks_of_a_client_free_the_lock_after_64_passes_or_20_ms() {
    // Columns: how long each task holds the lock, how many tasks have it before it is freed.
    for (holds_ms, most) in [(0, 65), (5, 5)] {
        play(0..5, async |scene| {
            let client = scene.client().await;
            let served = Arc::new(AtomicUsize::new(0));
            let held = plain(&client).lock().await.expect("free");
            let mut tasks = Vec::new();
            for _ in 0..200 {
                let (host, mutex) = (scene.host.clone(), plain(&client));
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
            assert_eq!(scene.faults.count(Request::Release), 0);
            drop(held);
            let until = scene.host.now() + ms(1_000);
            while scene.faults.count(Request::Release) == 0 && scene.host.now() < until {
                scene.pass(ms(1)).await;
            }
            let served = served.load(Ordering::Relaxed);
            assert!((1..=most).contains(&served), "{served} had it before it was freed");
            assert_eq!(scene.faults.count(Request::Release), 1);
            // Another client has its chance before this client asks again.
            let other = scene.calm_client().await;
            drop(plain(&other).try_lock().await.expect("asked").expect("free"));
            for task in tasks {
                task.await;
            }
        });
    }
}
