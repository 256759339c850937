//! Clients on a real server that keeps virtual time: waiting, hints, and reconnecting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::RedisStore;
use leasehold::store::redis::RedisConnector;
use leasehold::{Client, Coexist, Guard, Identity, Release};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::servers::{RedisServer, RedisServerBuilder, ServerOutside, pool};

use crate::on_event::OnEvent;

/// The longest time between two asks of a waiter.
pub(super) const POLL: Duration = Duration::from_secs(1);
pub(super) const SLACK: Duration = ms(100);
/// The longest time between two renewals. It is a third of the ttl, and a thirtieth so that several
/// leases are renewed in one round.
const RENEWED: Duration = ms(3_334 + 334);

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) struct Scene {
    pub(super) host: Arc<VirtualHost>,
    pub(super) outside: Arc<ServerOutside>,
}

impl Scene {
    pub(super) async fn client(&self) -> Client {
        self.client_of(&self.server().url()).await
    }

    /// A client as in its own process, with a ttl of 10 s.
    pub(super) async fn client_of(&self, url: &str) -> Client {
        self.connect(url, Identity::anonymous()).await
    }

    async fn client_that_is(&self, who: Identity) -> Client {
        self.connect(&self.server().url(), who).await
    }

    async fn connect(&self, url: &str, who: Identity) -> Client {
        let connector = self.outside.watch(RedisConnector::new(url).expect("a URL"));
        let store = RedisStore::connect_with(connector, self.host.clone()).await;
        let builder = Client::with_store(store.expect("the server is there"));
        let builder = builder.host(self.host.clone()).identity(who);
        builder.connect().await.expect("connected")
    }

    pub(super) fn server(&self) -> &RedisServer {
        self.outside.server()
    }

    pub(super) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }

    /// Makes `client` wait for the lock, and returns when all tasks are idle.
    pub(super) async fn wait(
        &self,
        client: &Client,
    ) -> leasehold_testkit::virtual_host::Joined<Guard> {
        let mutex = client.mutex("a");
        let waiting = self.host.task(async move { mutex.lock().await.expect("in the end") });
        self.host.settle().await;
        assert!(!waiting.is_finished());
        waiting
    }

    /// The time until `waiting` has ended, checked every millisecond.
    pub(super) async fn time_of<T>(
        &self,
        waiting: &leasehold_testkit::virtual_host::Joined<T>,
    ) -> Duration {
        let began = self.host.now();
        self.host.settle().await;
        while !waiting.is_finished() {
            self.pass(ms(1)).await;
        }
        self.host.now().since(began)
    }

    pub(super) fn tell(&self, words: &[&str]) {
        self.server().command(words);
    }
}

fn play_on(outside: Arc<ServerOutside>, seed: u64, scene: impl AsyncFnOnce(&Scene)) {
    let host = VirtualHost::new(seed);
    host.attach(outside.clone());
    let scene_of = Scene { host: host.clone(), outside };
    host.run(scene(&scene_of));
    drop(scene_of);
    host.drop_tasks();
}

pub(super) fn play(scene: impl AsyncFn(&Scene)) {
    for seed in 0..5 {
        play_on(ServerOutside::new(pool::lend()), seed, &scene);
    }
}

/// Plays on a separate server, for commands that a pooled server must not get.
pub(super) fn play_alone(scene: impl AsyncFnOnce(&Scene)) {
    play_alone_on(RedisServer::builder(), scene);
}

pub(super) fn play_alone_on(server: RedisServerBuilder, scene: impl AsyncFnOnce(&Scene)) {
    play_on(ServerOutside::new(Box::new(server.with_clock().start())), 1, scene);
}

#[test]
fn a_waiter_of_another_process_is_woken_by_the_release_and_not_by_its_poll() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        scene.pass(ms(1_350)).await;
        assert!(!waiting.is_finished());
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
    });
}

#[test]
fn a_lost_hint_costs_one_poll_at_most() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        scene.pass(ms(350)).await;
        // From now on, hints reach nobody until the connection is made again.
        scene.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
    });
}

#[test]
fn hints_come_again_after_their_connection_was_lost() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        for _ in 0..3 {
            scene.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            scene.pass(ms(300)).await;
        }
        let asks = scene.outside.requests();
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
        assert!(scene.outside.requests() <= asks + 2, "the release, and one ask");
    });
}

/// A client that must give up its lease for another client does not pass it on to its own tasks.
/// Its release asks the server, and so reports the loss, although one of its tasks waits too.
#[test]
fn a_release_says_that_the_server_has_forgotten_the_lease_also_where_tasks_queue() {
    play_alone(async |scene| {
        for coexists in [false, true] {
            let (one, other) = (scene.client().await, scene.client().await);
            let mutex = |client: &Client| match coexists {
                true => client.mutex("a").coexist(Coexist::On),
                false => client.mutex("a"),
            };
            let held = mutex(&one).lock().await.expect("free");
            let next = [mutex(&one), mutex(&other)].map(|mutex| {
                scene.host.task(async move { mutex.lock().await.expect("in the end") })
            });
            // Wait for as long as a client may pass its lease on while another client waits.
            scene.pass(ms(100)).await;
            scene.tell(&["FLUSHALL"]);
            assert_eq!(held.release().await.expect("asked"), Release::NotHeld, "{coexists}");
            scene.pass(ms(2_000)).await;
            let finished = next.iter().filter(|waiting| waiting.is_finished()).count();
            assert_eq!(finished, 1, "one of them has it");
            drop((next, one, other));
            scene.pass(ms(20_000)).await;
            scene.tell(&["FLUSHALL"]);
        }
    });
}

#[test]
fn the_holder_of_a_lock_is_known_again_after_the_server_lost_its_data() {
    play_alone(async |scene| {
        let client = scene.client_that_is(Identity::process()).await;
        let held = client.mutex("a").lock().await.expect("free");
        scene.tell(&["FLUSHALL"]);
        scene.pass(ms(20_000)).await;
        assert!(!held.is_held(), "its renewal found nothing");
        let _again = client.mutex("a").lock().await.expect("free");
        let seen = client.inspect("a").await.expect("answered");
        assert!(seen.holders[0].client.is_some(), "it is written again");
    });
}

/// Anybody who may publish can send hints. A client that knows a waiter's token can deceive the
/// waiter, which believes a hand-over with its token if it names one of its asks.
#[test]
fn forged_late_and_doubled_hints_are_harmless() {
    play(async |scene| {
        let (one, other) = (scene.client().await, scene.client().await);
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&other).await;
        let channels = scene.server().command(&["PUBSUB", "CHANNELS", ":lh:inbox:*"]).texts();
        let [inbox] = channels.as_slice() else { panic!("{channels:?}") };
        let ours = held.token().as_str();
        let waits = scene.server().command(&["ZRANGE", "{a}:lh:line", "0", "-1"]).texts();
        let made_up = [
            format!("g 99 9007199254740991 1 {} a", waits[0]),
            format!("g 0 7 1 {} a", waits[0]),
            format!("g 1 7 1 {} b", waits[0]),
            format!("g 1 7 1 {}x a", &waits[0][..34]),
            format!("g 1 7 1 {ours} a"),
            format!("g 1 0 0 {ours} b"),
            "f a".to_owned(),
            "w a".to_owned(),
            "f nobody waits for this".to_owned(),
            "g 1 7 1 x".to_owned(),
            "\u{1b}[31m".to_owned(),
            String::new(),
        ];
        for payload in made_up.iter().chain(&made_up) {
            scene.tell(&["PUBLISH", inbox, payload]);
            scene.pass(ms(20)).await;
            assert!(!waiting.is_finished(), "`{payload}` gave the lock away");
            assert!(held.is_held());
        }
        scene.pass(ms(20_000)).await;
        assert!(held.is_held() && !waiting.is_finished());
        drop(held);
        assert_eq!(scene.time_of(&waiting).await, ms(0));
        assert!(waiting.await.is_held());
    });
}

#[test]
fn without_the_right_to_listen_a_waiter_polls_and_does_not_insist() {
    play_alone(async |scene| {
        let rights = ["on", "nopass", "~*", "resetchannels", "+@all"];
        scene.tell(&[["ACL", "SETUSER", "deaf"].as_slice(), &rights].concat());
        let deaf = scene.client_of(&scene.server().url().replace("//", "//deaf:any@")).await;
        let one = scene.client().await;
        let held = one.mutex("a").lock().await.expect("free");
        let waiting = scene.wait(&deaf).await;
        let subscribes = || {
            let stats = scene.server().command(&["INFO", "commandstats"]).text();
            let line = stats.lines().find(|line| line.starts_with("cmdstat_subscribe:"));
            line.expect("it was tried").to_owned()
        };
        let at_first = subscribes();
        assert!(at_first.contains("calls=0,"), "allowed: {at_first}");
        scene.pass(ms(20_000)).await;
        assert_eq!(subscribes(), at_first, "tried again");
        assert_eq!(held.release().await.expect("asked"), Release::Released);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
    });
}

#[test]
fn a_missing_right_to_listen_is_reported_once_over_all_tries() {
    play_alone(async |scene| {
        let warnings = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&warnings);
        let counting = OnEvent::warning(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        // Set the subscriber on the thread that reads hints, which ends with the host.
        scene.host.spawn_io(Box::pin(async move {
            std::mem::forget(tracing::subscriber::set_default(counting));
        }));
        let rights = ["on", "nopass", "~*", "resetchannels", "+@all"];
        scene.tell(&[["ACL", "SETUSER", "deaf"].as_slice(), &rights].concat());
        let deaf = scene.client_of(&scene.server().url().replace("//", "//deaf:any@")).await;
        scene.tell(&["SET", "a", "foreign"]);
        let waiting = scene.wait(&deaf).await;
        for _ in 0..3 {
            scene.pass(Duration::from_secs(65)).await;
            assert_eq!(warnings.load(Ordering::Relaxed), 1);
        }
        scene.tell(&["DEL", "a"]);
        assert!(scene.time_of(&waiting).await <= POLL + SLACK);
    });
}

#[test]
fn a_held_lock_survives_the_loss_of_every_connection_unnoticed() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        for _ in 0..20 {
            scene.tell(&["CLIENT", "KILL", "TYPE", "normal"]);
            scene.pass(ms(1_700)).await;
            assert!(guard.is_held());
            assert!(guard.remaining() >= ms(3_000), "{:?}", guard.remaining());
        }
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
    });
}

#[test]
fn flushall_ends_leases_and_their_holders_learn_of_it_with_the_next_renewal() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let before = guard.fencing_token().expect("fenced");
        let lost = scene.host.task(guard.lost());
        scene.pass(ms(1)).await;
        scene.tell(&["FLUSHALL"]);
        let next = other.mutex("a").try_lock().await.expect("asked").expect("forgotten");
        assert!(next.fencing_token() > Some(before), "{:?} after {before:?}", next.fencing_token());
        assert!(scene.time_of(&lost).await <= RENEWED);
        assert!(!guard.is_held() && next.is_held());
        drop(guard);
        scene.pass(ms(20_000)).await;
        assert!(next.is_held(), "its late release took nothing from the next holder");
    });
}

/// A clock step may end a lease, as documented. The promise is that the holder is told.
#[test]
fn a_step_of_the_servers_clock_forward_is_noticed_by_the_next_renewal() {
    play_alone(async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        let token = guard.fencing_token().expect("fenced");
        let lost = scene.host.task(guard.lost());
        // This has the effect of a clock step: the expiry is in the past.
        scene.tell(&["PEXPIREAT", "a", "1"]);
        assert!(scene.time_of(&lost).await <= RENEWED);
        let next = client.mutex("a").try_lock().await.expect("asked").expect("free");
        assert!(next.fencing_token() > Some(token));
    });
}

#[test]
fn a_client_that_was_given_the_right_to_listen_gives_up_a_wanted_idle_lock() {
    play_alone(async |scene| {
        scene.tell(&["ACL", "SETUSER", "app", "on", "nopass", "~*", "+@all", "resetchannels"]);
        let url = scene.server().url().replace("//", "//app:any@");
        let (client, other) = (scene.client_of(&url).await, scene.client().await);
        let mutex = client.mutex("a").keep_idle(Duration::from_secs(3_600));
        drop(mutex.lock().await.expect("free"));
        scene.pass(ms(1_000)).await;
        scene.tell(&["ACL", "SETUSER", "app", "allchannels"]);
        scene.pass(Duration::from_secs(61)).await;
        drop(mutex.lock().await.expect("it is idle"));
        scene.pass(ms(350)).await;
        let wanted = other.mutex("a");
        let waiting = scene.host.task(async move { wanted.lock().await.expect("given up") });
        assert!(scene.time_of(&waiting).await <= SLACK);
    });
}
