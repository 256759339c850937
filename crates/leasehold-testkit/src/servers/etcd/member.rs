//! One member of a cluster: a process, its folder and its ports.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::servers::PATIENCE;
use crate::servers::disk::Disk;
use crate::servers::kept::Kept;
use crate::servers::port::Port;
use crate::servers::process::find;

/// The package of Debian and Ubuntu.
const PACKAGE: &str = "etcd-server";

/// How often a starting member is asked whether it answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a member may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// One member of a cluster.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) process: Kept,
    pub(super) client: Port,
    pub(super) peer: Port,
    /// The disk with its data, if it has one of its own. It is last, so that the member ends first.
    pub(super) disk: Option<Disk>,
}

impl Member {
    pub(super) fn new(name: String, folder: PathBuf) -> Self {
        let process = Kept::new(folder);
        let (client, peer) = (Port::reserve(), Port::reserve());
        Self { name, process, client, peer, disk: None }
    }

    pub(super) fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer.number())
    }

    fn data(&self) -> PathBuf {
        self.disk.as_ref().map_or(&*self.process.folder, Disk::folder).join("data")
    }

    /// Starts the process. Does not wait until it answers.
    pub(super) fn start(&self, scheme: &str, args: &[String]) {
        let client = format!("{scheme}://127.0.0.1:{}", self.client.number());
        let mut command = Command::new(find("etcd", PACKAGE));
        command.args([
            format!("--name={}", self.name),
            format!("--data-dir={}", self.data().display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={}", self.peer_url()),
            format!("--initial-advertise-peer-urls={}", self.peer_url()),
        ]);
        command.args(args);
        self.process.start(&command);
    }

    pub(super) fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// Waits until it answers, as a member of a cluster with a leader.
    pub(super) fn await_health(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.is_healthy() {
            assert!(Instant::now() < until, "no server: {}", self.last_words());
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Whether it answers, as a member of a cluster with a leader.
    pub(super) fn is_healthy(&self) -> bool {
        // This read is confirmed by a majority.
        let range = serde_json::json!({ "key": "YQ==" });
        self.ask("/v3/kv/range", &range, None).is_some_and(|answer| answer["header"].is_object())
    }

    /// Asks by HTTP and JSON, with a login if there is one. `None` if there is no answer.
    pub(super) fn ask(&self, path: &str, what: &Value, token: Option<&str>) -> Option<Value> {
        let body = what.to_string();
        let login = token.map_or_else(String::new, |it| format!("Authorization: {it}\r\n"));
        let answer = self.exchange(&format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             {login}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        serde_json::from_str(&answer?).ok()
    }

    /// Reads a page by HTTP. `None` if there is no answer.
    pub(super) fn get(&self, path: &str) -> Option<String> {
        self.exchange(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"))
    }

    /// Sends a request, and returns the body of the answer.
    fn exchange(&self, request: &str) -> Option<String> {
        let stream = TcpStream::connect(("127.0.0.1", self.client.number()));
        let mut stream = stream.ok()?;
        stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        Some(body.to_owned())
    }
}
