//! The yardstick for a lock on Redis: the same requests, sent without Leasehold.

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold::{Client, Error, ErrorKind};
use leasehold_testkit::protocol::Command;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use crate::recording::RecordingConnector;

/// A connection of the crate `redis`, as its documentation suggests.
pub(crate) struct BareRedis {
    connection: MultiplexedConnection,
    fenced: [Cmd; 2],
    unfenced: [Cmd; 2],
    pings: [Cmd; 2],
}

/// Two requests; the second is sent after the answer to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pair {
    /// A lock with a fencing token, and its release.
    Fenced,
    /// A lock without a fencing token, and its release.
    Unfenced,
    /// The cheapest requests to a server.
    Pings,
}

impl BareRedis {
    pub(crate) async fn connect(url: &str) -> Result<Self, Error> {
        let fenced = record(url, true).await?;
        let unfenced = record(url, false).await?;
        let mut this = Self {
            connection: connect(url).await?,
            fenced,
            unfenced,
            pings: std::array::from_fn(|_| redis::cmd("PING")),
        };
        // Repeat the recorded arguments: the same owner locks and releases.
        for pair in [Pair::Fenced, Pair::Unfenced] {
            let answers = this.send(pair).await?;
            assert!(answers.iter().all(is_success), "the server answers {answers:?}");
        }
        Ok(this)
    }

    /// Sends two requests.
    pub(crate) async fn send(&mut self, pair: Pair) -> Result<[Value; 2], Error> {
        let [first, second] = match pair {
            Pair::Fenced => &self.fenced,
            Pair::Unfenced => &self.unfenced,
            Pair::Pings => &self.pings,
        };
        let connection = &mut self.connection;
        let answers = async {
            let first = first.query_async(connection).await?;
            Ok([first, second.query_async(connection).await?])
        };
        answers.await.map_err(|error| unavailable(&error))
    }
}

/// A bare connection that any number of tasks can share.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Error> {
    let connected = async { redis::Client::open(url)?.get_multiplexed_async_connection().await };
    connected.await.map_err(|error| unavailable(&error))
}

/// Records the requests of our lock and release, once the server and the lock are known.
async fn record(url: &str, fenced: bool) -> Result<[Cmd; 2], Error> {
    let (connector, recording) = RecordingConnector::new(url)?;
    let store = RedisStore::connect_with(connector, SystemHost::shared()).await?;
    let client = Client::with_store(store).connect().await?;
    let name = if fenced { "bench:same:fenced" } else { "bench:same:unfenced" };
    let mutex = client.mutex(name).fencing(fenced);
    for _ in 0..3 {
        let _released = mutex.lock().await?.release().await?;
    }
    let latest = recording.latest();
    let commands: Result<[Command; 2], _> = latest.try_into();
    Ok(commands.expect("six requests were sent").map(|command| same(&command)))
}

/// The same command, for the bare client.
pub(crate) fn same(command: &Command) -> Cmd {
    let mut same = Cmd::new();
    for argument in command.args() {
        same.arg(argument);
    }
    same
}

/// Whether a script answered that it succeeded.
pub(crate) fn is_success(answer: &Value) -> bool {
    // A single number is a fencing token, or says that a key was freed.
    matches!(answer, Value::Int(_))
        || matches!(answer, Value::Array(values) if values.first() == Some(&Value::Int(1)))
}

pub(crate) fn unavailable(error: &RedisError) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the bare client failed: {error}"))
}
