//! Client tracking: a server announces a change of a key once to each client that has read it.

use std::future::Future;
use std::pin::pin;

use leasehold::store::redis::{
    Channels, Command, LinkConnector as _, Messages, News, RedisConnector, Subscriber, Value,
};
use leasehold_testkit::servers::RedisServer;
use leasehold_testkit::simulation::redis::SimulatedRedis;
use leasehold_testkit::virtual_host::SeededRandom;

use super::kinds_here;
use super::twins::Kind;

const READER: u64 = 1;
const START_US: u64 = 1_893_456_000_000_000;
const STEPS: usize = 3_000;

/// Commands of other clients. None of them removes a missing field of a hash: the simulated server
/// would announce that, and a real server would not.
const COMMANDS: &[&str] = &[
    "SET a x",
    "SET a y PX 50",
    "SET a z NX",
    "SET a z XX",
    "SET b x PX 50",
    "DEL a",
    "DEL a b c",
    "PEXPIRE a 50",
    "PEXPIRE b 70",
    "PEXPIREAT a 1",
    "PERSIST a",
    "INCR a",
    "INCR c",
    "GET a",
    "EXISTS a b",
    "HSET c f x",
    "FLUSHALL",
    "PUBLISH inbox hi",
];

/// Each command of a script is announced in turn.
const SCRIPT: &str = "redis.call('SET', 'a', 'x') redis.call('PUBLISH', 'inbox', 'between') \
                      redis.call('DEL', 'b') return redis.call('SET', 'a', 'y')";

/// A real server, a client that it tells of changes, and the simulated server.
struct Scene {
    server: RedisServer,
    channels: Box<dyn Channels>,
    messages: Box<dyn Messages>,
    simulated: SimulatedRedis,
    now_us: u64,
}

impl Scene {
    async fn open(kind: Kind) -> Self {
        let server = RedisServer::builder().program(kind.program()).with_clock().start();
        let connector = RedisConnector::new(&server.url()).expect("a URL");
        let Subscriber { channels, messages, .. } =
            connector.subscribe().await.expect("it is there");
        let mut simulated = SimulatedRedis::new();
        simulated.subscribe(READER, "inbox");
        let mut scene = Self { server, channels, messages, simulated, now_us: 0 };
        for channel in ["inbox", "marks"] {
            let (added, _) = meanwhile(&mut *scene.messages, scene.channels.add(channel)).await;
            added.expect("everybody may listen");
        }
        scene.pass(START_US);
        scene
    }

    fn pass(&mut self, us: u64) {
        self.now_us += us;
        self.server.clock().freeze_at(self.now_us);
    }

    /// The messages from the real server until now.
    async fn told(&mut self) -> Vec<News> {
        self.server.command(&["PUBLISH", "marks", "x"]);
        let mut told = Vec::new();
        loop {
            match self.messages.next().await.expect("the server is there") {
                News::Published(message) if message.channel == "marks" => return told,
                news => told.push(news),
            }
        }
    }

    /// Reads a key on both servers, so that both announce its next change.
    async fn read(&mut self, key: &str) {
        let (there, mut real) = meanwhile(&mut *self.messages, self.channels.track(key)).await;
        real.extend(self.told().await);
        let exists = Command::new("EXISTS").arg(key);
        let executed = self.simulated.execute_for(READER, self.now_us, &exists);
        let there = i64::from(there.expect("it may be read"));
        assert_eq!(executed.reply, Ok(Value::Int(there)), "{key}");
        let simulated = executed.published.into_iter().map(|told| told.news);
        assert_eq!(real, simulated.collect::<Vec<_>>(), "{key}");
    }

    /// Lets time pass, and makes both servers find expired keys. Real servers also look for them on
    /// their own, in their own order.
    async fn expire(&mut self, us: u64) {
        self.pass(us);
        self.server.command(&["EXISTS", "a", "b", "c"]);
        let mut real = self.told().await;
        let exists = Command::new("EXISTS").arg("a").arg("b").arg("c");
        let executed = self.simulated.execute(self.now_us, &exists);
        let mut simulated: Vec<_> = executed.published.into_iter().map(|told| told.news).collect();
        for told in [&mut real, &mut simulated] {
            told.sort_by_key(|news| format!("{news:?}"));
        }
        assert_eq!(real, simulated, "after {us} µs");
    }

    /// Carries out a command of another client on both servers.
    async fn carry_out(&mut self, words: &[&str]) {
        // A refused command changes nothing on either server.
        let _refused = self.server.try_command(words).is_err();
        let real = self.told().await;
        let command = words[1..].iter().fold(Command::new(words[0]), |all, word| all.arg(word));
        let executed = self.simulated.execute(self.now_us, &command);
        let simulated: Vec<_> = executed.published.into_iter().map(|told| told.news).collect();
        assert_eq!(real, simulated, "{words:?}");
    }
}

/// Waits for an answer, and collects the messages that come before it.
async fn meanwhile<T>(
    messages: &mut dyn Messages,
    answer: impl Future<Output = T>,
) -> (T, Vec<News>) {
    let (mut answer, mut told) = (pin!(answer), Vec::new());
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return (answer, told),
            news = messages.next() => told.push(news.expect("the server is there")),
        }
    }
}

#[tokio::test]
async fn who_has_read_a_key_is_told_of_its_next_change_and_of_no_other() {
    for kind in kinds_here() {
        let mut scene = Scene::open(kind).await;
        let mut random = SeededRandom::new(1);
        scene.read("a").await;
        for _ in 0..STEPS {
            match random.below(12) {
                0..3 => scene.read(["a", "b", "c", "d"][random.below(4)]).await,
                3 => scene.carry_out(&["EVAL", SCRIPT, "0"]).await,
                4 => scene.expire([1_000, 9_000, 60_000][random.below(3)]).await,
                _ => {
                    let words = COMMANDS[random.below(COMMANDS.len())];
                    scene.carry_out(&words.split(' ').collect::<Vec<_>>()).await;
                }
            }
        }
    }
}
