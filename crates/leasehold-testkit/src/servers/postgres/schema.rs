//! A schema with the tables of Leasehold, lent to one test.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;

use super::server::PostgresServer;

/// Schemas of the shared server that no test has now.
static IDLE: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

static MADE: AtomicU32 = AtomicU32::new(0);

/// A schema with the tables of Leasehold, on a server. Its clock is the server's until the test
/// freezes it.
pub struct Schema {
    server: &'static PostgresServer,
    /// `Some` until it is dropped.
    lent: Option<Lent>,
}

struct Lent {
    name: String,
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
        let name = schema.name();
        server.sql(&format!(
            "TRUNCATE {name}.locks, {name}.shares, {name}.places, {name}.clients;
            UPDATE {name}.meta SET counter_floor = 0, purge_after = '', purge_due = 0"
        ));
        schema
    }

    fn lent(&self) -> &Lent {
        self.lent.as_ref().expect("it is there until it is dropped")
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.lent().name
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &'static PostgresServer {
        self.server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(self.name())
    }

    /// Runs a statement in which `leasehold.` stands for this schema.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        self.server.sql(&sql.replace("leasehold.", &format!("{}.", self.name())))
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
    let name = format!("test{}", MADE.fetch_add(1, Ordering::Relaxed));
    let url = server.socket_url(&name);
    let migrating = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(migrate(&url, SystemHost::shared()))
    };
    std::thread::scope(|scope| scope.spawn(migrating).join().expect("no panic"))
        .expect("the schema is made");
    let path: PathBuf = server.files().join(format!("clock-{name}"));
    let clock = File::create_new(&path).expect("the folder takes files");
    server.sql(&format!(
        "CREATE OR REPLACE FUNCTION {name}.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
            SELECT CASE t WHEN 0 THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
                ELSE t END FROM (SELECT pg_read_file('{}')::bigint AS t) AS read
        $$",
        path.display()
    ));
    Lent { name, clock }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({} of {:?})", self.name(), self.server)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // What a failed test leaves behind may still be in use.
        if let Some(lent) = self.lent.take().filter(|_| !std::thread::panicking()) {
            IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(lent);
        }
    }
}
