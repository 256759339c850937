//! Waiting at a store that has neither a line nor hints.

use leasehold::ErrorKind;
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play_on};
use crate::stores;

fn play(act: impl AsyncFn(&Scene)) {
    for seed in 0..5 {
        play_on(stores::own, seed, &act);
    }
}

#[test]
fn a_waiter_polls_until_the_key_is_free() {
    play(async |scene| {
        for fencing in [true, false] {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let held = other.mutex("a").lock().await.expect("free");
            let mutex = client.mutex("a").fencing(fencing);
            let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
            scene.pass(ms(10_000)).await;
            assert!(!waiting.is_finished());
            let before = scene.faults.count(Request::Acquire);
            scene.pass(ms(10_000)).await;
            let asks = scene.faults.count(Request::Acquire) - before;
            assert!((36..=81).contains(&asks), "{asks} asks in 10 s");
            drop(held);
            scene.pass(ms(1_001)).await;
            assert!(waiting.is_finished());
            let guard = waiting.await;
            assert_eq!(guard.fencing_token().is_some(), fencing);
            let _released = guard.release().await.expect("asked");
        }
    });
}

#[test]
fn a_wait_that_elapses_takes_nothing() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let error = client.mutex("a").lock_timeout(ms(500)).await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        let _released = held.release().await.expect("asked");
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn the_tasks_of_a_client_pass_the_lock_on_and_then_leave_others_a_chance() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = client.mutex("a").lock().await.expect("free");
        let crowd = client.mutex("a");
        for _ in 0..200 {
            let (mutex, host) = (crowd.clone(), scene.host.clone());
            let _output = scene.host.task(async move {
                let guard = mutex.lock().await.expect("in the end");
                host.advance(ms(5)).await;
                drop(guard);
            });
        }
        let mutex = other.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
        scene.pass(ms(1)).await;
        drop(held);
        scene.pass(ms(5_000)).await;
        assert!(waiting.is_finished(), "a client with many tasks starves no other");
    });
}

#[test]
fn a_lost_reply_is_repaired_by_asking_again() {
    play(async |scene| {
        let client = scene.client().await;
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        let guard = client.mutex("a").lock().await.expect("asked again");
        scene.pass(ms(2_900)).await;
        assert!(guard.is_held());
    });
}

/// The release of a dropped guard is sent although nobody polls it.
#[test]
fn a_guard_that_is_dropped_frees_the_key() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        for _ in 0..100 {
            drop(client.mutex("a").lock().await.expect("free"));
            let guard = client.mutex("a").try_lock().await.expect("asked");
            drop(guard.expect("the release came first"));
            let guard = other.mutex("a").lock().await.expect("free");
            let _released = guard.release().await.expect("asked");
        }
    });
}
