//! Forged messages: a user that may read the line of a lock, and publish to inboxes, can tell a
//! waiter that it was handed the lock.

use leasehold::host::Host as _;
use leasehold::store::redis::RedisConnector;
use leasehold::{Client, Release};
use leasehold_testkit::protocol::{self, Answer, Command, Connection, Value};
use tokio::sync::oneshot;

use super::clients::{Scene, ms, play_alone};

/// How often each attack is tried.
const TIMES: usize = 10;

/// The rights of an attacker that cannot write, but may read the keys of locks, and publish.
const SPY: &str = "resetchannels +get +time +zrange +hget +hgetall +publish ~app:* ~{app:* \
                   &:lh:inbox:*";

/// The rights in GUARANTEES.md for a client of other locks on the same server.
const NEIGHBOUR: &str = "resetchannels +eval +evalsha +get +set +del +exists +incr +incrby +decr \
                         +pexpire +pttl +time +hset +hget +hmget +zrank +zcard +zadd +zrem \
                         +zscore +zrange +zcount +zrangebyscore +hdel +publish +subscribe \
                         &:lh:inbox:* ~other:* ~{other:* ~:lh:client:*";

/// The rights in GUARANTEES.md for programs that check whether locks are held.
const LOOKER: &str = "resetchannels +get +pttl +exists +hgetall +zrange +publish &news:* ~app:*";

/// A connection of an attacker.
struct Spy(protocol::Client);

impl Spy {
    /// Connects as a user with these rights.
    async fn connect(scene: &Scene, rights: &str) -> Self {
        let words = ["ACL", "SETUSER", "spy", "reset", "on", "nopass"];
        let words: Vec<_> = words.into_iter().chain(rights.split_whitespace()).collect();
        scene.tell(&words);
        let connector = RedisConnector::new(&scene.server().url()).expect("a URL");
        let connector = scene.outside.watch(connector);
        let (sender, client) = oneshot::channel();
        scene.host.spawn_io(Box::pin(async move {
            let connected = protocol::Client::connect(&connector).await.expect("it may connect");
            let Connection { client, io, .. } = connected;
            sender.send(client).expect("it is waited for");
            io.await;
        }));
        let spy = Self(client.await.expect("it connects"));
        spy.ask(&["AUTH", "spy", "any"]).await.expect("it may log in");
        spy
    }

    async fn ask(&self, words: &[&str]) -> Answer {
        self.0.ask(&Command::of(words)).await.expect("the connection lasts")
    }

    /// Sends a command that the attacker may use.
    async fn read(&self, words: &[&str]) -> Vec<String> {
        match self.ask(words).await.expect("it may") {
            Value::Array(values) => values.into_iter().map(text).collect(),
            value => vec![text(value)],
        }
    }

    /// Tells the head of the line that it was handed the lock, with this fencing token.
    async fn forge(&self, name: &str, fence: u64) {
        let owner = self.read(&["ZRANGE", &format!("{{{name}}}:lh:line"), "0", "0"]).await;
        let place = self.read(&["HGET", &format!("{{{name}}}:lh:places"), &owner[0]]).await;
        let place: Vec<_> = place[0].split('|').collect();
        // A place that only wants a wake-up names no ask. The first ask is a good guess.
        let (ask_no, inbox) = (if place[3] == "0" { "1" } else { place[3] }, place[6]);
        let message = format!("g {ask_no} {fence} 1 {} {name}", owner[0]);
        let heard = self.read(&["PUBLISH", &format!(":lh:inbox:{inbox}"), &message]).await;
        assert_eq!(heard, ["1"], "the waiter is told");
    }

    /// A fencing token as a server would give it now.
    async fn clock(&self) -> u64 {
        let time = self.read(&["TIME"]).await;
        let part = |at: usize| time[at].parse::<u64>().expect("a number");
        part(0) * 1_000_000 + part(1)
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).expect("text"),
        Value::Int(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

/// How many waiters with these options believe a message with the fencing token that `fence` makes
/// of the clock.
async fn believing(scene: &Scene, options: &str, fence: impl Fn(u64) -> u64) -> usize {
    let spy = Spy::connect(scene, SPY).await;
    let client = async || -> Client { scene.client_of(&(scene.server().url() + options)).await };
    let (holder, waiter) = (client().await, client().await);
    let mut believing = 0;
    for time in 0..TIMES {
        let name = format!("app:{time}");
        let held = holder.mutex(&name).lock().await.expect("free");
        let mutex = waiter.mutex(&name);
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
        scene.pass(ms(20)).await;
        assert!(!waiting.is_finished());
        let forged = fence(spy.clock().await);
        spy.forge(&name, forged).await;
        scene.host.settle().await;
        assert!(held.is_held());
        believing += usize::from(waiting.is_finished());
        scene.pass(ms(20)).await;
        let before = held.fencing_token().expect("it has one");
        if !waiting.is_finished() {
            assert_eq!(held.release().await.expect("asked"), Release::Released);
            scene.pass(ms(20)).await;
            assert!(waiting.is_finished(), "the next is told in truth");
            let guard = waiting.await;
            let after = guard.fencing_token().expect("it has one");
            assert!(guard.is_held() && after > before && after.get() != forged);
        }
    }
    believing
}

/// An attacker with all of these rights succeeds, as documented.
#[test]
fn an_attacker_that_reads_lines_and_publishes_deceives_a_waiter_until_its_renewal_is_answered() {
    play_alone(async |scene| assert_eq!(believing(scene, "", |clock| clock).await, TIMES));
}

#[test]
fn a_client_that_confirms_hand_overs_is_not_deceived() {
    play_alone(async |scene| {
        assert_eq!(believing(scene, "/0?confirm=yes", |clock| clock).await, 0);
    });
}

/// A strict server hands nothing over, so every such message is false.
#[test]
fn a_waiter_of_a_strict_server_believes_no_hand_over() {
    play_alone(async |scene| {
        let epoch = crate::stores::run_id(scene.server());
        scene.tell(&["HSET", ":lh:epoch", "run", &epoch]);
        assert_eq!(believing(scene, "/0?strict=yes", |clock| clock).await, 0);
    });
}

/// The waiter asks the server, and learns the truth.
#[test]
fn a_token_that_no_clock_of_these_days_gives_is_not_believed() {
    const TWO_DAYS_US: u64 = 2 * 24 * 3_600 * 1_000_000;
    play_alone(async |scene| {
        assert_eq!(believing(scene, "", |_| 9_007_199_254_740_991).await, 0);
    });
    play_alone(async |scene| assert_eq!(believing(scene, "", |_| 7).await, 0));
    play_alone(async |scene| assert_eq!(believing(scene, "", |now| now + TWO_DAYS_US).await, 0));
    play_alone(async |scene| assert_eq!(believing(scene, "", |now| now - TWO_DAYS_US).await, 0));
}

/// A user that cannot read the line does not know the token of a waiter.
#[test]
fn with_the_documented_rights_nobody_reads_the_lines_of_others() {
    play_alone(async |scene| {
        let (holder, waiter) = (scene.client().await, scene.client().await);
        let _held = holder.mutex("app:a").lock().await.expect("free");
        let mutex = waiter.mutex("app:a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
        scene.pass(ms(20)).await;
        let line = scene.server().command(&["ZRANGE", "{app:a}:lh:line", "0", "0"]).texts();
        assert_eq!(line.len(), 1, "somebody waits");
        let inbox = scene.server().command(&["PUBSUB", "CHANNELS", ":lh:inbox:*"]).texts();
        for (rights, may_publish) in [(NEIGHBOUR, true), (LOOKER, false)] {
            let spy = Spy::connect(scene, rights).await;
            for key in ["line", "ends", "places"].map(|it| format!("{{app:a}}:lh:{it}")) {
                let commands: [&[&str]; 3] =
                    [&["ZRANGE", &key, "0", "-1"], &["HGETALL", &key], &["GET", &key]];
                for words in commands {
                    let refused = spy.ask(words).await;
                    let is_refused = refused.as_ref().is_err_and(|it| it.code() == "NOPERM");
                    assert!(is_refused, "{words:?} by {rights}: {refused:?}");
                }
            }
            // This holds even if the user knows the inbox.
            let told = spy.ask(&["PUBLISH", &inbox[0], "w app:a"]).await;
            assert_eq!(told.is_ok(), may_publish, "{rights}: {told:?}");
            scene.pass(ms(20)).await;
            assert!(!waiting.is_finished());
        }
    });
}

#[test]
fn the_rights_of_neighbours_are_those_that_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");
    let guarantees = std::fs::read_to_string(path).expect("the page is there");
    for part in ["`?confirm=yes`", "`resetchannels`", "`&:lh:inbox:*`", "`{app:*`"] {
        assert!(guarantees.contains(part), "{part} is not documented");
    }
}
