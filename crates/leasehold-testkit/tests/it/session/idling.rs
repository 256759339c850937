//! Leases that are kept without a guard.

use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::Hint;
use leasehold::{Client, Guard, Key, Mutex};
use leasehold_testkit::faults::{Fault, Hints, Request};

use super::{Scene, ms, play, play_on};
use crate::stores;

const LONG: Duration = Duration::from_secs(3_600);

fn mutex(client: &Client) -> Mutex {
    client.mutex("a").keep_idle(LONG)
}

async fn is_idle(client: &Client) -> bool {
    client.inspect("a").await.expect("asked").holders[0].idle
}

fn asks(scene: &Scene) -> usize {
    scene.faults.count(Request::Acquire)
}

#[test]
fn a_task_that_locks_again_soon_sends_no_request() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let mut last = None;
        for round in 0..100 {
            let guard = if round % 2 == 0 {
                mutex(&client).lock().await.expect("free")
            } else {
                mutex(&client).try_lock().await.expect("asked").expect("free")
            };
            assert!(guard.fencing_token() > last, "{round}");
            last = guard.fencing_token();
            scene.pass(ms(1)).await;
            drop(guard);
        }
        // These are the first ask, and some asks for fencing tokens, since no store counts faster
        // than its clock.
        let requests = asks(scene) + scene.faults.count(Request::Release);
        assert!(requests <= 6, "{requests}");
    });
}

#[test]
fn an_idle_lock_is_taken_for_others_renewed_and_shown_as_idle() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        drop(mutex(&client).lock().await.expect("free"));
        scene.pass(ms(300)).await;
        assert!(is_idle(&other).await);
        scene.pass(ms(20_000)).await;
        assert!(is_idle(&other).await, "for longer than its ttl");
        let guard = mutex(&client).lock().await.expect("it is ours");
        scene.pass(ms(300)).await;
        assert!(!is_idle(&other).await, "in use");
        assert_eq!(asks(scene), 1);
        drop(guard);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    });
}

#[test]
fn an_idle_lock_is_given_up_as_soon_as_another_client_waits() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        drop(mutex(&client).lock().await.expect("free"));
        scene.pass(ms(5_000)).await;
        let start = scene.host.now();
        let guard = other.mutex("a").lock().await.expect("soon");
        // If hints do not reach the client, it learns of the waiter at its next renewal.
        assert!(scene.host.now().since(start) <= ms(1_000 + 100 + 20));
        let wanted = mutex(&client);
        let again = scene.host.task(async move { wanted.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        drop(guard);
        assert!(again.await.is_held());
    });
}

/// A client that never waited begins to listen when it keeps a lock. Otherwise, only its renewals
/// would tell it of the waiter.
#[test]
fn a_client_with_an_idle_lock_on_a_server_hears_that_another_client_waits() {
    for seed in 0..5 {
        play_on(stores::redis, seed, async |scene| {
            let (client, other) = (scene.client().await, scene.client().await);
            drop(mutex(&client).lock().await.expect("free"));
            scene.pass(ms(300)).await;
            let waiting = other.mutex("a");
            let guard = scene.host.within(ms(100), waiting.lock()).await;
            assert!(guard.expect("soon").expect("in turn").is_held());
        });
    }
}

/// The client gives it up as soon as the hint arrives, and not only when the driver wakes next.
#[test]
fn an_idle_lock_that_is_heard_to_be_wanted_is_given_up_at_once() {
    for after in 0..10 {
        play(after..after + 1, async |scene| {
            // Both clients are in one process, so that every store tells the holder at once.
            let store = scene.store().await;
            let (client, other) =
                (scene.client_on(store.clone()).await, scene.client_on(store).await);
            drop(mutex(&client).lock().await.expect("free"));
            scene.pass(ms(300 + 10 * after)).await;
            let start = scene.host.now();
            let guard = other.mutex("a").lock().await.expect("soon");
            assert!(guard.is_held());
            // SQLite notices due work within a few milliseconds.
            assert!(scene.host.now().since(start) <= ms(5), "{:?}", scene.host.now().since(start));
        });
    }
}

/// A hint may overtake the answer to which it belongs.
#[test]
fn a_lock_that_was_wanted_before_a_try_knew_that_it_has_it_is_not_kept() {
    is_not_kept_if_wanted_early(|own| async move {
        own.try_lock().await.expect("asked").expect("free")
    });
}

/// The same holds for a task that would wait.
#[test]
fn a_lock_that_was_wanted_before_a_task_knew_that_it_has_it_is_not_kept() {
    is_not_kept_if_wanted_early(|own| async move { own.lock().await.expect("free") });
}

fn is_not_kept_if_wanted_early<F: Future<Output = Guard> + Send + 'static>(
    take: impl Fn(Mutex) -> F,
) {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.next(Request::Acquire, Fault::Late(ms(50)));
        let taking = scene.host.task(take(mutex(&client)));
        scene.pass(ms(10)).await;
        scene.faults.forge(&Hint::Wanted { key: Key::new("a").expect("a name") });
        drop(taking.await);
        scene.pass(ms(10)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn an_idle_lock_is_given_up_when_its_time_is_over() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        drop(client.mutex("a").keep_idle(ms(700)).lock().await.expect("free"));
        scene.pass(ms(690)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        scene.pass(ms(20)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn an_idle_lock_whose_renewals_fail_is_asked_for_again() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = mutex(&client).lock().await.expect("free");
        let fence = guard.fencing_token();
        drop(guard);
        scene.faults.all_from_now_on(Fault::Refuse);
        scene.pass(ms(3_100)).await;
        let theirs = other.mutex("a").try_lock().await.expect("asked").expect("it ran out");
        scene.faults.heal();
        assert!(mutex(&client).try_lock().await.expect("asked").is_none(), "never past its end");
        // Await the release: the two clients have separate connections, so their requests have no
        // order.
        let _released = theirs.release().await.expect("asked");
        let guard = mutex(&client).try_lock().await.expect("asked").expect("free");
        assert!(guard.fencing_token() > fence);
    });
}

/// Nobody could use it any more.
#[test]
fn an_idle_lock_ends_with_the_last_handle_that_could_take_it() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let last = mutex(&client);
        drop(last.lock().await.expect("free"));
        drop(client);
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "there is a mutex");
        drop(last);
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());

        let client = scene.client().await;
        drop(mutex(&client).lock().await.expect("free"));
        let done = client.shutdown(ms(1_000)).await;
        assert_eq!((done.released, done.not_released), (1, 0));
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// An idle lease does not block its own client.
#[test]
fn an_idle_lock_gives_way_to_a_task_on_other_terms() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        for _ in 0..3 {
            drop(mutex(&client).lock().await.expect("free"));
            let other_ttl = client.mutex("a").ttl(ms(5_000));
            drop(other_ttl.try_lock().await.expect("asked").expect("free"));
            drop(mutex(&client).lock().await.expect("free"));
            let guard = scene.host.within(ms(1), other_ttl.lock()).await;
            drop(guard.expect("at once").expect("free"));
        }
    });
}

/// Otherwise, the reader would find the key taken by its own client, and wait for the next renewal.
#[test]
fn a_lock_that_asks_alone_ends_the_idle_lease_of_its_client() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.hints(Hints::AreLost);
        drop(mutex(&client).lock().await.expect("free"));
        scene.pass(ms(200)).await;
        let lock = client.rwlock("a");
        let reader = scene.host.within(ms(50), lock.read()).await;
        assert!(reader.expect("nobody uses it").expect("an answer").is_held());
    });
}

/// Nobody could take the idle lease any more.
#[test]
fn a_guard_that_outlives_its_client_keeps_no_lease_idle() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = mutex(&client).lock().await.expect("free");
        drop(client);
        drop(guard);
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}
