//! The yardstick for a lock over several servers: one request to each server, all at the same time,
//! without Leasehold.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold::host::SystemHost;
use leasehold::store::{Quorum, RedisStore};
use leasehold::{Client, Error, ErrorKind};
use leasehold_testkit::protocol::Command;
use leasehold_testkit::servers::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::{KEYS, MAJORITY, SETTLE};
use crate::bare_redis::{connect, is_success, same, unavailable};
use crate::recording::RecordingConnector;

const TTL_MS: u64 = 10_000;

/// It is as long as one of our tokens. Drawing a token is not part of the yardstick.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// How often to lock at most until every server receives the same requests.
const RECORDED_MAX: usize = 30;

/// A connection to each server.
pub(super) struct BareQuorum {
    connections: Vec<MultiplexedConnection>,
    keys: Vec<String>,
    next: usize,
    /// The requests of our lock and release to each server.
    same: [Cmd; 2],
}

impl BareQuorum {
    pub(super) async fn connect(servers: &[RedisServer]) -> Result<Self, Error> {
        let mut connections = Vec::with_capacity(servers.len());
        for server in servers {
            connections.push(connect(&server.url()).await?);
        }
        let keys = (0..KEYS).map(|number| format!("bench:quorum:bare:{number:03}")).collect();
        Ok(Self { connections, keys, next: 0, same: record(servers).await? })
    }

    /// The time until a majority has set the next key. Then waits for the other servers and deletes
    /// the key, which does not count.
    pub(super) async fn set(&mut self) -> Result<Duration, Error> {
        let key = &self.keys[self.next];
        self.next = (self.next + 1) % self.keys.len();
        let started = Instant::now();
        let mut set = redis::cmd("SET");
        set.arg(key).arg(TOKEN).arg("NX").arg("PX").arg(TTL_MS);
        let took = ask_all(&mut self.connections, &set, started).await?;
        let mut delete = redis::cmd("DEL");
        delete.arg(key);
        ask_all(&mut self.connections, &delete, started).await?;
        Ok(took)
    }

    /// Like [`set`](Self::set), with the requests of a fenced lock.
    pub(super) async fn ask_the_same(&mut self) -> Result<Duration, Error> {
        let [acquire, release] = &self.same;
        let started = Instant::now();
        let took = ask_all(&mut self.connections, acquire, started).await?;
        ask_all(&mut self.connections, release, started).await?;
        Ok(took)
    }
}

/// Sends a request to all servers. Returns the time from `started` until a majority had answered.
async fn ask_all(
    connections: &mut [MultiplexedConnection],
    request: &Cmd,
    started: Instant,
) -> Result<Duration, Error> {
    let ask = |connection| request.query_async::<Value>(connection);
    let mut answers: FuturesUnordered<_> = connections.iter_mut().map(ask).collect();
    let (mut answered, mut took) = (0, Duration::ZERO);
    while let Some(answer) = answers.next().await {
        answered += 1;
        if answered == MAJORITY {
            took = started.elapsed();
        }
        let answer = answer.map_err(|error| unavailable(&error))?;
        if answer != Value::Okay && !is_success(&answer) {
            let message = format!("the yardstick's key was not as it was left: {answer:?}");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
    Ok(took)
}

/// Records the requests of our lock and release when servers and lock are known and the counters
/// are equal. Each server receives the same requests then.
async fn record(servers: &[RedisServer]) -> Result<[Cmd; 2], Error> {
    let (mut nodes, mut recordings) = (Vec::new(), Vec::new());
    for server in servers {
        let (connector, recording) = RecordingConnector::new(&server.url())?;
        nodes.push(RedisStore::connect_with(connector, SystemHost::shared()).await?);
        recordings.push(recording);
    }
    let quorum = Quorum::connect(nodes, SystemHost::shared()).await?;
    let client = Client::with_store(quorum).connect().await?;
    let mutex = client.mutex("bench:quorum:same");
    for time in 0..RECORDED_MAX {
        let guard = mutex.lock().await?;
        // Late nodes catch up before the release.
        tokio::time::sleep(SETTLE).await;
        let _released = guard.release().await?;
        tokio::time::sleep(SETTLE).await;
        let sent: Vec<_> = recordings.iter().map(|recording| recording.latest()).collect();
        let is_the_same = sent.iter().all(|other| arguments(other) == arguments(&sent[0]));
        if let ([acquire, release], true) = (&sent[0][..], is_the_same && time > 1) {
            return Ok([same(acquire), same(release)]);
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the servers were never asked the same"))
}

fn arguments(commands: &[Command]) -> Vec<Vec<&[u8]>> {
    commands.iter().map(|command| command.args().collect()).collect()
}
