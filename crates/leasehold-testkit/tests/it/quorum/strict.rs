//! A quorum of strict servers that forgot their grants. It grants nothing, and every error gives
//! the reason.

use std::sync::Arc;

use leasehold::host::Host as _;
use leasehold::store::{AnyStore, Store as _};
use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, Request};
use leasehold_testkit::servers::{RedisServer, ServerOutside};

use super::{TTL, key, ms};
use crate::stores::{redis_by, run_id};

/// Three strict servers. Some have been strict for long, and the others are new.
struct Scene {
    host: Arc<VirtualHost>,
    servers: [Arc<ServerOutside>; 3],
    faults: [Faults; 3],
}

impl Scene {
    fn play(old: usize, test: impl AsyncFnOnce(&Self)) {
        let host = VirtualHost::new(1);
        let start = || ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
        let servers = std::array::from_fn(|_| start());
        let faults = std::array::from_fn(|_| Faults::new(host.clone()));
        let scene = Self { host, servers, faults };
        for server in &scene.servers[..old] {
            let epoch = run_id(server.server());
            server.server().command(&["HSET", ":lh:epoch", "run", &epoch]);
        }
        scene.host.run(test(&scene));
        scene.host.drop_tasks();
    }

    async fn node(&self, number: usize) -> AnyStore {
        redis_by(&self.servers[number], &self.host, "/0?strict=yes")().await
    }

    async fn client(&self) -> Client {
        let mut nodes = Vec::new();
        for (number, faults) in self.faults.iter().enumerate() {
            nodes.push(AnyStore::new(faults.decorate(self.node(number).await)));
        }
        let host: Arc<dyn leasehold::host::Host> = self.host.clone();
        let quorum = leasehold::store::Quorum::connect(nodes, host).await;
        let builder = Client::with_store(quorum.expect("all are there")).host(self.host.clone());
        let builder = builder.identity(leasehold::Identity::anonymous()).ttl(TTL);
        builder.connect().await.expect("connected")
    }

    async fn assert_nothing_is_left(&self, number: usize) {
        self.host.settle().await;
        let seen = self.node(number).await.inspect(key("a")).await.expect("answered");
        assert_eq!((seen.holders, seen.waiting), (Vec::new(), 0));
    }
}

#[test]
fn a_waiter_is_told_that_the_nodes_are_new_and_gets_the_lock_in_the_end() {
    Scene::play(0, async |scene| {
        let client = scene.client().await;
        let error = client.mutex("a").lock_timeout(ms(4_500)).await.expect_err("quarantined");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        let text = error.to_string();
        assert!(text.contains("no new locks for 61 s more"), "{text}");
        let begun = scene.host.now();
        let guard = client.mutex("a").lock().await.expect("it ends");
        let waited = scene.host.now().since(begun);
        assert!(waited >= ms(60_000) && waited < ms(61_000), "{waited:?}");
        assert_eq!(guard.release().await.expect("answered"), Release::Released);
    });
}

#[test]
fn a_grant_of_one_node_is_given_back_while_the_others_are_quarantined() {
    Scene::play(1, async |scene| {
        let client = scene.client().await;
        let error = client.mutex("a").lock_timeout(ms(5_000)).await.expect_err("quarantined");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        assert!(error.to_string().contains("no new locks for"), "{error}");
        scene.assert_nothing_is_left(0).await;
        // A waiter gets the lock as soon as the quarantine of one server ends.
        let waiting = scene.host.task(async move { client.mutex("a").lock().await });
        scene.host.advance(ms(1_500)).await;
        scene.servers[2].server().command(&["HDEL", ":lh:epoch", "until"]);
        let guard = waiting.await.expect("two of three");
        assert_eq!(guard.release().await.expect("answered"), Release::Released);
    });
}

#[test]
fn with_one_down_the_one_that_is_quarantined_is_what_is_missing() {
    Scene::play(2, async |scene| {
        let client = scene.client().await;
        scene.faults[0].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").lock_timeout(ms(5_000)).await.expect_err("one of three");
        assert!(error.to_string().contains("no new locks for"), "{error}");
        let error = client.mutex("a").try_lock().await.expect_err("one of three");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("no new locks for"), "{error}");
        scene.assert_nothing_is_left(1).await;
        // With two servers down, waiting does not help.
        scene.faults[1].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").lock().await.expect_err("none of three");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("0 of 3 nodes granted"), "{text}");
        assert!(text.contains("no new locks for"), "each node is named with its reason: {text}");
    });
}

/// The servers are switched one by one, and the URLs say nothing.
#[test]
fn a_node_that_is_not_as_strict_as_those_that_vote_gets_no_vote() {
    Scene::play(3, async |scene| {
        let connect = async || {
            let mut nodes = Vec::new();
            for (server, faults) in scene.servers.iter().zip(&scene.faults) {
                let node = redis_by(server, &scene.host, "")().await;
                nodes.push(AnyStore::new(faults.decorate(node)));
            }
            let host: Arc<dyn leasehold::host::Host> = scene.host.clone();
            leasehold::store::Quorum::connect(nodes, host).await
        };
        let switch = |number: usize| {
            let record = ["HSET", ":lh:epoch", "switch", "on 1 anna@web-3 "];
            scene.servers[number].server().command(&record);
        };
        let is_refused = async || {
            let error = connect().await.expect_err("a mix");
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            let text = error.to_string();
            assert!(text.contains("all nodes of a quorum must agree"), "{text}");
        };
        connect().await.expect("none is strict");
        switch(0);
        is_refused().await;
        switch(1);
        is_refused().await;
        // A node that is found later never votes.
        scene.faults[2].all_from_now_on(Fault::Refuse);
        let quorum = connect().await.expect("two of three, both strict");
        let builder = Client::with_store(quorum).host(scene.host.clone()).ttl(TTL);
        let client = builder.identity(leasehold::Identity::anonymous()).connect().await;
        let client = client.expect("connected");
        scene.faults[2].end_outage();
        for _ in 0..3 {
            let guard = client.mutex("a").lock().await.expect("two of three");
            assert_eq!(guard.release().await.expect("answered"), Release::Released);
            scene.host.advance(ms(1_100)).await;
        }
        scene.faults[1].all_from_now_on(Fault::Refuse);
        let error = client.mutex("a").try_lock().await.expect_err("one of three");
        assert!(error.to_string().contains("it is not strict, and"), "{error}");
        switch(2);
        scene.faults[1].end_outage();
        connect().await.expect("all are strict");
    });
}

/// No strict node keeps a lease for so long, so such a lock would be free after one ttl.
#[test]
fn a_lock_that_is_to_stay_taken_is_refused_before_any_node_is_asked() {
    Scene::play(3, async |scene| {
        let client = scene.client().await;
        let asks = || scene.faults.each_ref().map(|faults| faults.count(Request::Acquire));
        let (before, period) = (asks(), ms(600_000));
        let kept = client.mutex("mail").min_hold(period);
        for refused in [
            client.once("report", period).start().await.map(drop).expect_err("all are strict"),
            kept.try_lock().await.map(drop).expect_err("all are strict"),
            kept.lock().await.map(drop).expect_err("all are strict"),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        }
        assert_eq!(asks(), before);
        assert_eq!(client.capabilities().strict, Some(true));
    });
}
