//! A waiter sleeps, is woken when its turn comes, and delays nobody.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{
    AnyStore, Ask, Claim, Hint, LeaseId, Line, OnRelease, Released, Snapshot, Store,
};
use leasehold::{Client, Error, ErrorKind, Guard, Key, OwnerToken, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Hints, Request};
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, ms, play};

/// Locks, records its number, holds for a while, and releases.
fn waiter(
    host: &Arc<VirtualHost>,
    client: &Client,
    number: usize,
    served: &Arc<Mutex<Vec<usize>>>,
) -> Joined<()> {
    let (host_of_task, mutex) = (host.clone(), client.mutex("a"));
    let served = served.clone();
    host.task(async move {
        let guard = mutex.lock().await.expect("in turn");
        served.lock().expect("no panic").push(number);
        host_of_task.advance(ms(5)).await;
        drop(guard);
    })
}

async fn inspect(client: &Client) -> Snapshot {
    client.inspect("a").await.expect("asked")
}

/// Each ask of a waiter is a write, and a file has one writer.
#[test]
fn waiters_far_back_in_a_line_of_a_file_ask_rarely_and_are_still_served_in_order() {
    const WAITERS: usize = 150;
    super::play_on(crate::stores::sqlite, 0, async |scene| {
        let holder = scene.calm_client().await.mutex("a").lock().await.expect("free");
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..WAITERS {
            let client = scene.client().await;
            tasks.push(waiter(&scene.host, &client, number, &served));
            scene.host.settle().await;
        }
        let before = scene.faults.count(Request::Acquire);
        assert_eq!(before, WAITERS, "each took its place");
        scene.pass(ms(10_000)).await;
        let asks = scene.faults.count(Request::Acquire) - before;
        // The first 32 waiters ask once a second. The waiter with 150 others ahead asks every 7.5
        // s.
        assert!((32 * 9..32 * 11 + 450).contains(&asks), "{asks} asks");

        let before = scene.faults.count(Request::Acquire);
        drop(holder);
        for task in tasks {
            task.await;
        }
        assert_eq!(*served.lock().expect("no panic"), (0..WAITERS).collect::<Vec<_>>());
        let asks = scene.faults.count(Request::Acquire) - before;
        assert!(asks <= 3 * WAITERS, "{asks} asks for {WAITERS} grants");
    });
}

/// On virtual time, this is exact to the nanosecond.
#[test]
fn a_waiter_is_told_when_its_time_is_over_and_leaves_no_place() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let start = scene.host.now();
        let error = client.mutex("a").lock_timeout(ms(4_321)).await.expect_err("held");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        assert_eq!(scene.host.now().since(start), ms(4_321));
        scene.host.settle().await;
        assert_eq!(inspect(&other).await.waiting, 0);
        drop(held);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// The short rest of its wait says nothing about the store.
#[test]
fn a_task_that_waited_behind_another_one_and_gets_no_answer_has_waited_too_long() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let first = waiter_for(scene, &client, ms(100));
        scene.pass(ms(1)).await;
        let second = waiter_for(scene, &client, ms(120));
        scene.pass(ms(98)).await;
        scene.faults.next(Request::Acquire, Fault::Late(ms(50)));
        for waiting in [first, second] {
            let error = waiting.await.expect_err("it is held");
            assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
        }
    });
}

/// Nobody knows whether the lock is taken, so the answer *taken* would be a guess.
#[test]
fn a_waiter_behind_a_task_without_answers_is_not_told_that_the_lock_is_taken() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        scene.faults.from_now_on(Request::Acquire, Fault::LoseRequest);
        let first = waiter_for(scene, &client, ms(300));
        scene.host.settle().await;
        let second = waiter_for(scene, &client, ms(200));
        for waiting in [first, second] {
            let error = waiting.await.expect_err("the store is silent");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
        scene.faults.heal();
        drop(waiter_for(scene, &client, ms(5_000)).await.expect("it answers again"));
    });
}

fn waiter_for(scene: &Scene, client: &Client, wait: Duration) -> Joined<Result<Guard, Error>> {
    let mutex = client.mutex("a");
    scene.host.task(async move { mutex.lock_timeout(wait).await })
}

/// This is about the tasks of one client among themselves.
#[test]
fn tasks_of_one_client_are_served_in_the_order_in_which_they_came() {
    play(0..10, async |scene| {
        let client = scene.client().await;
        scene.faults.delay_up_to(ms(3));
        let held = client.mutex("a").lock().await.expect("free");
        let served = Arc::default();
        let mut tasks = Vec::new();
        for number in 0..20 {
            tasks.push(waiter(&scene.host, &client, number, &served));
            scene.pass(ms(10)).await;
        }
        drop(held);
        for task in tasks {
            task.await;
        }
        assert!(served.lock().expect("no panic").is_sorted(), "{served:?}");
    });
}

/// This is about clients among themselves.
#[test]
fn clients_are_served_in_the_order_in_which_they_came() {
    play(0..10, async |scene| {
        let first = scene.calm_client().await;
        let held = first.mutex("a").lock().await.expect("free");
        let served = Arc::default();
        let mut tasks = Vec::new();
        for number in 0..10 {
            let client = scene.client().await;
            tasks.push(waiter(&scene.host, &client, number, &served));
            scene.pass(ms(10)).await;
        }
        assert_eq!(inspect(&first).await.waiting, 10);
        scene.pass(ms(5_000)).await;
        assert_eq!(inspect(&first).await.waiting, 10, "their places are kept alive");
        drop(held);
        for task in tasks {
            task.await;
        }
        assert!(served.lock().expect("no panic").is_sorted(), "{served:?}");
    });
}

/// It does not matter how many of its tasks wait.
#[test]
fn a_client_has_one_place_in_line() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let served = Arc::default();
        let tasks: Vec<_> =
            (0..50).map(|number| waiter(&scene.host, &client, number, &served)).collect();
        for _ in 0..10 {
            scene.pass(ms(500)).await;
            assert_eq!(inspect(&other).await.waiting, 1);
        }
        let asks = scene.faults.count(Request::Acquire);
        assert!(asks <= 11, "{asks} asks in 5 s, one second apart");
        drop(held);
        for task in tasks {
            task.await;
        }
        assert_eq!(served.lock().expect("no panic").len(), 50);
        assert_eq!(inspect(&other).await.waiting, 0);
    });
}

/// A waiter sleeps until the hint wakes it. It does not learn of the release by polling.
#[test]
fn a_waiter_of_another_process_holds_the_lock_soon_after_its_release() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(1_500)).await;
        drop(held);
        let released = scene.host.now();
        let _guard = waiting.await;
        let took = scene.host.now().since(released);
        // A process that has waited for long polls every 18 ms, so it is 9 ms late in the median.
        assert!(took <= ms(20), "{took:?}");
    });
}

/// A lost wake-up costs at most one poll interval.
#[test]
fn a_waiter_whose_hints_are_lost_holds_the_lock_within_a_poll() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.hints(Hints::AreLost);
        let held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(1_500)).await;
        drop(held);
        let released = scene.host.now();
        let _guard = waiting.await;
        assert!(scene.host.now().since(released) <= ms(1_000));
    });
}

/// A crashed holder delays the next one by its ttl.
#[test]
fn a_waiter_holds_the_lock_when_a_crashed_holders_lease_ends() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _token = other.mutex("a").lock().await.expect("free").detach();
        let start = scene.host.now();
        let _guard = client.mutex("a").lock().await.expect("in turn");
        let took = scene.host.now().since(start);
        assert!(took >= ms(3_000) && took <= ms(3_010), "{took:?}");
    });
}

/// A crashed first waiter delays the next one by the short ttl of its place.
#[test]
fn a_crashed_waiter_holds_the_next_one_up_for_its_own_short_lease_at_most() {
    play(0..10, async |scene| {
        let (holder, client) = (scene.calm_client().await, scene.client().await);
        let held = holder.mutex("a").lock().await.expect("free");
        // No client refreshes this place or uses the lease.
        let crashed = join(scene, &scene.store().await, &fresh_id(scene)).await;
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        drop(held);
        let released = scene.host.now();
        let guard = waiting.await;
        let took = scene.host.now().since(released);
        assert!(took >= ms(2_900) && took <= ms(3_010), "{took:?}");
        assert_ne!(guard.token(), &crashed);
    });
}

fn fresh_id(scene: &Scene) -> ClientId {
    let mut random = [0; ClientId::CHARS];
    scene.host.random(&mut random);
    ClientId::from_random(random)
}

fn key() -> Key {
    Key::new("a").expect("a name")
}

/// Takes a place for a client of that id, while the lock is held.
async fn join(scene: &Scene, store: &AnyStore, id: &ClientId) -> OwnerToken {
    let mut random = [0; OwnerToken::RANDOM_BYTES];
    scene.host.random(&mut random);
    let owner = OwnerToken::from_random(random, id);
    let ttl = Ttl::new(ms(3_000)).expect("within bounds");
    let line = Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no: 1, inbox: id.clone() };
    let mut ask = Ask::new(key(), owner.clone(), Claim::Exclusive, ttl);
    ask.line = line;
    ask.reserve = 1;
    let answer = store.acquire(ask).await.expect("answered");
    assert!(answer.is_taken(), "{answer:?}");
    // A store may have to open its connection for hints.
    scene.host.settle().await;
    owner
}

/// The future of the waiter was dropped, or the reply with its token was lost.
#[test]
fn a_grant_for_nobody_is_given_back() {
    play(0..10, async |scene| {
        let store = scene.store().await;
        let client = scene.client_on(store.clone()).await;
        let other = scene.calm_client().await;
        let held = other.mutex("a").lock().await.expect("free");
        let id = scene.faults.inboxes()[0].clone();
        let nobody = join(scene, &store, &id).await;
        assert_eq!(held.release().await.expect("asked"), leasehold::Release::Released);
        scene.pass(ms(50)).await;
        let snapshot = inspect(&other).await;
        assert_eq!(snapshot.holders, [], "given back, not left to run out: {nobody:?}");
        drop(client);
    });
}

/// The process that got the token goes on with the lease; a late hint must not end it.
#[test]
fn a_late_hint_leaves_a_detached_lease_untouched() {
    play(0..10, async |scene| {
        let client = scene.client().await;
        let token = client.mutex("a").lock().await.expect("free").detach();
        let hint = Hint::Granted { key: key(), owner: token, fencing: None, ask_no: 1 };
        scene.faults.forge(&hint);
        scene.pass(ms(50)).await;
        assert_eq!(inspect(&client).await.holders.len(), 1);
    });
}

/// A hint is no proof, so the client asks the store.
#[test]
fn forged_and_doubled_hints_are_harmless() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = client.mutex("held").lock().await.expect("free");
        let theirs = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(10)).await;
        let mine = |key: &str, owner: &OwnerToken| Hint::Granted {
            key: Key::new(key).expect("a name"),
            owner: owner.clone(),
            fencing: None,
            ask_no: 9,
        };
        let hints = [
            mine("held", held.token()),
            mine("a", held.token()),
            mine("a", theirs.token()),
            mine("never used", theirs.token()),
            Hint::MaybeFree { key: key() },
            Hint::MaybeFree { key: Key::new("held").expect("a name") },
            Hint::Wanted { key: Key::new("held").expect("a name") },
            Hint::Missed,
        ];
        for hint in hints.iter().chain(&hints) {
            scene.faults.forge(hint);
            scene.pass(ms(20)).await;
            assert!(held.is_held() && theirs.is_held() && !waiting.is_finished(), "{hint:?}");
        }
        assert_eq!(inspect(&other).await.waiting, 1);
        scene.pass(ms(5_000)).await;
        assert!(held.is_held() && theirs.is_held() && !waiting.is_finished());
        scene.faults.hints(Hints::AreDoubled);
        drop(theirs);
        let guard = waiting.await;
        assert!(guard.is_held());
        scene.pass(ms(5_000)).await;
        assert!(guard.is_held() && held.is_held());
    });
}

/// Otherwise a client that may publish could keep another client busy with releases.
#[test]
fn a_flood_of_forged_grants_makes_a_client_send_few_releases_at_a_time() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        let held = client.mutex("held").lock().await.expect("free");
        let id = scene.faults.inboxes()[0].clone();
        let flood = async |first: u32| {
            for number in first..first + 10_000 {
                let mut random = [0; OwnerToken::RANDOM_BYTES];
                for (at, byte) in random.iter_mut().take(4).enumerate() {
                    *byte = u8::try_from((number >> (6 * at)) & 63).expect("six bits");
                }
                let owner = OwnerToken::from_random(random, &id);
                scene.faults.forge(&Hint::Granted { key: key(), owner, fencing: None, ask_no: 1 });
            }
            let before = scene.faults.count(Request::Release);
            scene.pass(ms(500)).await;
            scene.faults.count(Request::Release) - before
        };
        let released = flood(0).await;
        assert!((1..=1_000).contains(&released), "{released}");
        let released = flood(10_000).await;
        assert!((1..=1_000).contains(&released), "and again after it: {released}");
        assert!(held.is_held());
    });
}

/// The store reports when hints may have been lost.
#[test]
fn missed_hints_make_every_waiter_ask() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let mut held = Vec::new();
        let mut tasks = Vec::new();
        for name in ["a", "b", "c"] {
            held.push(other.mutex(name).lock().await.expect("free"));
            let mutex = client.mutex(name);
            tasks.push(scene.host.task(async move { mutex.lock().await.map(drop) }));
        }
        scene.pass(ms(500)).await;
        let asks = scene.faults.count(Request::Acquire);
        scene.faults.forge(&Hint::Missed);
        scene.pass(ms(1)).await;
        assert_eq!(scene.faults.count(Request::Acquire), asks + 3);
        drop(held);
        for task in tasks {
            task.await.expect("in turn");
        }
    });
}

/// A `try_lock` does not count as a waiter.
#[test]
fn a_try_never_passes_a_waiter() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        drop(held);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        let guard = waiting.await;
        assert!(guard.is_held());
    });
}

/// A release by token hands the key over like any other release.
#[test]
fn a_release_by_token_hands_over_to_a_waiter() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let owner = other.mutex("a").lock().await.expect("free").detach();
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in turn") });
        scene.pass(ms(100)).await;
        let lease = LeaseId { key: key(), owner, claim: Claim::Exclusive };
        let answer = scene.store().await.release(lease, OnRelease::Free).await;
        assert_eq!(answer.expect("asked"), Released::HandedOver);
        assert!(scene.host.within(ms(10), waiting).await.is_some());
    });
}

/// Nobody holds the lock, and all clients in line are dead.
#[test]
fn one_try_gets_a_lock_behind_a_long_line_of_the_dead() {
    play(0..2, async |scene| {
        let store = scene.store().await;
        let client = scene.client().await;
        let held = client.mutex("a").lock().await.expect("free");
        for number in 0..30 {
            join(scene, &store, &ClientId::from_random([number; ClientId::CHARS])).await;
        }
        // One place lives a moment longer, so that the line is not forgotten as a whole.
        scene.pass(ms(100)).await;
        join(scene, &store, &ClientId::from_random([99; ClientId::CHARS])).await;
        scene.pass(ms(2_950)).await;
        drop(held);
        scene.pass(ms(60)).await;
        let other = scene.calm_client().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// The store's own limit includes the lock delay: it would end after the life of the place.
#[test]
fn a_lost_answer_costs_no_waiter_its_place_with_a_lock_delay() {
    let lost = [Fault::LoseRequest, Fault::LoseReply];
    for (fault, ttl) in lost.into_iter().flat_map(|fault| [(fault, 1_000), (fault, 100)]) {
        play(0..3, async |scene| {
            let (holder, other) = (scene.calm_client().await, scene.calm_client().await);
            let held = holder.mutex("a").lock().await.expect("free");
            let client = scene.client_with_delay(ms(10_000)).await;
            let mutex = client.mutex("a").ttl(ms(ttl));
            let first = scene.host.task(async move { mutex.lock().await.expect("in turn") });
            scene.host.settle().await;
            let mutex = other.mutex("a");
            let second = scene.host.task(async move { mutex.lock().await.expect("in turn") });
            scene.host.settle().await;
            scene.faults.next(Request::Acquire, fault);
            scene.pass(ms(ttl * 11 / 10)).await;
            drop(held);
            let first = scene.host.within(ms(100), first).await.expect("its turn");
            assert!(first.is_held() && !second.is_finished());
        });
    }
}
