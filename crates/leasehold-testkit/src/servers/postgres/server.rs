//! A PostgreSQL server that a test starts, kills and restarts.

use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use crate::servers::disk::Disk;
use crate::servers::kept::Kept;
use crate::servers::port::Port;
use crate::servers::process::{find, in_path};
use crate::servers::{Identity, PATIENCE};

/// The user that the server runs as if the tests run as root, whom the server refuses.
pub(super) const USER: &str = "postgres";

/// The folder in which Debian and Ubuntu have the programs, by version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The settings: little memory, no waiting for the disk, nothing in the background.
const SETTINGS: &str = "fsync = off
full_page_writes = off
shared_buffers = 16MB
max_connections = 1000
autovacuum = off
jit = off
password_encryption = 'scram-sha-256'
listen_addresses = '127.0.0.1'
max_wal_senders = 0
hot_standby = on
log_min_messages = warning
";

/// The settings of a server whose disk a test fills. It soon needs room for the next file of its
/// log, and keeps no old files for that.
const SMALL_FILES: &str = "min_wal_size = 2MB\nmax_wal_size = 16MB\nwal_recycle = off\n";

/// How often a starting server is asked whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Only the user `locked` needs a password.
const LOGINS: &str = "host all locked 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
local all all trust
";

/// A private PostgreSQL server on 127.0.0.1 and on a socket, which ends with this process.
pub struct PostgresServer {
    /// `None` if the keeper removes it.
    home: Option<TempDir>,
    data: PathBuf,
    port: Port,
    process: Kept,
    /// The disk with its data, if it has one of its own. It is last, so that the server ends first.
    disk: Option<Disk>,
}

impl PostgresServer {
    /// The server that all tests of this process share. They must not stop it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let mut server = Self::start();
            // A static is never dropped. The keeper removes the folder.
            let _path = server.home.take().map(TempDir::keep);
            server
        })
    }

    /// Starts a server of its own for a test.
    ///
    /// # Panics
    ///
    /// If a program is missing or the server does not start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_by(None, None)
    }

    /// Like [`start`](Self::start), with its data on a [disk](Self::disk) of its own.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start), or if no disk can be mounted.
    #[must_use]
    pub fn start_on_disk() -> Self {
        Self::start_by(None, Some(Disk::for_server()))
    }

    /// Like [`start`](Self::start), with TLS by this certificate.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(identity: &Identity) -> Self {
        Self::start_by(Some(identity), None)
    }

    fn start_by(identity: Option<&Identity>, disk: Option<Disk>) -> Self {
        let home = tempfile::Builder::new().prefix("leasehold-pg-").tempdir();
        let home = home.expect("a temporary directory");
        let folder = home.path().to_owned();
        let data = disk.as_ref().map_or(&*folder, Disk::folder);
        if is_root() {
            own(&folder);
            own(data);
        }
        let data = data.join("data");
        make(&data, disk.is_some());
        fs::write(data.join("pg_hba.conf"), LOGINS).expect("the folder takes files");
        let port = Port::reserve();
        let socket = folder.display();
        let more = if disk.is_some() { SMALL_FILES } else { "" };
        let settings = format!("{SETTINGS}{more}unix_socket_directories = '{socket}'\n");
        let settings = format!("{settings}port = {}\n", port.number());
        let mut file = File::options().append(true).open(data.join("postgresql.conf"));
        let file = file.as_mut().expect("initdb made it");
        file.write_all(settings.as_bytes()).expect("the folder takes files");
        if let Some(identity) = identity {
            // The server refuses a key that other users own or may read.
            for (from, to) in [(&identity.cert, "server.crt"), (&identity.key, "server.key")] {
                let to = data.join(to);
                fs::copy(from, &to).expect("the folder takes files");
                fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("it is ours");
                if is_root() {
                    chown(&to);
                }
            }
            file.write_all(b"ssl = on\n").expect("the folder takes files");
        }
        // By QUIT, the main process also ends its children.
        let (home, process) = (Some(home), Kept::ended_by("QUIT", folder));
        let server = Self { home, data, port, process, disk };
        server.restart();
        server.sql("CREATE ROLE locked LOGIN PASSWORD 'secret'");
        server
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// A folder for files that functions of the server read.
    pub(super) fn files(&self) -> &Path {
        &self.process.folder
    }

    /// The URL of a schema, over TCP, as a user with all rights.
    #[must_use]
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres?schema={schema}", self.port())
    }

    /// The URL of another database, over TCP, as a user with all rights.
    #[must_use]
    pub fn database_url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port())
    }

    /// The URL of another database, over the socket.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        let folder = self.process.folder.display();
        format!("postgres://{USER}@:{}/{database}?host={folder}", self.port())
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

    /// Stops the server in an orderly way. Keeps its files.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub fn stop(&self) {
        self.process.end("INT");
    }

    /// Stops all its processes by SIGSTOP, so that it is silent and keeps its connections.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self) {
        let main = self.process.pid();
        signal(main, Signal::STOP);
        // The main process is stopped, so it adds no more children.
        self.children_of(main).into_iter().for_each(|child| signal(child, Signal::STOP));
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self) {
        let main = self.process.pid();
        self.children_of(main).into_iter().for_each(|child| signal(child, Signal::CONT));
        signal(main, Signal::CONT);
    }

    fn children_of(&self, main: Pid) -> Vec<Pid> {
        let main = main.as_raw_nonzero();
        let listed = fs::read_to_string(format!("/proc/{main}/task/{main}/children"));
        let listed = listed.unwrap_or_else(|error| panic!("{self:?}: {error}"));
        listed.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }

    /// Makes the schema of Leasehold in a database.
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
            .expect("the schema is made");
    }

    /// Makes a stopped server a standby from its next start on, with no primary to follow.
    ///
    /// # Panics
    ///
    /// If its folder cannot be written.
    pub fn become_standby(&self) {
        fs::write(self.data.join("standby.signal"), "").expect("the folder takes files");
    }

    /// Starts it again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        self.process.start(as_user(&program("postgres")).arg("-D").arg(&self.data));
        let until = Instant::now() + PATIENCE;
        while self.ask("postgres", "SELECT 1").is_err() {
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
        self.sql_in("postgres", sql)
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

    /// Like [`sql`](Self::sql), at a server that may refuse them or not answer.
    ///
    /// # Errors
    ///
    /// The text of the error.
    pub fn try_sql(&self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.ask("postgres", sql)
    }

    fn ask(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        let socket = self.process.folder.join(format!(".s.PGSQL.{}", self.port()));
        let asking = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(ask(&socket, database, sql))
        };
        // The caller may be in the context of another runtime.
        std::thread::scope(|scope| scope.spawn(asking).join().expect("no panic"))
    }
}

async fn ask(socket: &Path, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let shown = |error: tokio_postgres::Error| match error.as_db_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    };
    let stream = tokio::net::UnixStream::connect(socket).await.map_err(|it| it.to_string())?;
    let mut config = Config::new();
    let connecting = config.user(USER).dbname(database).connect_raw(stream, NoTls);
    let (client, connection) = connecting.await.map_err(shown)?;
    let moving = tokio::spawn(connection);
    let answer = client.simple_query(sql).await.map_err(shown)?;
    drop(client);
    let _ended = moving.await;
    let rows = answer.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresServer(port {})", self.port())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the log of {self:?}:\n{}", self.process.last_words());
        }
    }
}

/// Sends a signal. A process that has ended meanwhile needs none.
fn signal(process: Pid, signal: Signal) {
    let _ = kill_process(process, signal);
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn chown(path: &Path) {
    let status = Command::new("chown").arg(USER).arg(path).status().expect("chown runs");
    assert!(status.success(), "there is no user `{USER}`; install the package `postgresql`");
}

/// Gives a folder to the user of the server.
pub(super) fn own(folder: &Path) {
    chown(folder);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Makes the files of a server. The files of its log are small if `is_small`.
fn make(data: &Path, is_small: bool) {
    let mut initdb = as_user(&program("initdb"));
    initdb.args(["--no-sync", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", USER]);
    initdb.args(is_small.then_some("--wal-segsize=1"));
    let made = initdb.arg("-D").arg(data).output().expect("initdb runs");
    assert!(made.status.success(), "initdb failed: {}", said(&made));
}

/// A command that runs as a user whom the server accepts.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new(find("setpriv", "util-linux"));
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
    // The user may read this folder.
    command.current_dir("/");
    command
}

/// The path of a program: the one in PATH, or else the one of the newest PostgreSQL on this
/// machine.
fn program(name: &str) -> PathBuf {
    if let Some(path) = in_path(name) {
        return path;
    }
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let found = versions.filter_map(|version| {
        let number: u32 = version.file_name().to_str()?.parse().ok()?;
        let path = version.path().join("bin").join(name);
        path.is_file().then_some((number, path))
    });
    found.max().map_or_else(|| find(name, "postgresql"), |(_, path)| path)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}
