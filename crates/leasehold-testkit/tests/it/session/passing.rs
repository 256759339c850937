//! Leases that the tasks of one client pass on to each other.

use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use leasehold::host::Host;
use leasehold::{Client, Coexist, ErrorKind, FencingToken, Guard};
use leasehold_testkit::cut_after;
use leasehold_testkit::faults::{Fault, Hints, Request};
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, ms, play, play_on, stores_here};
use crate::stores;

/// The tasks in the order in which they were served, with their fencing tokens.
type Served = Arc<Mutex<Vec<(usize, FencingToken)>>>;

/// Spawns a task that locks, records its turn, holds for a while, and releases. It has asked for
/// the lock when this returns.
async fn task(
    scene: &Scene,
    client: &Client,
    number: usize,
    holds_ms: u64,
    served: &Served,
) -> Joined<()> {
    let (host, mutex, served) = (scene.host.clone(), client.mutex("a"), served.clone());
    let mut work = Box::pin(async move {
        let guard = mutex.lock().await.expect("in turn");
        let token = guard.fencing_token().expect("it counts");
        served.lock().expect("no panic").push((number, token));
        if holds_ms > 0 {
            host.advance(ms(holds_ms)).await;
        }
        assert!(guard.is_held());
        drop(guard);
    });
    let begun = poll_once(work.as_mut()).await;
    scene.host.task(async move {
        if !begun {
            work.await;
        }
    })
}

async fn tasks(
    scene: &Scene,
    client: &Client,
    numbers: Range<usize>,
    holds_ms: u64,
    served: &Served,
) -> Vec<Joined<()>> {
    let mut tasks = Vec::new();
    for number in numbers {
        tasks.push(task(scene, client, number, holds_ms, served).await);
    }
    tasks
}

/// Polls once. Returns whether the future is ready.
pub(super) async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

fn served_of(served: &Served) -> Vec<usize> {
    served.lock().expect("no panic").iter().map(|(number, _)| *number).collect()
}

fn tokens_rise(served: &Served) -> bool {
    let served = served.lock().expect("no panic");
    served.windows(2).all(|pair| pair[0].1 < pair[1].1)
}

fn requests(scene: &Scene) -> usize {
    [Request::Acquire, Request::Release, Request::Renew]
        .into_iter()
        .map(|request| scene.faults.count(request))
        .sum()
}

/// Waiting in the local line costs the store nothing.
#[test]
fn a_lock_is_passed_on_in_turn_without_a_request() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let served = Served::default();
        let held = client.mutex("a").lock().await.expect("free");
        let tasks = tasks(scene, &client, 0..500, 0, &served).await;
        scene.pass(ms(5)).await;
        let before = requests(scene);
        drop(held);
        for task in tasks {
            task.await;
        }
        assert!(served_of(&served).is_sorted());
        assert!(tokens_rise(&served));
        // There is one request to reserve fencing tokens, and the release.
        assert_eq!(requests(scene) - before, 2);
    });
}

/// The lease goes to the place that another client had in line all the time.
#[test]
fn once_another_client_waits_a_lock_is_passed_on_64_times_at_most() {
    play(0..5, async |scene| {
        // Both clients are in one process, so that every store tells the holder at once.
        let store = scene.store().await;
        let (client, other) = (scene.client_on(store.clone()).await, scene.client_on(store).await);
        let served = Served::default();
        let held = client.mutex("a").lock().await.expect("free");
        let mut tasks = vec![task(scene, &client, 0, 95, &served).await];
        for number in 1..200 {
            tasks.push(task(scene, &client, number, 0, &served).await);
        }
        // Let time pass, so that fencing tokens for all tasks can be reserved. No store counts
        // faster than its clock.
        scene.pass(ms(10)).await;
        drop(held);
        scene.pass(ms(90)).await;
        tasks.push(task(scene, &other, 1_000, 0, &served).await);
        for task in tasks {
            task.await;
        }
        let turns = served_of(&served);
        let passed = turns.iter().position(|number| *number == 1_000).expect("it is served");
        assert_eq!(passed, 1 + 64, "turns before the other client's");
        let own: Vec<_> = turns.iter().filter(|number| **number != 1_000).collect();
        assert!(own.is_sorted(), "{turns:?}");
        assert!(tokens_rise(&served));
    });
}

/// This holds even if the tasks hold the lock for a while.
#[test]
fn once_another_client_waits_a_lock_is_passed_on_for_20_ms_at_most() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let served = Served::default();
        let mut tasks = tasks(scene, &client, 0..100, 7, &served).await;
        // Wait until every store has told the holder. Without hints, a renewal tells it.
        scene.pass(ms(30)).await;
        let came = served_of(&served).len();
        tasks.push(task(scene, &other, 1_000, 0, &served).await);
        scene.pass(ms(1_200)).await;
        let turns = served_of(&served);
        let turn = turns.iter().position(|number| *number == 1_000).expect("it was served");
        assert!(turn > came, "{turns:?}");
        for task in tasks {
            task.await;
        }
        assert!(tokens_rise(&served));
    });
}

/// The hint that somebody waits went to the holder before it. Without fencing tokens, the client
/// has no other reason to ask the store.
#[test]
fn a_client_whose_turn_came_gives_way_to_the_next_in_line() {
    gives_way(Hints::Arrive);
    gives_way(Hints::AreLost);
}

fn gives_way(hints: Hints) {
    play(0..5, async |scene| {
        scene.faults.hints(hints);
        let mutex = |client: &Client| client.mutex("a").fencing(false);
        let (client, next) = (scene.client().await, mutex(&scene.client().await));
        let held = mutex(&scene.calm_client().await).lock().await.expect("free");
        let turns = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let (host, mutex, turns) = (scene.host.clone(), mutex(&client), turns.clone());
            scene.host.spawn(Box::pin(async move {
                let guard = mutex.lock().await.expect("in turn");
                turns.fetch_add(1, Ordering::SeqCst);
                host.advance(ms(7)).await;
                drop(guard);
            }));
        }
        scene.pass(ms(10)).await;
        let next = scene.host.task(async move { next.lock().await.expect("in turn") });
        scene.pass(ms(10)).await;
        drop(held);
        drop(next.await);
        assert_eq!(turns.load(Ordering::SeqCst), 1 + 20 / 7);
    });
}

/// A client that had to wait once does not give the lease up if nobody else waits.
#[test]
fn a_client_whose_turn_came_passes_on_for_ever_if_nobody_else_waits() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let served = Served::default();
        let held = other.mutex("a").lock().await.expect("free");
        let tasks = tasks(scene, &client, 0..300, 1, &served).await;
        scene.pass(ms(1_500)).await;
        drop(held);
        let asked = scene.faults.count(Request::Acquire);
        for task in tasks {
            task.await;
        }
        assert!(served_of(&served).is_sorted());
        assert!(scene.faults.count(Request::Acquire) <= asked + 1, "it never had to wait again");
        // There is one request for the first passes, one for the rest, and one for the end. If a
        // store has openings, the client asks it every 100 ms.
        assert!(scene.faults.count(Request::Release) <= 3 + 3);
    });
}

/// At most stores, `Auto` means the same as `Off`. At the others, it is the default.
#[test]
fn a_task_that_names_the_default_is_passed_the_lock_like_any_other() {
    play(0..2, async |scene| {
        let client = scene.client().await;
        let mutex = client.mutex("a").fencing(false);
        let held = mutex.lock().await.expect("free");
        let named = mutex.coexist(Coexist::Auto);
        let waiting = scene.host.task(async move { named.lock().await.expect("in turn") });
        scene.pass(ms(10)).await;
        drop(held);
        let passed = waiting.await;
        assert!(passed.is_held() && scene.faults.count(Request::Release) == 0);
    });
}

/// The task has another reason and ttl, so it asks for itself.
#[test]
fn a_task_on_other_terms_is_passed_nothing() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let held = client.mutex("a").ttl(ms(5_000)).lock().await.expect("free");
        let mutex = client.mutex("a").why("nightly");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        let same = client.mutex("a").ttl(ms(5_000));
        let after = scene.host.task(async move { same.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        let token = held.token().clone();
        drop(held);
        let guard = waiting.await;
        assert_ne!(guard.token(), &token);
        let holder = &client.inspect("a").await.expect("asked").holders[0];
        assert_eq!(holder.why.as_deref(), Some("nightly"));
        drop(guard);
        assert!(after.await.is_held(), "and the line goes on behind it");
    });
}

/// The next task gets the turn of a task that went away.
#[test]
fn a_lease_for_a_task_that_went_away_goes_to_the_next() {
    let mut ended = false;
    for polls in 0..20 {
        for &setup in stores_here() {
            ended = play_on(setup, polls, async |scene| {
                let (client, other) = (scene.client().await, scene.calm_client().await);
                scene.faults.delay_up_to(ms(20));
                let served = Served::default();
                let held = other.mutex("a").lock().await.expect("free");
                let own = client.mutex("a");
                let first =
                    scene.host.task(async move { cut_after(polls as usize, own.lock()).await });
                scene.pass(ms(1)).await;
                let tasks = tasks(scene, &client, 0..5, 1, &served).await;
                scene.pass(ms(200)).await;
                drop(held);
                let has_ended = first.await.is_some();
                for task in tasks {
                    scene.host.within(ms(4_000), task).await.expect("nobody is forgotten");
                }
                assert_eq!(served_of(&served), [0, 1, 2, 3, 4]);
                has_ended
            });
        }
    }
    assert!(ended, "the last ones were not dropped");
}

/// The client keeps its place and its turn, even if the task that asked goes away.
#[test]
fn a_client_keeps_its_place_when_the_task_that_asked_goes_away() {
    play(0..10, async |scene| {
        let (holder, client) = (scene.calm_client().await, scene.client().await);
        let later = scene.client().await;
        let served = Served::default();
        let held = holder.mutex("a").lock().await.expect("free");
        let impatient = client.mutex("a");
        let first = scene.host.task(async move { impatient.lock_timeout(ms(500)).await });
        scene.pass(ms(10)).await;
        let own = task(scene, &client, 0, 0, &served).await;
        scene.pass(ms(10)).await;
        let tasks = [own, task(scene, &later, 1, 0, &served).await];
        scene.pass(ms(1_000)).await;
        let error = first.await.expect_err("held");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        assert_eq!(holder.inspect("a").await.expect("asked").waiting, 2);
        drop(held);
        for task in tasks {
            task.await;
        }
        assert_eq!(served_of(&served), [0, 1]);
    });
}

/// Otherwise each task would get the same error, one after the other.
#[test]
fn a_store_that_cannot_be_asked_fails_all_that_wait_at_once() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        scene.faults.all_from_now_on(Fault::LoseRequest);
        let start = scene.host.now();
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let mutex = client.mutex("a");
                scene.host.task(async move { mutex.lock().await.map(drop) })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.expect_err("no answer").kind(), ErrorKind::Unknown);
        }
        assert!(scene.host.now().since(start) <= ms(2 * 750 + 10), "one failure for all");
    });
}

/// The limit of an answer depends on the ttl.
#[test]
fn a_failure_of_a_task_on_other_terms_says_nothing_to_one_that_waits_for_longer() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        // An answer takes longer than the limit for a ttl of 300 ms, and less than the limit for 3
        // s.
        scene.faults.in_turn(Request::Acquire, ms(200));
        let lock = |ttl, why: &str| {
            let mutex = client.mutex("a").ttl(ttl).why(why);
            scene.host.task(async move { mutex.lock().await.map(drop) })
        };
        let start = scene.host.now();
        let brief = lock(ms(300), "first");
        scene.host.settle().await;
        let others = [lock(ms(3_000), "second"), lock(ms(300), "third")];
        assert_eq!(brief.await.expect_err("no answer").kind(), ErrorKind::Unknown);
        let [long, alike] = others;
        assert_eq!(alike.await.expect_err("no answer").kind(), ErrorKind::Unknown);
        assert!(scene.host.now().since(start) <= ms(2 * 75 + 10), "one failure for both");
        long.await.expect("answered in its time");
    });
}

/// A local line that was dropped and made again has other tasks.
#[test]
fn a_task_that_was_told_and_goes_takes_nobody_else_with_it() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        scene.faults.all_from_now_on(Fault::Refuse);
        scene.faults.delay_up_to(ms(10));
        let lock = || {
            let mutex = client.mutex("a");
            Box::pin(async move { mutex.lock().await })
        };
        let (mut asks, mut waits) = (lock(), lock());
        assert!(!poll_once(asks.as_mut()).await && !poll_once(waits.as_mut()).await);
        assert!(asks.await.is_err());
        // The other task got the same error, and has not read it yet.
        scene.faults.heal();
        let held = client.mutex("a").lock().await.expect("free");
        let mut next = lock();
        assert!(!poll_once(next.as_mut()).await);
        drop(waits);
        drop(held);
        assert!(scene.host.within(ms(100), next).await.expect("served").is_ok());
    });
}

/// Tasks that wait for a lease must notice its end.
#[test]
fn a_task_that_waits_for_a_lost_or_relinquished_lease_asks() {
    play(0..5, async |scene| {
        for end in ["lost", "detached"] {
            let client = scene.client().await;
            let held = client.mutex("a").lock().await.expect("free");
            let mutex = client.mutex("a");
            let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
            scene.pass(ms(100)).await;
            let guard = if end == "lost" {
                scene.faults.all_from_now_on(Fault::Refuse);
                let lost = held.lost();
                scene.host.within(ms(4_000), lost).await.expect("its renewals fail");
                scene.pass(ms(2_000)).await;
                assert!(!waiting.is_finished(), "the store has answered before: it waits");
                scene.faults.heal();
                Some(held)
            } else {
                let _token = held.detach();
                None
            };
            let next = scene.host.within(ms(4_000), waiting).await.expect("it asks for itself");
            assert!(next.is_held());
            assert!(!guard.is_some_and(|guard| guard.is_held()));
            drop(next);
            scene.host.settle().await;
        }
    });
}

/// A guard learns of a loss during its own turn, but not of a later loss.
#[test]
fn a_loss_is_told_to_the_guard_whose_turn_it_is_alone() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let first = client.mutex("a").lock().await.expect("free");
        let told_first = first.lost();
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(10)).await;
        drop(first);
        let second: Guard = waiting.await;
        scene.faults.all_from_now_on(Fault::Refuse);
        assert!(scene.host.within(ms(4_000), second.lost()).await.is_some());
        assert!(scene.host.within(ms(10), told_first).await.is_none(), "it was released before");
        scene.faults.heal();
    });
}

/// First come, first served, even between tasks of different clients.
#[test]
fn with_strict_fifo_every_task_has_a_place_of_its_own() {
    play(0..5, async |scene| {
        let (holder, one, two) =
            (scene.calm_client().await, scene.client().await, scene.client().await);
        let held = holder.mutex("a").lock().await.expect("free");
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..12 {
            let client = if number % 3 == 0 { &two } else { &one };
            let (mutex, served) = (client.mutex("a").strict_fifo(), served.clone());
            tasks.push(scene.host.task(async move {
                let _guard = mutex.lock().await.expect("in turn");
                served.lock().expect("no panic").push(number);
            }));
            scene.pass(ms(20)).await;
        }
        assert_eq!(holder.inspect("a").await.expect("asked").waiting, 12);
        drop(held);
        for task in tasks {
            task.await;
        }
        let served = served.lock().expect("no panic").clone();
        assert!(served.is_sorted() && served.len() == 12, "{served:?}");
    });
}

/// The extra task gets its error at once, and the waiting tasks go on waiting.
#[test]
fn one_task_too_many_is_refused() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client().await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let place = |mutex: leasehold::Mutex| async move { mutex.lock().await.map(drop) };
        let mut waiting: Vec<_> = (0..100_000).map(|_| Box::pin(place(mutex.clone()))).collect();
        for task in &mut waiting {
            assert!(!poll_once(task.as_mut()).await);
        }
        let error = mutex.lock().await.expect_err("one too many");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("100000 tasks"), "{error}");
        waiting.truncate(1_000);
        drop(held);
        for task in waiting {
            task.await.expect("in turn");
        }
    });
}

/// Without hints, the holder learns at its next renewal that another client waits.
#[test]
fn a_holder_that_hears_no_hints_still_gives_way() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        scene.faults.hints(Hints::AreLost);
        let served = Served::default();
        let mut tasks = tasks(scene, &client, 0..300, 10, &served).await;
        scene.pass(ms(25)).await;
        tasks.push(task(scene, &other, 1_000, 0, &served).await);
        let mut turn = None;
        while turn.is_none() {
            scene.pass(ms(10)).await;
            turn = served_of(&served).iter().position(|number| *number == 1_000);
        }
        // The limit is a third of the ttl, a tick of the driver, 20 ms, and the poll that finds the
        // hand-over.
        assert!(turn.expect("just seen") <= 3 + (1_000 + 100 + 20 + 1_000) / 10, "{turn:?}");
        for task in tasks {
            task.await;
        }
    });
}
