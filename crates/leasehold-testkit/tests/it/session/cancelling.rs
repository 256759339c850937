//! A future that is dropped at any await leaves nothing behind.

use std::time::Duration;

use leasehold::{Client, Error, Guard};
use leasehold_testkit::cut_after;
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play, play_on, stores_here};

/// After this many polls, a future that is not ready counts as endless.
const POLLS_MAX: usize = 200;

/// Plays the scene with a future dropped after 0, 1, 2, … polls, until it reaches its end.
pub(super) fn at_every_await(
    seeds: std::ops::Range<u64>,
    scene: impl AsyncFn(&Scene, usize) -> bool,
) {
    for &setup in stores_here() {
        for seed in seeds.clone() {
            let ended = (0..POLLS_MAX)
                .position(|polls| play_on(setup, seed, async |set| scene(set, polls).await));
            let polls = ended.expect("the future ends");
            assert!(polls > 0, "it was dropped somewhere");
        }
    }
}

/// Makes a future to drop, from a client.
type Lock = fn(&Client) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Error>> + '_>>;

fn give_back(guard: Result<Guard, Error>) -> Result<(), Error> {
    guard.map(drop)
}

const LOCKS: [(&str, Lock); 4] = [
    ("lock", |client| Box::pin(async { give_back(client.mutex("a").lock().await) })),
    ("try_lock", |client| {
        Box::pin(async { client.mutex("a").try_lock().await.map(|_taken_or_dropped| ()) })
    }),
    ("lock_timeout", |client| {
        Box::pin(async { give_back(client.mutex("a").lock_timeout(Duration::from_secs(60)).await) })
    }),
    ("with", |client| Box::pin(async { client.mutex("a").with(async |_| ()).await })),
];

/// The same client can lock it again at once, without waiting.
#[test]
fn a_lock_dropped_at_any_await_does_not_stand_in_its_own_way() {
    for (name, lock) in LOCKS {
        at_every_await(0..8, async |scene, polls| {
            let client = scene.client().await;
            scene.faults.delay_up_to(ms(50));
            let ended = cut_after(polls, lock(&client)).await;
            scene.faults.heal();
            let guard = client.mutex("a").try_lock().await.expect("asked");
            assert!(guard.is_some(), "{name} after {polls} polls");
            ended.is_some()
        });
    }
}

/// Another client can lock it as soon as the store has carried out the requests.
#[test]
fn a_lock_dropped_at_any_await_leaves_nothing_to_others() {
    for (name, lock) in LOCKS {
        at_every_await(0..8, async |scene, polls| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.delay_up_to(ms(50));
            let ended = cut_after(polls, lock(&client)).await;
            scene.host.settle().await;
            let guard = other.mutex("a").try_lock().await.expect("asked");
            assert!(guard.is_some(), "{name} after {polls} polls");
            ended.is_some()
        });
    }
}

/// A waiter that goes away leaves no place and no grant, whenever the holder releases.
#[test]
fn a_waiting_lock_dropped_at_any_await_leaves_no_place_and_no_grant() {
    at_every_await(0..10, async |scene, polls| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        scene.faults.delay_up_to(ms(50));
        let host = scene.host.clone();
        let holder = scene.host.task(async move {
            host.advance(ms(1_500)).await;
            drop(held);
        });
        let ended = cut_after(polls, client.mutex("a").lock()).await;
        let ended_at_all = ended.is_some();
        drop(ended);
        holder.await;
        // The store always answers in this test, with a delay of up to 50 ms.
        scene.pass(ms(50)).await;
        assert_eq!(other.inspect("a").await.expect("asked").waiting, 0, "after {polls} polls");
        let guard = other.mutex("a").try_lock().await.expect("asked");
        assert!(guard.is_some(), "after {polls} polls");
        ended_at_all
    });
}

/// The store loses the request or the reply, or refuses for a while.
#[test]
fn a_lock_dropped_at_any_await_of_an_outage_leaves_nothing_soon_after_it() {
    for fault in [Fault::LoseReply, Fault::LoseRequest, Fault::Refuse] {
        at_every_await(0..4, async |scene, polls| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.delay_up_to(ms(50));
            scene.faults.next(Request::Acquire, fault);
            scene.faults.from_now_on(Request::Release, fault);
            let ended = cut_after(polls, client.mutex("a").lock()).await;
            let ended_at_all = ended.is_some();
            drop(ended);
            scene.pass(ms(400)).await;
            scene.faults.heal();
            // This is the limit of the release on its way, and the pause before the next release.
            scene.pass(ms(1_000 + 25)).await;
            let guard = other.mutex("a").try_lock().await.expect("asked");
            assert!(guard.is_some(), "{fault:?} after {polls} polls");
            ended_at_all
        });
    }
}

/// Other libraries often fail here, because a release takes another path than the asks.
#[test]
fn a_dropped_guard_is_never_in_the_way_of_the_next_try() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let mutex = client.mutex("a");
        for round in 0..10_000 {
            let guard = mutex.try_lock().await.expect("asked");
            assert!(guard.is_some(), "taken in round {round}");
        }
    });
}

/// The same holds while answers come late. The next try does not wait for them.
#[test]
fn a_dropped_guard_is_never_in_the_way_of_the_next_try_on_a_slow_store() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let mutex = client.mutex("a");
        scene.faults.delay_up_to(ms(100));
        for round in 0..200 {
            let guard = mutex.try_lock().await.expect("asked");
            assert!(guard.is_some(), "taken in round {round}");
        }
    });
}

/// A release is sent when it is called, even if nobody awaits its answer.
#[test]
fn a_release_dropped_at_any_await_has_released() {
    at_every_await(0..5, async |scene, polls| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.delay_up_to(ms(100));
        let ended = cut_after(polls, guard.release()).await;
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
        ended.is_some()
    });
}
