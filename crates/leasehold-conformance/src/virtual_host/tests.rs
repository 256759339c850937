//! Tests of a virtual host.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::host::Host;

use super::VirtualHost;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Runs five tasks with three steps each. Returns the order of the steps.
fn trace(seed: u64) -> Vec<(usize, u32)> {
    let host = VirtualHost::new(seed);
    let steps = Arc::new(Mutex::new(Vec::new()));
    for task in 0..5 {
        let (steps, inner) = (Arc::clone(&steps), Arc::clone(&host));
        host.spawn(Box::pin(async move {
            for step in 0..3 {
                steps.lock().expect("no panic").push((task, step));
                inner.sleep_until(inner.now() + ms(1)).await;
            }
        }));
    }
    host.run(host.advance(ms(10)));
    Arc::into_inner(steps).expect("every task has ended").into_inner().expect("no panic")
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let runs: HashSet<_> = (0..20).map(trace).collect();
    assert!(runs.len() > 10, "{} orders from 20 seeds", runs.len());
    for seed in 0..20 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
    let bytes = |seed| {
        let mut bytes = [0; 16];
        VirtualHost::new(seed).random(&mut bytes);
        bytes
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn timers_end_exactly_at_their_moment_and_in_order() {
    let host = VirtualHost::new(1);
    let start = host.now();
    let ended = Arc::new(Mutex::new(Vec::new()));
    for nanos in [3, 1, 1_000_000_007, 2] {
        let (ended, inner) = (Arc::clone(&ended), Arc::clone(&host));
        host.spawn(Box::pin(async move {
            inner.sleep_until(start + Duration::from_nanos(nanos)).await;
            ended.lock().expect("no panic").push(inner.now().since(start).as_nanos());
        }));
    }
    host.run(host.advance(Duration::from_secs(2)));
    assert_eq!(*ended.lock().expect("no panic"), [1, 2, 3, 1_000_000_007]);
    assert_eq!(host.now().since(start), Duration::from_secs(2));
}

#[test]
fn a_timer_that_was_dropped_moves_no_clock() {
    let host = VirtualHost::new(1);
    let start = host.now();
    host.run(async {
        let given_up = host.within(ms(5), host.sleep_until(start + ms(50))).await;
        assert!(given_up.is_none());
        assert_eq!(host.within(ms(50), host.sleep_until(start + ms(7))).await, Some(()));
    });
    assert_eq!(host.now().since(start), ms(7));
}

#[test]
fn an_advance_ends_after_all_due_work() {
    for seed in 0..50 {
        let host = VirtualHost::new(seed);
        let done = Arc::new(Mutex::new(0));
        for _ in 0..10 {
            let (done, inner) = (Arc::clone(&done), Arc::clone(&host));
            host.spawn(Box::pin(async move {
                inner.sleep_until(inner.now() + ms(5)).await;
                // A few more turns at that moment.
                for _ in 0..3 {
                    inner.sleep_until(inner.now()).await;
                    inner.settle().await;
                }
                *done.lock().expect("no panic") += 1;
            }));
        }
        host.run(host.advance(ms(4)));
        assert_eq!(*done.lock().expect("no panic"), 0, "seed {seed}");
        host.run(async {
            host.advance(ms(1)).await;
            for _ in 0..4 {
                host.settle().await;
            }
        });
        assert_eq!(*done.lock().expect("no panic"), 10, "seed {seed}");
    }
}

#[test]
fn timers_stand_still_in_suspend_and_the_clock_does_not() {
    let host = VirtualHost::new(1);
    let start = host.now();
    host.run(async {
        let timer = host.sleep_until(start + ms(10));
        host.suspend(ms(1_000));
        assert_eq!(host.now().since(start), ms(1_000));
        timer.await;
        assert_eq!(host.now().since(start), ms(1_010));
    });
}

#[test]
fn the_time_of_day_follows_the_clock_and_steps_when_told() {
    let host = VirtualHost::new(1);
    let before = host.wall().as_unix_micros();
    host.run(host.advance(ms(2)));
    assert_eq!(host.wall().as_unix_micros(), before + 2_000);
    let moment = host.now();
    host.step_wall(-5_000);
    assert_eq!(host.wall().as_unix_micros(), before - 3_000);
    assert_eq!(host.now(), moment, "a step of the time of day ends no lease");
}

#[test]
fn a_task_gives_its_output_to_the_task_that_waits_for_it() {
    let host = VirtualHost::new(1);
    let inner = Arc::clone(&host);
    let joined = host.task(async move {
        inner.advance(ms(3)).await;
        42
    });
    assert!(!joined.is_finished());
    assert_eq!(host.run(joined), 42);
    assert_eq!(host.tasks(), 0);
}

#[test]
fn tasks_that_are_left_go_on_in_the_next_run_or_are_dropped() {
    let host = VirtualHost::new(1);
    let held = Arc::new(());
    let (inner, moved) = (Arc::clone(&host), Arc::clone(&held));
    host.spawn(Box::pin(async move {
        let _moved = moved;
        inner.advance(ms(10)).await;
    }));
    host.run(host.advance(ms(5)));
    assert_eq!(host.tasks(), 1);
    host.run(host.advance(ms(5)));
    assert_eq!((host.tasks(), Arc::strong_count(&held)), (0, 1));

    let moved = Arc::clone(&held);
    host.spawn(Box::pin(async move {
        let _moved = moved;
        std::future::pending::<()>().await;
    }));
    host.drop_tasks();
    assert_eq!((host.tasks(), Arc::strong_count(&held)), (0, 1));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a thread apart from the host is what is tested")]
fn wakers_work_from_other_threads() {
    let host = VirtualHost::new(1);
    let mut polls = 0;
    host.run(std::future::poll_fn(|context| {
        polls += 1;
        if polls == 2 {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        std::thread::spawn(move || waker.wake()).join().expect("no panic");
        Poll::Pending
    }));
    assert_eq!(polls, 2);
}

#[test]
#[should_panic(expected = "everybody waits and no timer is set: the root future and 1 tasks")]
fn a_deadlock_is_reported_instead_of_waited_out() {
    let host = VirtualHost::new(1);
    host.spawn(Box::pin(std::future::pending()));
    host.run(std::future::pending::<()>());
}

#[test]
#[should_panic(expected = "runs one root at a time")]
fn a_run_inside_a_run_is_refused() {
    let host = VirtualHost::new(1);
    host.run(async { host.run(async {}) });
}
