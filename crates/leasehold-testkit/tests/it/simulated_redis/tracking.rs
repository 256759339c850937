//! Client tracking. A server announces a change of a key once to each client that has read the key.

use leasehold::store::redis::RedisConnector;
use leasehold_testkit::protocol::{Answer, Client, Command, Connection, News, Value};
use leasehold_testkit::servers::RedisServer;
use leasehold_testkit::simulation::redis::SimulatedRedis;
use leasehold_testkit::virtual_host::SeededRandom;
use tokio::sync::mpsc::UnboundedReceiver;

use super::kinds_here;
use super::twins::Kind;

const READER: u64 = 1;
const START_US: u64 = 1_893_456_000_000_000;
const STEPS: usize = 3_000;

/// Commands of other clients. None of them removes a missing field of a hash, since the simulated
/// server would announce that, and a real server would not.
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

/// Each command of a script is announced, one after another.
const SCRIPT: &str = "redis.call('SET', 'a', 'x') redis.call('PUBLISH', 'inbox', 'between') \
                      redis.call('DEL', 'b') return redis.call('SET', 'a', 'y')";

/// A real server, a client that it tells of changes, and the simulated server.
struct Scene {
    server: RedisServer,
    client: Client,
    news: UnboundedReceiver<News>,
    simulated: SimulatedRedis,
    now_us: u64,
}

impl Scene {
    #[allow(clippy::disallowed_methods, reason = "connections to real servers are served too")]
    async fn open(kind: Kind) -> Self {
        let server = RedisServer::builder().program(kind.program()).with_clock().start();
        let connector = RedisConnector::new(&server.url()).expect("a URL");
        let connected = Client::connect(&connector).await.expect("it is there");
        let Connection { client, news, io } = connected;
        tokio::spawn(io);
        let mut simulated = SimulatedRedis::new();
        simulated.subscribe(READER, "inbox");
        let mut scene = Self { server, client, news, simulated, now_us: 0 };
        let words = [
            &["HELLO", "3"][..],
            &["CLIENT", "TRACKING", "ON"],
            &["SUBSCRIBE", "inbox"],
            &["SUBSCRIBE", "marks"],
        ];
        for words in words {
            scene.ask(words).await.expect("everybody may listen");
        }
        scene.pass(START_US);
        scene
    }

    /// Asks the real server on the connection that it tells of changes.
    async fn ask(&self, words: &[&str]) -> Answer {
        self.client.ask(&Command::of(words)).await.expect("the server is there")
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
            match self.news.recv().await.expect("the server is there") {
                News::Published(message) if message.channel == "marks" => return told,
                news => told.push(news),
            }
        }
    }

    /// Reads a key on both servers, so that both announce its next change.
    async fn read(&mut self, key: &str) {
        let there = self.ask(&["EXISTS", key]).await;
        let real = self.told().await;
        let exists = Command::new("EXISTS").arg(key);
        let executed = self.simulated.execute_for(READER, self.now_us, &exists);
        assert!(matches!(there, Ok(Value::Int(0 | 1))), "it may be read: {there:?}");
        assert_eq!(executed.reply, there, "{key}");
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
        let executed = self.simulated.execute(self.now_us, &Command::of(words));
        let simulated: Vec<_> = executed.published.into_iter().map(|told| told.news).collect();
        assert_eq!(real, simulated, "{words:?}");
    }
}

#[tokio::test]
async fn a_client_that_read_a_key_is_told_of_its_next_change_and_of_no_other() {
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
