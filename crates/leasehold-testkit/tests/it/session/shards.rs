//! A store with several shards. One of them is silent.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{
    Acquired, AnyStore, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease,
    Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Client, Guard, Key};
use leasehold_testkit::faults::{Fault, Faults, Request};

use super::{Scene, ms, play_on};
use crate::stores;

/// Keys that begin with `odd` are in the second shard.
struct TwoShards {
    stores: [AnyStore; 2],
    /// Each call adds this to the number of the shard. If it is not zero, locks move.
    step: u64,
    added: AtomicU64,
}

impl TwoShards {
    fn of(&self, key: &Key) -> &AnyStore {
        &self.stores[usize::from(key.as_str().starts_with("odd"))]
    }
}

impl Store for TwoShards {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        self.of(&ask.key).acquire(ask)
    }
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.of(&renewal.lease.key).renew(renewal)
    }
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.of(&lease.key).release(lease, on_release)
    }
    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.of(&key).inspect(key)
    }
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        self.stores.iter().for_each(|store| store.watch(inbox, sink.clone()));
    }
    fn listen(&self, inbox: &ClientId) {
        self.stores.iter().for_each(|store| store.listen(inbox));
    }
    fn shard(&self, key: &Key) -> u64 {
        let added = self.added.fetch_add(self.step, Ordering::Relaxed);
        u64::from(key.as_str().starts_with("odd")) + added
    }
    fn capabilities(&self) -> Capabilities {
        self.stores[0].capabilities()
    }
    fn browse(&self) -> Option<&dyn Browse> {
        None
    }
    fn label(&self) -> String {
        "two shards".to_owned()
    }
}

async fn client(scene: &Scene, ttl: Duration) -> Client {
    client_with(scene, ttl, &Faults::new(scene.host.clone()), 0).await
}

/// A client with these faults for the locks that do not begin with `odd`. They move by `step`.
async fn client_with(scene: &Scene, ttl: Duration, even: &Faults, step: u64) -> Client {
    let odd = AnyStore::new(scene.faults.decorate(scene.store().await));
    let even = AnyStore::new(even.decorate(scene.store().await));
    let store = TwoShards { stores: [even, odd], step, added: AtomicU64::new(0) };
    let builder = Client::with_store(store).host(scene.host.clone()).ttl(ttl);
    builder.connect().await.expect("connected")
}

/// Each waiting task keeps a request under way for most of the time.
#[test]
fn a_silent_shard_does_not_delay_requests_for_locks_of_the_others() {
    play_on(stores::memory, 0, async |scene| {
        let client = client(scene, ms(10_000)).await;
        // The store has answered before, so the tasks wait until the outage is over.
        let held = client.mutex("odd-0").lock().await.expect("free");
        scene.faults.from_now_on(Request::Acquire, Fault::LoseRequest);
        let waiting = |number: u32| {
            let mutex = client.mutex(format!("odd-{number}"));
            scene.host.task(async move { drop(mutex.lock_timeout(ms(8_000)).await) })
        };
        let tasks: Vec<_> = (1..3_000).map(waiting).collect();
        for number in 0..50 {
            scene.pass(ms(100)).await;
            let began = scene.host.now();
            let guard = client.mutex(format!("even-{number}")).lock().await.expect("free");
            assert_eq!(scene.host.now(), began);
            drop(guard);
        }
        for task in tasks {
            task.await;
        }
        drop(held);
    });
}

/// A silent shard keeps each release until the lease has run out.
#[test]
fn a_silent_shard_does_not_delay_the_releases_of_the_others() {
    const LEASES: usize = 3_000;
    play_on(stores::memory, 0, async |scene| {
        let even = Faults::new(scene.host.clone());
        let client = client_with(scene, ms(60_000), &even, 0).await;
        let mut odd = Vec::new();
        for number in 0..LEASES {
            odd.push(client.mutex(format!("odd-{number}")).lock().await.expect("free"));
        }
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        drop(odd);
        scene.pass(ms(5_000)).await;
        let kept = client.mutex("even").lock().await.expect("free");
        even.next(Request::Release, Fault::LoseRequest);
        assert!(kept.release().await.is_err(), "this release got no answer");
        scene.pass(ms(5_000)).await;
        // A request for the lock would end what this client left over.
        let seen = client.inspect("even").await.expect("it answers");
        assert!(seen.holders.is_empty(), "the release was repeated");
    });
}

/// In a cluster, a slot may move while a release waits for its turn.
#[test]
fn a_lock_that_moves_to_another_shard_is_released_there() {
    play_on(stores::memory, 0, async |scene| {
        let even = Faults::new(scene.host.clone());
        let client = client_with(scene, ms(60_000), &even, 10).await;
        for _ in 0..3 {
            let guard = client.mutex("even").lock().await.expect("free");
            even.next(Request::Release, Fault::LoseRequest);
            drop(guard);
            scene.pass(ms(5_000)).await;
            assert!(client.inspect("even").await.expect("asked").holders.is_empty());
        }
        assert_eq!(client.shutdown(ms(1_000)).await.not_released, 0);
    });
}

/// A silent shard keeps each renewal for as long as its limit. If all shards shared one limit of
/// renewals under way, few renewals of the other shards would be sent in that time.
#[test]
fn a_silent_shard_does_not_delay_the_renewals_of_the_others() {
    const LEASES: usize = 10_000;
    play_on(stores::memory, 0, async |scene| {
        let client = client(scene, ms(10_000)).await;
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        for number in 0..LEASES {
            let (name, guards) = match number % 3 {
                0 => (format!("odd-{number}"), &mut odd),
                _ => (format!("even-{number}"), &mut even),
            };
            guards.push(client.mutex(name).lock().await.expect("free"));
        }
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        // The leases are renewed every 3.3 s, together with others that are due up to 0.34 s
        // earlier or later. The driver looks every 100 ms.
        let least = ms(6_100);
        for _ in 0..300 {
            scene.pass(ms(100)).await;
            let left = even.iter().map(Guard::remaining).min().expect("there are some");
            assert!(left > least, "renewed late: {left:?} is left of 10 s");
        }
        assert!(odd.iter().all(|guard| !guard.is_held()), "their shard was silent");
    });
}
