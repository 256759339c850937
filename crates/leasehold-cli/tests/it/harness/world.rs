//! A home and a store that only one test uses.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use leasehold_testkit::servers::{RedisServer, Schema};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::{finish, start_with_default_signals};

/// How long a counter may stay after its lock was released.
const FENCE_IDLE_MS: i64 = 600_000;

/// The longest ttl of a lease.
const TTL_MAX_MS: i64 = 86_400_000;

/// A home and a store that only one test uses.
pub(crate) struct World {
    server: Option<RedisServer>,
    schema: Option<Schema>,
    dir: TempDir,
}

impl World {
    /// A world with a store in a file.
    pub(crate) fn sqlite() -> Self {
        Self::with(None, None)
    }

    /// A world with a server.
    #[track_caller]
    pub(crate) fn redis() -> Self {
        Self::on(RedisServer::start())
    }

    /// A world with this server.
    pub(crate) fn on(server: RedisServer) -> Self {
        Self::with(Some(server), None)
    }

    /// A world with a schema of a PostgreSQL server.
    #[track_caller]
    pub(crate) fn postgres() -> Self {
        Self::with(None, Some(Schema::lend()))
    }

    /// The schema of a world with one.
    #[track_caller]
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.as_ref().expect("a world with a schema")
    }

    fn with(server: Option<RedisServer>, schema: Option<Schema>) -> Self {
        start_with_default_signals();
        Self { server, schema, dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// The server of a world with a server.
    #[track_caller]
    pub(crate) fn server(&self) -> &RedisServer {
        self.server.as_ref().expect("a world with a server")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file of a world with a file.
    #[track_caller]
    pub(crate) fn database(&self) -> PathBuf {
        assert!(self.server.is_none() && self.schema.is_none(), "a world with a file");
        self.path("locks.db")
    }

    pub(crate) fn url(&self) -> String {
        match (&self.server, &self.schema) {
            (Some(server), _) => server.url(),
            (None, Some(schema)) => schema.url(),
            (None, None) => format!("sqlite:{}", self.database().display()),
        }
    }

    /// The name of the store without its password.
    pub(crate) fn label(&self) -> String {
        match &self.server {
            Some(server) => format!("{}/0", server.url()),
            None => self.url(),
        }
    }

    /// `leasehold` in this world, without a store named.
    pub(crate) fn bare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null()).current_dir(self.dir.path());
        command
    }

    /// `leasehold` on the store of this world.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.bare();
        command.arg("--url").arg(self.url()).args(args);
        command
    }

    /// `leasehold run NAME FLAGS -- sh -c SCRIPT`, with the directory of this world as `$1`.
    pub(crate) fn run(&self, name: &str, flags: &[&str], script: &str) -> Command {
        self.under(["run", name], flags, script)
    }

    /// `leasehold elect NAME FLAGS -- sh -c SCRIPT`, with the directory of this world as `$1`.
    pub(crate) fn elect(&self, name: &str, flags: &[&str], script: &str) -> Command {
        self.under(["elect", name], flags, script)
    }

    fn under(&self, what: [&str; 2], flags: &[&str], script: &str) -> Command {
        let mut command = self.leasehold(what);
        command.args(flags).args(["--", "sh", "-c", script, "sh"]).arg(self.dir.path());
        command
    }

    /// Makes the file of the store. Only a command that takes a lock makes one.
    #[track_caller]
    pub(crate) fn make_store(&self) {
        finish(self.leasehold(["run", "none", "--", "true"])).code(0);
    }

    /// Whether there is no store yet, since nobody has taken a lock.
    fn has_no_store(&self) -> bool {
        let is_file = self.server.is_none() && self.schema.is_none();
        is_file && !self.database().exists()
    }

    /// The lock object of `inspect --json`.
    pub(crate) fn inspect(&self, name: &str) -> Value {
        if self.has_no_store() {
            return json!({ "state": "free", "holders": [], "waiters": [] });
        }
        let seen = finish(self.leasehold(["inspect", name, "--json"]));
        assert!(seen.status.success(), "{}", seen.stderr);
        serde_json::from_str(&seen.stdout).expect("JSON")
    }

    pub(crate) fn state(&self, name: &str) -> String {
        self.inspect(name)["state"].as_str().expect("a state").to_owned()
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.inspect(name)["waiters"].as_array().expect("waiters").len()
    }

    /// How many clients wait. Of a long line, `inspect` names only the first ones.
    pub(crate) fn waiting(&self, name: &str) -> usize {
        let seen = finish(self.leasehold(["inspect", name])).stdout;
        let waiting = seen.lines().find_map(|line| line.trim().strip_prefix("waiting "));
        waiting.map_or(0, |count| count.trim().parse().expect("a number"))
    }

    /// Asserts that no bell is left: no waiter is registered for a wake-up. Only files have bells.
    #[track_caller]
    pub(crate) fn assert_no_bell_left(&self) {
        let bells = self.path("locks.db-bells");
        assert_eq!(std::fs::read_dir(bells).map_or(0, Iterator::count), 0, "a bell was left");
    }

    /// Asserts that no lease and no place is left in the store.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        if self.has_no_store() {
            return;
        }
        let seen = finish(self.leasehold(["ls", "--json"]));
        assert!(seen.status.success(), "{}", seen.stderr);
        assert_eq!(seen.stdout, "", "something is held or waited for");
        if let Some(server) = &self.server {
            assert_remains_expire(server);
        }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// Asserts that an unused server keeps only counters, numbers of permits, the times of openings and
/// client records, and that these expire.
#[track_caller]
fn assert_remains_expire(server: &RedisServer) {
    for key in server.command(&["KEYS", "*"]).texts() {
        // The key `:lh:shares` of a semaphore keeps the number of its permits.
        let is_record = key.starts_with(":lh:client:");
        let stays = is_record
            || [":lh:fence", ":lh:shares", ":lh:open"].iter().any(|end| key.ends_with(end));
        assert!(stays, "`{key}` was left behind");
        let left = server.command(&["PTTL", &key]).int();
        // The key may have expired between the two commands. The record of a client outlives each
        // of its leases.
        let most = FENCE_IDLE_MS + if is_record { TTL_MAX_MS } else { 0 };
        assert!((1..=most).contains(&left) || left == -2, "`{key}`: {left} ms");
    }
}
