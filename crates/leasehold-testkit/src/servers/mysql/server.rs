//! A MariaDB or MySQL server that a test starts, kills and restarts.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use leasehold::host::SystemHost;
use leasehold::store::mysql::migrate;
use rustix::process::Signal;
use tempfile::TempDir;

use super::make::Make;
use crate::servers::disk::Disk;
use crate::servers::kept::Kept;
use crate::servers::port::Port;
use crate::servers::process::find;
use crate::servers::{Identity, PATIENCE};

/// A file system in memory, which a slow disk does not slow down.
const MEMORY: &str = "/dev/shm";

/// How much room a server needs in that file system, in MiB.
const ROOM_MIB: u64 = 1_024;

/// The settings: little memory, no waiting for the disk, and commits that a kill does not undo.
const SETTINGS: [&str; 9] = [
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=16M",
    "--skip-log-bin",
    "--sync-binlog=0",
    "--skip-name-resolve",
    "--bind-address=127.0.0.1",
    "--performance-schema=off",
    "--max-connections=500",
];

/// The settings of a server whose disk a test fills. Each commit needs room in the binary log.
/// Without that log, locks need no new room. Old files of the log are soon deleted.
const WITH_BINARY_LOG: [&str; 5] = [
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-format=ROW",
    "--max-binlog-size=1M",
    "--binlog-expire-logs-seconds=10",
];

/// How often a starting server is asked whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How many seconds a server may take to commit a small change.
const COMMIT_LIMIT_S: &str = "2";

/// A private server on 127.0.0.1 and on a socket, which ends with this process.
pub struct MysqlServer {
    /// `None` if the keeper removes it.
    home: Option<TempDir>,
    data: PathBuf,
    port: Port,
    /// The settings for TLS.
    tls: Vec<String>,
    process: Kept,
    /// The disk with its data, if it has one of its own. It is last, so that the server ends first.
    disk: Option<Disk>,
}

impl MysqlServer {
    /// The server that all tests of this process share. They must not stop it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MysqlServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut server = Self::start();
            // A static is never dropped. The keeper removes the folder.
            let _path = server.home.take().map(TempDir::keep);
            server
        })
    }

    /// Starts a server of its own for a test. MySQL makes itself a certificate.
    ///
    /// # Panics
    ///
    /// If a program is missing or the server does not start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_by(Vec::new(), None)
    }

    /// Like [`start`](Self::start), with its data on a [disk](Self::disk) of its own, and with a
    /// binary log.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start), or if no disk can be mounted.
    #[must_use]
    pub fn start_on_disk() -> Self {
        Self::start_by(Vec::new(), Some(Disk::for_server()))
    }

    /// Like [`start`](Self::start), without TLS.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_without_tls() -> Self {
        let tls = Make::of_tests().without_tls().iter().map(ToString::to_string).collect();
        Self::start_by(tls, None)
    }

    /// Whether it is MariaDB, and not MySQL.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        Make::of_tests() == Make::MariaDb
    }

    /// Like [`start`](Self::start), with TLS by this certificate.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(identity: &Identity) -> Self {
        let cert = format!("--ssl-cert={}", identity.cert.display());
        Self::start_by(vec![cert, format!("--ssl-key={}", identity.key.display())], None)
    }

    fn start_by(tls: Vec<String>, disk: Option<Disk>) -> Self {
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix("leasehold-my-");
        let home = if has_room() { builder.tempdir_in(MEMORY) } else { builder.tempdir() };
        let home = home.expect("a temporary directory");
        let folder = home.path().to_owned();
        let data = disk.as_ref().map_or(&*folder, Disk::folder).join("data");
        let mut install = Make::of_tests().install();
        install.args(as_root()).args(SETTINGS);
        let temporary = folder.join("tmp");
        fs::create_dir(&temporary).expect("the folder takes folders");
        install.arg(format!("--tmpdir={}", temporary.display()));
        let made = install.arg(format!("--datadir={}", data.display())).output();
        let made = made.expect("the program runs");
        let said = [&made.stdout[..], &made.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(made.status.success(), "{install:?} failed: {said}");
        let (home, process) = (Some(home), Kept::new(folder));
        let server = Self { home, data, port: Port::reserve(), tls, process, disk };
        server.restart();
        server.sql(
            "CREATE USER app@'127.0.0.1'; GRANT ALL ON *.* TO app@'127.0.0.1';
            CREATE USER locked@'127.0.0.1' IDENTIFIED BY 'secret';
            GRANT ALL ON *.* TO locked@'127.0.0.1';
            CREATE USER locked@localhost IDENTIFIED BY 'secret';
            GRANT ALL ON *.* TO locked@localhost; CREATE USER poor@'127.0.0.1'",
        );
        server
    }

    /// The path of its socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.process.folder.join("socket")
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL of a database, over TCP, as a user with all rights.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("mysql://app@127.0.0.1:{}/{database}", self.port())
    }

    /// The URL of a database, over the socket.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        format!("mysql://root@/{database}?socket={}", self.socket().display())
    }

    /// The disk with its data.
    ///
    /// # Panics
    ///
    /// If it was not started [on one](Self::start_on_disk).
    #[must_use]
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("the server was started on a disk of its own")
    }

    /// Ends the server at once, as a crash does. Keeps its files.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Stops it by SIGSTOP, so that it is silent and keeps its connections.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Makes the tables of Leasehold in a database.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn migrate(&self, database: &str) {
        let url = self.socket_url(database);
        let migrating = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(migrate(&url, SystemHost::shared()))
        };
        std::thread::scope(|scope| scope.spawn(migrating).join().expect("no panic"))
            .expect("the tables are made");
    }

    /// Starts it again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        let path = |name: &str| self.process.folder.join(name).display().to_string();
        let mut command = Make::of_tests().server();
        command.args(as_root()).args(SETTINGS);
        if self.disk.is_some() {
            command.args(WITH_BINARY_LOG);
        }
        command.args(&self.tls).args([
            format!("--datadir={}", self.data.display()),
            // A server that starts removes all temporary tables in this folder, even those of other
            // servers.
            format!("--tmpdir={}", path("tmp")),
            format!("--socket={}", path("socket")),
            format!("--pid-file={}", path("pid-file")),
            format!("--port={}", self.port()),
        ]);
        self.process.start(&command);
        let until = Instant::now() + PATIENCE;
        while self.ask("mysql", "SELECT 1").is_err() {
            assert!(Instant::now() < until, "no server: {}", self.process.last_words());
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Runs statements as a user with all rights. Returns the rows.
    ///
    /// # Panics
    ///
    /// If the server refuses them.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        self.sql_in("mysql", sql)
    }

    /// Like [`sql`](Self::sql), in another database.
    ///
    /// # Panics
    ///
    /// If the server refuses them.
    #[track_caller]
    pub fn sql_in(&self, database: &str, sql: &str) -> Vec<Vec<String>> {
        self.ask(database, sql).unwrap_or_else(|error| panic!("`{sql}` failed: {error}"))
    }

    /// Whether it commits a change soon.
    pub(crate) fn commits(&self) -> bool {
        let mut client = Command::new(find("timeout", "coreutils"));
        client.arg(COMMIT_LIMIT_S).arg(find("mariadb", "mariadb-client"));
        // The statement goes into the binary log even if the database exists.
        self.said_by(client, "mysql", "CREATE DATABASE IF NOT EXISTS leasehold_probe").is_ok()
    }

    fn ask(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.said_by(Command::new(find("mariadb", "mariadb-client")), database, sql)
    }

    fn said_by(
        &self,
        mut client: Command,
        database: &str,
        sql: &str,
    ) -> Result<Vec<Vec<String>>, String> {
        client.args(["--no-defaults", "--user=root", "--batch", "--skip-column-names"]);
        client.arg("--skip-ssl");
        client.arg(format!("--socket={}", self.socket().display()));
        let answer = client.args([database, "--execute", sql]).output();
        let answer = answer.map_err(|error| error.to_string())?;
        if !answer.status.success() {
            return Err(String::from_utf8_lossy(&answer.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&answer.stdout);
        Ok(text.lines().map(|row| row.split('\t').map(str::to_owned).collect()).collect())
    }
}

/// Whether the file system in memory has room.
fn has_room() -> bool {
    let room = rustix::fs::statvfs(Path::new(MEMORY));
    room.is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >> 20 >= ROOM_MIB)
}

/// The flag for root, as whom the server refuses to run otherwise.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

impl fmt::Debug for MysqlServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlServer(port {})", self.port())
    }
}

impl Drop for MysqlServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the log of {self:?}:\n{}", self.process.last_words());
        }
    }
}
