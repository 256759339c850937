//! What a store is compared with: the same work without us, measured in the same run.

use leasehold::Error;

/// The bare work of one lock and one release.
pub(crate) enum Yardstick {
    /// Two transactions, each one update, on a file with the settings of the embedded store.
    Sqlite(rusqlite::Connection),
    /// Locking a mutex of the runtime.
    Process(tokio::sync::Mutex<()>),
}

impl Yardstick {
    /// The yardstick for the store of that URL.
    pub(crate) fn beside(url: &str) -> Result<Self, Error> {
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
            Error::new(leasehold::ErrorKind::Unavailable, "the yardstick's file cannot be opened")
                .with_source(error)
        })?;
        Ok(Self::Sqlite(connection))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "two bare transactions",
            Self::Process(_) => "tokio::sync::Mutex",
        }
    }

    /// Does the work of one lock and one release.
    pub(crate) async fn pair(&self) {
        match self {
            Self::Sqlite(connection) => {
                for owner in [Some("token"), None] {
                    let mut statement = connection
                        .prepare_cached("UPDATE lock SET owner = ?1 WHERE key = 'a'")
                        .expect("the table is there");
                    statement.execute([owner]).expect("nobody else uses the file");
                }
            }
            Self::Process(mutex) => drop(mutex.lock().await),
        }
    }
}
