//! One store, runtimes that come and go around it, and futures that are dropped.

use std::cell::RefCell;
use std::time::Duration;

use leasehold::{Client, Guard, Release};
use leasehold_testkit::cut_after;
use leasehold_testkit::servers::Schema;

use super::client;

fn run<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(task)
}

async fn lock_and_drop(client: &Client, times: usize) {
    let mutex = client.mutex("a");
    for round in 0..times {
        let guard = mutex.try_lock().await.expect("asked");
        drop(guard.unwrap_or_else(|| panic!("taken by our own old lease, round {round}")));
    }
}

#[test]
fn a_lock_that_was_just_dropped_is_never_taken_for_its_own_client() {
    let schema = Schema::lend();
    run(async { lock_and_drop(&client(&schema.url()).await, 300).await });
}

#[test]
fn a_lock_dropped_at_any_await_is_held_by_the_same_client_at_once() {
    let schema = Schema::lend();
    run(async {
        let client = client(&schema.url()).await;
        let mutex = client.mutex("a");
        let mut polls = 0;
        loop {
            let ended = cut_after(polls, mutex.lock()).await.is_some();
            let guard = mutex.try_lock().await.expect("asked");
            assert!(guard.is_some(), "dropped after {polls} polls");
            if ended {
                break;
            }
            polls += 1;
        }
        assert!(polls > 0, "it was dropped somewhere");
    });
}

/// The guard's thread-local was made before those of tokio, so it is dropped after them.
#[test]
fn a_guard_that_ends_with_its_thread_is_released() {
    thread_local! {
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    let schema = Schema::lend();
    let url = schema.url();
    let thread = std::thread::spawn(move || {
        KEPT.with(|kept| {
            let mut kept = kept.borrow_mut();
            *kept = Some(run(async { client(&url).await.mutex("a").lock().await.expect("free") }));
        });
    });
    thread.join().expect("nothing panics");
    run(async {
        let client = client(&schema.url()).await;
        drop(client.mutex("a").lock().await.expect("it was released"));
    });
}

#[test]
fn a_client_goes_on_when_the_runtime_that_connected_it_is_gone() {
    let schema = Schema::lend();
    let client = run(async { client(&schema.url()).await });
    for _ in 0..3 {
        run(async {
            let guard = client.mutex("a").lock().await.expect("free");
            assert_eq!(guard.release().await.expect("asked"), Release::Released);
        });
    }
}

/// The driver renews on a thread of its own, and so does the connection for renewals.
#[test]
fn a_lock_outlives_the_runtime_that_took_it() {
    let schema = Schema::lend();
    let client = run(async { client(&schema.url()).await });
    let mutex = client.mutex("a").ttl(Duration::from_secs(3));
    let guard = run(async { mutex.lock().await.expect("free") });
    // Four renewals, a second apart, take longer than one ttl.
    let ends = || schema.sql("SELECT expires FROM leasehold.locks WHERE key = 'a'");
    let (mut end, mut renewals) = (ends(), 0);
    while renewals < 4 {
        assert!(guard.is_held());
        let now = ends();
        renewals += usize::from(now != end);
        end = now;
    }
    drop(guard);
    run(async { drop(mutex.lock().await.expect("free")) });
}

#[test]
fn a_guard_that_is_dropped_without_a_runtime_frees_the_lock() {
    let schema = Schema::lend();
    let (one, other) = run(async { (client(&schema.url()).await, client(&schema.url()).await) });
    let guard = run(async { one.mutex("a").lock().await.expect("free") });
    drop(guard);
    run(async { drop(other.mutex("a").lock().await.expect("it becomes free")) });
}
