//! A real server on virtual time, and its clients.

use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::RedisStore;
use leasehold::store::redis::RedisConnector;
use leasehold::{Client, Identity};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::servers::{RedisServer, Reply, ServerOutside, pool};

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) struct World {
    pub(crate) host: Arc<VirtualHost>,
    outside: Arc<ServerOutside>,
}

impl World {
    /// The connections of another process.
    pub(crate) async fn store(&self) -> RedisStore {
        self.store_by("").await
    }

    /// Like [`store`](Self::store), with options behind the URL.
    pub(crate) async fn store_by(&self, options: &str) -> RedisStore {
        let url = self.server().url() + options;
        let connector = RedisConnector::new(&url).expect("a URL");
        let connector = self.outside.watch(connector);
        RedisStore::connect_with(connector, self.host.clone()).await.expect("the server is there")
    }

    /// A Leasehold client in another process.
    pub(crate) async fn client(&self) -> Client {
        let builder = Client::with_store(self.store().await).host(self.host.clone());
        builder.identity(Identity::anonymous()).connect().await.expect("connected")
    }

    pub(crate) fn host(&self) -> Arc<dyn Host> {
        self.host.clone()
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.outside.server()
    }

    /// Sends a command to the server, like a client of another library.
    #[track_caller]
    pub(crate) fn tell(&self, words: &[&str]) -> Reply {
        self.server().command(words)
    }

    /// The value of the key.
    #[track_caller]
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let value = self.tell(&["GET", key]);
        (value != Reply::Nil).then(|| value.text())
    }

    /// The remaining life of the key in milliseconds.
    #[track_caller]
    pub(crate) fn lasts(&self, key: &str) -> i64 {
        self.tell(&["PTTL", key]).int()
    }

    pub(crate) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }
}

/// Runs a scene on a server that nobody else uses.
pub(crate) fn play(scene: impl AsyncFnOnce(&World)) {
    let host = VirtualHost::new(7);
    let outside = ServerOutside::new(pool::lend());
    host.attach(outside.clone());
    let world = World { host: host.clone(), outside };
    host.run(scene(&world));
    drop(world);
    host.drop_tasks();
}

/// Clients of other libraries, by the commands that they send.
pub(crate) mod raw {
    use leasehold_testkit::servers::Reply;

    use super::World;

    /// `SET NX PX`: the recipe in every language.
    pub(crate) fn takes(world: &World, key: &str, value: &str, ttl_ms: u32) -> bool {
        world.tell(&["SET", key, value, "NX", "PX", &ttl_ms.to_string()]) != Reply::Nil
    }

    /// The script of go-zero: sets the key if it is free or holds the value already.
    pub(crate) fn takes_or_refreshes(world: &World, key: &str, value: &str, ttl_ms: u32) -> bool {
        let script = "local key, value, ttl = KEYS[1], ARGV[1], ARGV[2] \
             local is_ours = redis.call('GET', key) == value \
             if is_ours then redis.call('SET', key, value, 'PX', ttl) return 'OK' end \
             return redis.call('SET', key, value, 'NX', 'PX', ttl)";
        world.tell(&["EVAL", script, "1", key, value, &ttl_ms.to_string()]) != Reply::Nil
    }

    /// Compares before it deletes.
    pub(crate) fn releases(world: &World, key: &str, value: &str) -> bool {
        let script = "local is_ours = redis.call('GET', KEYS[1]) == ARGV[1] \
             return is_ours and redis.call('DEL', KEYS[1]) or 0";
        world.tell(&["EVAL", script, "1", key, value]).int() == 1
    }
}
