//! Foreign holders. They publish nothing, so the client asks the server to announce changes of
//! their keys.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::RedisStore;
use leasehold::store::redis::{Access, Connector, Opening, RedisConnector};
use leasehold::{Client, Identity, Release};
use leasehold_testkit::protocol::{Between, Command, Onlooker};
use leasehold_testkit::servers::{RedisServer, ServerOutside};

use super::clients::{POLL, SLACK, Scene, ms, play, play_alone, play_alone_on};

/// The most changes of a key of which a waiter may be told in a second.
const TOLD_MAX: u64 = 8;

impl Scene {
    /// Takes the lock as a foreign client.
    fn hold(&self, name: &str) {
        self.tell(&["SET", name, "foreign", "NX", "PX", "60000"]);
    }

    /// The number of keys that the server tracks.
    fn tracked_keys(&self) -> u64 {
        let stats = self.server().command(&["INFO", "stats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
        line.expect("it is told").trim().parse().expect("a number")
    }

    /// The number of requests during this time.
    async fn requests_in(&self, span: Duration) -> u64 {
        let before = self.outside.requests();
        self.pass(span).await;
        self.outside.requests() - before
    }
}

/// go-zero, redsync, redis-py and others do this: `SET NX PX`, compare, `DEL`.
#[test]
fn the_release_of_a_foreign_holder_wakes_a_waiter() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
        let waiting = scene.wait(&client).await;
        scene.pass(ms(5_350)).await;
        assert_eq!(scene.server().command(&["GET", "a"]).text(), "foreign", "left alone");
        assert_eq!(scene.tracked_keys(), 1);
        let asks = scene.outside.requests();
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
        assert_eq!(scene.outside.requests() - asks, 1, "one ask");
        let guard = waiting.await;
        // A foreign client that does not compare takes the lock from us, and owns it now.
        scene.tell(&["SET", "a", "foreign", "PX", "60000"]);
        assert_eq!(guard.release().await.expect("asked"), Release::NotHeld);
        assert_eq!(scene.server().command(&["GET", "a"]).text(), "foreign", "left alone");
    });
}

#[test]
fn the_expiry_of_a_foreign_holder_is_noticed_when_it_is_due() {
    play(async |scene| {
        let client = scene.client().await;
        scene.tell(&["SET", "a", "foreign", "NX", "PX", "5350"]);
        let waiting = scene.wait(&client).await;
        let took = scene.time_of(&waiting).await;
        assert!(took >= ms(5_350) && took <= ms(5_350) + SLACK, "{took:?}");
    });
}

#[test]
fn a_foreign_holder_without_an_end_costs_one_ask_a_second_until_it_is_gone() {
    play(async |scene| {
        let client = scene.client().await;
        scene.tell(&["SET", "a", "foreign"]);
        let waiting = scene.wait(&client).await;
        let asks = scene.requests_in(ms(10_000)).await;
        assert!((9..=11).contains(&asks), "{asks} asks in 10 s");
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn one_foreign_holder_after_the_other_is_waited_for() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        for _ in 0..3 {
            scene.pass(ms(1_350)).await;
            scene.tell(&["SET", "a", "another", "PX", "60000"]);
            scene.pass(ms(0)).await;
            assert!(!waiting.is_finished());
            scene.tell(&["PEXPIRE", "a", "50000"]);
            scene.pass(ms(0)).await;
            assert!(!waiting.is_finished());
        }
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn only_the_first_waiter_is_woken_and_then_the_next() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        scene.hold("a");
        let first = scene.wait(&one).await;
        let second = scene.wait(&other).await;
        scene.pass(ms(350)).await;
        let asks = scene.outside.requests();
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&first).await, ms(0));
        assert_eq!(scene.outside.requests() - asks, 1, "the ask of the first");
        scene.tell(&["SET", "a", "another", "PX", "60000"]);
        // The waiter learns from its next ask that it is the first now.
        scene.pass(POLL).await;
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&second).await, ms(0));
    });
}

#[test]
fn a_foreign_holder_may_come_and_go_often_while_each_time_helps_a_waiter() {
    play(async |scene| {
        let client = scene.client().await;
        for _ in 0..3 * TOLD_MAX {
            scene.hold("a");
            let waiting = scene.wait(&client).await;
            scene.pass(ms(1)).await;
            scene.tell(&["DEL", "a"]);
            assert_eq!(scene.time_of(&waiting).await, ms(0));
            assert_eq!(waiting.await.release().await.expect("asked"), Release::Released);
        }
    });
}

#[test]
fn keys_of_our_own_clients_are_not_tracked() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        scene.pass(ms(3_350)).await;
        assert_eq!(scene.tracked_keys(), 0);
        drop(held);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn changes_are_told_again_after_the_connection_was_lost() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        for _ in 0..3 {
            scene.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            scene.pass(ms(300)).await;
        }
        scene.tell(&["SCRIPT", "FLUSH"]);
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn the_poll_finds_a_release_during_a_lost_connection() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        scene.pass(ms(350)).await;
        scene.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        scene.tell(&["DEL", "a"]);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
    });
}

#[test]
fn a_waiter_for_a_foreign_holder_is_woken_when_everything_is_deleted() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        scene.pass(ms(350)).await;
        scene.tell(&["FLUSHALL"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

/// Makes `app` wait for foreign holders and for ours, on a server that does not announce changes.
async fn poll_for_foreigners_alone(scene: &Scene, url: &str) {
    let (app, other) = (scene.client_of(url).await, scene.client().await);
    scene.hold("a");
    let waiting = scene.wait(&app).await;
    scene.pass(ms(350)).await;
    scene.tell(&["DEL", "a"]);
    let took = scene.time_of(&waiting).await;
    assert!(took > ms(0) && took <= POLL + SLACK, "{took:?}");
    assert_eq!(waiting.await.release().await.expect("asked"), Release::Released);
    let held = other.mutex("a").lock().await.expect("free");
    let waiting = scene.wait(&app).await;
    drop(held);
    assert_eq!(scene.time_of(&waiting).await, ms(0), "hints of ours come anyway");
}

#[test]
fn without_the_right_to_be_told_of_changes_a_waiter_polls_for_foreign_holders_alone() {
    play_alone(async |scene| {
        let rights = ["on", "nopass", "~*", "&*", "+@all", "-client"];
        scene.tell(&[["ACL", "SETUSER", "app"].as_slice(), &rights].concat());
        let url = scene.server().url().replace("//", "//app:any@");
        poll_for_foreigners_alone(scene, &url).await;
    });
}

#[test]
fn on_a_server_that_knows_no_newer_protocol_a_waiter_polls_for_foreign_holders_alone() {
    let server = RedisServer::builder().config("rename-command", "HELLO \"\"");
    play_alone_on(server, async |scene| {
        poll_for_foreigners_alone(scene, &scene.server().url()).await;
    });
}

#[test]
fn a_server_that_can_keep_one_key_in_mind_is_not_asked_without_end() {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    play_alone(async |scene| {
        scene.tell(&["CONFIG", "SET", "tracking-table-max-keys", "1"]);
        let client = scene.client().await;
        let waiting = KEYS.map(|name| {
            scene.hold(name);
            let mutex = client.mutex(name);
            scene.host.task(async move { mutex.lock().await.expect("in the end") })
        });
        scene.pass(ms(1_000)).await;
        let requests = scene.requests_in(ms(10_000)).await;
        let most = 10 * KEYS.len() as u64 * (TOLD_MAX + 2);
        assert!(requests <= most, "{requests} requests in 10 s");
        for (name, waiting) in KEYS.iter().zip(waiting) {
            scene.tell(&["DEL", name]);
            assert!(scene.time_of(&waiting).await <= POLL + SLACK);
        }
    });
}

#[test]
fn a_foreign_holder_that_renews_all_the_time_wakes_nobody_all_the_time() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        let asks = scene.outside.requests();
        for _ in 0..300 {
            scene.tell(&["PEXPIRE", "a", "60000"]);
            scene.pass(ms(10)).await;
        }
        let asks = scene.outside.requests() - asks;
        assert!(asks <= 4 * (TOLD_MAX + 2), "{asks} asks in 3 s");
        scene.tell(&["DEL", "a"]);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
        // In quiet times changes are announced again.
        assert_eq!(waiting.await.release().await.expect("asked"), Release::Released);
        scene.hold("a");
        let waiting = scene.wait(&client).await;
        scene.pass(ms(2_350)).await;
        scene.tell(&["DEL", "a"]);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn changes_of_a_key_that_nobody_waits_for_any_more_are_harmless() {
    play(async |scene| {
        let client = scene.client().await;
        scene.hold("a");
        let mutex = client.mutex("a");
        let waits = scene.host.task(async move { mutex.lock_timeout(ms(350)).await });
        assert_eq!(scene.time_of(&waits).await, ms(350));
        assert!(waits.await.is_err());
        scene.pass(ms(10)).await;
        let asks = scene.outside.requests();
        for command in [["SET", "a", "x"], ["SET", "a", "y"], ["RENAME", "a", "b"]] {
            scene.tell(&command);
            scene.pass(ms(10)).await;
        }
        assert_eq!(scene.outside.requests(), asks);
        assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// Connections to a server. A foreign holder releases its lock just before this client asks to be
/// told of the release.
struct JustReleased {
    connector: RedisConnector,
    outside: Arc<ServerOutside>,
}

impl Connector for JustReleased {
    fn open(&self) -> Opening {
        let (opening, outside) = (self.connector.open(), Arc::clone(&self.outside));
        Box::pin(async move { Ok(Between::over(opening.await?, ReleasedFirst { outside })) })
    }

    fn label(&self) -> String {
        self.connector.label()
    }

    fn access(&self) -> Access {
        self.connector.access()
    }
}

struct ReleasedFirst {
    outside: Arc<ServerOutside>,
}

impl Onlooker for ReleasedFirst {
    fn leaves(&mut self, request: Command) -> Command {
        // This reads the key, so the server tells of changes from here on.
        if request == Command::of(&["EXISTS", "a"]) {
            self.outside.server().command(&["DEL", "a"]);
        }
        request
    }
}

/// The server then reports no change of the key, because the change came before.
#[test]
fn a_foreign_holder_that_releases_before_its_key_is_tracked_is_not_waited_for() {
    play(async |scene| {
        let connector = RedisConnector::new(&scene.server().url()).expect("a URL");
        let connector = JustReleased { connector, outside: Arc::clone(&scene.outside) };
        let connector = scene.outside.watch(connector);
        let store = RedisStore::connect_with(connector, scene.host.clone()).await;
        let builder = Client::with_store(store.expect("the server is there"));
        let builder = builder.host(scene.host.clone()).identity(Identity::anonymous());
        let client = builder.connect().await.expect("connected");
        scene.hold("a");
        let mutex = client.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}
