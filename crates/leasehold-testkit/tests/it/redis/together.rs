//! Steps at several locks that wait at the same moment leave in one call of a script.

use std::future::Future as _;
use std::task::{Context, Waker};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use leasehold::{Client, ErrorKind, FencingToken, Guard, Mutex, Release};

use super::clients::{play, play_alone};
use super::plain::calls;

const LOCKS: usize = 8;

/// How often all locks are taken and released.
const ROUNDS: u64 = 16;

/// Some locks whose counters the connection knows.
async fn locks(client: &Client) -> Vec<Mutex> {
    let mutexes: Vec<_> = (0..LOCKS).map(|number| client.mutex(format!("m{number}"))).collect();
    for mutex in &mutexes {
        let guard = mutex.lock().await.expect("free");
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
    }
    mutexes
}

async fn take(mutexes: &[Mutex]) -> Vec<Guard> {
    let taken = join_all(mutexes.iter().map(Mutex::lock)).await;
    taken.into_iter().map(|guard| guard.expect("free")).collect()
}

async fn release(guards: Vec<Guard>) -> Vec<Release> {
    let released = join_all(guards.into_iter().map(Guard::release)).await;
    released.into_iter().map(|released| released.expect("asked")).collect()
}

fn fences(guards: &[Guard]) -> Vec<FencingToken> {
    guards.iter().map(|guard| guard.fencing_token().expect("fenced")).collect()
}

#[test]
fn locks_that_are_wanted_at_once_cost_few_calls_and_so_do_their_releases() {
    play_alone(async |scene| {
        let client = scene.client().await;
        let mutexes = locks(&client).await;
        scene.tell(&["CONFIG", "RESETSTAT"]);
        let mut last: Vec<FencingToken> = Vec::new();
        for _ in 0..ROUNDS {
            let guards = take(&mutexes).await;
            let now = fences(&guards);
            assert!(last.iter().zip(&now).all(|(before, now)| before < now));
            last = now;
            assert_eq!(release(guards).await, [Release::Released; LOCKS]);
        }
        // The host decides when each task gets its turn. So in some rounds all steps leave
        // together, and in others each step leaves alone.
        let calls = calls(scene, "eval") + calls(scene, "evalsha");
        let alone = 2 * LOCKS as u64 * ROUNDS;
        assert!((2 * ROUNDS..alone * 3 / 4).contains(&calls), "{calls} instead of {alone}");
        let counters = scene.server().command(&["DBSIZE"]).int();
        assert_eq!(counters, i64::try_from(LOCKS).expect("a few"), "nothing but the counters");
    });
}

#[test]
fn one_taken_lock_is_waited_for_and_the_others_are_granted() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let mutexes = locks(&client).await;
        let held = other.mutex("m3").lock().await.expect("free");
        let tried = join_all(mutexes.iter().map(Mutex::try_lock)).await;
        let mut guards: Vec<_> = tried.into_iter().map(|guard| guard.expect("asked")).collect();
        assert!(guards.remove(3).is_none());
        let guards = guards.into_iter().map(|guard| guard.expect("free")).collect();
        assert_eq!(release(guards).await, [Release::Released; LOCKS - 1]);

        let all = mutexes.clone();
        let waiting = scene.host.task(async move { take(&all).await });
        scene.host.settle().await;
        assert_eq!(other.inspect("m3").await.expect("asked").waiting, 1);
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        scene.host.settle().await;
        assert!(waiting.is_finished(), "its release woke the waiter");
        assert_eq!(release(waiting.await).await, [Release::Released; LOCKS]);
    });
}

#[test]
fn a_lock_that_was_lost_is_told_apart_from_those_that_were_released() {
    play(async |scene| {
        let client = scene.client().await;
        let mutexes = locks(&client).await;
        let guards = take(&mutexes).await;
        scene.tell(&["SET", "m2", "another", "PX", "10000"]);
        let released = release(guards).await;
        for (number, released) in released.into_iter().enumerate() {
            let expected = if number == 2 { Release::NotHeld } else { Release::Released };
            assert_eq!(released, expected, "{number}");
        }
        assert_eq!(scene.server().command(&["GET", "m2"]).text(), "another");
    });
}

#[test]
fn a_waiter_gets_a_lock_that_is_released_with_others() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let mutexes = locks(&client).await;
        let guards = take(&mutexes).await;
        let wanted = other.mutex("m5");
        let waiting = scene.host.task(async move { wanted.lock().await.expect("in the end") });
        scene.host.settle().await;
        assert_eq!(release(guards).await, [Release::Released; LOCKS]);
        scene.host.settle().await;
        assert!(waiting.is_finished());
        drop(waiting.await);
    });
}

#[test]
fn flushed_scripts_cost_no_lock() {
    play_alone(async |scene| {
        let client = scene.client().await;
        let mutexes = locks(&client).await;
        let mut last = fences(&take(&mutexes).await);
        for flushed in [true, true, false] {
            if flushed {
                scene.tell(&["SCRIPT", "FLUSH"]);
            }
            // The guards of the last round were dropped, which releases their locks.
            let now = take(&mutexes).await;
            assert!(last.iter().zip(fences(&now)).all(|(before, now)| *before < now));
            last = fences(&now);
        }
    });
}

#[test]
fn a_server_that_refuses_the_call_is_asked_for_each_lock_alone() {
    play_alone(async |scene| {
        let client = scene.client().await;
        let mutexes = locks(&client).await;
        scene.tell(&["ACL", "SETUSER", "default", "resetkeys", "~m[0-6]*", "~{m[0-6]*"]);
        for _ in 0..2 {
            let tried = join_all(mutexes.iter().map(Mutex::try_lock)).await;
            for (number, tried) in tried.into_iter().enumerate() {
                match tried {
                    Ok(Some(guard)) if number < LOCKS - 1 => {
                        assert_eq!(guard.release().await.expect("asked"), Release::Released);
                    }
                    Err(error) if number == LOCKS - 1 => {
                        assert_eq!(error.kind(), ErrorKind::Denied);
                    }
                    other => panic!("{number}: {other:?}"),
                }
            }
        }
    });
}

/// In the other order, a grant would be left without an owner.
#[test]
fn asks_that_are_given_up_together_leave_no_lock() {
    play(async |scene| {
        let client = scene.client().await;
        let mutexes = locks(&client).await;
        for polls in 1..=4 {
            let mut asking: Vec<_> = mutexes.iter().map(|it| Box::pin(it.lock().fuse())).collect();
            for _ in 0..polls {
                for asking in &mut asking {
                    let mut context = Context::from_waker(Waker::noop());
                    let _maybe_a_guard = asking.as_mut().poll(&mut context);
                }
            }
            drop(asking);
            scene.host.settle().await;
            let is_taken = |number: &usize| {
                scene.server().command(&["EXISTS", &format!("m{number}")]).int() == 1
            };
            assert_eq!((0..LOCKS).filter(is_taken).count(), 0, "after {polls} polls");
        }
    });
}
