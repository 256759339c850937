//! An operator ends a lease, and some nodes fail to do it.

use std::sync::{Arc, Mutex};

use leasehold::store::{BoxAnswer, Browse, Evicted, MemoryStore, Page, Revoked, Store};
use leasehold::{Error, ErrorKind, Key};

use super::{Scene, TTL, key, play};

/// A store whose tools fail on demand.
#[derive(Clone)]
pub(super) struct Shy {
    store: MemoryStore,
    pub(super) fails: Arc<Mutex<Option<ErrorKind>>>,
}

impl Shy {
    fn or<T: Send + 'static>(&self, answer: impl FnOnce() -> BoxAnswer<T>) -> BoxAnswer<T> {
        match *self.fails.lock().expect("no panic") {
            Some(kind) => Box::pin(async move { Err(Error::new(kind, "it fails")) }),
            None => answer(),
        }
    }
}

impl Browse for Shy {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        self.or(|| self.store.list(pattern, cursor))
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        self.or(|| self.store.evict(key, seen, reason))
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        self.or(|| self.store.revoke(key, seen, by, reason))
    }
}

impl Store for Shy {
    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    leasehold_testkit::forward!(store: acquire, renew, release, inspect, watch);
    leasehold_testkit::forward!(store: listen, capabilities, label);
}

/// A quorum whose nodes fail tools as `fails` says.
pub(super) fn shy(scene: &Scene, fails: [Option<ErrorKind>; 3]) -> Vec<Shy> {
    let nodes = scene.nodes.iter().cloned().zip(fails);
    nodes.map(|(store, fails)| Shy { store, fails: Arc::new(Mutex::new(fails)) }).collect()
}

#[test]
fn an_eviction_that_reached_a_minority_does_not_say_that_nothing_was_changed() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        play(&[3], 0..2, async |scene| {
            let holder = scene.calm_client().await;
            let _guard = holder.mutex("a").lock().await.expect("free");
            let nodes = shy(scene, [None, Some(kind), Some(kind)]);
            let operator = scene.client_of(scene.quorum(nodes.clone()).await, TTL).await;
            let token = operator.inspect("a").await.expect("seen").holders[0].token.clone();
            let error = operator.evict("a", &token, "a test").await.expect_err("one of three");
            assert_eq!(scene.held_by("a").await, [false, true, true]);
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            assert!(error.to_string().contains("may have been ended at some"), "{error}");
            // The error advises this.
            for node in &nodes {
                *node.fails.lock().expect("no panic") = None;
            }
            let again = operator.evict("a", &token, "a test").await.expect("all answer");
            assert_eq!(again, Evicted::Evicted);
            assert_eq!(scene.held_by("a").await, [false; 3]);
        });
    }
}

#[test]
fn an_eviction_that_takes_the_majority_of_a_lease_has_ended_it() {
    play(&[3], 0..2, async |scene| {
        let holder = scene.calm_client().await;
        let guard = holder.mutex("a").lock().await.expect("free");
        let nodes = shy(scene, [None, Some(ErrorKind::Unavailable), None]);
        let operator = scene.client_of(scene.quorum(nodes.clone()).await, TTL).await;
        let token = operator.inspect("a").await.expect("seen").holders[0].token.clone();
        let evicted = nodes[2].evict(key("a"), token.clone(), "it lost it".to_owned()).await;
        assert_eq!(evicted.expect("answered"), Evicted::Evicted);
        assert_eq!(scene.held_by("a").await, [true, true, false]);
        let ended = operator.evict("a", &token, "a test").await.expect("two of three answer");
        assert_eq!(ended, Evicted::Evicted);
        assert_eq!(scene.held_by("a").await, [false, true, false]);
        assert!(guard.renew().await.is_err(), "it has no majority");
        let again = operator.evict("a", &token, "a test").await.expect("two of three answer");
        assert_eq!(again, Evicted::Changed);
    });
}

#[test]
fn an_eviction_that_every_node_refuses_changed_nothing_and_says_why() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Denied] {
        play(&[3], 0..2, async |scene| {
            let holder = scene.calm_client().await;
            let guard = holder.mutex("a").lock().await.expect("free");
            let nodes = shy(scene, [Some(kind); 3]);
            let operator = scene.client_of(scene.quorum(nodes).await, TTL).await;
            let token = operator.inspect("a").await.expect("seen").holders[0].token.clone();
            let error = operator.evict("a", &token, "a test").await.expect_err("none of three");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("nothing was changed"), "{error}");
            let error = operator.list("*").await.expect_err("none of three");
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(scene.held_by("a").await, [true; 3]);
            assert!(guard.is_held());
        });
    }
}
