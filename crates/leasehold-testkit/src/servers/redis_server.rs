//! A Redis server that a test starts, pauses, kills and restarts.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::PATIENCE;
use super::certificates::{Authority, Identity};
use super::clock::ServerClock;
use super::disk::Disk;
use super::port::Port;
use super::process::{Process, find, tail};
use super::redis_program::{default_program, version_of};
use super::resp::{Client, Reply};

/// How often a starting server is asked whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A private `redis-server` on a free port of 127.0.0.1, and on a socket in its own directory. The
/// variable `LEASEHOLD_TEST_SERVER` names another program, such as `valkey-server`, by its name or
/// absolute path.
///
/// It writes nothing to disk unless configured to. It is killed when this is dropped, even by a
/// panic. It is also killed when the test process ends, in whatever way. If a test fails, the
/// server's log is printed.
///
/// ```
/// use leasehold_testkit::servers::RedisServer;
///
/// let server = RedisServer::start();
/// server.command(&["SET", "key", "value"]);
/// assert_eq!(server.command(&["GET", "key"]).text(), "value");
/// ```
pub struct RedisServer {
    program: &'static str,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    env: Vec<(&'static str, String)>,
    clock: Option<ServerClock>,
    log: File,
    process: Mutex<Option<Process>>,
    paused: AtomicBool,
    client: Mutex<Option<Client>>,
    /// The files come last, so that the process ends before they are deleted. `None` after the
    /// server has left its directory.
    home: Option<TempDir>,
    /// The disk with its data, if it has one of its own.
    disk: Option<Disk>,
}

/// The settings of a [`RedisServer`].
#[derive(Clone, Debug)]
#[must_use = "a server is started by `start`"]
pub struct RedisServerBuilder {
    program: &'static str,
    lines: Vec<(String, String)>,
    clock: bool,
    tls: bool,
    disk: bool,
}

impl Default for RedisServerBuilder {
    fn default() -> Self {
        let lines = Vec::new();
        Self { program: default_program(), lines, clock: false, tls: false, disk: false }
    }
}

impl RedisServerBuilder {
    /// Sets another program than `redis-server`, such as `valkey-server`, which takes the same
    /// configuration. It is looked up on PATH.
    pub fn program(mut self, program: &'static str) -> Self {
        self.program = program;
        self
    }

    /// Adds a line to the configuration, quoted as in `redis.conf`. A later line with the same name
    /// replaces the kit's own.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.lines.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Allows the command DEBUG. Redis 7.0 and later forbid it by default.
    pub fn with_debug(self) -> Self {
        if version_of(self.program) < (7, 0) {
            return self;
        }
        self.config("enable-debug-command", "yes")
    }

    /// Adds a [clock](RedisServer::clock) that the test controls.
    pub fn with_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Puts the data on a [disk](RedisServer::disk) of its own, if `wanted`.
    pub fn on_disk(mut self, wanted: bool) -> Self {
        self.disk = wanted;
        self
    }

    /// Adds a port that speaks TLS, with this certificate. Clients need none, unless
    /// `tls-auth-clients` says so. It trusts clients of this authority.
    pub fn with_tls(mut self, identity: &Identity, authority: &Authority) -> Self {
        self.tls = true;
        let files = [
            ("tls-cert-file", identity.cert.as_path()),
            ("tls-key-file", identity.key.as_path()),
            ("tls-ca-cert-file", authority.ca()),
        ];
        for (name, path) in files {
            self = self.config(name, path.to_str().expect("a path in UTF-8"));
        }
        self.config("tls-auth-clients", "no")
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start. The message contains its log, or says what to install.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> RedisServer {
        find(self.program, self.program);
        let home = tempfile::Builder::new().prefix("redis").tempdir();
        let home = home.expect("a temporary directory");
        let has_bus = self.lines.iter().any(|(name, _)| name == "cluster-enabled");
        let reserve = if has_bus { Port::reserve_with_bus } else { Port::reserve };
        let (port, tls_port) = (reserve(), self.tls.then(reserve));
        let at = |name| home.path().join(name);
        let options = File::options().read(true).append(true).create_new(true).open(at("log"));
        let log = options.expect("the directory takes files");
        let disk = self.disk.then(Disk::for_server);
        let mut config = format!(
            "bind 127.0.0.1\nport {}\nunixsocket {}\ndir {}\nsave \"\"\nappendonly no\n",
            port.number(),
            at("socket").display(),
            disk.as_ref().map_or_else(|| home.path(), Disk::folder).display(),
        );
        if let Some(port) = &tls_port {
            config.push_str(&format!("tls-port {}\n", port.number()));
        }
        for (name, value) in &self.lines {
            config.push_str(&format!("{name} {value}\n"));
        }
        std::fs::write(at("redis.conf"), config).expect("the directory takes files");
        let (clock, env) = if self.clock {
            let (clock, env) = ServerClock::in_dir(home.path());
            (Some(clock), env.to_vec())
        } else {
            (None, Vec::new())
        };
        let password = self.lines.iter().rev().find(|(name, _)| name == "requirepass");
        let server = RedisServer {
            program: self.program,
            port,
            tls_port,
            password: password.map(|(_, value)| value.trim_matches('"').to_owned()),
            env,
            clock,
            log,
            process: Mutex::default(),
            paused: AtomicBool::new(false),
            client: Mutex::default(),
            home: Some(home),
            disk,
        };
        server.begin();
        server
    }
}

impl RedisServer {
    /// Starts a server with the default settings.
    ///
    /// # Panics
    ///
    /// Same as [`RedisServerBuilder::start`].
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Creates a builder for a server.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The URL of the server, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The URL of its TLS port, without options. The authority is to be added.
    ///
    /// # Panics
    ///
    /// If it was not built [`with_tls`](RedisServerBuilder::with_tls).
    #[must_use]
    #[track_caller]
    pub fn tls_url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.tls_port())
    }

    /// Its TLS port.
    #[track_caller]
    pub(crate) fn tls_port(&self) -> u16 {
        self.tls_port.as_ref().expect("the server was built with TLS").number()
    }

    /// Whether this is its TLS port.
    pub(super) fn has_tls_port(&self, port: u16) -> bool {
        self.tls_port.as_ref().is_some_and(|tls| tls.number() == port)
    }

    /// The URL of its socket.
    #[must_use]
    pub fn unix_url(&self) -> String {
        format!("unix:{}", self.path("socket").display())
    }

    /// Its port on 127.0.0.1, the same after every restart.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// The path of a file in its directory.
    ///
    /// # Panics
    ///
    /// If it has no directory any more, as a server of the [pool](super::pool).
    #[must_use]
    #[track_caller]
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.as_ref().expect("a server of the pool has no directory").path().join(name)
    }

    /// The path of a file of its data.
    ///
    /// # Panics
    ///
    /// Same as [`path`](Self::path).
    #[must_use]
    #[track_caller]
    pub fn data(&self, name: &str) -> PathBuf {
        self.disk.as_ref().map_or_else(|| self.path(name), |disk| disk.folder().join(name))
    }

    /// The disk with its data.
    ///
    /// # Panics
    ///
    /// If it was not built [`on_disk`](RedisServerBuilder::on_disk).
    #[must_use]
    #[track_caller]
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("the server was built with a disk of its own")
    }

    /// The id of its process.
    ///
    /// # Panics
    ///
    /// If it was killed.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> i32 {
        self.process().as_ref().expect("the server runs").pid()
    }

    /// The last part of its log.
    #[must_use]
    pub fn log(&self) -> String {
        tail(&self.log)
    }

    /// Its clock.
    ///
    /// # Panics
    ///
    /// If it was not built [`with_clock`](RedisServerBuilder::with_clock).
    #[must_use]
    #[track_caller]
    pub fn clock(&self) -> &ServerClock {
        self.clock.as_ref().expect("the server was built with a clock")
    }

    /// Stops it by SIGSTOP. Its connections stay open, but it answers nothing. It has stopped when
    /// this returns.
    ///
    /// # Panics
    ///
    /// If it was killed.
    #[track_caller]
    pub fn pause(&self) {
        self.process().as_ref().expect("the server runs").stop();
        self.paused.store(true, Ordering::Release);
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// If it was killed.
    #[track_caller]
    pub fn resume(&self) {
        self.process().as_ref().expect("the server runs").go_on();
        self.paused.store(false, Ordering::Release);
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Kills it by SIGKILL. It is dead when this returns. Its port stays reserved.
    pub fn kill(&self) {
        self.client().take();
        self.process().take();
        self.paused.store(false, Ordering::Release);
    }

    /// Kills it if it runs, and starts it again on the same port and in the same directory. It has
    /// the data that it was configured to keep.
    ///
    /// # Panics
    ///
    /// If it does not start. The message contains its log.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        // The old socket does no harm, but it looks like one with a server.
        let _ = std::fs::remove_file(self.path("socket"));
        self.begin();
    }

    /// Sends a command and returns the reply, as a user with all rights unless configured
    /// otherwise.
    ///
    /// # Panics
    ///
    /// If the server refuses the command, or does not answer.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        match self.try_command(args) {
            Ok(reply) => reply,
            Err(text) => panic!("`{}` was refused: {text}", shown(args)),
        }
    }

    /// Sends a command and returns the reply.
    ///
    /// # Errors
    ///
    /// The text of the server's error.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[track_caller]
    pub fn try_command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Reply, String> {
        let answer = self.ask(args);
        match answer.unwrap_or_else(|error| panic!("`{}` was not answered: {error}", shown(args))) {
            Reply::Error(text) => Err(text),
            reply => Ok(reply),
        }
    }

    /// Sends a command over a connection of its own. Returns nothing if the server does not answer,
    /// as in a failover.
    #[must_use]
    pub fn look(&self, args: &[&str]) -> Option<Reply> {
        self.connect().and_then(|mut client| client.ask(args)).ok()
    }

    /// Removes every key.
    ///
    /// # Panics
    ///
    /// Same as [`command`](Self::command).
    #[track_caller]
    pub fn flush(&self) {
        self.command(&["FLUSHALL"]);
    }

    /// Whether it was started and not killed.
    pub(super) fn runs(&self) -> bool {
        self.process().is_some()
    }

    /// Whether it runs and is not paused.
    pub(super) fn is_fit(&self) -> bool {
        !self.is_paused()
            && self.process().as_ref().is_some_and(|it| !it.ends_within(Duration::ZERO))
    }

    /// Removes its directory, so that nothing is left behind, however the server ends.
    pub(super) fn leave_home(&mut self) {
        self.home = None;
    }

    /// Opens a new connection.
    pub(super) fn connect(&self) -> io::Result<Client> {
        let mut client = Client::connect(self.port())?;
        if let Some(password) = &self.password {
            client.ask(&["AUTH", password])?;
        }
        Ok(client)
    }

    fn ask<A: AsRef<[u8]>>(&self, args: &[A]) -> io::Result<Reply> {
        let mut slot = self.client();
        let mut client = match slot.take().filter(Client::is_open) {
            Some(client) => client,
            None => self.connect()?,
        };
        let reply = client.ask(args)?;
        *slot = Some(client);
        Ok(reply)
    }

    #[track_caller]
    fn begin(&self) {
        let config = self.path("redis.conf").into_os_string().into_string();
        let config = config.expect("a path in UTF-8");
        let process = Process::start(self.program, &[&config], &self.env, &self.log);
        let process = process.expect("a process can be started");
        let began = Instant::now();
        while !self.answers() {
            if process.ends_within(LOOK_EVERY) {
                panic!("the Redis server ended while it started; its log:\n{}", self.log());
            }
            if began.elapsed() > PATIENCE {
                panic!("the Redis server is not ready in {PATIENCE:?}; its log:\n{}", self.log());
            }
        }
        *self.process() = Some(process);
    }

    fn answers(&self) -> bool {
        let answer = self.connect().and_then(|mut client| client.ask(&["PING"]));
        match answer {
            Ok(Reply::Status(_)) => true,
            // The server runs, but demands a password or rights. A test may want that.
            Ok(Reply::Error(text)) => text.starts_with("NO"),
            _ => false,
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        // The state is used as it is, even if a test has failed.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisServer(port {})", self.port())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {self:?}:\n{}", self.log());
        }
    }
}

fn shown<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().map(|arg| arg.as_ref().escape_ascii().to_string());
    words.collect::<Vec<_>>().join(" ")
}
