//! Strict servers. A server that may have forgotten its grants grants nothing new until they have
//! expired. The times are those of production, on the clock of the test.

use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::redis::RedisConnector;
use leasehold::store::{
    Acquired, AnyStore, Claim, Evicted, Quarantine, Quorum, RedisStore, Released,
};
use leasehold::{Client, Error, ErrorKind, Identity, Key, Lost, Release};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{
    granted, lost, quarantined, refused, released, renewed, taken,
};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::faults::{Fault, Faults, Request};
use leasehold_testkit::servers::{RedisServer, ServerOutside};

use crate::stores::{redis_by, redis_on, run_id};

/// The times that GUARANTEES.md promises for `strict=yes`: 60 s and 65 s.
const TTL_MAX_MS: u64 = 60_000;
pub(super) const QUARANTINE: Duration = Duration::from_secs(65);

const STRICT: &str = "/0?strict=yes";

pub(super) struct Scene {
    pub(super) world: World,
    pub(super) outside: Arc<ServerOutside>,
}

impl Scene {
    pub(super) fn server(&self) -> &RedisServer {
        self.outside.server()
    }

    /// Asks until the connections that a restart has ended are made again. Returns the answer.
    async fn ask(&self, actor: &Actor, key: &Key) -> Acquired {
        for _ in 0..10 {
            match actor.ask(key).ttl(TTL_MAX_MS).send().await {
                Ok(answer) => return answer,
                Err(error) => assert_ne!(error.kind(), ErrorKind::Config, "{error}"),
            }
            self.world.pass(ms(600)).await;
        }
        panic!("the server is there again, and does not answer");
    }

    /// Like [`ask`](Self::ask), and asserts that the answer is a quarantine.
    pub(super) async fn assert_quarantined(&self, actor: &Actor, key: &Key) -> Quarantine {
        quarantined(Ok(self.ask(actor, key).await))
    }

    /// Asserts that no key of `keys` is granted before the quarantine is over, and each one after
    /// it.
    pub(super) async fn assert_quarantined_to_its_end(&self, keys: &[&str]) {
        let first = self.assert_quarantined(&self.world.actor(), &key(keys[0])).await;
        let end = self.world.now() + first.left;
        while self.world.now() + ms(1_000) < end {
            for name in keys {
                let quarantine = self.assert_quarantined(&self.world.actor(), &key(name)).await;
                let left = quarantine.left;
                let expected = end.since(self.world.now());
                assert!(left.abs_diff(expected) <= ms(1), "it does not begin anew: {left:?}");
                assert_eq!(quarantine.since, Some(QUARANTINE - left));
            }
            self.world.pass(ms(8_000).min(end.since(self.world.now()) - ms(1_000))).await;
        }
        self.world.pass_until(end + ms(1)).await;
        for name in keys {
            granted(self.world.actor().ask(&key(name)).send().await);
        }
    }
}

/// A server that has been strict for long.
pub(super) fn play(test: impl AsyncFnOnce(&Scene)) {
    play_on(RedisServer::builder(), async |scene| {
        let epoch = run_id(scene.server());
        scene.server().command(&["HSET", ":lh:epoch", "run", &epoch]);
        test(scene).await;
    });
}

pub(super) fn play_on(
    server: leasehold_testkit::servers::RedisServerBuilder,
    test: impl AsyncFnOnce(&Scene),
) {
    let outside = ServerOutside::new(Box::new(server.with_clock().start()));
    let host = VirtualHost::new(1);
    let opener = redis_by(&outside, &host, STRICT);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        test(&Scene { world, outside: outside.clone() }).await;
    });
    host.drop_tasks();
}

#[test]
fn a_server_that_restarts_empty_lets_nobody_in_before_what_it_forgot_has_run_out() {
    play(async |scene| {
        let anna = scene.world.actor();
        let before = granted(anna.ask(&key("a")).ttl(TTL_MAX_MS).send().await);
        scene.server().restart();
        scene.assert_quarantined_to_its_end(&["a", "b"]).await;
        lost(renew(scene, &anna, "a").await);
        // Fencing tokens still rise after the loss.
        let after = granted(scene.world.actor().ask(&key("c")).send().await);
        assert!(after.expect("it has one").first > before.expect("it has one").first);
    });
}

#[test]
fn flushall_is_noticed_and_so_is_the_loss_of_one_database() {
    for command in ["FLUSHALL", "FLUSHDB"] {
        play(async |scene| {
            let anna = scene.world.actor();
            granted(anna.ask(&key("a")).ttl(TTL_MAX_MS).send().await);
            scene.server().command(&[command]);
            // A renewal does not repair the server.
            lost(anna.renew(&key("a"), TTL_MAX_MS).await);
            scene.assert_quarantined_to_its_end(&["a"]).await;
        });
    }
}

#[test]
fn a_second_loss_begins_a_quarantine_of_its_own() {
    play(async |scene| {
        scene.server().flush();
        scene.assert_quarantined(&scene.world.actor(), &key("a")).await;
        scene.world.pass(QUARANTINE - ms(1)).await;
        scene.server().restart();
        scene.assert_quarantined_to_its_end(&["a"]).await;
    });
}

/// This holds even over the connection that already inspected the key, and during a quarantine.
#[test]
fn a_look_sees_that_the_next_ask_will_begin_a_quarantine() {
    play(async |scene| {
        let (anna, ahead) = (scene.world.actor(), Quarantine::new(None, QUARANTINE));
        granted(anna.ask(&key("a")).send().await);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, None);
        scene.server().flush();
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(ahead));
        scene.assert_quarantined(&anna, &key("a")).await;
        scene.world.pass(ms(20_000)).await;
        scene.server().command(&["HSET", ":lh:epoch", "run", "another process"]);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(ahead));
        scene.assert_quarantined_to_its_end(&["a"]).await;
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, None);
    });
}

/// Leases in the old data are still valid. Any other key may have a holder.
#[test]
fn with_old_data_holders_go_on_and_nobody_new_is_let_in() {
    play(async |scene| {
        let (anna, bert) = (scene.world.actor(), scene.world.actor());
        granted(anna.ask(&key("a")).ttl(TTL_MAX_MS).send().await);
        scene.server().command(&["SAVE"]);
        granted(bert.ask(&key("b")).ttl(TTL_MAX_MS).send().await);
        scene.server().restart();
        let carl = scene.world.actor();
        scene.assert_quarantined(&carl, &key("b")).await;
        // Repeated asks of the holder, renewals and releases still work.
        granted(Ok(scene.ask(&anna, &key("a")).await));
        renewed(renew(scene, &anna, "a").await);
        taken(Ok(scene.ask(&carl, &key("a")).await));
        lost(renew(scene, &bert, "b").await);
        released(anna.release(&key("a")).await, Released::Freed);
        scene.assert_quarantined_to_its_end(&["a", "b"]).await;
    });
}

/// Renews over the separate connection for renewals, which a restart ends too.
async fn renew(
    scene: &Scene,
    actor: &Actor,
    name: &str,
) -> Result<leasehold::store::Renewed, Error> {
    for _ in 0..10 {
        match actor.renew(&key(name), TTL_MAX_MS).await {
            Err(error) if error.kind() != ErrorKind::Config => scene.world.pass(ms(100)).await,
            answer => return answer,
        }
    }
    panic!("the server is there again, and does not answer");
}

/// An operator may end the quarantine if it is certain that there are no holders.
#[test]
fn a_new_server_begins_with_a_quarantine_that_can_be_ended_by_hand() {
    play_on(RedisServer::builder(), async |scene| {
        let anna = scene.world.actor();
        let ahead = Quarantine::new(None, QUARANTINE);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(ahead));
        let quarantine = scene.assert_quarantined(&anna, &key("a")).await;
        let whole = Quarantine::new(Some(Duration::ZERO), QUARANTINE);
        assert_eq!(quarantine, whole);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(whole));
        scene.server().command(&["HDEL", ":lh:epoch", "until"]);
        granted(anna.ask(&key("a")).send().await);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, None);
    });
}

#[test]
fn a_lock_with_nothing_beside_it_is_asked_for_strictly_too() {
    play(async |scene| {
        let (anna, bert) = (scene.world.actor(), scene.world.actor());
        let ask = |actor: &Actor| actor.ask(&key("a")).claim(Claim::Plain).reserve(0).send();
        for _ in 0..3 {
            granted(ask(&anna).await);
            granted(ask(&anna).await);
            taken(ask(&bert).await);
            released(anna.release_as(&key("a"), Claim::Plain).await, Released::Freed);
        }
        granted(ask(&anna).await);
        scene.server().flush();
        quarantined(ask(&bert).await);
    });
}

#[test]
fn a_strict_ask_is_one_request() {
    play(async |scene| {
        let anna = scene.world.actor();
        for _ in 0..3 {
            let before = scene.outside.requests();
            granted(anna.ask(&key("a")).send().await);
            assert_eq!(scene.outside.requests() - before, 1);
            released(anna.release(&key("a")).await, Released::Freed);
            assert_eq!(scene.outside.requests() - before, 2);
        }
    });
}

#[test]
fn a_ttl_that_outlives_the_quarantine_is_refused_before_anything_is_asked() {
    play(async |scene| {
        let anna = scene.world.actor();
        granted(anna.ask(&key("a")).ttl(TTL_MAX_MS).send().await);
        renewed(anna.renew(&key("a"), TTL_MAX_MS).await);
        let before = scene.outside.requests();
        for claim in [Claim::Exclusive, Claim::Plain] {
            let ask = anna.ask(&key("b")).claim(claim).reserve(0);
            refused(ask.ttl(TTL_MAX_MS + 1).send().await, ErrorKind::Config);
        }
        refused(anna.renew(&key("a"), TTL_MAX_MS + 1).await, ErrorKind::Config);
        let heir = anna.another();
        refused(anna.keep_for(&heir, &key("a"), TTL_MAX_MS + 1, 0).await, ErrorKind::Config);
        assert_eq!(scene.outside.requests(), before);
        // The lock delay counts, since the server keeps the key for that time too.
        let builder = Client::with_store(scene.world.store().clone()).ttl(ms(60_000));
        let builder = builder.lock_delay(ms(1)).host(scene.world.host().clone());
        let client = builder.identity(Identity::anonymous()).connect().await.expect("connected");
        let error = client.mutex("c").try_lock().await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    });
}

async fn client(host: &Arc<VirtualHost>, store: AnyStore, ttl_ms: u64) -> Client {
    let builder = Client::with_store(store).host(host.clone()).ttl(ms(ttl_ms));
    builder.identity(Identity::anonymous()).connect().await.expect("connected")
}

#[test]
fn a_waiter_is_told_of_a_quarantine_and_then_gets_the_lock() {
    play(async |scene| {
        let host = scene.world.host();
        let client = client(host, scene.world.open_store().await, 10_000).await;
        scene.server().flush();
        // The answer must not be *taken*: the caller would conclude that another client does the
        // work.
        for mutex in [client.mutex("a"), client.mutex("a").unqueued().fencing(false)] {
            let error = mutex.try_lock().await.expect_err("quarantined");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("no new locks for 65 s more"), "{error}");
        }
        let error = client.mutex("a").lock_timeout(ms(5_000)).await.expect_err("quarantined");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        let text = error.to_string();
        // The message has the state at the last ask, which was up to a second ago, or in this
        // millisecond.
        let as_of = [(4, 61), (5, 60)].map(|(since, left)| {
            format!(
                "the store is new, was restarted, or forgot its data (noticed {since} s ago); no \
                 new locks for {left} s more"
            )
        });
        assert!(as_of.iter().any(|told| text.contains(told)), "{text}");
        let begun = host.now();
        let guard = client.mutex("a").lock().await.expect("it ends");
        let waited = host.now().since(begun);
        assert!(
            waited >= Duration::from_secs(60) && waited < Duration::from_secs(61),
            "{waited:?}"
        );
        assert_eq!(guard.release().await.expect("answered"), Release::Released);
    });
}

/// `Unavailable` would say that no grant remains.
#[test]
fn a_try_in_a_quarantine_is_unknown_if_an_earlier_request_got_no_answer() {
    play(async |scene| {
        let host = scene.world.host();
        let faults = Faults::new(host.clone());
        let store = AnyStore::new(faults.decorate(scene.world.open_store().await));
        let client = client(host, store, 10_000).await;
        scene.server().flush();
        faults.next(Request::Acquire, Fault::LoseReply);
        let error = client.mutex("a").try_lock().await.expect_err("quarantined");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        let text = error.to_string();
        assert!(text.contains("no new locks for") && text.contains("got no answer"), "{text}");
    });
}

/// A hand-over is a grant, and only an ask checks whether the server has forgotten.
#[test]
fn nothing_is_handed_over_to_any_waiter() {
    play_on(RedisServer::builder(), async |scene| {
        // This store was opened before the database was strict.
        let loose = redis_on(&scene.outside, scene.world.host())().await;
        let epoch = run_id(scene.server());
        scene.server().command(&["HSET", ":lh:epoch", "run", &epoch]);
        let (anna, bert) = (scene.world.actor(), scene.world.actor());
        let joined = |name: &'static str| {
            let waiter = scene.world.actor().through(&loose);
            async move { taken(waiter.ask(&key(name)).join().send().await) }
        };
        // Play a release, a release that would keep the lease, an eviction, and an ask.
        granted(anna.ask(&key("a")).send().await);
        joined("a").await;
        released(anna.release(&key("a")).await, Released::Freed);
        granted(anna.ask(&key("b")).send().await);
        joined("b").await;
        released(anna.keep_for(&anna.another(), &key("b"), 10_000, 1).await, Released::Freed);
        granted(anna.ask(&key("c")).send().await);
        joined("c").await;
        let seen = anna.owner().as_str().as_bytes().to_vec();
        let evicted = scene.world.browse().evict(key("c"), seen, "why".to_owned()).await;
        assert_eq!(evicted.expect("answered"), Evicted::Evicted);
        for name in ["a", "b", "c"] {
            assert_eq!(scene.world.inspect(&key(name)).await.holders, [], "{name}");
            granted(bert.ask(&key(name)).send().await);
        }
        let join = bert.ask(&key("d")).join().send().await;
        refused(join, ErrorKind::Unsupported);
    });
}

#[test]
fn without_the_rights_a_strict_store_says_so_and_grants_nothing() {
    const LOCK: &str = "+eval +evalsha +get +set +del +exists +incr +incrby +decr +pexpire +pttl \
                        +time +hset +hget +hmget +zrank +zcard ~app:* ~{app:*";
    const STRICTLY: &str = "+info +hdel ~:lh:epoch";
    play(async |scene| {
        let connect = async |rights: &str| {
            let words = ["ACL", "SETUSER", "app", "reset", "on", "nopass"];
            let words: Vec<_> = words.into_iter().chain(rights.split_whitespace()).collect();
            scene.server().command(&words);
            let url = scene.server().url().replace("//", "//app:any@") + STRICT;
            let connector = scene.outside.watch(RedisConnector::new(&url).expect("a URL"));
            let store = RedisStore::connect_with(connector, scene.world.host().clone()).await;
            store.map(AnyStore::new)
        };
        let store = connect(&format!("{LOCK} {STRICTLY}")).await.expect("it may connect");
        let anna = scene.world.actor().through(&store);
        granted(anna.ask(&key("app:a")).send().await);
        let denied = connect(LOCK).await.expect_err("it has no right to ask for the process id");
        assert_eq!(denied.kind(), ErrorKind::Denied);
        assert!(denied.to_string().contains("`+info`"), "{denied}");
        // The first ask after a quarantine removes its end.
        scene.server().command(&["HSET", ":lh:epoch", "until", "1"]);
        for right in ["+hdel", "~:lh:epoch"] {
            let rights = format!("{LOCK} {}", STRICTLY.replace(right, ""));
            let store = connect(&rights).await.expect("it may connect");
            let answer = scene.world.actor().through(&store).ask(&key("app:b")).send().await;
            refused(answer, ErrorKind::Denied);
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");
        let guarantees = std::fs::read_to_string(path).expect("the page is there");
        assert!(guarantees.contains(&format!("`{STRICTLY}`")), "it is not documented");
    });
}

/// The reason for quarantines: see *What breaks it: amnesia* in GUARANTEES.md.
#[test]
fn a_quorum_outlives_a_node_that_forgot_while_another_was_away() {
    let host = VirtualHost::new(1);
    let servers: [_; 3] = std::array::from_fn(|_| {
        ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()))
    });
    host.run(async {
        let open = async || {
            let mut nodes: Vec<AnyStore> = Vec::new();
            for server in &servers {
                nodes.push(redis_by(server, &host, STRICT)().await);
            }
            let quorum = Quorum::connect(nodes, host.clone() as Arc<dyn leasehold::host::Host>);
            client(&host, AnyStore::new(quorum.await.expect("all are there")), 60_000).await
        };
        for server in &servers {
            let epoch = run_id(server.server());
            server.server().command(&["HSET", ":lh:epoch", "run", &epoch]);
        }
        let (anna, bert) = (open().await, open().await);
        // This is as if two nodes had granted the lock while the third was unreachable. Then one of
        // the two forgets, and the third comes back.
        let guard = anna.mutex("a").lock().await.expect("free");
        // Two of three nodes are enough, so the third may still be carrying the request out.
        host.settle().await;
        servers[2].server().command(&["DEL", "a"]);
        servers[1].server().flush();
        for _ in 0..5 {
            assert!(bert.mutex("a").try_lock().await.expect("asked").is_none());
            host.advance(ms(1_000)).await;
            assert!(guard.is_held());
        }
        let seen = bert.inspect("a").await.expect("answered");
        let why = seen.votes[1].holder.as_ref().expect_err("it is quarantined");
        assert!(why.contains("no new locks for"), "{why}");
        assert_eq!(seen.quarantine, None, "the others are a majority");
        // The other nodes go on. Only locks without a majority among them have to wait.
        let other = bert.mutex("b").lock().await.expect("a majority of the others");
        assert_eq!(other.release().await.expect("answered"), Release::Released);
        // One node of three still has the lease, and the renewal finds that out. Then another
        // client gets the lock from two nodes.
        assert_eq!(guard.lost().await, Lost::NotOurs);
        let guard = bert.mutex("a").lock().await.expect("a majority of the others");
        let token = Ok(Some(guard.token().as_str().as_bytes().to_vec()));
        let shows = async || {
            let seen = bert.inspect("a").await.expect("answered");
            seen.votes.iter().map(|vote| vote.holder == token).collect::<Vec<_>>()
        };
        assert_eq!(shows().await, [true, false, true]);
        // A renewal restores the lease at the node without it, but only after the quarantine.
        guard.renew().await.expect("a majority has it");
        host.settle().await;
        assert_eq!(shows().await, [true, false, true]);
        host.advance(QUARANTINE + ms(20_000)).await;
        assert!(guard.is_held());
        assert_eq!(shows().await, [true, true, true]);
        assert_eq!(guard.release().await.expect("answered"), Release::Released);
    });
    host.drop_tasks();
}
