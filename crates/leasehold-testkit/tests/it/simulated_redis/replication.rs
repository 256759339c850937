//! The answers to WAIT without replicas, with a working replica, and with a replica that hangs.
//! Also the replication id, which names the history of a server's data.

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::redis::RedisConnector;
use leasehold_testkit::protocol::{Answer, Asking, Client, Command, Connection, Refused, Value};
use leasehold_testkit::servers::{PATIENCE, RedisServer};
use leasehold_testkit::simulation::redis::SimulatedRedis;

use super::kinds_here;
use super::twins::Kind;

/// Two connections to a primary, on the real and on the simulated server.
struct Scene {
    kind: Kind,
    primary: RedisServer,
    replica: Option<RedisServer>,
    real: [Client; 2],
    simulated: SimulatedRedis,
    /// The write position of the simulated server after the last command of each connection.
    written: [u64; 2],
}

const NOW_US: u64 = 1_893_456_000_000_000;

fn command(words: &str) -> Command {
    Command::of(&words.split_whitespace().collect::<Vec<_>>())
}

impl Scene {
    #[allow(clippy::disallowed_methods, reason = "connections to real servers are served too")]
    async fn open(kind: Kind, has_replica: bool) -> Self {
        let server = || RedisServer::builder().program(kind.program());
        let primary = server().config("repl-diskless-sync-delay", "0");
        // Pings from the primary to its replicas would also move the write position.
        let primary = primary.config("repl-ping-replica-period", "3600").start();
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = has_replica.then(|| server().config("replicaof", &of).start());
        let connector = RedisConnector::new(&primary.url()).expect("a URL");
        let connect = async || {
            let connected = Client::connect(&connector).await.expect("it is there");
            let Connection { client, io, .. } = connected;
            tokio::spawn(io);
            client
        };
        let real = [connect().await, connect().await];
        let simulated = SimulatedRedis::new();
        let mut scene = Self { kind, primary, replica, real, simulated, written: [0; 2] };
        // The first confirmation covers the full copy. Later writes are confirmed a second after
        // that.
        for _ in 0..if has_replica { 2 } else { 0 } {
            scene.carry_out(0, "SET first x").await.expect("it needs no replica");
            scene.catch_up(0).await;
        }
        scene
    }

    fn submit(&self, connection: usize, words: &str) -> Asking {
        self.real[connection].ask(&command(words))
    }

    /// The simulated server's answer to a command that does not block.
    fn simulated(&mut self, connection: usize, words: &str) -> Answer {
        let written = self.written[connection];
        let executed = self.simulated.execute_after(written, NOW_US, &command(words));
        self.written[connection] = executed.written;
        executed.reply
    }

    /// Sends a command to both servers. The replica stays as it is until both have answered.
    async fn carry_out(&mut self, connection: usize, words: &str) -> Answer {
        let real = self.submit(connection, words).await.expect("the connection lasts");
        let simulated = self.simulated(connection, words);
        let code = |answer: &Answer| match answer {
            // Valkey words its refusals differently.
            Err(refused) if self.kind == Kind::Valkey => Err(refused.code().to_owned()),
            Err(Refused(text)) => Err(text.to_owned()),
            other => Ok(format!("{other:?}")),
        };
        assert_eq!(code(&real), code(&simulated), "{:?}: {words}", self.kind);
        real
    }

    /// Waits until the replica confirms all writes that the connection has seen.
    async fn catch_up(&mut self, connection: usize) {
        self.simulated.confirm(0, Some(self.simulated.written()));
        let wait = format!("WAIT 1 {}", PATIENCE.as_millis());
        assert_eq!(self.carry_out(connection, &wait).await, Ok(Value::Int(1)));
    }

    fn replica(&self) -> &RedisServer {
        self.replica.as_ref().expect("it has one")
    }

    /// Waits until a client blocks on the real server.
    fn until_somebody_waits(&self) {
        let begun = SystemHost.now();
        while !self.primary.command(&["INFO", "clients"]).text().contains("blocked_clients:1") {
            assert!(SystemHost.now().since(begun) < PATIENCE, "nobody waits");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_replicas_counts_none_once_it_has_waited() {
    for kind in kinds_here() {
        let mut scene = Scene::open(kind, false).await;
        for write in ["SET a x", "GET a"] {
            scene.carry_out(0, write).await.expect("it is carried out");
            for wait in ["WAIT 0 0", "WAIT 0 10", "WAIT 1 10", "WAIT 3 1", "WAIT -1 0"] {
                assert_eq!(scene.carry_out(0, wait).await, Ok(Value::Int(0)), "{wait}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_forms_of_the_request_for_copies_are_refused() {
    let words = [
        "WAIT",
        "WAIT 1",
        "WAIT 1 1 1",
        "WAIT x 1",
        "WAIT 1 x",
        "WAIT x x",
        "WAIT 1.5 1",
        "WAIT 1 1.5",
        "WAIT 1 -1",
        "WAIT 0 -1",
        "WAIT 1 9223372036854775808",
        "WAIT 9223372036854775808 1",
    ];
    // Valkey 8.1 allows WAIT in scripts, but none of our scripts uses it.
    let in_scripts =
        ["EVAL return(redis.call('WAIT','0','0')) 0", "EVAL return(redis.pcall('WAIT','0','0')) 0"];
    for kind in kinds_here() {
        let mut scene = Scene::open(kind, false).await;
        let in_scripts = in_scripts.iter().filter(|_| kind == Kind::Redis);
        for words in words.iter().chain(in_scripts) {
            assert!(scene.carry_out(0, words).await.is_err(), "{words}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_follows_is_counted_and_one_that_hangs_is_not() {
    for kind in kinds_here() {
        let mut scene = Scene::open(kind, true).await;
        for (wait, counted) in [("WAIT 0 0", 1), ("WAIT 1 0", 1), ("WAIT 2 10", 1)] {
            assert_eq!(scene.carry_out(0, wait).await, Ok(Value::Int(counted)), "{wait}");
        }
        scene.carry_out(1, "GET first").await.expect("it is there");
        scene.catch_up(1).await;
        scene.replica().pause();
        scene.carry_out(0, "SET a x").await.expect("it needs no replica");
        for wait in ["WAIT 1 10", "WAIT 0 0", "WAIT 2 10"] {
            assert_eq!(scene.carry_out(0, wait).await, Ok(Value::Int(0)), "{wait}");
        }
        // WAIT counts from the last command of its own connection. This connection has sent no
        // command since the write, so the replica is far enough.
        assert_eq!(scene.carry_out(1, "WAIT 1 10").await, Ok(Value::Int(1)));
        if kind == Kind::Redis {
            // Valkey 8.1 counts from the last write of the connection instead. Our requests that
            // need copies always write.
            scene.carry_out(1, "GET a").await.expect("it is there");
            assert_eq!(scene.carry_out(1, "WAIT 1 10").await, Ok(Value::Int(0)));
        }
        scene.replica().resume();
        scene.catch_up(1).await;
        scene.catch_up(0).await;
    }
}

/// The primary's history: its replication id, the earlier id, and its number of replicas.
fn history(server: &RedisServer) -> [String; 3] {
    let info = server.command(&["INFO", "replication"]).text();
    ["master_replid:", "master_replid2:", "connected_slaves:"].map(|name| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.expect("it says so").trim().to_owned()
    })
}

/// Makes one server follow another, and waits until it has that server's data.
fn follow(server: &RedisServer, of: &RedisServer) {
    server.command(&["REPLICAOF", "127.0.0.1", &of.port().to_string()]);
    let begun = SystemHost.now();
    while !server.command(&["INFO", "replication"]).text().contains("master_link_status:up") {
        assert!(SystemHost.now().since(begun) < PATIENCE, "it does not follow");
    }
}

/// Checks behaviour that the simulation imitates, and that strict.lua relies on.
#[test]
fn only_a_former_replica_names_its_earlier_history() {
    const NONE: &str = "0000000000000000000000000000000000000000";
    for kind in kinds_here() {
        let start = || {
            let server = RedisServer::builder().program(kind.program());
            server.config("repl-diskless-sync-delay", "0").start()
        };
        let (primary, replica) = (start(), start());
        let [begun, before, _] = history(&primary);
        assert_eq!(before, NONE);
        follow(&replica, &primary);
        // The first replica makes the primary start a new history, with the same data.
        let [first, before, replicas] = history(&primary);
        assert_eq!((before.as_str(), replicas.as_str()), (NONE, "1"));
        assert_ne!(first, begun);
        assert_eq!(history(&replica)[0], first);
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        let [second, before, _] = history(&replica);
        assert_eq!(before, first);
        // The old primary has written on its own, so it gets a full copy of the other's data.
        primary.command(&["SET", "forgotten", "x"]);
        follow(&primary, &replica);
        assert_eq!(primary.command(&["EXISTS", "forgotten"]).int(), 0);
        assert_eq!(history(&primary)[0], second);
        primary.command(&["REPLICAOF", "NO", "ONE"]);
        let [third, before, _] = history(&primary);
        assert_eq!(before, second);
        assert!(third != first && third != second);
        primary.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(history(&primary)[0], third, "it is not a replica");
        // This is the simulated server after the same events.
        let mut simulated = SimulatedRedis::new();
        simulated.set_replid(&third, Some(&second));
        let info = simulated.execute(NOW_US, &command("INFO replication")).reply;
        let Ok(Value::Bytes(info)) = info else { panic!("{info:?}") };
        let real = primary.command(&["INFO", "replication"]).text();
        for line in String::from_utf8_lossy(&info).lines() {
            assert!(real.lines().any(|other| other == line), "{line}");
        }
    }
}

/// A release that was sent behind an ask waits until the ask has its copies.
#[tokio::test(flavor = "multi_thread")]
async fn commands_behind_the_question_run_once_it_is_answered() {
    for kind in kinds_here() {
        let scene = Scene::open(kind, true).await;
        scene.replica().pause();
        let behind = ["SET a x", "WAIT 1 0", "SET b x"].map(|words| scene.submit(0, words));
        scene.until_somebody_waits();
        let there = |key| scene.primary.command(&["EXISTS", key]).int();
        assert_eq!((there("a"), there("b")), (1, 0));
        scene.replica().resume();
        let [written, waited, then] = behind;
        let done = Some(Ok(Value::Bytes(b"OK".to_vec())));
        assert_eq!(written.await, done);
        assert_eq!(waited.await, Some(Ok(Value::Int(1))));
        assert_eq!(then.await, done);
    }
}
