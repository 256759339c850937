//! A shutdown waits for releases, and reports.

use leasehold::ErrorKind;
use leasehold::host::Host;
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play};

/// The shutdown returns as soon as the last release is confirmed.
#[test]
fn a_shutdown_waits_for_releases_that_are_on_their_way() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let mut guards = Vec::new();
        for number in 0..5 {
            guards.push(client.mutex(format!("key {number}")).lock().await.expect("free"));
        }
        scene.faults.delay_up_to(ms(300));
        drop(guards);
        let start = scene.host.now();
        let report = client.shutdown(ms(10_000)).await;
        assert_eq!((report.released, report.not_released), (5, 0));
        assert!(scene.host.now().since(start) <= ms(1_000));
        for number in 0..5 {
            let free = other.mutex(format!("key {number}")).try_lock().await.expect("asked");
            assert!(free.is_some());
        }
    });
}

/// A place left behind would delay others after the end of the process.
#[test]
fn a_shutdown_waits_until_all_waiters_have_left_the_line() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let _task = scene.host.task(async move { mutex.lock().await });
        scene.pass(ms(100)).await;
        let report = client.shutdown(ms(10_000)).await;
        assert_eq!((report.released, report.not_released), (0, 0));
        assert!(scene.faults.count(Request::Release) >= 1);
        assert_eq!(other.inspect("a").await.expect("asked").waiting, 0);
    });
}

/// Clients that poll hold nothing and have no place, so nothing is left to release.
#[test]
fn a_shutdown_does_not_wait_for_clients_that_poll() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a").unqueued();
        let task = scene.host.task(async move { mutex.lock().await });
        scene.pass(ms(100)).await;
        assert!(!task.is_finished());
        let start = scene.host.now();
        let report = client.shutdown(ms(10_000)).await;
        assert_eq!((report.released, report.not_released), (0, 0));
        assert_eq!(scene.host.now(), start, "it ends with the last of them");
        assert_eq!(task.await.expect_err("closed").kind(), ErrorKind::Closed);
        assert_eq!(scene.faults.count(Request::Release), 0);
    });
}

/// After the grace, the shutdown reports the remaining leases and does not wait for them.
#[test]
fn a_shutdown_ends_with_its_grace_and_tells_what_is_left() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let held = client.mutex("held").lock().await.expect("free");
        let dropped = client.mutex("dropped").lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::LoseRequest);
        drop(dropped);
        let start = scene.host.now();
        let report = client.shutdown(ms(700)).await;
        assert_eq!((report.released, report.not_released), (0, 2));
        assert_eq!(scene.host.now().since(start), ms(700));
        assert!(held.is_held(), "the work under a guard is not the client's to stop");
    });
}

/// Its key stays taken until the lease ends.
#[test]
fn a_shutdown_tells_of_a_lease_whose_release_is_denied() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let dropped = client.mutex("a").lock().await.expect("free");
        scene.faults.from_now_on(Request::Release, Fault::Deny);
        drop(dropped);
        let report = client.shutdown(ms(700)).await;
        assert_eq!((report.released, report.not_released), (0, 1));
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    });
}

/// Otherwise the waiters would wait for ever.
#[test]
fn a_waiter_is_told_that_the_client_was_shut_down() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let mutex = client.mutex("a");
                scene.host.task(async move { mutex.lock().await })
            })
            .collect();
        scene.pass(ms(100)).await;
        let report = client.clone().shutdown(ms(1_000)).await;
        assert_eq!(report.not_released, 0);
        for task in waiting {
            let error = task.await.expect_err("closed");
            assert_eq!(error.kind(), ErrorKind::Closed);
            assert!(error.to_string().contains("while this call waited"), "{error}");
        }
        assert_eq!(client.mutex("b").lock().await.expect_err("closed").kind(), ErrorKind::Closed);
        let tried = client.mutex("b").try_lock().await;
        assert_eq!(tried.expect_err("closed").kind(), ErrorKind::Closed);
        let resized = client.semaphore("c", 2).resize(3).await;
        assert_eq!(resized.expect_err("closed").kind(), ErrorKind::Closed);
        scene.host.settle().await;
        assert_eq!(other.inspect("a").await.expect("asked").waiting, 0);
        drop(held);
    });
}

/// These tasks do not wait behind other tasks of their client, but have their own places.
#[test]
fn a_waiter_with_a_place_of_its_own_is_told_that_the_client_was_shut_down() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let _written = other.rwlock("b").write().await.expect("free");
        let _permit = other.semaphore("c", 1).acquire().await.expect("free");
        let (mutex, rwlock) = (client.mutex("a").strict_fifo(), client.rwlock("b"));
        let semaphore = client.semaphore("c", 1);
        let waiting = [
            scene.host.task(async move { mutex.lock().await.map(drop) }),
            scene.host.task(async move { rwlock.read().await.map(drop) }),
            scene.host.task(async move { semaphore.acquire().await.map(drop) }),
        ];
        scene.pass(ms(100)).await;
        assert_eq!(client.shutdown(ms(1_000)).await.not_released, 0);
        for task in waiting {
            let told = scene.host.within(ms(1_000), task).await;
            let error = told.expect("in time").expect_err("closed");
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        for key in ["a", "b", "c"] {
            assert_eq!(other.inspect(key).await.expect("asked").waiting, 0, "{key}");
        }
    });
}

/// The holders of these guards still work.
#[test]
fn guards_keep_their_leases_over_a_shutdown() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let _report = client.shutdown(ms(0)).await;
        scene.pass(ms(10_000)).await;
        assert!(guard.is_held());
        drop(guard);
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// Nobody could use such a lease any more, and other clients would wait in vain.
#[test]
fn a_guard_that_ends_after_the_shutdown_began_leaves_no_idle_lease() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let mutex = client.mutex("a").keep_idle(ms(3_600_000));
        let guard = mutex.lock().await.expect("free");
        let closing = client.clone();
        let report = scene.host.task(async move { closing.shutdown(ms(10_000)).await });
        scene.pass(ms(100)).await;
        assert!(!report.is_finished(), "the guard is waited for");
        drop(guard);
        assert_eq!(report.await.not_released, 0);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// Stores in this process answer such a release before the shutdown begins to wait.
#[test]
fn a_shutdown_counts_the_idle_leases_that_it_releases() {
    play(0..5, async |scene| {
        let (client, other) = (scene.calm_client().await, scene.calm_client().await);
        drop(client.mutex("a").keep_idle(ms(3_600_000)).lock().await.expect("free"));
        let report = client.shutdown(ms(10_000)).await;
        assert_eq!((report.released, report.not_released), (1, 0));
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}
