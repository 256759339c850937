//! The promises of a quorum while a minority of its nodes fails, on virtual time.

mod admission;
mod answering;
mod cutting;
mod evicting;
mod failing;
mod far;
mod fencing;
mod filling;
mod handing_over;
mod hints;
mod killed;
mod lying;
mod renewing;
mod revoking;
mod servers;
mod soak;
mod splitting;
mod strict;
mod terms;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::{AnyStore, Browse as _, MemoryStore, Quorum, Store};
use leasehold::{Client, Identity, Key};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Faults, Request};

use self::far::Far;

const TTL: Duration = ms(3_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn key(name: &str) -> Key {
    Key::new(name).expect("a good name")
}

/// Some stores in memory, and quorums of them.
struct Scene {
    host: Arc<VirtualHost>,
    nodes: Vec<MemoryStore>,
    /// The faults at each node for the requests of clients.
    faults: Vec<Faults>,
}

impl Scene {
    fn new(host: &Arc<VirtualHost>, nodes: usize) -> Self {
        let node = |number| MemoryStore::shared(&format!("n{number}"), host.clone());
        Self {
            host: host.clone(),
            nodes: (0..nodes).map(node).collect(),
            faults: (0..nodes).map(|_| Faults::new(host.clone())).collect(),
        }
    }

    /// The nodes behind their faults.
    fn faulty(&self) -> Vec<AnyStore> {
        let nodes = self.faults.iter().zip(&self.nodes);
        nodes.map(|(faults, node)| AnyStore::new(faults.decorate(node.clone()))).collect()
    }

    async fn quorum<S: Store>(&self, nodes: Vec<S>) -> Quorum<S> {
        let host: Arc<dyn Host> = self.host.clone();
        Quorum::connect(nodes, host).await.expect("a majority is there")
    }

    /// A client whose requests meet the faults.
    async fn client(&self) -> Client {
        self.client_of(self.quorum(self.faulty()).await, TTL).await
    }

    /// A client whose requests meet no faults.
    async fn calm_client(&self) -> Client {
        self.client_of(self.quorum(self.nodes.clone()).await, TTL).await
    }

    /// A client with this distance to each node, one way.
    async fn far_client(&self, ways: impl IntoIterator<Item = Duration>) -> Client {
        let nodes = self.nodes.iter().zip(ways);
        let far = nodes.map(|(node, way)| Far::new(&self.host, node.clone(), way)).collect();
        self.client_of(self.quorum(far).await, TTL).await
    }

    async fn client_of(&self, store: impl Store, ttl: Duration) -> Client {
        let builder = Client::with_store(store).host(self.host.clone()).ttl(ttl);
        builder.identity(Identity::anonymous()).connect().await.expect("connected")
    }

    fn minority(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    /// How many requests of this kind each node got.
    fn counts(&self, request: Request) -> Vec<usize> {
        self.faults.iter().map(|faults| faults.count(request)).collect()
    }

    /// Which nodes show a holder of that lock.
    async fn held_by(&self, name: &str) -> Vec<bool> {
        let mut held = Vec::new();
        for node in &self.nodes {
            let seen = node.inspect(key(name)).await.expect("it is in memory");
            held.push(!seen.holders.is_empty());
        }
        held
    }

    /// Asserts that no node has a holder of the lock, or a waiter.
    async fn assert_nothing_is_left(&self, name: &str, when: &str) {
        for (number, node) in self.nodes.iter().enumerate() {
            let seen = node.inspect(key(name)).await.expect("it is in memory");
            assert!(seen.holders.is_empty(), "node {number} is held {when}: {seen:?}");
            assert_eq!(seen.waiting, 0, "somebody waits at node {number} {when}");
        }
    }

    /// Makes the node forget who holds the lock.
    async fn forget(&self, node: usize, name: &str) {
        let seen = self.nodes[node].inspect(key(name)).await.expect("it is in memory");
        for holder in seen.holders {
            let evicted = self.nodes[node].evict(key(name), holder.token, "a test".to_owned());
            let _ended = evicted.await.expect("it is in memory");
        }
    }

    async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }
}

/// Holds a lock at one node, as a client of that node alone.
async fn hold_at(scene: &Scene, node: usize, name: &str) -> leasehold::Guard {
    let client = scene.client_of(scene.nodes[node].clone(), TTL).await;
    client.mutex(name).try_lock().await.expect("asked").expect("it is free")
}

/// Plays the scene once for each number of nodes and every seed.
fn play(nodes: &[usize], seeds: Range<u64>, scene: impl AsyncFn(&Scene)) {
    for nodes in nodes {
        for seed in seeds.clone() {
            play_on(*nodes, seed, &scene);
        }
    }
}

/// Plays the scene once.
fn play_on<T>(nodes: usize, seed: u64, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let host = VirtualHost::new(seed);
    let set = Scene::new(&host, nodes);
    let output = host.run(scene(&set));
    host.run(host.settle());
    drop(set);
    host.drop_tasks();
    assert_eq!(Arc::strong_count(&host), 1, "something keeps itself alive");
    output
}
