//! Permits: `Semaphore`, as clients see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::ErrorKind;
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play};

/// This holds for any number of tasks, of any client.
#[test]
fn no_more_tasks_are_inside_than_there_are_permits() {
    play(0..3, async |scene| {
        let clients = [scene.client().await, scene.calm_client().await];
        let (inside, most) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let tasks: Vec<_> = (0..12)
            .map(|number: usize| {
                let weight = 1 + u32::from(number.is_multiple_of(4));
                let semaphore = clients[number % 2].semaphore("a", 3).weight(weight);
                let (inside, most, host) =
                    (Arc::clone(&inside), Arc::clone(&most), scene.host.clone());
                scene.host.task(async move {
                    let guard = semaphore.acquire().await.expect("in turn");
                    let now = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                    most.fetch_max(now, Ordering::SeqCst);
                    host.advance(ms(20)).await;
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    drop(guard);
                })
            })
            .collect();
        for task in tasks {
            scene.host.within(ms(60_000), task).await.expect("everybody is served");
        }
        let seen = [&inside, &most].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(seen, [0, 3]);
    });
}

/// The answer to the ask is lost, and asking again repairs that.
#[test]
fn a_lost_answer_takes_no_second_permit() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let first = other.semaphore("a", 2).acquire().await.expect("free");
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        let guard = client.semaphore("a", 2).try_acquire().await.expect("asked twice");
        assert!(guard.is_some());
        assert!(other.semaphore("a", 2).try_acquire().await.expect("asked").is_none());
        drop((first, guard));
        scene.pass(ms(10)).await;
        let all = other.semaphore("a", 2).weight(2).try_acquire().await.expect("asked");
        assert!(all.is_some(), "every permit came back");
    });
}

/// Otherwise each task would release each left permit when the server is back.
#[test]
fn leftovers_of_an_outage_are_released_once_for_all_tasks_that_ask() {
    const TASKS: usize = 200;
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.from_now_on(Request::Acquire, Fault::LoseReply);
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        let tries = (0..TASKS).map(|_| {
            let semaphore = client.semaphore("a", 1_000);
            scene.host.task(async move { semaphore.try_acquire().await.is_err() })
        });
        for failed in tries.collect::<Vec<_>>() {
            assert!(failed.await, "its answer was lost");
        }
        scene.faults.end_outage();
        let before = scene.faults.count(Request::Release);
        let tries = (0..TASKS).map(|_| {
            let semaphore = client.semaphore("a", 1_000);
            scene.host.task(async move { semaphore.try_acquire().await.expect("asked") })
        });
        let mut guards = Vec::new();
        for guard in tries.collect::<Vec<_>>() {
            guards.push(guard.await.expect("there are enough"));
        }
        let releases = scene.faults.count(Request::Release) - before;
        // The driver repeats releases too.
        assert!((TASKS..=3 * TASKS).contains(&releases), "{releases} releases");
        drop(guards);
    });
}

/// Its place and its grant are released.
#[test]
fn a_waiter_that_gives_up_leaves_no_permit_behind() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let holder = other.semaphore("a", 1).acquire().await.expect("free");
        let waiting = client.semaphore("a", 1);
        let error = waiting.acquire_timeout(ms(100)).await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        drop(holder);
        scene.pass(ms(10)).await;
        assert!(other.semaphore("a", 1).try_acquire().await.expect("asked").is_some());
    });
}

/// They named the right number when they came.
#[test]
fn clients_that_wait_go_on_with_the_number_that_a_resize_sets() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = ours.semaphore("a", 1).acquire().await.expect("free");
        let mut waiting = Vec::new();
        for client in [&other, &ours, &other, &ours] {
            let (semaphore, host) = (client.semaphore("a", 1), scene.host.clone());
            waiting.push(scene.host.task(async move {
                let guard = semaphore.acquire().await.expect("it waited before the resize");
                host.advance(ms(3_000)).await;
                drop(guard);
            }));
            scene.pass(ms(10)).await;
        }
        assert_eq!(ours.semaphore("a", 1).resize(2).await.expect("asked"), Some(1));
        // Each looks once more by itself meanwhile.
        scene.pass(ms(2_500)).await;
        assert_eq!(other.semaphore("a", 2).resize(3).await.expect("asked"), Some(2));
        drop(guard);
        for waiting in waiting {
            scene.host.within(ms(10_000), waiting).await.expect("everybody is served");
        }
        let error = other.semaphore("a", 1).acquire().await.expect_err("it came later");
        assert_eq!(error.kind(), ErrorKind::Config);
    });
}

/// Otherwise it would wait for ever, and everybody behind it too.
#[test]
fn a_client_that_waits_for_more_permits_than_a_resize_leaves_is_told() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = ours.semaphore("a", 3).acquire().await.expect("free");
        let [many, one] = [(3, &other), (1, &ours)].map(|(weight, client)| {
            let semaphore = client.semaphore("a", 3).weight(weight);
            scene.host.task(async move { semaphore.acquire().await })
        });
        scene.pass(ms(50)).await;
        assert_eq!(ours.semaphore("a", 3).resize(2).await.expect("asked"), Some(3));
        let error = scene.host.within(ms(3_000), many).await.expect("it ends").expect_err("3 of 2");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("left 2 permits, and this request wants 3"), "{error}");
        drop(guard);
        let one = scene.host.within(ms(3_000), one).await.expect("it is told");
        assert!(one.expect("its permit").is_held());
    });
}

/// The caller with the wrong number gets an error.
#[test]
fn another_number_of_permits_is_refused_until_it_is_changed() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.semaphore("a", 1).acquire().await.expect("free");
        let error = other.semaphore("a", 2).acquire().await.expect_err("another number");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("a")));
        assert!(error.to_string().contains("for 1 permit"), "{error}");
        let error = other.mutex("a").lock().await.expect_err("it is not a lock");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(other.semaphore("a", 1).resize(2).await.expect("asked"), Some(1));
        assert!(other.semaphore("a", 2).try_acquire().await.expect("asked").is_some());
        assert!(guard.is_held());
        for (semaphore, word) in [
            (client.semaphore("b", 0), "0 permits"),
            (client.semaphore("b", 2).weight(3), "3 of 2 permits"),
            (client.semaphore("b", 2).weight(0), "0 of 2 permits"),
        ] {
            let error = semaphore.try_acquire().await.expect_err("impossible");
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(word), "{error}");
        }
    });
}
