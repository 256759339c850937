//! A primary with replicas, and the sentinels that watch over them.

use std::cell::Cell;
use std::fs::File;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::PATIENCE;
use super::certificates::{Authority, Identity};
use super::port::Port;
use super::process::{Process, tail};
use super::redis_program::default_program;
use super::redis_server::{RedisServer, RedisServerBuilder};
use super::resp::{Client, Reply};

/// How the sentinels call the primary.
pub const PRIMARY: &str = "locks";

/// The lines that let sentinels use host names.
const HOST_NAMES: &str = "sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n";

/// How often to check whether an awaited state has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The settings of [`Sentinels`].
#[derive(Debug)]
#[must_use = "call `start` to start the servers"]
pub struct SentinelsBuilder {
    server: RedisServerBuilder,
    lines: Vec<String>,
    replicas: usize,
    password: Option<String>,
    /// Whether the servers speak TLS.
    tls: bool,
    /// Whether the sentinels speak TLS.
    sentinel_tls: bool,
    /// How the sentinels call the machine.
    host: &'static str,
}

/// A primary, its replicas, and three sentinels, all on free ports of 127.0.0.1. They are killed
/// when this is dropped.
///
/// The sentinels treat a server as down after 300 ms of silence, if two of them agree.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

/// One sentinel.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    tls: Option<Port>,
    config: String,
    log: File,
    password: Option<String>,
    process: Mutex<Option<Process>>,
    /// This field is last, so that the process ends before its files are deleted.
    _home: TempDir,
}

impl SentinelsBuilder {
    /// Adds a line to the configuration of every server.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.server = self.server.config(name, value);
        self
    }

    /// Sets the number of replicas. Default: 1.
    pub const fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Adds a line to the configuration of every sentinel.
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Makes all servers and sentinels speak TLS among each other and to clients, with this
    /// certificate. It must be for 127.0.0.1. Their plain ports serve the kit alone.
    pub fn with_tls(mut self, identity: &Identity, authority: &Authority) -> Self {
        self.server = self.server.with_tls(identity, authority).config("tls-replication", "yes");
        self.tls = true;
        self.lines.push("tls-replication yes".to_owned());
        self.with_tls_at_the_sentinels(identity, authority)
    }

    /// Makes the sentinels speak TLS to clients, with this certificate, but not the servers.
    pub fn with_tls_at_the_sentinels(mut self, identity: &Identity, authority: &Authority) -> Self {
        let files = [
            ("tls-cert-file", identity.cert.as_path()),
            ("tls-key-file", identity.key.as_path()),
            ("tls-ca-cert-file", authority.ca()),
        ];
        self.lines.extend(files.map(|(name, path)| format!("{name} {}", path.display())));
        self.lines.push("tls-auth-clients no".to_owned());
        self.sentinel_tls = true;
        self
    }

    /// Makes servers and sentinels call the machine `localhost`.
    pub fn with_host_names(mut self) -> Self {
        self.server = self.server.config("replica-announce-ip", "localhost");
        self.host = "localhost";
        self
    }

    /// Sets a password for the sentinels themselves.
    pub fn password(mut self, password: &str) -> Self {
        self.lines.push(format!("requirepass {password}"));
        self.lines.push(format!("sentinel sentinel-pass {password}"));
        self.password = Some(password.to_owned());
        self
    }

    /// Starts everything, and waits until the sentinels know all servers and each other.
    ///
    /// # Panics
    ///
    /// If that takes too long. The logs are printed.
    #[must_use]
    pub fn start(self) -> Sentinels {
        let primary = self.server.clone().start();
        // With TLS, each server is known by its TLS port.
        let port = |server: &RedisServer| if self.tls { server.tls_port() } else { server.port() };
        let of = format!("{} {}", self.host, port(&primary));
        let replica = |_| {
            let server = self.server.clone().config("replicaof", &of);
            server.config("repl-diskless-sync-delay", "0").start()
        };
        let replicas: Vec<_> = (0..self.replicas).map(replica).collect();
        let mut servers = vec![primary];
        servers.extend(replicas);
        let start = |_| {
            let tls = self.sentinel_tls.then(Port::reserve);
            let of = (self.host, port(&servers[0]));
            Sentinel::start(of, tls, &self.lines, self.password.clone())
        };
        let sentinels = (0..3).map(start).collect();
        let all = Sentinels { servers, sentinels };
        all.until_known();
        all
    }
}

impl Sentinels {
    /// Creates a builder.
    pub fn builder() -> SentinelsBuilder {
        let server = RedisServer::builder().config("repl-diskless-sync-delay", "0");
        SentinelsBuilder {
            server,
            lines: Vec::new(),
            replicas: 1,
            password: None,
            tls: false,
            sentinel_tls: false,
            host: "127.0.0.1",
        }
    }

    /// The URL of the primary by its sentinels, without logins.
    #[must_use]
    pub fn url(&self) -> String {
        let places: Vec<_> =
            self.sentinels.iter().map(|it| format!("127.0.0.1:{}", it.client_port())).collect();
        format!("redis+sentinel://{}/{PRIMARY}", places.join(","))
    }

    /// All servers, the first primary first.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The three sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// The server that this sentinel names.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        let running = self.sentinels.iter().find(|it| it.process().is_some());
        let named = running.expect("a sentinel runs").named();
        let port: u16 = named.parse().expect("a port");
        let is_it = |server: &&RedisServer| server.port() == port || server.has_tls_port(port);
        self.servers.iter().find(is_it).expect("one of ours")
    }

    /// Asks for a failover to a replica, and waits until all running sentinels name another server.
    ///
    /// # Panics
    ///
    /// If the sentinels refuse it, or it takes too long.
    pub fn fail_over(&self) {
        let before = self.primary().port();
        self.ask_to_fail_over();
        self.until_switched(before);
    }

    /// Asks for a failover, and waits until it has begun.
    ///
    /// # Panics
    ///
    /// If the sentinels refuse it for too long.
    pub fn ask_to_fail_over(&self) {
        until("the failover begins", || {
            let said = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", PRIMARY]);
            matches!(said, Some(Reply::Status(_)))
        });
    }

    /// Makes all sentinels forget the primary. From then on, clients cannot ask for it.
    ///
    /// # Panics
    ///
    /// If a sentinel does not answer.
    pub fn forget_primary(&self) {
        for sentinel in &self.sentinels {
            let said = sentinel.ask(&["SENTINEL", "REMOVE", PRIMARY]);
            assert!(matches!(said, Some(Reply::Status(_))), "{said:?}");
        }
    }

    /// Waits until a sentinel names another server than `before`. Returns that server.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_one_names_another(&self, before: &RedisServer) -> &RedisServer {
        let other = Cell::new(None);
        until("a sentinel names another server", || {
            let named = self.sentinels.iter().filter_map(|it| it.named().parse().ok());
            let is_at =
                |server: &RedisServer, port| server.port() == port || server.has_tls_port(port);
            let named = named.filter(|port| !is_at(before, *port));
            let mut servers =
                named.filter_map(|port| self.servers.iter().find(|it| is_at(it, port)));
            other.set(servers.next());
            other.get().is_some()
        });
        other.get().expect("it was named")
    }

    /// The highest configuration epoch that a sentinel knows. It rises with each failover.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        let epochs = self.sentinels.iter().map(|it| it.master("config-epoch").parse());
        epochs.flatten().max().unwrap_or_default()
    }

    /// The port of the server with the highest configuration epoch.
    ///
    /// # Panics
    ///
    /// If no sentinel answers.
    #[must_use]
    pub fn newest_primary(&self) -> u16 {
        let epoch = |it: &&Sentinel| it.master("config-epoch").parse::<u64>().ok();
        let newest = self.sentinels.iter().max_by_key(epoch).expect("there are three");
        newest.named().parse().expect("a port")
    }

    /// Starts the killed servers again, and waits until the sentinels have made them replicas.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn repair(&self) {
        for server in self.servers.iter().filter(|server| !server.runs()) {
            server.restart();
        }
        until("all others follow the primary", || {
            // Ask each time, since there may be yet another failover on a busy machine.
            let primary = self.newest_primary();
            let mut others = self.servers.iter().filter(|server| server.port() != primary);
            others.all(|server| {
                let said = server.look(&["INFO", "replication"]);
                let said = said.map(|said| said.text()).unwrap_or_default();
                said.contains(&format!("master_port:{primary}"))
                    && said.contains("master_link_status:up")
            })
        });
        self.until_known();
    }

    /// Makes all sentinels believe that a failover to this server took place: each gets the message
    /// that another sentinel would send. The old primary learns of it only after some seconds, as
    /// if it were cut off from the sentinels.
    ///
    /// # Panics
    ///
    /// If a sentinel does not answer.
    pub fn name_instead(&self, server: &RedisServer) {
        let before = self.primary().port();
        for (number, sentinel) in self.sentinels.iter().enumerate() {
            let other = &self.sentinels[(number + 1) % self.sentinels.len()];
            let id = other.ask(&["SENTINEL", "MYID"]).expect("it answers").text();
            let (port, named) = (other.client_port(), server.port());
            let hello = format!("127.0.0.1,{port},{id},99,{PRIMARY},127.0.0.1,{named},99");
            let told = sentinel.ask(&["PUBLISH", "__sentinel__:hello", &hello]);
            assert!(matches!(told, Some(Reply::Int(_))), "{told:?}");
        }
        self.until_switched(before);
    }

    /// Waits until all running sentinels name another server than the one at this port.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_switched(&self, before: u16) {
        // With TLS, the sentinels name another port of the server.
        let is_it = |named: &str| {
            let named = named.parse().unwrap_or(before);
            let server = self.servers.iter().find(|server| server.port() == before);
            named == before || server.is_some_and(|server| server.has_tls_port(named))
        };
        until("the sentinels name another server", || {
            let mut running = self.sentinels.iter().filter(|it| it.process().is_some());
            running.all(|it| !is_it(&it.named()))
        });
    }

    /// Waits until the sentinels know all servers and each other, and replication works.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub fn until_known(&self) {
        let replicas = (self.servers.len() - 1).to_string();
        until("the sentinels know all servers", || {
            self.sentinels.iter().all(|it| {
                it.master("num-slaves") == replicas
                    && it.master("num-other-sentinels") == "2"
                    && it.master("flags") == "master"
            })
        });
        for server in &self.servers {
            until("a replica follows", || {
                let said = server
                    .look(&["INFO", "replication"])
                    .map(|said| said.text())
                    .unwrap_or_default();
                said.contains("role:master") || said.contains("master_link_status:up")
            });
        }
    }
}

impl Sentinel {
    fn start(
        (host, primary): (&str, u16),
        tls: Option<Port>,
        lines: &[String],
        password: Option<String>,
    ) -> Self {
        let home = tempfile::Builder::new().prefix("sentinel").tempdir();
        let home = home.expect("a temporary directory");
        let port = Port::reserve();
        let at = |name| home.path().join(name);
        let log = File::options().read(true).append(true).create_new(true).open(at("log"));
        let config = format!(
            "bind 127.0.0.1\nport {}\n{}dir {}\n{}\
             sentinel monitor {PRIMARY} {host} {primary} 2\n\
             sentinel down-after-milliseconds {PRIMARY} 300\n\
             sentinel failover-timeout {PRIMARY} 2000\n{}\n",
            port.number(),
            tls.as_ref().map(|tls| format!("tls-port {}\n", tls.number())).unwrap_or_default(),
            home.path().display(),
            if host == "localhost" { HOST_NAMES } else { "" },
            lines.join("\n")
        );
        std::fs::write(at("sentinel.conf"), config).expect("the directory takes files");
        let config = at("sentinel.conf").into_os_string().into_string().expect("a path in UTF-8");
        let log = log.expect("the directory takes files");
        let process = Mutex::default();
        let sentinel = Self { port, tls, config, log, password, process, _home: home };
        sentinel.restart();
        sentinel
    }

    /// The port for clients, which is the TLS port if there is one.
    fn client_port(&self) -> u16 {
        self.tls.as_ref().unwrap_or(&self.port).number()
    }

    /// Its plain port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Starts it if it was killed.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self) {
        let args = [self.config.as_str(), "--sentinel"];
        let process = Process::start(default_program(), &args, &[], &self.log);
        *self.process() = Some(process.expect("a process can be started"));
        until("a sentinel answers", || self.ask(&["PING"]).is_some());
    }

    /// Kills it by SIGKILL.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Stops it by SIGSTOP.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn pause(&self) {
        self.process().as_ref().expect("the sentinel runs").stop();
    }

    /// Lets it go on.
    ///
    /// # Panics
    ///
    /// If it was killed.
    pub fn resume(&self) {
        self.process().as_ref().expect("the sentinel runs").go_on();
    }

    /// The port of the server that it names, or nothing. In a failover, this changes before the
    /// answer to `SENTINEL MASTER`.
    fn named(&self) -> String {
        match self.ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY]) {
            Some(Reply::Array(place)) if place.len() == 2 => place[1].text(),
            _ => String::new(),
        }
    }

    /// A field of its information about the primary, or nothing.
    fn master(&self, field: &str) -> String {
        let Some(Reply::Array(fields)) = self.ask(&["SENTINEL", "MASTER", PRIMARY]) else {
            return String::new();
        };
        let mut pairs = fields.chunks_exact(2);
        pairs.find(|pair| pair[0].text() == field).map(|pair| pair[1].text()).unwrap_or_default()
    }

    fn ask(&self, args: &[&str]) -> Option<Reply> {
        let mut client = Client::connect(self.port()).ok()?;
        if let Some(password) = &self.password {
            client.ask(&["AUTH", password]).ok()?;
        }
        client.ask(args).ok()
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the sentinel at port {}:\n{}", self.port(), tail(&self.log));
        }
    }
}

/// Waits until `is_so` returns true.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::park_timeout(LOOK_EVERY);
    }
}
