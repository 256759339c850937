//! A schema with the tables of Leasehold, in a database of its own, lent to one test.
//!
//! Clients on virtual time draw their ids from a seed, so clients of different tests have the same
//! ids. Messages are for a whole database. In one database, tests would get the messages of other
//! tests.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::server::PostgresServer;

/// Schemas of the shared server that no test has now.
static IDLE: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

/// How often the server is asked whether the sessions have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

static MADE: AtomicU32 = AtomicU32::new(0);

/// A schema with the tables of Leasehold, in a database of its own. Its clock is the server's until
/// the test freezes it.
pub struct Schema {
    server: &'static PostgresServer,
    /// `Some` until it is dropped.
    lent: Option<Lent>,
}

struct Lent {
    database: String,
    clock: File,
}

impl Schema {
    /// An empty schema of the [shared](PostgresServer::shared) server.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    #[must_use]
    pub fn lend() -> Self {
        let server = PostgresServer::shared();
        let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let lent = idle.unwrap_or_else(|| make(server));
        let schema = Self { server, lent: Some(lent) };
        schema.run_free();
        schema.clear();
        schema
    }

    /// Ends the sessions of the test before, and removes its rows. A late request of that test
    /// could wait for `TRUNCATE` while `TRUNCATE` waits for it.
    fn clear(&self) {
        const ROUNDS_MAX: usize = 100;
        const END_OTHERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()";
        for _ in 0..ROUNDS_MAX {
            if self.sql(END_OTHERS)[0][0] == "0" {
                break;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
        self.sql(
            "TRUNCATE leasehold.locks, leasehold.shares, leasehold.places, leasehold.clients;
            UPDATE leasehold.meta SET counter_floor = 0, purge_after = '', purge_due = 0",
        );
    }

    fn lent(&self) -> &Lent {
        self.lent.as_ref().expect("it is there until it is dropped")
    }

    /// The name of its database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.lent().database
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &'static PostgresServer {
        self.server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.database_url(self.database())
    }

    /// Runs statements in its database, as a user with all rights.
    ///
    /// # Panics
    ///
    /// If the server refuses them.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        self.server.sql_in(self.database(), sql)
    }

    /// Freezes its clock at that many microseconds after 1970.
    ///
    /// # Panics
    ///
    /// If the file of the clock cannot be written.
    pub fn freeze_at(&self, unix_us: u64) {
        let text = format!("{unix_us:020}");
        self.lent().clock.write_all_at(text.as_bytes(), 0).expect("the file takes 20 bytes");
    }

    /// Shows the time of the server again.
    pub fn run_free(&self) {
        self.freeze_at(0);
    }
}

fn make(server: &'static PostgresServer) -> Lent {
    let database = format!("test{}", MADE.fetch_add(1, Ordering::Relaxed));
    server.sql(&format!("CREATE DATABASE {database}"));
    server.migrate(&database);
    let path: PathBuf = server.files().join(format!("clock-{database}"));
    let clock = File::create_new(&path).expect("the folder takes files");
    let clock_of_file = format!(
        "CREATE OR REPLACE FUNCTION leasehold.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
            SELECT CASE t WHEN 0 THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                ELSE t END FROM (SELECT pg_read_file('{}')::bigint AS t) AS read
        $$",
        path.display()
    );
    server.sql_in(&database, &clock_of_file);
    Lent { database, clock }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({} of {:?})", self.database(), self.server)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // The schema of a failed test may still be in use.
        if let Some(lent) = self.lent.take().filter(|_| !std::thread::panicking()) {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(lent);
        }
    }
}
