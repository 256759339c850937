//! Several real servers on virtual time.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::RedisStore;
use leasehold::store::redis::RedisConnector;
use leasehold_compat::redsync::{Error, Mutex, Redsync};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::servers::{RedisServer, Reply, ServerOutside, pool};

/// The name of the lock.
pub(super) const NAME: &str = "job";

pub(super) struct Nodes {
    pub(super) host: Arc<VirtualHost>,
    outsides: Vec<Arc<ServerOutside>>,
}

impl Nodes {
    /// The connections of another process.
    pub(super) async fn stores(&self) -> Vec<RedisStore> {
        self.stores_by("").await
    }

    /// Like [`stores`](Self::stores), with options behind the URLs.
    pub(super) async fn stores_by(&self, options: &str) -> Vec<RedisStore> {
        let mut stores = Vec::new();
        for outside in &self.outsides {
            let url = outside.server().url() + options;
            let connector = RedisConnector::new(&url).expect("a URL");
            let store = RedisStore::connect_with(outside.watch(connector), self.host.clone());
            stores.push(store.await.expect("the server is there"));
        }
        stores
    }

    /// redsync in another process.
    pub(super) async fn redsync(&self) -> Redsync<RedisStore> {
        Redsync::new_on(self.stores().await, self.host.clone())
    }

    /// A mutex in another process.
    pub(super) async fn mutex(&self) -> Mutex<RedisStore> {
        self.redsync().await.new_mutex(NAME)
    }

    pub(super) fn server(&self, node: usize) -> &RedisServer {
        self.outsides[node].server()
    }

    /// Sends a command to a node, like a client of another library.
    #[track_caller]
    pub(super) fn tell(&self, node: usize, words: &[&str]) -> Reply {
        self.server(node).command(words)
    }

    /// The value of the key on a node.
    #[track_caller]
    pub(super) fn value(&self, node: usize) -> Option<String> {
        let value = self.tell(node, &["GET", NAME]);
        (value != Reply::Nil).then(|| value.text())
    }

    /// The value of the key on each node.
    #[track_caller]
    pub(super) fn values(&self) -> Vec<Option<String>> {
        (0..self.outsides.len()).map(|node| self.value(node)).collect()
    }

    /// On how many nodes the key holds the value.
    #[track_caller]
    pub(super) fn holding(&self, value: &str) -> usize {
        self.values().iter().filter(|held| held.as_deref() == Some(value)).count()
    }

    /// Every key on every node.
    #[track_caller]
    pub(super) fn keys(&self) -> Vec<Vec<String>> {
        (0..self.outsides.len()).map(|node| self.tell(node, &["KEYS", "*"]).texts()).collect()
    }

    /// The remaining life of the key on each node in milliseconds.
    #[track_caller]
    pub(super) fn lasts(&self) -> Vec<i64> {
        (0..self.outsides.len()).map(|node| self.tell(node, &["PTTL", NAME]).int()).collect()
    }

    pub(super) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }

    pub(super) fn now(&self) -> Moment {
        self.host.now()
    }

    /// `SET NX PX` on one node.
    #[track_caller]
    pub(super) fn takes(&self, node: usize, value: &str, ttl_ms: u32) -> bool {
        self.tell(node, &["SET", NAME, value, "NX", "PX", &ttl_ms.to_string()]) != Reply::Nil
    }

    /// Compares before it deletes, on one node.
    #[track_caller]
    pub(super) fn releases(&self, node: usize, value: &str) -> bool {
        // The script of redsync.
        let script = "local val = redis.call(\"GET\", KEYS[1]) \
             if val == ARGV[1] then return redis.call(\"DEL\", KEYS[1]) \
             elseif val == false then return -1 else return 0 end";
        self.tell(node, &["EVAL", script, "1", NAME, value]).int() == 1
    }
}

/// Runs a scene on servers that nobody else uses.
pub(super) fn play(nodes: usize, scene: impl AsyncFnOnce(&Nodes)) {
    let servers = pool::lend_all(nodes);
    play_on(servers.into_iter().map(ServerOutside::new).collect(), scene);
}

/// Like [`play`], on new servers.
pub(super) fn play_on_new(nodes: usize, scene: impl AsyncFnOnce(&Nodes)) {
    let server = |_| ServerOutside::new(Arc::new(RedisServer::builder().with_clock().start()));
    play_on((0..nodes).map(server).collect(), scene);
}

fn play_on(outsides: Vec<Arc<ServerOutside>>, scene: impl AsyncFnOnce(&Nodes)) {
    let host = VirtualHost::new(7);
    outsides.iter().for_each(|outside| host.attach(outside.clone()));
    let nodes = Nodes { host: host.clone(), outsides };
    host.run(scene(&nodes));
    drop(nodes);
    host.drop_tasks();
}

/// The nodes of a `Taken` error.
#[track_caller]
pub(super) fn taken(error: &Error) -> &[usize] {
    let Error::Taken { nodes } = error else { panic!("{error:?}") };
    nodes
}

/// The error of each node: its number, if known, and a word for it.
pub(super) fn said(error: &Error) -> Vec<(Option<usize>, &'static str)> {
    let word = |error: &Error| match error {
        Error::NodeTaken { node } => (Some(*node), "taken"),
        Error::Redis { node, .. } => (Some(*node), "redis"),
        Error::LockAlreadyExpired => (None, "expired"),
        other => panic!("{other:?}"),
    };
    error.errors().iter().map(word).collect()
}
