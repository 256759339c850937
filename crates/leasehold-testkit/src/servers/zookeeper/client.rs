//! A small blocking client, with which tests inspect a server and play other libraries.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long the server may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How long it may take to begin a session. A server that is starting may accept a connection and
/// never answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

/// How often to ask a busy server for a session.
const TRIES_MAX: usize = 20;

/// The longest answer that a test expects.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The code of an answer about a node that is not there.
const NO_NODE: i32 = -101;

/// A session of 30 s at a server. Dropping it removes its nodes. It sends no pings.
pub struct ZookeeperClient {
    stream: TcpStream,
    id: i64,
    last_xid: i32,
}

impl ZookeeperClient {
    /// Begins a session at a server on that port of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If the server begins none.
    #[must_use]
    pub fn connect(port: u16) -> Self {
        let tried = (0..TRIES_MAX).find_map(|_| Self::try_connect(port));
        tried.expect("the server begins a session")
    }

    pub(super) fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(CONNECT_LIMIT)).ok()?;
        stream.set_nodelay(true).ok()?;
        let mut client = Self { stream, id: 0, last_xid: 0 };
        let mut asking = vec![0; 12];
        asking.extend_from_slice(&30_000_i32.to_be_bytes());
        asking.extend_from_slice(&[0; 8]);
        asking.extend_from_slice(&16_i32.to_be_bytes());
        asking.extend_from_slice(&[0; 17]);
        client.send(&asking)?;
        let answer = client.receive()?;
        client.stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
        client.id = i64::from_be_bytes(answer.get(8..16)?.try_into().ok()?);
        (client.id != 0).then_some(client)
    }

    /// Waits in the line of a lock, or gets it, as Curator's `InterProcessMutex` does. `id` is a
    /// text that no other client has. Returns the path of its node.
    ///
    /// # Panics
    ///
    /// If the server makes no such node.
    #[must_use]
    pub fn line_up(&mut self, lock: &str, id: &str) -> String {
        self.create(lock, b"", 0);
        self.create(&format!("{lock}/_c_{id}-lock-"), b"192.0.2.7", 3).expect("it is made")
    }

    /// Makes a node that stays. Returns its path, or `None` if it is there already.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn make(&mut self, path: &str) -> Option<String> {
        self.create(path, b"", 0)
    }

    fn create(&mut self, path: &str, data: &[u8], flags: i32) -> Option<String> {
        let mut body = text(path.as_bytes());
        body.extend(text(data));
        body.extend_from_slice(&1_i32.to_be_bytes());
        body.extend_from_slice(&31_i32.to_be_bytes());
        body.extend(text(b"world"));
        body.extend(text(b"anyone"));
        body.extend_from_slice(&flags.to_be_bytes());
        let made = self.ask(1, &body).ok()?;
        Some(String::from_utf8_lossy(&made[4..]).into_owned())
    }

    /// Replaces the data of a node.
    ///
    /// # Panics
    ///
    /// If the server does not answer, or the node is not there.
    pub fn write(&mut self, path: &str, data: &[u8]) {
        let mut body = text(path.as_bytes());
        body.extend(text(data));
        body.extend_from_slice(&(-1_i32).to_be_bytes());
        let _stat = self.ask(5, &body).expect("the node is there");
    }

    /// Deletes a node. Returns whether it was there.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn delete(&mut self, path: &str) -> bool {
        let mut body = text(path.as_bytes());
        body.extend_from_slice(&(-1_i32).to_be_bytes());
        self.ask(2, &body).is_ok()
    }

    /// The names of the children of a node, sorted. Empty if the node is not there.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn children(&mut self, path: &str) -> Vec<String> {
        let mut body = text(path.as_bytes());
        body.push(0);
        let answer = match self.ask(8, &body) {
            Ok(answer) => answer,
            Err(NO_NODE) => return Vec::new(),
            Err(code) => panic!("the server refuses {path}: {code}"),
        };
        let int = |at: usize| {
            let bytes = answer[at..at + 4].try_into().expect("four bytes");
            usize::try_from(i32::from_be_bytes(bytes)).expect("a length")
        };
        let (mut names, mut at) = (Vec::new(), 4);
        for _ in 0..int(0) {
            let end = at + 4 + int(at);
            names.push(String::from_utf8_lossy(&answer[at + 4..end]).into_owned());
            at = end;
        }
        names.sort_unstable();
        names
    }

    /// Sends a request, and returns the body of its answer, or the code of an error.
    fn ask(&mut self, kind: i32, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.last_xid += 1;
        let head = [self.last_xid.to_be_bytes(), kind.to_be_bytes()].concat();
        self.send(&[&head, body].concat()).expect("the server is there");
        let answer = self.receive().expect("the server answers");
        let int = |at: usize| i32::from_be_bytes(answer[at..at + 4].try_into().expect("a head"));
        assert_eq!(int(0), self.last_xid, "answers come in order");
        match int(12) {
            0 => Ok(answer[16..].to_vec()),
            code => Err(code),
        }
    }

    fn send(&mut self, message: &[u8]) -> Option<()> {
        self.stream.write_all(&text(message)).ok()
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let length = u32::from_be_bytes(length) as usize;
        let mut answer = vec![0; length.min(ANSWER_BYTES_MAX)];
        self.stream.read_exact(&mut answer).ok()?;
        Some(answer)
    }
}

/// The bytes, with their length in front.
fn text(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("a short text");
    [&length.to_be_bytes(), bytes].concat()
}

impl Drop for ZookeeperClient {
    fn drop(&mut self) {
        // Ask the server to end the session. If this request is lost, the session ends by itself.
        let _ = self.send(&[1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat());
        let _ = self.receive();
    }
}

impl fmt::Debug for ZookeeperClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZookeeperClient({:x})", self.id)
    }
}
