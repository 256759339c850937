//! Thousands of tasks that ask at the same time.

use std::time::Duration;

use futures_util::FutureExt;
use leasehold::ErrorKind;
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play_on};
use crate::stores;

const TASKS: usize = 5_000;

/// If all requests were sent at the same time, most would exceed their limit while they wait.
#[test]
fn more_tasks_than_a_store_answers_within_the_limit_of_one_get_their_locks() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        // All requests together take 3 s. Each may take 1 s.
        scene.faults.in_turn(Request::Acquire, Duration::from_micros(600));
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let mutex = client.mutex(format!("{number}"));
                scene.host.task(async move { mutex.lock().await.expect("free") })
            })
            .collect();
        let mut guards = Vec::new();
        for task in tasks {
            guards.push(scene.host.within(ms(5_000), task).await.expect("answered"));
        }
        assert!(guards.iter().all(leasehold::Guard::is_held));
        assert_eq!(scene.faults.count(Request::Acquire), TASKS);
    });
}

/// A task that gives up while it waits for its turn to ask has asked for nothing.
#[test]
fn tasks_that_give_up_before_their_turn_to_ask_hold_nobody_up() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        scene.faults.in_turn(Request::Acquire, Duration::from_micros(600));
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let mutex = client.mutex(format!("{number}"));
                let patience = if number % 2 == 0 { ms(1_000) } else { ms(60_000) };
                scene.host.task(async move { mutex.lock_timeout(patience).await.ok() })
            })
            .collect();
        let mut granted = 0;
        let mut guards = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            let guard = scene.host.within(ms(5_000), task).await.expect("it ends");
            assert!(guard.is_some() || number % 2 == 0, "the patient get their locks");
            granted += usize::from(guard.is_some());
            guards.push(guard);
        }
        assert!((TASKS / 2 + 1..TASKS).contains(&granted), "{granted}");
        assert!(scene.faults.count(Request::Acquire) < TASKS);
    });
}

/// These futures have permits for their requests, or get them when their turn comes, and do not
/// give them back.
#[test]
fn locks_whose_futures_are_not_polled_hold_up_no_other_lock_of_their_client() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        scene.faults.in_turn(Request::Acquire, Duration::from_micros(600));
        let mut unpolled: Vec<_> = (0..TASKS)
            .map(|number| {
                let mutex = client.mutex(format!("{number}"));
                Box::pin(async move { mutex.lock().await })
            })
            .collect();
        for _ in 0..4 {
            for lock in &mut unpolled {
                assert!(lock.now_or_never().is_none(), "no answer has come");
            }
        }
        for (name, span) in [("other", ms(3_000)), ("later", ms(10))] {
            let mutex = client.mutex(name);
            let tried = scene.host.within(span, mutex.try_lock()).await;
            assert!(tried.expect("it ends").expect("an answer").is_some(), "{name}");
        }
        assert_eq!(unpolled.len(), TASKS, "they are still there");
    });
}

/// Waiters can wait longer. The caller of a try wants to know whether the store answers.
#[test]
fn a_try_ends_soon_though_thousands_of_waiters_get_no_answer() {
    play_on(stores::memory, 0, async |scene| {
        let (client, other) = (scene.client().await, scene.client_of(ms(60_000)).await);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for number in 0..2 * TASKS {
            let name = format!("{number}");
            held.push(other.mutex(&*name).lock().await.expect("free"));
            let mutex = client.mutex(name);
            waiting.push(scene.host.task(async move { mutex.lock().await.map(drop) }));
        }
        scene.pass(ms(1_000)).await;
        scene.faults.from_now_on(Request::Acquire, Fault::LoseRequest);
        scene.pass(ms(2_000)).await;
        let mutex = client.mutex("other");
        let tried = scene.host.within(ms(3_000), mutex.try_lock()).await.expect("it ends");
        assert_eq!(tried.expect_err("no answer").kind(), ErrorKind::Unknown);
        assert!(waiting.iter().all(|waits| !waits.is_finished()));
        scene.faults.heal();
    });
}
