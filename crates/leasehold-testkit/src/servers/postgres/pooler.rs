//! A PgBouncer in front of a PostgreSQL server.

use std::fmt;
use std::fs::{self, File};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::server::{USER, is_root, own};
use crate::servers::PATIENCE;
use crate::servers::port::Port;
use crate::servers::process::{Process, find, tail};

/// The package of Debian and Ubuntu, which has the same name as its program.
const PROGRAM: &str = "pgbouncer";

/// How often a starting pooler is asked whether it listens.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// How long the pooler lends a connection of the server to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lends {
    /// Until the client closes its own connection.
    Session,
    /// For one transaction.
    Transaction,
    /// For one message. Transactions of several messages are refused.
    Statement,
}

/// A private PgBouncer on 127.0.0.1 in front of one server. It has three connections to each
/// database, and ends when this is dropped.
pub struct Pooler {
    _home: TempDir,
    log: File,
    port: Port,
    process: Process,
}

impl Pooler {
    /// Starts a pooler in front of the server at a port.
    ///
    /// # Panics
    ///
    /// If the program is missing or does not start. The message says what to install.
    #[must_use]
    pub fn start(server_port: u16, lends: Lends) -> Self {
        let home = tempfile::Builder::new().prefix("leasehold-pooler-").tempdir();
        let home = home.expect("a temporary directory");
        let (port, settings) = (Port::reserve(), home.path().join("settings"));
        let mode = match lends {
            Lends::Session => "session",
            Lends::Transaction => "transaction",
            Lends::Statement => "statement",
        };
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port} user={USER}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = 3\n",
            port.number()
        );
        fs::write(&settings, text).expect("the folder takes files");
        let settings = settings.to_str().expect("a path of letters");
        let log = tempfile::tempfile().expect("a file");
        let program = find_program();
        let process = if is_root() {
            // PgBouncer refuses root, too. A change of the user clears the parent-death signal, so
            // `setpriv` sets it after the change.
            own(home.path());
            let args = ["--reuid", USER, "--regid", USER, "--clear-groups", "--pdeathsig", "KILL"];
            let args = [&args[..], &[&program, settings]].concat();
            Process::start("setpriv", &args, &[], &log)
        } else {
            Process::start(&program, &[settings], &[], &log)
        };
        let process = process.expect("it can be started");
        let pooler = Self { _home: home, log, port, process };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", pooler.port())).is_err() {
            let is_there = Instant::now() < until && !pooler.process.ends_within(Duration::ZERO);
            assert!(is_there, "no pooler: {}", tail(&pooler.log));
            std::thread::park_timeout(LOOK_EVERY);
        }
        pooler
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port())
    }

    /// How many messages of the server were for no client, by the last part of the pooler's log.
    #[must_use]
    pub fn strays(&self) -> usize {
        tail(&self.log).matches("packet 'A' from server when not linked").count()
    }
}

/// The path of the program. Debian keeps it in a folder that only the PATH of root contains.
fn find_program() -> String {
    let path = format!("/usr/sbin/{PROGRAM}");
    if fs::exists(&path).unwrap_or(false) {
        return path;
    }
    find(PROGRAM, PROGRAM).to_str().expect("a path of letters").to_owned()
}

impl fmt::Debug for Pooler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pooler(port {})", self.port())
    }
}
