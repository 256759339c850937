//! Tests of a real server as the outside of a virtual host.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::redis::RedisConnector;
use tokio::sync::oneshot;

use super::super::pool;
use super::{ServerOutside, Watched};
use crate::VirtualHost;
use crate::protocol::{Answer, Asking, Client, Command, Connection, Message, News, Value};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A host with a server outside.
struct World {
    host: Arc<VirtualHost>,
    outside: Arc<ServerOutside>,
    connector: Arc<Watched<RedisConnector>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let host = VirtualHost::new(seed);
        let outside = ServerOutside::new(pool::lend());
        let connector = RedisConnector::new(&outside.server().url()).expect("a URL");
        let connector = Arc::new(outside.watch(connector));
        host.attach(outside.clone());
        Self { host, outside, connector }
    }

    /// Runs a future on a task that can do network input and output.
    fn on_io<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = T> + use<T, F> {
        let (sender, output) = oneshot::channel();
        self.host.spawn_io(Box::pin(async move {
            let _ = sender.send(future.await);
        }));
        async { output.await.expect("the task ends by itself") }
    }

    async fn connect(&self) -> Connection {
        let connector = Arc::clone(&self.connector);
        self.on_io(async move { Client::connect(&*connector).await }).await.expect("connected")
    }

    async fn client(&self) -> Client {
        let Connection { client, io, .. } = self.connect().await;
        self.host.spawn_io(io);
        client
    }

    /// Calls `take` with every message of a channel, and the moment of its arrival.
    async fn listen(
        &self,
        channel: &str,
        take: impl Fn(Message, Moment) + Send + 'static,
    ) -> Listening {
        let Connection { client, mut news, io } = self.connect().await;
        self.host.spawn_io(io);
        let (host, ended) = (Arc::clone(&self.host), Arc::new(Mutex::new(None)));
        let (inner, tell) = (Arc::clone(&self.host), Arc::clone(&ended));
        host.spawn_io(Box::pin(async move {
            while let Some(news) = news.recv().await {
                let News::Published(message) = news else { continue };
                take(message, inner.now());
            }
            *tell.lock().expect("no panic") = Some(inner.now());
        }));
        for words in [["HELLO", "3"], ["SUBSCRIBE", channel]] {
            let answer = client.ask(&Command::of(&words)).await;
            assert!(matches!(answer, Some(Ok(_))), "everybody may listen: {answer:?}");
        }
        Listening { ended }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.host.drop_tasks();
    }
}

struct Listening {
    ended: Arc<Mutex<Option<Moment>>>,
}

fn set(key: &str, ms: u64) -> Command {
    Command::new("SET").arg(key).arg("value").arg("PX").number(ms)
}

fn left(client: &Client) -> Asking {
    client.ask(&Command::of(&["PTTL", "key"]))
}

fn number(number: i64) -> Option<Answer> {
    Some(Ok(Value::Int(number)))
}

fn text(text: &str) -> Option<Answer> {
    Some(Ok(Value::Bytes(text.into())))
}

fn publish(channel: &str, payload: &str) -> Command {
    Command::new("PUBLISH").arg(channel).arg(payload)
}

#[test]
fn connections_and_answers_take_no_virtual_time() {
    for seed in 0..5 {
        let world = World::new(seed);
        let start = world.host.now();
        world.host.run(async {
            // This task lets time go on whenever it can.
            let inner = Arc::clone(&world.host);
            let _ticking = world.host.task(async move {
                loop {
                    inner.sleep_until(inner.now() + ms(1)).await;
                }
            });
            for _ in 0..5 {
                let client = world.client().await;
                assert_eq!(client.ask(&Command::new("PING")).await, text("PONG"));
            }
        });
        assert_eq!(world.host.now(), start, "seed {seed}");
    }
}

#[test]
fn the_server_keeps_virtual_time_to_the_millisecond() {
    let world = World::new(1);
    world.host.run(async {
        let client = world.client().await;
        let shown = world.outside.server().command(&["TIME"]).array()[0].int();
        assert_eq!(u64::try_from(shown), Ok(world.host.wall().as_unix_micros() / 1_000_000));
        assert_eq!(client.ask(&set("key", 86_400_000)).await, text("OK"));
        for gone in 1..=20 {
            world.host.advance(ms(1)).await;
            assert_eq!(left(&client).await, number(86_400_000 - gone));
        }
        world.host.advance(ms(86_400_000 - 20)).await;
        // Redis keeps a key until the end of its last millisecond.
        assert_eq!(left(&client).await, number(0));
        world.host.suspend(ms(1));
        assert_eq!(left(&client).await, number(-2));
    });
}

#[test]
fn a_request_has_its_effect_at_its_moment_also_if_nobody_waits_for_the_answer() {
    let world = World::new(1);
    world.host.run(async {
        let client = world.client().await;
        let kept = client.ask(&set("key", 1_000));
        world.host.advance(ms(400)).await;
        let left = left(&client);
        world.host.advance(ms(500)).await;
        let before = world.host.now();
        assert_eq!(left.await, number(600));
        assert_eq!(kept.await, text("OK"));
        assert_eq!(world.host.now(), before);
    });
    assert_eq!(world.outside.requests(), 2, "what the kit asks for itself does not count");
}

#[test]
fn a_message_arrives_at_the_moment_at_which_it_was_published() {
    for seed in 0..5 {
        let world = World::new(seed);
        let (seen, sent) = (Arc::new(Mutex::new(Vec::new())), 300);
        let start = world.host.now();
        world.host.run(async {
            let client = world.client().await;
            let into = Arc::clone(&seen);
            let _listening = world
                .listen("news", move |message, at| {
                    let number: u32 = String::from_utf8_lossy(&message.payload).parse().expect("n");
                    into.lock().expect("no panic").push((number, at));
                })
                .await;
            let mut answers = Vec::new();
            for number in 0..sent {
                // The test does not wait for the answer or the message.
                answers.push(client.ask(&publish("news", &number.to_string())));
                world.host.advance(ms(1)).await;
            }
        });
        let expected: Vec<_> = (0..sent).map(|n| (n, start + ms(u64::from(n)))).collect();
        assert_eq!(*seen.lock().expect("no panic"), expected, "seed {seed}");
    }
}

#[test]
fn the_effects_of_a_message_happen_at_the_same_moment() {
    let world = World::new(1);
    let start = world.host.now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    world.host.run(async {
        let client = world.client().await;
        let (into, answering) = (Arc::clone(&seen), client.clone());
        let answers = Mutex::new(Vec::new());
        let _listening = world
            .listen("countdown", move |message, at| {
                let left: u64 = String::from_utf8_lossy(&message.payload).parse().expect("n");
                into.lock().expect("no panic").push(at);
                if left > 0 {
                    let answer = answering.ask(&publish("countdown", &(left - 1).to_string()));
                    answers.lock().expect("no panic").push(answer);
                }
            })
            .await;
        let _answer = client.ask(&publish("countdown", "99"));
        world.host.advance(ms(1)).await;
    });
    assert_eq!(*seen.lock().expect("no panic"), vec![start; 100]);
}

#[test]
fn a_connection_that_the_server_closes_ends_at_that_moment() {
    let world = World::new(1);
    let start = world.host.now();
    world.host.run(async {
        let client = world.client().await;
        let listening = world.listen("news", |_, _| {}).await;
        world.host.advance(ms(5)).await;
        world.outside.server().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        world.outside.server().command(&["CLIENT", "KILL", "TYPE", "normal"]);
        world.host.advance(ms(5)).await;
        assert_eq!(*listening.ended.lock().expect("no panic"), Some(start + ms(5)));
        assert_eq!(client.ask(&Command::new("PING")).await, None, "it was closed");
        // New connections work like the first one.
        let client = world.client().await;
        assert_eq!(client.ask(&Command::new("PING")).await, text("PONG"));
    });
}

#[test]
fn time_goes_on_while_the_server_is_paused() {
    let world = World::new(1);
    world.host.run(async {
        let client = world.client().await;
        let start = world.host.now();
        world.outside.server().pause();
        let mut answer = client.ask(&Command::new("PING"));
        assert!(world.host.within(ms(1_000), &mut answer).await.is_none());
        assert_eq!(world.host.now(), start + ms(1_000));
        world.outside.server().resume();
        assert_eq!(answer.await, text("PONG"));
        assert_eq!(world.host.now(), start + ms(1_000));
    });
}

#[test]
#[should_panic(expected = "everybody waits and no timer is set")]
fn waiting_for_a_message_that_nobody_sends_is_told() {
    let world = World::new(1);
    world.host.run(async {
        let _listening = world.listen("news", |_, _| {}).await;
        std::future::pending::<()>().await;
    });
}
