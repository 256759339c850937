//! A store with several shards. One of them is silent.

use std::sync::Weak;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{
    Acquired, AnyStore, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease,
    Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Client, Guard, Key};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play_on};
use crate::stores;

/// Keys that begin with `odd` are in the second shard.
struct TwoShards([AnyStore; 2]);

impl TwoShards {
    fn of(&self, key: &Key) -> &AnyStore {
        &self.0[usize::from(key.as_str().starts_with("odd"))]
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
        self.0.iter().for_each(|store| store.watch(inbox, sink.clone()));
    }
    fn listen(&self, inbox: &ClientId) {
        self.0.iter().for_each(|store| store.listen(inbox));
    }
    fn shard(&self, key: &Key) -> u64 {
        u64::from(key.as_str().starts_with("odd"))
    }
    fn capabilities(&self) -> Capabilities {
        self.0[0].capabilities()
    }
    fn browse(&self) -> Option<&dyn Browse> {
        None
    }
    fn label(&self) -> String {
        "two shards".to_owned()
    }
}

async fn client(scene: &Scene, ttl: Duration) -> Client {
    let odd = AnyStore::new(scene.faults.decorate(scene.store().await));
    let store = TwoShards([scene.store().await, odd]);
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
