//! Several locks, taken together or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::host::Host;
use leasehold::{Client, ErrorKind, Lost, MultiGuard, MultiLock, MultiRelease};
use leasehold_testkit::cut_after;
use leasehold_testkit::faults::{Fault, Request};

use super::cancelling::at_every_await;
use super::{Scene, ms, play};

/// Asserts that nobody holds one of the names or waits for it.
#[track_caller]
fn assert_free(scene: &Scene, by: &Client, names: &[&str]) -> impl Future<Output = ()> {
    let settled = scene.host.clone();
    let (by, names) = (by.clone(), names.iter().map(ToString::to_string).collect::<Vec<_>>());
    async move {
        settled.settle().await;
        for name in names {
            let seen = by.inspect(&name).await.expect("asked");
            assert!(seen.holders.is_empty() && seen.waiting == 0, "`{name}`: {seen:?}");
        }
    }
}

async fn evict(by: &Client, name: &str) {
    let seen = by.inspect(name).await.expect("asked");
    let _ended = by.evict(name, &seen.holders[0].token, "a test").await.expect("asked");
}

#[test]
fn locks_that_are_taken_together_are_held_and_released_together() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client_of(ms(300)).await, scene.calm_client().await);
        let guard = client.lock_all(["b", "c", "a"]).why("a test").lock().await.expect("free");
        assert_eq!(guard.names().collect::<Vec<_>>(), ["b", "c", "a"], "as they were given");
        for _ in 0..10 {
            scene.pass(ms(200)).await;
            assert!(guard.is_held() && guard.remaining() > Duration::ZERO);
        }
        for (name, one) in ["b", "c", "a"].into_iter().zip(guard.guards()) {
            assert!(other.mutex(name).try_lock().await.expect("asked").is_none(), "{name}");
            let seen = other.inspect(name).await.expect("asked");
            assert_eq!(seen.holders[0].token, one.token().as_str().as_bytes());
            assert_eq!(guard.fencing_token(name), one.fencing_token());
            assert!(guard.fencing_token(name).is_some());
        }
        assert_eq!(guard.fencing_token("d"), None);
        guard.renew().await.expect("held");
        assert_eq!(guard.release().await.expect("asked"), MultiRelease::Released);
        assert_free(scene, &other, &["a", "b", "c"]).await;
        let guard = other.lock_all(["a"]).fencing(false).try_lock().await.expect("asked");
        drop(guard.expect("one name is enough"));
        assert_free(scene, &other, &["a"]).await;
    });
}

/// There are two users for each pair of names, in both orders. Some users are tasks of one client.
#[test]
fn clients_that_name_their_locks_in_different_orders_never_deadlock() {
    const PAIRS: [[usize; 2]; 6] = [[0, 1], [1, 0], [1, 2], [2, 1], [2, 0], [0, 2]];
    const ROUNDS: usize = 20;
    play(0..4, async |scene| {
        let clients = [
            scene.client().await,
            scene.client().await,
            scene.client().await,
            scene.client().await,
        ];
        scene.faults.delay_up_to(ms(5));
        let inside: Arc<[AtomicUsize; 3]> = Arc::default();
        let users = PAIRS.iter().enumerate().map(|(user, pair)| {
            let locks = clients[user % 4].lock_all(pair.map(|at| ["a", "b", "c"][at]));
            let (inside, host) = (Arc::clone(&inside), scene.host.clone());
            scene.host.task(async move {
                for _ in 0..ROUNDS {
                    let guard = locks.lock().await.expect("in its turn");
                    for at in pair {
                        assert_eq!(inside[*at].fetch_add(1, Ordering::Relaxed), 0, "alone");
                    }
                    host.sleep_until(host.now() + ms(1)).await;
                    assert!(guard.is_held());
                    for at in pair {
                        inside[*at].fetch_sub(1, Ordering::Relaxed);
                    }
                    drop(guard);
                }
            })
        });
        let all = join_all(users.collect::<Vec<_>>());
        assert!(scene.host.within(ms(60_000), all).await.is_some(), "they wait for ever");
        scene.faults.heal();
        assert_free(scene, &clients[0], &["a", "b", "c"]).await;
    });
}

#[test]
fn a_try_that_finds_one_lock_taken_keeps_none() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        let asked = scene.faults.count(Request::Acquire);
        let tried = client.lock_all(["c", "b", "a"]).try_lock().await.expect("asked");
        assert!(tried.is_none());
        assert_eq!(scene.faults.count(Request::Acquire), asked + 2, "it stops at the first taken");
        assert_free(scene, &other, &["a", "c"]).await;
        drop(held);
        scene.host.settle().await;
        let guard = client.lock_all(["c", "b", "a"]).try_lock().await.expect("asked");
        let names: Vec<_> = guard.iter().flat_map(MultiGuard::names).collect();
        assert_eq!(names, ["c", "b", "a"], "as they were given");
    });
}

/// Otherwise a job that every host tries could run on none.
#[test]
fn one_of_several_clients_that_try_overlapping_locks_gets_all_of_its_own() {
    play(0..3, async |scene| {
        let clients = [scene.client().await, scene.client().await, scene.client().await];
        scene.faults.delay_up_to(ms(20));
        for _ in 0..20 {
            let wanted = [["a", "b"], ["b", "c"], ["c", "a"]];
            let locks: Vec<_> =
                clients.iter().zip(wanted).map(|(client, names)| client.lock_all(names)).collect();
            let got = join_all(locks.iter().map(MultiLock::try_lock)).await;
            assert!(got.iter().any(|got| matches!(got, Ok(Some(_)))), "nobody got its locks");
            drop(got);
            scene.pass(ms(50)).await;
        }
    });
}

/// Each answer takes 100 ms here.
#[test]
fn locks_that_are_free_cost_one_round_trip_however_many_they_are() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.from_now_on(Request::Acquire, Fault::Late(ms(100)));
        let began = scene.host.now();
        let names = (0..MultiLock::NAMES_MAX).map(|number| format!("n{number}"));
        let guard = client.lock_all(names).lock().await.expect("free");
        let took = scene.host.now().since(began);
        assert!(took < ms(200), "{took:?}");
        scene.faults.heal();
        assert_eq!(guard.release().await.expect("asked"), MultiRelease::Released);
    });
}

#[test]
fn a_wait_for_a_lock_keeps_the_locks_before_it_and_none_behind_it() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        let locks = client.lock_all(["c", "b", "a"]);
        let locking = scene.host.task(async move { locks.lock().await.expect("in its turn") });
        // This is longer than a ttl, so the client renews the locks that it keeps.
        scene.pass(ms(10_000)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(other.inspect("b").await.expect("asked").waiting, 1);
        assert!(other.mutex("c").try_lock().await.expect("asked").is_some());
        scene.host.settle().await;
        drop(held);
        let guard = scene.host.within(ms(1_000), locking).await.expect("it is told");
        assert!(guard.is_held());
        assert!(other.mutex("c").try_lock().await.expect("asked").is_none());
    });
}

#[test]
fn a_wait_that_ends_leaves_no_lock_and_no_place() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        let began = scene.host.now();
        let locks = client.lock_all(["b", "c", "a"]);
        let error = locks.lock_timeout(ms(500)).await.expect_err("taken all the time");
        assert_eq!((error.kind(), error.name()), (ErrorKind::WaitElapsed, Some("b")));
        assert!(scene.host.now().since(began) <= ms(520));
        assert_free(scene, &other, &["a", "c"]).await;
        assert_eq!(other.inspect("b").await.expect("asked").waiting, 0);
        drop(held);
        scene.host.settle().await;
        assert!(locks.lock_timeout(ms(500)).await.expect("free").is_held());
    });
}

/// The call fails as soon as the store refuses one lock, although a lock before it is taken.
#[test]
fn one_lock_that_fails_makes_the_whole_call_fail_and_leaves_none() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let permit = other.semaphore("c", 2).acquire().await.expect("free");
        let held = other.mutex("b").lock().await.expect("free");
        let locks = client.lock_all(["a", "b", "c"]);
        let error = locks.lock().await.expect_err("it is a semaphore");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("c")));
        assert_free(scene, &other, &["a"]).await;
        assert_eq!(other.inspect("b").await.expect("asked").waiting, 0);
        drop(held);
        scene.host.settle().await;
        assert_eq!(locks.try_lock().await.expect_err("as before").kind(), ErrorKind::Config);
        assert_free(scene, &other, &["a", "b"]).await;
        drop(permit);
    });
}

#[test]
fn a_lost_answer_is_repaired_and_an_outage_leaves_nothing_for_long() {
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
        play(0..2, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let locks = client.lock_all(["a", "b", "c"]);
            // The faults hit the first two of three asks that leave together.
            scene.faults.next(Request::Acquire, fault);
            scene.faults.next(Request::Acquire, fault);
            let guard = scene.host.within(ms(10_000), locks.lock()).await.expect("it ends");
            assert_eq!(
                guard.expect("the store answers").release().await.expect("asked"),
                MultiRelease::Released
            );
            assert_free(scene, &other, &["a", "b", "c"]).await;
            // `a` is granted, and nothing gets an answer from then on.
            let held = other.mutex("b").lock().await.expect("free");
            let waits = locks.clone();
            let locking = scene.host.task(async move { waits.lock_timeout(ms(2_000)).await });
            scene.pass(ms(500)).await;
            scene.faults.all_from_now_on(fault);
            locking.await.expect_err("an outage, and taken");
            scene.faults.heal();
            scene.pass(ms(3_000)).await;
            assert_free(scene, &other, &["a", "c"]).await;
            drop(held);
        });
    }
}

#[test]
fn a_lock_of_several_dropped_at_any_await_leaves_nothing() {
    type Lock = fn(MultiLock) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;
    const LOCKS: [Lock; 3] = [
        |locks| Box::pin(async move { drop(locks.lock().await) }),
        |locks| Box::pin(async move { drop(locks.try_lock().await) }),
        |locks| Box::pin(async move { drop(locks.lock_timeout(ms(60_000)).await) }),
    ];
    for lock in LOCKS {
        at_every_await(0..3, async |scene, polls| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.delay_up_to(ms(50));
            let ended = cut_after(polls, lock(client.lock_all(["b", "a", "c"]))).await;
            assert_free(scene, &other, &["a", "b", "c"]).await;
            ended.is_some()
        });
    }
}

/// Another client has the second lock for a while.
#[test]
fn a_wait_for_several_dropped_at_any_await_leaves_no_lock_and_no_place() {
    at_every_await(0..3, async |scene, polls| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        scene.faults.delay_up_to(ms(50));
        let host = scene.host.clone();
        let holder = scene.host.task(async move {
            host.advance(ms(1_500)).await;
            drop(held);
        });
        let locks = client.lock_all(["c", "b", "a"]);
        let ended = cut_after(polls, locks.lock()).await;
        let ended_at_all = ended.is_some();
        drop(ended);
        holder.await;
        scene.pass(ms(50)).await;
        assert_free(scene, &other, &["a", "b", "c"]).await;
        ended_at_all
    });
}

#[test]
fn a_release_of_several_dropped_at_any_await_has_released_all() {
    at_every_await(0..3, async |scene, polls| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.lock_all(["b", "a", "c"]).lock().await.expect("free");
        scene.faults.delay_up_to(ms(100));
        let ended = cut_after(polls, guard.release()).await;
        assert_free(scene, &other, &["a", "b", "c"]).await;
        ended.is_some()
    });
}

#[test]
fn the_loss_of_one_lock_is_the_loss_of_all_and_the_others_stay_until_the_release() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.lock_all(["c", "b", "a"]).lock().await.expect("free");
        let lost = scene.host.task(guard.lost());
        evict(&other, "b").await;
        let error = guard.renew().await.expect_err("it was taken away");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("b")));
        assert_eq!(lost.await, ("b".to_owned(), Lost::NotOurs));
        assert_eq!(guard.lost().await.0, "b", "also for a later call");
        assert!(!guard.is_held() && guard.remaining().is_zero());
        // This is longer than a ttl, so the work can come to its end safely.
        scene.pass(ms(10_000)).await;
        assert!(guard.guards()[0].is_held() && guard.guards()[2].is_held());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        let released = guard.release().await.expect("asked");
        assert_eq!(released, MultiRelease::NotHeld(vec!["b".to_owned()]));
        assert_free(scene, &other, &["a", "b", "c"]).await;
    });
}

#[test]
fn a_loss_is_told_even_if_another_lock_could_not_be_released() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = ours.lock_all(["a", "b"]).lock().await.expect("free");
        evict(&other, "b").await;
        // The lock that is released first is refused.
        scene.faults.next(Request::Release, Fault::Refuse);
        let answer = guard.release().await.expect("a loss is the news");
        assert_eq!(answer, MultiRelease::NotHeld(vec!["b".to_owned()]));
    });
}

#[test]
fn a_holder_of_several_that_cannot_renew_knows_it_before_another_client_has_one() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.lock_all(["a", "b"]).lock().await.expect("free");
        let lost = scene.host.task(guard.lost());
        let mutex = other.mutex("b");
        let next = scene.host.task(async move { mutex.lock().await.expect("it runs out") });
        scene.faults.all_from_now_on(Fault::LoseRequest);
        let next = next.await;
        assert!(lost.is_finished() && !guard.is_held());
        assert_eq!(lost.await.1, Lost::Deadline);
        scene.faults.heal();
        drop((next, guard));
    });
}

/// The guard is never returned without one of its locks.
#[test]
fn a_lock_that_is_lost_while_a_later_one_is_waited_for_is_taken_again() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        let locks = client.lock_all(["c", "b", "a"]);
        let locking = scene.host.task(async move { locks.lock().await.expect("in its turn") });
        scene.pass(ms(100)).await;
        evict(&other, "a").await;
        let thief = other.mutex("a").try_lock().await.expect("asked").expect("it was taken away");
        scene.pass(ms(2_000)).await;
        drop(held);
        scene.pass(ms(2_000)).await;
        assert!(!locking.is_finished(), "another client has one of them");
        drop(thief);
        let guard = scene.host.within(ms(1_000), locking).await.expect("it is told");
        assert!(guard.is_held());
        for name in ["a", "b", "c"] {
            let seen = other.inspect(name).await.expect("asked");
            assert!(seen.holders.len() == 1 && seen.waiting == 0, "{name}: {seen:?}");
        }
    });
}

#[test]
fn the_guards_of_several_locks_may_be_taken_apart_and_dropped_in_any_order() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let locks = client.lock_all(["a", "b", "c"]);
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let guards = locks.lock().await.expect("free").into_guards();
            let mut guards: Vec<_> = guards.into_iter().map(Some).collect();
            for at in order {
                let name = ["a", "b", "c"][at];
                drop(guards[at].take());
                assert_free(scene, &other, &[name]).await;
                assert!(guards.iter().flatten().all(leasehold::Guard::is_held));
            }
        }
    });
}

/// The client passes the first lock on among its tasks, and sends no request for it.
#[test]
fn tasks_of_one_client_that_want_the_same_locks_queue_without_requests() {
    play(0..2, async |scene| {
        let client = scene.client().await;
        let held = client.lock_all(["a", "b"]).lock().await.expect("free");
        let asked = scene.faults.count(Request::Acquire);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let locks = client.lock_all(["b", "a"]);
                scene.host.task(async move {
                    let guard = locks.lock().await.expect("in its turn");
                    guard.release().await.expect("asked")
                })
            })
            .collect();
        scene.host.settle().await;
        assert_eq!(scene.faults.count(Request::Acquire), asked, "they wait for the holder");
        drop(held);
        for task in tasks {
            let released = scene.host.within(ms(5_000), task).await.expect("its turn comes");
            assert_eq!(released, MultiRelease::Released);
        }
    });
}

#[test]
fn names_that_cannot_be_taken_together_are_refused_before_any_request() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let too_many = (0..=MultiLock::NAMES_MAX).map(|number| number.to_string());
        for (locks, name, part) in [
            (client.lock_all(["b", "a", "b"]), Some("b"), "given twice"),
            (client.lock_all(Vec::<String>::new()), None, "no name"),
            (client.lock_all(too_many), None, "at most 64 locks can be taken together, not 65"),
            (client.lock_all(["a", "b\n"]), Some("b\n"), "control characters"),
            (client.lock_all(["a", "b"]).ttl(ms(1)), Some("a"), "10 ms"),
        ] {
            for answer in [
                locks.lock().await.map(drop),
                locks.lock_timeout(ms(10)).await.map(drop),
                locks.try_lock().await.map(drop),
            ] {
                let error = answer.expect_err(part);
                assert_eq!((error.kind(), error.name()), (ErrorKind::Config, name));
                assert!(error.to_string().contains(part), "{error}");
            }
        }
        assert_eq!(scene.faults.count(Request::Acquire), 0);
    });
}

#[test]
fn a_client_that_is_shut_down_tells_a_waiter_for_several_locks_and_keeps_none() {
    play(0..2, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("b").lock().await.expect("free");
        let locks = client.lock_all(["a", "b"]);
        let locking = scene.host.task(async move { locks.lock().await });
        scene.pass(ms(100)).await;
        let ended = client.shutdown(ms(1_000)).await;
        assert_eq!(locking.await.expect_err("it ends").kind(), ErrorKind::Closed);
        assert_eq!(ended.not_released, 0);
        assert_free(scene, &other, &["a"]).await;
        drop(held);
    });
}

#[test]
fn a_wait_that_ends_names_the_lock_that_did_not_answer() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.next(Request::Acquire, Fault::Late(ms(1)));
        scene.faults.next(Request::Acquire, Fault::LoseRequest);
        let locks = client.lock_all(["a", "b"]);
        let error = locks.lock_timeout(ms(300)).await.expect_err("no answer about `b`");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unknown, Some("b")), "{error}");
        assert_free(scene, &client, &["a", "b"]).await;
    });
}

/// A lock that was taken at the beginning may be free at the end.
#[test]
fn a_lock_that_did_not_answer_is_named_rather_than_one_that_was_taken() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        scene.faults.next(Request::Acquire, Fault::Late(ms(1)));
        scene.faults.next(Request::Acquire, Fault::LoseRequest);
        let locks = client.lock_all(["a", "b"]);
        let error = locks.lock_timeout(ms(300)).await.expect_err("no answer about `b`");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unknown, Some("b")), "{error}");
    });
}

#[test]
fn a_wait_that_ends_names_the_lock_that_stayed_taken() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("b").lock().await.expect("free");
        scene.faults.next(Request::Acquire, Fault::Late(ms(400)));
        let locks = client.lock_all(["a", "b"]);
        let error = locks.lock_timeout(ms(300)).await.expect_err("no answer about `a`");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unknown, Some("a")), "{error}");
        let error = locks.lock_timeout(ms(300)).await.expect_err("`b` is taken");
        assert_eq!((error.kind(), error.name()), (ErrorKind::WaitElapsed, Some("b")), "{error}");
    });
}
