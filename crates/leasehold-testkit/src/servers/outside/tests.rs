//! Tests of a real server as the outside of a virtual host.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::redis::{
    Command, Connected, Link, LinkConnector, LinkError, Message, News, RedisConnector, Subscriber,
    Value,
};
use tokio::sync::oneshot;

use super::super::pool;
use super::{ServerOutside, Watched};
use crate::VirtualHost;

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

    async fn link(&self) -> Arc<dyn Link> {
        let Connected { link, io, .. } =
            self.on_io(self.connector.connect()).await.expect("connected");
        self.host.spawn_io(io);
        link
    }

    async fn subscribe(&self) -> Subscriber {
        self.on_io(self.connector.subscribe()).await.expect("connected")
    }

    /// Calls `take` with every message of a channel, and the moment of its arrival.
    async fn listen(
        &self,
        channel: &str,
        take: impl Fn(Message, Moment) + Send + 'static,
    ) -> Listening {
        let Subscriber { mut channels, mut messages, .. } = self.subscribe().await;
        let (host, ended) = (Arc::clone(&self.host), Arc::new(Mutex::new(None)));
        let (inner, tell) = (Arc::clone(&self.host), Arc::clone(&ended));
        host.spawn_io(Box::pin(async move {
            while let Some(news) = messages.next().await {
                let News::Published(message) = news else { continue };
                take(message, inner.now());
            }
            *tell.lock().expect("no panic") = Some(inner.now());
        }));
        let channel = channel.to_owned();
        let added = self.on_io(async move {
            let added = channels.add(&channel).await;
            (channels, added)
        });
        let (channels, added) = added.await;
        added.expect("everybody may listen");
        Listening { _channels: channels, ended }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.host.drop_tasks();
    }
}

struct Listening {
    _channels: Box<dyn leasehold::store::redis::Channels>,
    ended: Arc<Mutex<Option<Moment>>>,
}

fn set(key: &str, ms: u64) -> Command {
    Command::new("SET").arg(key).arg("value").arg("PX").number(ms)
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
            // A task that lets time go on whenever it can.
            let inner = Arc::clone(&world.host);
            let _ticking = world.host.task(async move {
                loop {
                    inner.sleep_until(inner.now() + ms(1)).await;
                }
            });
            for _ in 0..5 {
                let link = world.link().await;
                let pong = link.submit(Command::new("PING")).await;
                assert_eq!(pong, Ok(Value::Bytes(b"PONG".to_vec())));
            }
        });
        assert_eq!(world.host.now(), start, "seed {seed}");
    }
}

#[test]
fn the_server_keeps_virtual_time_to_the_millisecond() {
    let world = World::new(1);
    let left = |link: &Arc<dyn Link>| link.submit(Command::new("PTTL").arg("key"));
    world.host.run(async {
        let link = world.link().await;
        let shown = world.outside.server().command(&["TIME"]).array()[0].int();
        assert_eq!(u64::try_from(shown), Ok(world.host.wall().as_unix_micros() / 1_000_000));
        link.submit(set("key", 86_400_000)).await.expect("an answer");
        for gone in 1..=20 {
            world.host.advance(ms(1)).await;
            assert_eq!(left(&link).await, Ok(Value::Int(86_400_000 - gone)));
        }
        world.host.advance(ms(86_400_000 - 20)).await;
        // Redis keeps a key until the end of its last millisecond.
        assert_eq!(left(&link).await, Ok(Value::Int(0)));
        world.host.suspend(ms(1));
        assert_eq!(left(&link).await, Ok(Value::Int(-2)));
    });
}

#[test]
fn a_request_has_its_effect_at_its_moment_also_if_nobody_waits_for_the_answer() {
    let world = World::new(1);
    world.host.run(async {
        let link = world.link().await;
        let kept = link.submit(set("key", 1_000));
        world.host.advance(ms(400)).await;
        let left = link.submit(Command::new("PTTL").arg("key"));
        world.host.advance(ms(500)).await;
        let before = world.host.now();
        assert_eq!(left.await, Ok(Value::Int(600)));
        assert_eq!(kept.await, Ok(Value::Bytes(b"OK".to_vec())));
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
            let link = world.link().await;
            let into = Arc::clone(&seen);
            let _listening = world
                .listen("news", move |message, at| {
                    let number: u32 = String::from_utf8_lossy(&message.payload).parse().expect("n");
                    into.lock().expect("no panic").push((number, at));
                })
                .await;
            let mut answers = Vec::new();
            for number in 0..sent {
                // Nobody waits for the answer or the message.
                answers.push(link.submit(publish("news", &number.to_string())));
                world.host.advance(ms(1)).await;
            }
        });
        let expected: Vec<_> = (0..sent).map(|n| (n, start + ms(u64::from(n)))).collect();
        assert_eq!(*seen.lock().expect("no panic"), expected, "seed {seed}");
    }
}

#[test]
fn what_a_message_sets_off_happens_at_the_same_moment() {
    let world = World::new(1);
    let start = world.host.now();
    let seen = Arc::new(Mutex::new(Vec::new()));
    world.host.run(async {
        let link = world.link().await;
        let (into, answering) = (Arc::clone(&seen), Arc::clone(&link));
        let answers = Mutex::new(Vec::new());
        let _listening = world
            .listen("countdown", move |message, at| {
                let left: u64 = String::from_utf8_lossy(&message.payload).parse().expect("n");
                into.lock().expect("no panic").push(at);
                if left > 0 {
                    let answer = answering.submit(publish("countdown", &(left - 1).to_string()));
                    answers.lock().expect("no panic").push(answer);
                }
            })
            .await;
        let _answer = link.submit(publish("countdown", "99"));
        world.host.advance(ms(1)).await;
    });
    assert_eq!(*seen.lock().expect("no panic"), vec![start; 100]);
}

#[test]
fn a_connection_that_the_server_closes_ends_at_that_moment() {
    let world = World::new(1);
    let start = world.host.now();
    world.host.run(async {
        let link = world.link().await;
        let listening = world.listen("news", |_, _| {}).await;
        world.host.advance(ms(5)).await;
        world.outside.server().command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        world.outside.server().command(&["CLIENT", "KILL", "TYPE", "normal"]);
        world.host.advance(ms(5)).await;
        assert_eq!(*listening.ended.lock().expect("no panic"), Some(start + ms(5)));
        let refused = link.submit(Command::new("PING")).await.expect_err("it was closed");
        assert!(matches!(refused, LinkError::NotSent { .. }), "{refused:?}");
        // New connections work like the first one.
        let link = world.link().await;
        link.submit(Command::new("PING")).await.expect("an answer");
    });
}

#[test]
fn time_goes_on_while_the_server_is_paused() {
    let world = World::new(1);
    world.host.run(async {
        let link = world.link().await;
        let start = world.host.now();
        world.outside.server().pause();
        let mut answer = link.submit(Command::new("PING"));
        assert!(world.host.within(ms(1_000), &mut answer).await.is_none());
        assert_eq!(world.host.now(), start + ms(1_000));
        world.outside.server().resume();
        answer.await.expect("an answer");
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
