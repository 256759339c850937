//! A fake ZooKeeper server for tests: each test says what it answers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::store::zookeeper::jute::{Message, Reader};

pub(super) mod kind {
    pub(in crate::store::zookeeper::steps) const CREATE: i32 = 1;
    pub(in crate::store::zookeeper::steps) const DELETE: i32 = 2;
    pub(in crate::store::zookeeper::steps) const EXISTS: i32 = 3;
    pub(in crate::store::zookeeper::steps) const GET_DATA: i32 = 4;
    pub(in crate::store::zookeeper::steps) const SET_DATA: i32 = 5;
    pub(in crate::store::zookeeper::steps) const SYNC: i32 = 9;
    pub(super) const PING: i32 = 11;
    pub(in crate::store::zookeeper::steps) const CHILDREN: i32 = 12;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const CLOSE: i32 = -11;
}

pub(super) const NO_AUTH: i32 = -102;
const NO_NODE: i32 = -101;
const BAD_VERSION: i32 = -103;

/// The session of every client, and its timeout in milliseconds.
const SESSION: i64 = 7;
const TIMEOUT: i32 = 15_000;

/// A way in which the server treats a request instead of answering it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// It refuses it with this code.
    Refuses(i32),
    /// It refuses one of them with this code.
    RefusesOnce(i32),
    /// It closes the connection.
    HangsUp,
    /// It answers when the next request has come.
    AnswersWithTheNext,
}

/// An answer to a client that connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Greeting {
    /// That the session of the client lasts.
    #[default]
    Welcomes,
    /// That it knows no such session.
    HasForgotten,
    /// The answer of a web server.
    IsNoZookeeper,
}

/// The change that made a node, its version, and its data.
type Node = (i64, i32, Vec<u8>);

#[derive(Debug, Default)]
pub(super) struct Server {
    /// The nodes by their paths.
    pub(super) nodes: Mutex<BTreeMap<String, Node>>,
    changes: AtomicI64,
    /// The kinds of the requests that came, without pings.
    asked: Mutex<Vec<i32>>,
    rule: Mutex<Option<(i32, Rule)>>,
    greeting: Mutex<Greeting>,
}

impl Server {
    /// Sets the answer to clients that connect from now on.
    pub(super) fn greet(&self, greeting: Greeting) {
        *self.greeting.lock().expect("no panic") = greeting;
    }

    /// Sets the rule for requests of a kind from now on.
    pub(super) fn rule(&self, rule: Option<(i32, Rule)>) {
        *self.rule.lock().expect("no panic") = rule;
    }

    /// Takes the kinds of the requests that came since the last call.
    pub(super) fn take_asked(&self) -> Vec<i32> {
        std::mem::take(&mut self.asked.lock().expect("no panic"))
    }

    /// Makes a node, as another client does.
    pub(super) fn add(&self, path: &str) {
        let change = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        let node = (change, 0, Vec::new());
        self.nodes.lock().expect("no panic").insert(path.to_owned(), node);
    }

    /// Serves one connection after the other.
    pub(super) async fn serve(&self, listener: TcpListener) {
        loop {
            let (stream, _) = listener.accept().await.expect("a client");
            let _ended: Option<()> = self.serve_one(stream).await;
        }
    }

    async fn serve_one(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        read(&mut stream).await?;
        let mut answers = Vec::new();
        let greeting = *self.greeting.lock().expect("no panic");
        let timeout = match greeting {
            Greeting::Welcomes => TIMEOUT,
            Greeting::HasForgotten => 0,
            Greeting::IsNoZookeeper => {
                return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.ok();
            }
        };
        let begun = Message::default().int(0).int(timeout).long(SESSION).bytes(&[0; 16]);
        begun.flag(false).frame(&mut answers);
        loop {
            stream.write_all(&answers).await.ok()?;
            answers.clear();
            let mut rule = self.take(&read(&mut stream).await?, &mut answers)?;
            while rule == Some(Rule::AnswersWithTheNext) {
                rule = self.take(&read(&mut stream).await?, &mut answers)?;
            }
        }
    }

    /// Takes a request. `None` if it ends the connection.
    fn take(&self, request: &[u8], answers: &mut Vec<u8>) -> Option<Option<Rule>> {
        let mut reader = Reader::new(request);
        let (xid, asked) = (reader.int().ok()?, reader.int().ok()?);
        let rule = *self.rule.lock().expect("no panic");
        let rule = rule.filter(|(kind, _)| *kind == asked).map(|(_, rule)| rule);
        if asked != kind::PING {
            self.asked.lock().expect("no panic").push(asked);
        }
        let answer = match rule {
            Some(Rule::HangsUp) => return None,
            Some(Rule::Refuses(code)) => Err(code),
            Some(Rule::RefusesOnce(code)) => {
                self.rule(None);
                Err(code)
            }
            _ => self.answer(asked, reader),
        };
        let code = answer.as_ref().err().copied().unwrap_or(0);
        let head = Message::default().int(xid).long(self.changes.load(Ordering::SeqCst)).int(code);
        head.then(&answer.unwrap_or_default()).frame(answers);
        (asked != kind::CLOSE).then_some(rule)
    }

    fn answer(&self, asked: i32, mut reader: Reader<'_>) -> Result<Message, i32> {
        if matches!(asked, kind::PING | kind::CLOSE) {
            return Ok(Message::default());
        }
        let mut nodes = self.nodes.lock().expect("no panic");
        let path = reader.text().expect("a path").to_owned();
        let below = format!("{path}/");
        let children = || nodes.iter().filter(|(it, _)| it.starts_with(&below));
        // The node of each lock is always there.
        let parent = || {
            let last = children().map(|(_, (made, ..))| *made).max().unwrap_or(0);
            stat((0, 0), children().count(), last)
        };
        let change = self.changes.load(Ordering::SeqCst) + 1;
        let changed = match asked {
            kind::CREATE | kind::CREATE_CONTAINER => {
                let data = reader.bytes().expect("data").to_vec();
                let path = format!("{path}{change:010}");
                nodes.insert(path.clone(), (change, 0, data));
                Message::default().text(&path)
            }
            kind::DELETE => {
                nodes.remove(&path).ok_or(NO_NODE)?;
                Message::default()
            }
            kind::SET_DATA => {
                let (made, version, data) = nodes.get_mut(&path).ok_or(NO_NODE)?;
                let written = reader.bytes().expect("data");
                if reader.int() != Ok(*version) {
                    return Err(BAD_VERSION);
                }
                (*version, *data) = (*version + 1, written.to_vec());
                stat((*made, *version), 0, 0)
            }
            kind::EXISTS => match nodes.get(&path) {
                Some((made, version, _)) => return Ok(stat((*made, *version), 0, 0)),
                None if path.rsplit('/').next().is_some_and(|it| it.starts_with("_c_")) => {
                    return Err(NO_NODE);
                }
                None => return Ok(parent()),
            },
            kind::GET_DATA => {
                let (made, version, data) = nodes.get(&path).ok_or(NO_NODE)?;
                return Ok(Message::default().bytes(data).then(&stat((*made, *version), 0, 0)));
            }
            kind::CHILDREN => {
                let count = i32::try_from(children().count()).expect("a few");
                let names = children().map(|(it, _)| it.rsplit('/').next().expect("a name"));
                let listed = names.fold(Message::default().int(count), Message::text);
                return Ok(listed.then(&parent()));
            }
            kind::SYNC => return Ok(Message::default().text(&path)),
            _ => panic!("no step asks for {asked}"),
        };
        self.changes.store(change, Ordering::SeqCst);
        Ok(changed)
    }
}

/// The numbers of a node.
fn stat((made, version): (i64, i32), children: usize, last: i64) -> Message {
    let children = i32::try_from(children).expect("a few");
    let head = Message::default().long(made).long(made + i64::from(version)).long(0).long(0);
    head.int(version).int(0).int(0).long(SESSION).int(0).int(children).long(last)
}

async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut message = vec![0; length as usize];
    stream.read_exact(&mut message).await.ok()?;
    Some(message)
}
