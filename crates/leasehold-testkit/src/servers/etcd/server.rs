//! A cluster of etcd that a test starts, kills and restarts.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::base64::{base64, from_base64};
use super::member::Member;
use crate::servers::PATIENCE;
use crate::servers::certificates::Identity;
use crate::servers::disk::Disk;

/// A file system in memory, which a slow disk does not slow down.
const MEMORY: &str = "/dev/shm";

/// The key that begins a range and ends it, if the range is all keys: a zero byte, in base 64.
const EVERY_KEY: &str = "AA==";

/// How much room a server needs in that file system, in MiB.
const ROOM_MIB: u64 = 1_024;

/// A single member cannot lose an election, so its timeouts may be short. That makes its shortest
/// lease a second.
const QUICK: [&str; 2] = ["--heartbeat-interval=20", "--election-timeout=200"];

/// The same for three members.
const QUICK_CLUSTER: [&str; 2] = ["--heartbeat-interval=50", "--election-timeout=500"];

/// A private etcd cluster on 127.0.0.1, which ends with this process.
pub struct EtcdServer {
    /// `None` if the keepers remove the folder.
    _home: Option<TempDir>,
    pub(super) members: Vec<Member>,
    settings: Vec<String>,
    /// `http` or `https`.
    scheme: &'static str,
}

impl EtcdServer {
    /// The single member that all tests of this process share. They must not stop it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<EtcdServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            // A static is never dropped. The keeper removes the folder.
            let folder = home().keep();
            Self::of(None, (folder, false), 1, quick())
        })
    }

    /// Starts a single member for one test alone.
    ///
    /// # Panics
    ///
    /// If the program is missing or the server does not start. The message says what to install.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(quick())
    }

    /// Like [`start`](Self::start). The database may take this many bytes.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with_quota(bytes: u32) -> Self {
        let mut settings = quick();
        settings.push(format!("--quota-backend-bytes={bytes}"));
        Self::start_with(settings)
    }

    fn start_with(settings: Vec<String>) -> Self {
        let home = home();
        let folder = home.path().join("member");
        Self::of(Some(home), (folder, false), 1, settings)
    }

    /// Like [`start`](Self::start), with TLS by this certificate. It may not answer yet.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn start_with_tls(identity: &Identity) -> Self {
        let home = home();
        let folder = home.path().join("member");
        let mut settings = quick();
        settings.push(format!("--cert-file={}", identity.cert.display()));
        settings.push(format!("--key-file={}", identity.key.display()));
        let members = vec![Member::new("m0".to_owned(), folder)];
        let server = Self { _home: Some(home), members, settings, scheme: "https" };
        server.begin(0);
        server
    }

    /// Starts a cluster of three, with the settings that etcd has by default.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn cluster() -> Self {
        Self::cluster_with(&[], false)
    }

    /// Same as [`cluster`](Self::cluster). It elects a leader after half a second, and so its
    /// shortest lease is a second.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start).
    #[must_use]
    pub fn quick_cluster() -> Self {
        Self::cluster_with(&QUICK_CLUSTER, false)
    }

    /// Same as [`quick_cluster`](Self::quick_cluster). Each member has its data on a
    /// [disk](Self::disk) of its own.
    ///
    /// # Panics
    ///
    /// Same as [`start`](Self::start), or if no disk can be mounted.
    #[must_use]
    pub fn quick_cluster_on_disks() -> Self {
        Self::cluster_with(&QUICK_CLUSTER, true)
    }

    fn cluster_with(settings: &[&str], disks: bool) -> Self {
        let home = home();
        let folder = home.path().join("member");
        let settings = settings.iter().map(|it| (*it).to_owned()).collect();
        Self::of(Some(home), (folder, disks), 3, settings)
    }

    /// Starts members in a folder, or with their data on disks of their own.
    fn of(
        home: Option<TempDir>,
        (folder, disks): (PathBuf, bool),
        count: usize,
        settings: Vec<String>,
    ) -> Self {
        let member = |number: usize| {
            let folder = if count == 1 { folder.clone() } else { folder.join(number.to_string()) };
            let disk = disks.then(Disk::for_server);
            Member { disk, ..Member::new(format!("m{number}"), folder) }
        };
        let members: Vec<_> = (0..count).map(member).collect();
        let server = Self { _home: home, members, settings, scheme: "http" };
        for number in 0..count {
            server.begin(number);
        }
        for member in &server.members {
            member.await_health();
        }
        server
    }

    fn begin(&self, number: usize) {
        let all: Vec<_> =
            self.members.iter().map(|it| format!("{}={}", it.name, it.peer_url())).collect();
        let mut args = self.settings.clone();
        args.push(format!("--initial-cluster={}", all.join(",")));
        self.members[number].start(self.scheme, &args);
    }

    /// The URL of all members, and of the keys below a prefix.
    #[must_use]
    pub fn url(&self, prefix: &str) -> String {
        let members: Vec<_> =
            self.members.iter().map(|it| format!("127.0.0.1:{}", it.client.number())).collect();
        format!("etcd://{}/{prefix}", members.join(","))
    }

    /// The port of a member on 127.0.0.1.
    #[must_use]
    pub fn port(&self, member: usize) -> u16 {
        self.members[member].client.number()
    }

    /// The number of the member that leads.
    ///
    /// # Panics
    ///
    /// If none does for a long time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let until = Instant::now() + PATIENCE;
        loop {
            for (number, member) in self.members.iter().enumerate() {
                let Some(status) = member.ask("/v3/maintenance/status", &json!({}), None) else {
                    continue;
                };
                let id = &status["header"]["member_id"];
                if id.is_string() && *id == status["leader"] {
                    return number;
                }
            }
            assert!(Instant::now() < until, "no member leads: {}", self.last_words());
        }
    }

    /// Ends a member at once, as a crash does. Keeps its files.
    pub fn kill(&self, member: usize) {
        self.members[member].process.kill();
    }

    /// Starts a member again after [`kill`](Self::kill), and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn restart(&self, member: usize) {
        self.begin(member);
        self.members[member].await_health();
    }

    /// Stops a member by SIGSTOP, so that it is silent and keeps its connections.
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

    /// Asks any member that answers, by HTTP and JSON.
    ///
    /// # Panics
    ///
    /// If none answers.
    #[must_use]
    pub fn ask(&self, path: &str, what: &Value) -> Value {
        self.ask_as(None, path, what)
    }

    fn ask_as(&self, token: Option<&str>, path: &str, what: &Value) -> Value {
        let answer = self.members.iter().find_map(|member| member.ask(path, what, token));
        answer.unwrap_or_else(|| panic!("no answer to {path}: {}", self.last_words()))
    }

    /// How many keys there are below a prefix.
    ///
    /// # Panics
    ///
    /// If no member answers.
    #[must_use]
    pub fn count(&self, prefix: &str) -> usize {
        let end = format!("{prefix}\u{7f}");
        let (from, to) = (base64(prefix.as_bytes()), base64(end.as_bytes()));
        let what = json!({ "key": from, "range_end": to, "count_only": true });
        let answer = self.ask("/v3/kv/range", &what);
        // The answer leaves a count of zero out.
        answer["count"].as_str().map_or(0, |count| count.parse().expect("a number"))
    }

    /// Removes a key, as an operator may do.
    ///
    /// # Panics
    ///
    /// If no member answers.
    pub fn remove(&self, key: &str) {
        let _removed = self.ask("/v3/kv/deleterange", &json!({ "key": base64(key.as_bytes()) }));
    }

    /// Writes a key with the value of another one and a lease of this many seconds, as a late
    /// request does.
    ///
    /// # Panics
    ///
    /// If no member answers, or the other key does not exist.
    pub fn copy(&self, from: &str, to: &str, seconds: u64) {
        let read = self.ask("/v3/kv/range", &json!({ "key": base64(from.as_bytes()) }));
        let value = read["kvs"][0]["value"].as_str().expect("the key exists");
        let lease = &self.ask("/v3/lease/grant", &json!({ "TTL": seconds }))["ID"];
        let key = base64(to.as_bytes());
        let put = json!({ "key": key, "value": value, "lease": lease });
        let _put = self.ask("/v3/kv/put", &put);
    }

    /// Writes this many keys with a prefix. They belong to no lock: their names are not text.
    ///
    /// # Panics
    ///
    /// If no member answers.
    pub fn write_strange_keys(&self, prefix: &str, count: u32) {
        const AT_ONCE: usize = 100;
        let all: Vec<u32> = (0..count).collect();
        for some in all.chunks(AT_ONCE) {
            let put = |number: &u32| {
                let name = [prefix.as_bytes(), &[0x80], &number.to_be_bytes()].concat();
                json!({ "request_put": { "key": base64(&name) } })
            };
            let puts: Vec<_> = some.iter().map(put).collect();
            let _done = self.ask("/v3/kv/txn", &json!({ "success": puts }));
        }
    }

    /// Removes every key.
    ///
    /// # Panics
    ///
    /// If no member answers.
    pub fn remove_all(&self) {
        let all = json!({ "key": EVERY_KEY, "range_end": EVERY_KEY });
        let _removed = self.ask("/v3/kv/deleterange", &all);
    }

    /// Every key, and how many seconds it stays. `None` means for ever.
    ///
    /// # Panics
    ///
    /// If no member answers.
    #[must_use]
    pub fn keys(&self) -> Vec<(String, Option<u64>)> {
        let all = json!({ "key": EVERY_KEY, "range_end": EVERY_KEY });
        let answer = self.ask("/v3/kv/range", &all);
        let pairs = answer["kvs"].as_array().cloned().unwrap_or_default();
        let pair = |pair: &Value| {
            let name = from_base64(pair["key"].as_str().expect("each pair has a key"));
            let name = String::from_utf8(name).expect("the keys of locks are text");
            (name, pair["lease"].as_str().map(|lease| self.left(lease)))
        };
        pairs.iter().map(pair).collect()
    }

    /// How many seconds a lease has left. Zero if it has ended meanwhile.
    fn left(&self, lease: &str) -> u64 {
        let answer = self.ask("/v3/lease/timetolive", &json!({ "ID": lease }));
        answer["TTL"].as_str().and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    /// The version of the first member.
    ///
    /// # Panics
    ///
    /// If no member answers.
    #[must_use]
    pub fn version(&self) -> String {
        let status = self.ask("/v3/maintenance/status", &json!({}));
        status["version"].as_str().expect("a version").to_owned()
    }

    /// Whether the leader may be stopped for a while without ending a lease early. This is so from
    /// 3.4.31 and 3.5.13 on.
    ///
    /// # Panics
    ///
    /// If no member answers.
    #[must_use]
    pub fn leader_may_stand_still(&self) -> bool {
        let version = self.version();
        let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        match (next(), next(), next()) {
            (3, 4, patch) => patch >= 31,
            (3, 5, patch) => patch >= 13,
            newer => newer > (3, 5, 0),
        }
    }

    /// How many messages of clients the first member has taken.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counted("grpc_server_msg_received_total", "")
    }

    /// How many transactions clients have asked the first member for.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.counted("grpc_server_msg_received_total", "grpc_method=\"Txn\"")
    }

    /// How many streams for watches clients have opened at the first member.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    #[must_use]
    pub fn watch_streams(&self) -> u64 {
        self.counted("grpc_server_started_total", "grpc_method=\"Watch\"")
    }

    /// The sum of the counts with that name and that label.
    fn counted(&self, name: &str, label: &str) -> u64 {
        let metrics = self.members[0].get("/metrics").expect("the member answers");
        let lines = metrics.lines().filter(|it| it.starts_with(name) && it.contains(label));
        let count = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
        lines.filter_map(count).sum()
    }

    /// How many entries the log of the cluster has.
    ///
    /// # Panics
    ///
    /// If no member answers.
    #[must_use]
    pub fn log_entries(&self) -> u64 {
        let status = self.ask("/v3/maintenance/status", &json!({}));
        status["raftIndex"].as_str().and_then(|it| it.parse().ok()).expect("a number")
    }

    /// Makes the user `app` with the password `secret`, who may use the keys below `app/`. From now
    /// on, the cluster demands logins.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn want_logins(&self) {
        let key = base64(b"app/");
        let end = base64(b"app0");
        let rights = json!({ "permType": "READWRITE", "key": key, "range_end": end });
        for (path, what) in [
            ("user/add", json!({ "name": "root", "password": "of-root" })),
            ("role/add", json!({ "name": "root" })),
            ("user/grant", json!({ "user": "root", "role": "root" })),
            ("user/add", json!({ "name": "app", "password": "secret" })),
            ("role/add", json!({ "name": "locks" })),
            ("role/grant", json!({ "name": "locks", "perm": rights })),
            ("user/grant", json!({ "user": "app", "role": "locks" })),
            ("enable", json!({})),
        ] {
            self.change_logins(None, path, &what);
        }
    }

    /// Sets the password of `app`. Its logins end.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn set_password(&self, password: &str) {
        let login = json!({ "name": "root", "password": "of-root" });
        let token = self.ask("/v3/auth/authenticate", &login)["token"].clone();
        let what = json!({ "name": "app", "password": password });
        self.change_logins(token.as_str(), "user/changepw", &what);
    }

    fn change_logins(&self, token: Option<&str>, path: &str, what: &Value) {
        let answer = self.ask_as(token, &format!("/v3/auth/{path}"), what);
        assert!(answer["header"].is_object(), "{path}: {answer}");
    }

    pub(super) fn last_words(&self) -> String {
        let words: Vec<_> = self.members.iter().map(Member::last_words).collect();
        words.join("\n")
    }
}

impl fmt::Debug for EtcdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdServer({})", self.url(""))
    }
}

fn quick() -> Vec<String> {
    QUICK.map(str::to_owned).into()
}

fn home() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("leasehold-etcd-");
    let home = if has_room() { builder.tempdir_in(MEMORY) } else { builder.tempdir() };
    home.expect("a temporary directory")
}

/// Whether the file system in memory has room.
fn has_room() -> bool {
    let room = rustix::fs::statvfs(Path::new(MEMORY));
    room.is_ok_and(|it| it.f_bavail.saturating_mul(it.f_frsize) >> 20 >= ROOM_MIB)
}
