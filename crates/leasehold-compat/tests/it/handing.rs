//! A store that always gives a released key to the first client in line, as ZooKeeper does.

use std::future::ready;
use std::sync::Arc;

use leasehold::store::{
    BoxAnswer, Browse, Capabilities, LeaseId, MemoryStore, OnRelease, Released, Store,
};
use leasehold::{Error, ErrorKind, Key};
use leasehold_compat::gozero::RedisLock;
use leasehold_compat::jedis::RedisDistributedLock;
use leasehold_compat::redsync::Redsync;
use leasehold_testkit::VirtualHost;

/// The store in memory, except that nobody can free a key past its line.
#[derive(Clone)]
struct Handing(MemoryStore);

impl Handing {
    fn new(host: &Arc<VirtualHost>) -> Self {
        Self(MemoryStore::new(host.clone()))
    }

    async fn is_free(&self, key: &str) -> bool {
        let seen = self.0.inspect(Key::new(key).expect("a name")).await;
        seen.expect("an answer").holders.is_empty()
    }
}

impl Store for Handing {
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        if on_release != OnRelease::FreeAndWake {
            return self.0.release(lease, on_release);
        }
        let unsupported = Error::new(ErrorKind::Unsupported, "nothing was released");
        Box::pin(ready(Err(unsupported)))
    }

    fn capabilities(&self) -> Capabilities {
        let mut promised = self.0.capabilities();
        promised.frees = false;
        promised
    }

    fn browse(&self) -> Option<&dyn Browse> {
        None
    }

    fn label(&self) -> String {
        self.0.label()
    }

    leasehold_testkit::forward!(0: acquire, renew, inspect, watch, listen);
}

#[test]
fn each_lock_is_released_on_a_store_that_always_serves_its_line() {
    let host = VirtualHost::new(1);
    host.run(async {
        let store = Handing::new(&host);
        let gozero = RedisLock::new_on(store.clone(), "a", host.clone());
        gozero.set_expire(5);
        assert!(gozero.acquire().await.expect("an answer"));
        assert!(gozero.release().await.expect("an answer") && store.is_free("a").await);
        let jedis = RedisDistributedLock::new_on(store.clone(), "b", host.clone());
        let value = jedis.lock().await.expect("an answer").expect("it is free");
        assert!(jedis.release(&value).await.expect("an answer") && store.is_free("b").await);
    });
}

#[test]
fn a_redsync_mutex_is_unlocked_and_rolled_back_on_stores_that_always_serve_their_lines() {
    let host = VirtualHost::new(1);
    host.run(async {
        let nodes = [(); 3].map(|()| Handing::new(&host));
        let redsync = Redsync::new_on(nodes.clone(), host.clone());
        let mutex = redsync.new_mutex("a");
        mutex.lock().await.expect("it is free");
        assert!(mutex.unlock().await.expect("all nodes had it"));
        for node in &nodes {
            assert!(node.is_free("a").await);
        }
        for node in &nodes[..2] {
            let theirs = RedisLock::new_on(node.clone(), "b", host.clone());
            assert!(theirs.acquire().await.expect("an answer"));
        }
        redsync.new_mutex("b").try_lock().await.expect_err("two of three are taken");
        assert!(nodes[2].is_free("b").await, "rolled back");
    });
}
