//! The yardsticks of the stores: the same work without Leasehold, measured in the same run.

use leasehold::{Error, ErrorKind};

use crate::bare_redis::{BareRedis, Pair};

/// The bare work of one lock and one release.
pub(crate) enum Yardstick {
    /// Two transactions with one update each, on a file with the settings of the SQLite store.
    Sqlite(rusqlite::Connection),
    /// The same requests, sent by a bare client.
    Redis(Box<BareRedis>),
    /// Locks a mutex of the runtime.
    Process(tokio::sync::Mutex<()>),
}

impl Yardstick {
    /// The yardstick for the store at `url`.
    pub(crate) async fn beside(url: &str) -> Result<Self, Error> {
        if is_redis(url) {
            return Ok(Self::Redis(Box::new(BareRedis::connect(url).await?)));
        }
        let Some(path) = url.strip_prefix("sqlite:") else {
            return Ok(Self::Process(tokio::sync::Mutex::default()));
        };
        let open = || {
            let connection = rusqlite::Connection::open(format!("{path}.yardstick"))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(
                "CREATE TABLE IF NOT EXISTS lock (key TEXT PRIMARY KEY, owner TEXT) WITHOUT ROWID;
                 INSERT OR IGNORE INTO lock VALUES ('a', NULL);",
            )?;
            Ok::<_, rusqlite::Error>(connection)
        };
        let connection = open().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the yardstick's file cannot be opened")
                .with_source(error)
        })?;
        Ok(Self::Sqlite(connection))
    }

    /// The kinds of work that this yardstick can do, with their names.
    pub(crate) const fn pairs(&self) -> &'static [(Pair, &'static str)] {
        match self {
            Self::Sqlite(_) => &[(Pair::Fenced, "two bare transactions")],
            Self::Redis(_) => &[
                (Pair::Fenced, "same two requests"),
                (Pair::Unfenced, "same two requests, unfenced"),
                (Pair::Pings, "2 PING"),
            ],
            Self::Process(_) => &[(Pair::Fenced, "tokio::sync::Mutex")],
        }
    }

    /// Does the work of one lock and one release.
    pub(crate) async fn run(&mut self, pair: Pair) -> Result<(), Error> {
        match self {
            Self::Sqlite(connection) => {
                for owner in [Some("token"), None] {
                    let mut statement = connection
                        .prepare_cached("UPDATE lock SET owner = ?1 WHERE key = 'a'")
                        .expect("the table is there");
                    statement.execute([owner]).expect("nobody else uses the file");
                }
            }
            Self::Redis(bare) => drop(bare.send(pair).await?),
            Self::Process(mutex) => drop(mutex.lock().await),
        }
        Ok(())
    }
}

/// Whether the URL names a Redis server.
pub(crate) fn is_redis(url: &str) -> bool {
    url.starts_with("redis:") || url.starts_with("unix:")
}
