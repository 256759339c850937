//! A real server on virtual time, and who is on it.

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
    /// The connections of one more process.
    pub(crate) async fn store(&self) -> RedisStore {
        self.store_by("").await
    }

    /// As [`store`](Self::store), by the URL with something behind it.
    pub(crate) async fn store_by(&self, options: &str) -> RedisStore {
        let url = self.server().url() + options;
        let connector = RedisConnector::new(&url).expect("a URL");
        let connector = self.outside.watch(connector);
        RedisStore::connect_with(connector, self.host.clone()).await.expect("the server is there")
    }

    /// A client of Leasehold, in one more process.
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

    /// Asks the server, as a client of another make would.
    #[track_caller]
    pub(crate) fn tell(&self, words: &[&str]) -> Reply {
        self.server().command(words)
    }

    /// What the key holds.
    #[track_caller]
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let value = self.tell(&["GET", key]);
        (value != Reply::Nil).then(|| value.text())
    }

    /// How long the key lasts, in milliseconds.
    #[track_caller]
    pub(crate) fn lasts(&self, key: &str) -> i64 {
        self.tell(&["PTTL", key]).int()
    }

    pub(crate) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }
}

/// Plays the scene on a server that nobody else uses.
pub(crate) fn play(scene: impl AsyncFnOnce(&World)) {
    let host = VirtualHost::new(7);
    let outside = ServerOutside::new(pool::lend());
    host.attach(outside.clone());
    let world = World { host: host.clone(), outside };
    host.run(scene(&world));
    drop(world);
    host.drop_tasks();
}

/// Clients of other makes, by the commands that they send.
pub(crate) mod raw {
    use leasehold_testkit::servers::Reply;

    use super::World;

    /// `SET NX PX`: what the recipe of every language does.
    pub(crate) fn takes(world: &World, key: &str, value: &str, ttl_ms: u32) -> bool {
        world.tell(&["SET", key, value, "NX", "PX", &ttl_ms.to_string()]) != Reply::Nil
    }

    /// What go-zero does: sets the key if it is free, or anew if it holds the value.
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
