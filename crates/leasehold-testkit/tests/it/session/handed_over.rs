//! A waiter acts on the message of a hand-over at once, if that is sound.

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::core::FencingBlock;
use leasehold::store::{Acquired, AnyStore, Ask, BoxAnswer, Hint, Refusal, Store};
use leasehold::{Client, FencingToken, Guard, Key, OwnerToken};
use leasehold_testkit::faults::{Fault, Hints, Request};
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, ms, play};

fn waiter(scene: &Scene, client: &Client) -> Joined<Guard> {
    let mutex = client.mutex("a");
    scene.host.task(async move { mutex.lock().await.expect("in turn") })
}

/// The owner token of the waiter.
async fn waiting_token(scene: &Scene, waiting: Joined<Guard>) -> OwnerToken {
    scene.faults.heal();
    waiting.await.token().clone()
}

#[test]
fn a_hand_over_needs_no_second_request_and_its_ttl_is_raised_soon() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let fence = held.fencing_token();
        let waiting = waiter(scene, &client);
        scene.pass(ms(1_700)).await;
        let asked = scene.faults.count(Request::Acquire);
        drop(held);
        let guard = waiting.await;
        assert_eq!(scene.faults.count(Request::Acquire), asked, "no further ask");
        assert!(guard.fencing_token() > fence);
        // The time counts from when the last ask that the store had processed was sent. From the
        // ttl of 3 s, subtract the time since then, 1 %, and 2 ms.
        assert!(guard.remaining() <= ms(2_968 - 650), "{:?}", guard.remaining());
        scene.pass(ms(200)).await;
        assert!(guard.remaining() >= ms(2_968 - 200), "{:?}", guard.remaining());
        scene.pass(ms(10_000)).await;
        assert!(guard.is_held());
    });
}

/// Asks get lost, so the message comes seconds after the last ask that the store answered.
#[test]
fn a_hand_over_that_leaves_too_little_time_is_a_hint_and_no_more() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(100)).await;
        // From now on, the waiter's asks do not arrive. Its place lives for less than 3 s more, so
        // the store still hands it the key. The lease counts from its first ask.
        scene.faults.all_from_now_on(Fault::LoseRequest);
        scene.pass(ms(2_500)).await;
        drop(held);
        scene.pass(ms(30)).await;
        assert!(!waiting.is_finished(), "less than a second is left: it asks again");
        scene.faults.heal();
        let guard = scene.host.within(ms(3_000), waiting).await.expect("asked again");
        assert!(guard.is_held() && guard.remaining() > ms(2_000));
    });
}

/// This holds even while an ask is on its way.
#[test]
fn a_hand_over_is_noticed_while_an_ask_is_not_answered() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let held = other.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(900)).await;
        scene.faults.all_from_now_on(Fault::LoseRequest);
        scene.pass(ms(200)).await;
        drop(held);
        let guard = scene.host.within(ms(30), waiting).await.expect("by the message alone");
        assert!(guard.is_held());
        scene.faults.heal();
        scene.pass(ms(5_000)).await;
        assert!(guard.is_held(), "renewals lifted its ttl");
    });
}

/// Hand-overs may come twice or late, or name an ask that was never made.
#[test]
fn stale_doubled_and_made_up_hand_overs_are_harmless() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        // The token of its earlier hand-over is spent.
        let held = other.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(100)).await;
        scene.faults.hints(Hints::AreDoubled);
        drop(held);
        let spent = waiting_token(scene, waiting).await;
        scene.host.settle().await;
        let theirs = other.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(100)).await;
        let first = FencingToken::new(7).expect("not zero");
        for ask_no in [0, 1, 2, 99, u32::MAX] {
            scene.faults.forge(&Hint::Granted {
                key: Key::new("a").expect("a name"),
                owner: spent.clone(),
                fencing: Some(FencingBlock { first, count: 1 }),
                ask_no,
            });
            scene.pass(ms(50)).await;
            assert!(theirs.is_held() && !waiting.is_finished(), "{ask_no}");
        }
        drop(theirs);
        assert!(waiting.await.is_held());
    });
}

/// A store that makes the token of the first ask unusable.
struct Spender {
    store: AnyStore,
    has_spent: AtomicBool,
}

impl Store for Spender {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let has_spent = self.has_spent.swap(true, Ordering::SeqCst);
        if has_spent {
            self.store.acquire(ask)
        } else {
            Box::pin(ready(Ok(Refusal::split(ms(5)).into())))
        }
    }

    leasehold_testkit::forward!(store: renew, release, inspect, watch, rest);
}

/// Messages name the token by which the client waits now.
#[test]
fn a_waiter_with_a_second_token_is_handed_the_key_at_once() {
    play(0..10, async |scene| {
        let (store, has_spent) = (scene.store().await, AtomicBool::new(false));
        let client = scene.client_on(AnyStore::new(Spender { store, has_spent })).await;
        let held = scene.calm_client().await.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(1_700)).await;
        let asked = scene.faults.count(Request::Acquire);
        drop(held);
        let guard = scene.host.within(ms(30), waiting).await.expect("by the message");
        assert_eq!(scene.faults.count(Request::Acquire), asked, "no further ask");
        drop(guard);
    });
}

/// A client that can read the lock and publish may know the token before its owner has the grant.
#[test]
fn a_forged_hand_over_takes_nothing_from_a_client_that_is_just_being_granted_the_key() {
    play(0..10, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.next(Request::Acquire, Fault::Late(ms(200)));
        let mutex = client.mutex("a");
        let trying = scene.host.task(async move { mutex.try_lock().await.expect("asked") });
        scene.pass(ms(100)).await;
        let seen = other.inspect("a").await.expect("answered");
        let token = String::from_utf8(seen.holders[0].token.clone()).expect("text");
        let first = FencingToken::new(7).expect("not zero");
        scene.faults.forge(&Hint::Granted {
            key: Key::new("a").expect("a name"),
            owner: OwnerToken::new(token).expect("a token"),
            fencing: Some(FencingBlock { first, count: 1 }),
            ask_no: 1,
        });
        scene.pass(ms(150)).await;
        let guard = trying.await.expect("it was granted");
        assert!(guard.is_held());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it was given back");
    });
}

/// The store also keeps the key for the lock delay, which protects the next holder.
#[test]
fn the_lock_delay_of_a_hand_over_is_nothing_to_rely_on() {
    play(0..10, async |scene| {
        let store = scene.faults.decorate(scene.store().await);
        let client = Client::with_store(store).host(scene.host.clone()).ttl(ms(3_000));
        let client = client.lock_delay(ms(2_000)).connect().await.expect("connected");
        let other = scene.calm_client().await;
        let held = other.mutex("a").lock().await.expect("free");
        let waiting = waiter(scene, &client);
        scene.pass(ms(100)).await;
        // From now on, neither asks nor renewals of the waiter arrive.
        scene.faults.all_from_now_on(Fault::LoseRequest);
        drop(held);
        let guard = scene.host.within(ms(30), waiting).await.expect("by the message alone");
        // The limit is the ttl of 3 s, minus 1 % and 2 ms.
        assert!(guard.remaining() <= ms(2_968), "{:?}", guard.remaining());
        scene.pass(ms(2_970)).await;
        assert!(!guard.is_held());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "the delay");
        scene.pass(ms(2_500)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}
