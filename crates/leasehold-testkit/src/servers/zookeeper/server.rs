//! A ZooKeeper ensemble that a test starts, kills and restarts.

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::client::ZookeeperClient;
use crate::servers::PATIENCE;
use crate::servers::certificates::Identity;
use crate::servers::disk::Disk;
use crate::servers::kept::Kept;
use crate::servers::port::Port;
use crate::servers::process::find;

/// The package of Debian and Ubuntu, and the folder of its files.
const PACKAGE: &str = "zookeeper";
const JARS: &str = "/usr/share/java";

/// The variable that names another folder with the files of a server.
const JARS_VARIABLE: &str = "LEASEHOLD_TEST_ZOOKEEPER";

/// The jars that must come first: the logger, the messages of the program, the program, and a part
/// of Netty that it needs for TLS but does not name. Otherwise, the program would use the messages
/// of the system.
const NEEDED: [&str; 4] =
    ["slf4j-simple.jar", "zookeeper-jute.jar", "zookeeper.jar", "netty-codec.jar"];

/// The options for a small Java virtual machine that starts soon.
const SMALL: [&str; 5] =
    ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData"];

/// A file system in memory, which a slow disk does not slow down.
const MEMORY: &str = "/dev/shm";

/// How often a starting server is asked whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a server may take for one word.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// The settings of every server. A short tick allows short sessions.
const SETTINGS: &str = "tickTime=200\ninitLimit=50\nsyncLimit=25\nmaxClientCnxns=0\n\
    admin.enableServer=false\n4lw.commands.whitelist=*\nmaxSessionTimeout=600000000\n";

/// A private ensemble on 127.0.0.1, which ends with this process.
pub struct ZookeeperServer {
    /// `None` if the keepers remove the folder.
    _home: Option<TempDir>,
    members: Vec<Member>,
    /// Settings for TLS.
    tls: Option<String>,
}

/// One server: a process and its ports.
#[derive(Debug)]
struct Member {
    process: Kept,
    client: Port,
    peer: Port,
    election: Port,
    /// The disk with its data, if it has one of its own. It is last, so that the server ends first.
    disk: Option<Disk>,
}

impl Member {
    fn new(folder: PathBuf) -> Self {
        let [client, peer, election] = [Port::reserve(), Port::reserve(), Port::reserve()];
        Self { process: Kept::new(folder), client, peer, election, disk: None }
    }

    fn data(&self) -> PathBuf {
        self.disk.as_ref().map_or(&*self.process.folder, Disk::folder).join("data")
    }
}

impl ZookeeperServer {
    /// The single server that all tests of this process share. They must not stop it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ZookeeperServer> = OnceLock::new();
        // A static is never dropped. The keeper removes the folder.
        SHARED.get_or_init(|| Self::of(None, &home().keep(), 1, false))
    }

    /// Starts a single server for one test.
    ///
    /// # Panics
    ///
    /// If the program is missing or the server does not start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        let home = home();
        let folder = home.path().join("server");
        Self::of(Some(home), &folder, 1, false)
    }

    /// Like [`start`](Self::start), with TLS by this certificate. It may not answer yet.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(identity: &Identity) -> Self {
        let home = home();
        let read = |path: &Path| fs::read_to_string(path).expect("the certificate is there");
        let both = read(&identity.key) + &read(&identity.cert);
        let file = home.path().join("identity.pem");
        fs::write(&file, both).expect("the folder takes files");
        let (file, cert) = (file.display(), identity.cert.display());
        let tls = format!(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={file}\nssl.keyStore.type=PEM\nssl.clientAuth=none\n\
             ssl.trustStore.location={cert}\nssl.trustStore.type=PEM\n"
        );
        let members = vec![Member::new(home.path().join("server"))];
        let server = Self { _home: Some(home), members, tls: Some(tls) };
        server.begin(0);
        server
    }

    /// Starts an ensemble of three.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn ensemble() -> Self {
        Self::ensemble_with(false)
    }

    /// Like [`ensemble`](Self::ensemble). Each server has its data on a [disk](Self::disk) of its
    /// own.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start), or if no disk can be mounted.
    #[must_use]
    pub fn ensemble_on_disks() -> Self {
        Self::ensemble_with(true)
    }

    fn ensemble_with(disks: bool) -> Self {
        let home = home();
        let folder = home.path().to_owned();
        Self::of(Some(home), &folder, 3, disks)
    }

    fn of(home: Option<TempDir>, folder: &Path, count: usize, disks: bool) -> Self {
        let member = |number: usize| {
            let folder =
                if count == 1 { folder.to_owned() } else { folder.join(number.to_string()) };
            Member { disk: disks.then(Disk::for_server), ..Member::new(folder) }
        };
        let members = (0..count).map(member).collect();
        let server = Self { _home: home, members, tls: None };
        (0..count).for_each(|number| server.begin(number));
        (0..count).for_each(|number| server.await_health(number));
        server
    }

    fn begin(&self, number: usize) {
        let member = &self.members[number];
        let folder = &member.process.folder;
        let mut settings = SETTINGS.to_owned();
        let data = member.data();
        settings += &format!("dataDir={}\n", data.display());
        let port = member.client.number();
        settings += &match &self.tls {
            None => format!("clientPort={port}\nclientPortAddress=127.0.0.1\n"),
            Some(tls) => {
                format!("secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n{tls}")
            }
        };
        if self.members.len() > 1 {
            for (number, member) in (1..).zip(&self.members) {
                let (peer, election) = (member.peer.number(), member.election.number());
                settings += &format!("server.{number}=127.0.0.1:{peer}:{election}\n");
            }
        }
        let config = folder.join("zoo.cfg");
        fs::create_dir_all(&data).expect("a folder for a server");
        fs::write(data.join("myid"), (number + 1).to_string()).expect("the folder takes files");
        fs::write(&config, settings).expect("the folder takes files");
        let jars = std::env::var(JARS_VARIABLE).unwrap_or_else(|_| JARS.to_owned());
        let jar = |name| find(&format!("{jars}/{name}"), PACKAGE).display().to_string();
        let jars = NEEDED.map(jar);
        let mut command = Command::new(find("java", PACKAGE));
        command.args(SMALL).arg("-cp").arg(jars.join(":"));
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(config);
        member.process.start(&command);
    }

    /// Waits until a server begins a session, with the consent of a majority.
    fn await_health(&self, number: usize) {
        let until = Instant::now() + PATIENCE;
        while !self.begins_session(number) {
            assert!(Instant::now() < until, "no server: {}", self.last_words());
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// The URL of all servers, and of the locks below a path.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let servers: Vec<_> =
            (0..self.members.len()).map(|it| format!("127.0.0.1:{}", self.port(it))).collect();
        format!("zookeeper://{}/{path}", servers.join(","))
    }

    /// The port of a server on 127.0.0.1.
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client.number()
    }

    /// The number of the server that leads.
    ///
    /// # Panics
    ///
    /// If none does for a long time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            let leads = |member: &usize| self.say(*member, "srvr").contains("Mode: leader");
            if let Some(leader) = (0..self.members.len()).find(leads) {
                return leader;
            }
            assert!(Instant::now() < until, "no server leads: {}", self.last_words());
        }
    }

    /// The answer to a four-letter word; empty if there is no answer.
    fn say(&self, member: usize, word: &str) -> String {
        let say = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port(member))).ok()?;
            stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
            stream.write_all(word.as_bytes()).ok()?;
            let mut said = String::new();
            stream.read_to_string(&mut said).ok()?;
            Some(said)
        };
        say().unwrap_or_default()
    }

    /// The version of the first server.
    #[must_use]
    pub fn version(&self) -> String {
        let said = self.say(0, "srvr");
        let version = said.lines().find_map(|line| line.strip_prefix("Zookeeper version: "));
        version.and_then(|it| it.split('-').next()).unwrap_or_default().to_owned()
    }

    /// The locks below a path that somebody has or waits for.
    ///
    /// # Panics
    ///
    /// If the first server does not answer.
    #[must_use]
    pub fn locks_in_use(&self, root: &str) -> Vec<String> {
        let mut client = ZookeeperClient::connect(self.port(0));
        let mut locks = client.children(root);
        locks.retain(|name| !client.children(&format!("{root}/{name}")).is_empty());
        locks
    }

    /// Deletes the nodes of all locks below a path. Their holders and waiters are not told.
    ///
    /// # Panics
    ///
    /// If the first server does not answer.
    pub fn remove_locks(&self, root: &str) {
        let mut client = ZookeeperClient::connect(self.port(0));
        for name in client.children(root) {
            let lock = format!("{root}/{name}");
            for node in client.children(&lock) {
                // The owner of the node may have deleted it meanwhile.
                let _was_there = client.delete(&format!("{lock}/{node}"));
            }
        }
    }

    /// The disk with the data of a server.
    ///
    /// # Panics
    ///
    /// If it was not started [on one](Self::ensemble_on_disks).
    #[must_use]
    pub fn disk(&self, member: usize) -> &Disk {
        let disk = self.members[member].disk.as_ref();
        disk.expect("the server was started on a disk of its own")
    }

    /// Whether a server begins a session, with the consent of a majority.
    pub(crate) fn begins_session(&self, member: usize) -> bool {
        ZookeeperClient::try_connect(self.port(member)).is_some()
    }

    /// How many sessions there are, as the first server knows.
    #[must_use]
    pub fn sessions(&self) -> usize {
        let said = self.say(0, "dump");
        let ids = said.lines().filter(|line| line.trim_start().starts_with("0x"));
        let mut ids: Vec<_> = ids.map(|line| line.trim().trim_end_matches(':')).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    /// Ends a server at once, as a crash does. Keeps its files.
    pub fn kill(&self, member: usize) {
        self.members[member].process.kill();
    }

    /// Starts a server again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self, member: usize) {
        self.begin(member);
        self.await_health(member);
    }

    /// Like [`restart`](Self::restart), but the server has lost its data and gets it from the
    /// others. It starts only when one of them leads, so it cannot help to elect a leader that
    /// lacks changes.
    ///
    /// # Panics
    ///
    /// Same as [`restart`](Self::restart), and if its data cannot be deleted.
    pub fn restart_empty(&self, member: usize) {
        let _another = self.leader();
        fs::remove_dir_all(self.members[member].data()).expect("nobody else uses its data");
        self.restart(member);
    }

    /// Stops a server by SIGSTOP, so that it is silent and keeps its connections.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self, member: usize) {
        self.members[member].process.signal(Signal::STOP);
    }

    /// Lets it go on after [`pause`](Self::pause).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn resume(&self, member: usize) {
        self.members[member].process.signal(Signal::CONT);
    }

    fn last_words(&self) -> String {
        let words: Vec<_> = self.members.iter().map(|it| it.process.last_words()).collect();
        words.join("\n")
    }
}

impl fmt::Debug for ZookeeperServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZookeeperServer({})", self.url(""))
    }
}

/// A path on the [shared](ZookeeperServer::shared) server that no other test has.
#[derive(Debug)]
pub struct ZookeeperPath(String);

impl ZookeeperPath {
    /// A new path. The server is started if it does not run.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn lend() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let _runs = ZookeeperServer::shared();
        Self(format!("test{}", MADE.fetch_add(1, Ordering::Relaxed)))
    }

    /// The URL of its locks, with this session timeout, such as `15s`.
    #[must_use]
    pub fn url(&self, session_timeout: &str) -> String {
        let url = ZookeeperServer::shared().url(&self.0);
        format!("{url}?session_timeout={session_timeout}")
    }

    /// The path of a lock whose name needs no encoding.
    #[must_use]
    pub fn lock(&self, name: &str) -> String {
        format!("/{}/{name}", self.0)
    }

    /// The nodes of a lock, which belong to its holder and its waiters.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn nodes(&self, name: &str) -> Vec<String> {
        self.client().children(&self.lock(name))
    }

    /// How many clients wait for a lock that another client has.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn waiters(&self, name: &str) -> usize {
        self.nodes(name).len().saturating_sub(1)
    }

    /// Another client of the server.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn client(&self) -> ZookeeperClient {
        ZookeeperClient::connect(ZookeeperServer::shared().port(0))
    }
}

fn home() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("leasehold-zookeeper-");
    let memory = PathBuf::from(MEMORY);
    let home = if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() };
    home.expect("a temporary directory")
}
