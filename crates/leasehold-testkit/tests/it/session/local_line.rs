//! Tasks that leave the line of their client, and leftovers of unanswered requests.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::Hint;
use leasehold::{Client, Coexist, ErrorKind, Mutex};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Hints, Request};

use super::passing::poll_once;
use super::{ms, play, play_on};
use crate::stores;

/// Locks and releases without a pause, like other tasks of the same client.
async fn pass_on(mutex: Mutex, host: Arc<VirtualHost>, until: Moment) {
    while host.now() < until {
        let guard = mutex.lock().await.expect("in turn");
        host.advance(ms(2)).await;
        drop(guard);
    }
}

async fn waiters(client: &Client) -> u32 {
    client.inspect("a").await.expect("asked").waiting
}

/// The task behind it waited for the lease of a task with the same settings to be passed on. The
/// next task has other settings, so it must ask for itself.
#[test]
fn a_task_that_leaves_the_line_of_its_client_makes_the_next_one_ask() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = client.mutex("a").lock().await.expect("free");
        let impatient = client.mutex("a");
        let leaving = scene.host.task(async move { impatient.lock_timeout(ms(100)).await });
        scene.host.settle().await;
        let on_other_terms = client.mutex("a").why("something else");
        let own = scene.host.task(async move { on_other_terms.lock().await.expect("in turn") });
        scene.host.settle().await;
        assert_eq!(waiters(&other).await, 0, "it is behind one that is passed the lock");
        assert!(leaving.await.is_err());
        scene.host.settle().await;
        assert_eq!(waiters(&other).await, 1, "it has a place in the line of the store");
        // So the task comes before all later waiters.
        let mutex = other.mutex("a");
        let later = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(50)).await;
        drop(held);
        let own = scene.host.within(ms(1_000), own).await.expect("its turn is first");
        assert!(!later.is_finished());
        drop(own);
        assert!(later.await.is_held());
    });
}

/// The store kept the lease with a fresh token, but its answer was lost.
#[test]
fn a_kept_lease_whose_answer_was_lost_is_given_back_by_both_tokens() {
    play(0..5, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.host.settle().await;
        // The lease has no fencing token for the next turn, so the store is asked.
        scene.faults.next(Request::Release, Fault::LoseReply);
        drop(held);
        // The task waits until the time limit of the lost answer is over. It does not wait for the
        // ttl of the unused lease.
        let served = scene.host.within(ms(1_500), waiting).await;
        assert!(served.expect("the key is free again").is_held());
    });
}

/// The holder of an idle lease may have missed that another client wants the lock.
#[test]
fn missed_hints_have_an_idle_lease_asked_whether_it_is_wanted() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client_of(ms(30_000)).await, scene.calm_client().await);
        let idle = client.mutex("a").keep_idle(ms(3_600_000));
        drop(idle.lock().await.expect("free"));
        scene.pass(ms(1_000)).await;
        scene.faults.hints(Hints::AreLost);
        let mutex = other.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(2_000)).await;
        assert!(!waiting.is_finished(), "the client does not know, and does not renew for 10 s");
        scene.faults.forge(&Hint::Missed);
        let served = scene.host.within(ms(1_200), waiting).await;
        assert!(served.expect("the renewal tells").is_held());
    });
}

/// The store does not know clients that poll. It lets them in only when it gets a request.
#[test]
fn a_store_with_openings_is_asked_every_100_ms_while_tasks_pass_a_lease_on() {
    for seed in 0..3 {
        play_on(stores::redis, seed, async |scene| {
            let mutex = scene.client().await.mutex("a").fencing(false);
            let until = scene.host.now() + ms(1_050);
            let tasks = [(); 3].map(|()| pass_on(mutex.clone(), scene.host.clone(), until));
            join_all(tasks).await;
            let releases = scene.faults.count(Request::Release);
            assert!(releases >= 6, "{releases}");
        });
    }
}

/// A client that never waited for another one begins to listen when its tasks queue. Otherwise,
/// only its renewals would tell it of the waiter.
#[test]
fn a_client_whose_tasks_queue_hears_that_another_client_waits() {
    for seed in 0..3 {
        play_on(stores::redis, seed, async |scene| {
            let mutex = |client: &Client| client.mutex("a").fencing(false).coexist(Coexist::Off);
            let (client, other) = (scene.client().await, scene.client().await);
            let until = scene.host.now() + ms(900);
            let tasks = [(); 3]
                .map(|()| scene.host.task(pass_on(mutex(&client), scene.host.clone(), until)));
            scene.pass(ms(300)).await;
            let waiting = mutex(&other);
            let guard = scene.host.within(ms(100), waiting.lock()).await;
            assert!(guard.expect("soon").expect("in turn").is_held());
            join_all(tasks).await;
        });
    }
}

/// The same holds for a lease that tasks pass on.
#[test]
fn missed_hints_have_a_lease_that_is_passed_on_asked_whether_it_is_wanted() {
    play(0..5, async |scene| {
        let client = scene.client_of(ms(30_000)).await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let _behind = scene.host.task(async move { mutex.lock().await.map(drop) });
        scene.pass(ms(100)).await;
        let renewals = scene.faults.count(Request::Renew);
        scene.faults.forge(&Hint::Missed);
        scene.host.settle().await;
        assert_eq!(scene.faults.count(Request::Renew), renewals + 1);
        assert!(held.is_held());
    });
}

/// The store kept the lease with a fresh token, but answered when too little of it was left.
#[test]
fn a_kept_lease_whose_answer_came_too_late_is_given_back() {
    play(0..5, async |scene| {
        let store = scene.faults.decorate(scene.store().await);
        let builder = Client::with_store(store).host(scene.host.clone());
        // The store may wait for as long as ttl and lock delay allow. The holder relies only on the
        // ttl.
        let builder = builder.ttl(ms(300)).lock_delay(ms(10_000));
        let client = builder.connect().await.expect("connected");
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.host.settle().await;
        // The lease has no fencing token for the next turn, so the store is asked.
        scene.faults.in_turn(Request::Release, ms(250));
        drop(held);
        // The unused lease is released, and does not block the key until the lock delay is over.
        let served = scene.host.within(ms(3_000), waiting).await;
        assert!(served.expect("the key is free again").is_held());
        assert!(scene.faults.count(Request::Release) >= 2, "the kept lease was given back");
    });
}

/// The task in front of it waits for the answer.
#[test]
fn a_wait_two_places_behind_a_release_without_an_answer_ends_as_unknown() {
    play(0..3, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let held = client.mutex("a").lock().await.expect("free");
        let (next, last) = (client.mutex("a"), client.mutex("a"));
        let _next = scene.host.task(async move { next.lock().await.map(drop) });
        scene.host.settle().await;
        let waiting = scene.host.task(async move { last.lock_timeout(ms(300)).await });
        scene.pass(ms(100)).await;
        // The lease has no fencing token for the next turn, so the store is asked.
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        drop(held);
        let error = waiting.await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        scene.faults.heal();
    });
}

/// The store lets the client keep the lock, or grants it anew. So the task in front of it has it.
#[test]
fn a_wait_two_places_behind_a_release_ends_as_taken_once_the_store_has_answered() {
    for is_answer_lost in [false, true] {
        play(0..3, async |scene| {
            let client = scene.client_of(ms(10_000)).await;
            let held = client.mutex("a").lock().await.expect("free");
            let (next, last) = (client.mutex("a"), client.mutex("a"));
            let next = scene.host.task(async move { next.lock().await });
            scene.host.settle().await;
            let waiting = scene.host.task(async move { last.lock_timeout(ms(4_000)).await });
            scene.host.settle().await;
            if is_answer_lost {
                scene.faults.next(Request::Release, Fault::LoseReply);
            }
            drop(held);
            let error = waiting.await.expect_err("the task in front of it has the lock");
            assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
            assert!(next.await.expect("in turn").is_held());
        });
    }
}

/// Nobody knows yet whether the URL is right.
#[test]
fn no_task_waits_for_the_end_of_an_outage_before_the_store_has_answered() {
    for is_dropped in [false, true] {
        play(0..5, async |scene| {
            let client = scene.client().await;
            scene.faults.all_from_now_on(Fault::Refuse);
            scene.faults.delay_up_to(ms(10));
            let lock = |why: &str| {
                let mutex = client.mutex("a").why(why);
                Box::pin(async move { mutex.lock().await })
            };
            let (mut first, mut second, mut third) = (lock("first"), lock("second"), lock("third"));
            for task in [&mut first, &mut second, &mut third] {
                assert!(!poll_once(task.as_mut()).await);
            }
            if is_dropped {
                drop(first);
            } else {
                assert_eq!(first.await.expect_err("down").kind(), ErrorKind::Unavailable);
            }
            for task in [second, third] {
                let told = scene.host.within(ms(1_000), task).await.expect("told soon");
                assert_eq!(told.expect_err("down").kind(), ErrorKind::Unavailable);
            }
        });
    }
}
