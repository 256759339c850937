//! A member of etcd that answers as it is told.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU16, Ordering};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::ask;
use crate::host::SystemHost;
use crate::store::etcd::entry::Entry;
use crate::store::etcd::message::{Fields, Message};

/// For how long each lease of this member lasts, in seconds.
pub(super) const LASTS: i64 = 60;

/// The change that made the key of the lock.
pub(super) const CHANGE: i64 = 7;

/// The owner that asks for the lock.
pub(super) const OWNER: &str = "x";

/// A member of etcd that has one lock.
pub(super) struct Member {
    /// In which term it carries out transactions, and renews leases.
    pub(super) terms: (i64, i64),
    /// For how long it makes a lease, in seconds.
    pub(super) grants: AtomicI64,
    /// Whether all conditions of transactions hold.
    pub(super) agrees: bool,
    /// Whether it renews leases. A proxy does not.
    pub(super) renews: bool,
    /// Whether it leaves renewals without an answer, as a leader does for a lease that has just
    /// ended.
    pub(super) is_silent: bool,
    /// Whether it leaves a write to the key of the lock without an answer.
    pub(super) loses_writes: bool,
    /// Whether it refuses a write to the key of the lock, for lack of a right.
    pub(super) denies_writes: AtomicBool,
    /// The status of HTTP with which it answers. A proxy has its own if it does not reach a member.
    pub(super) status: AtomicU16,
    /// Whether it answers the first request to end a lease.
    pub(super) revokes: bool,
    /// The owner that has the lock.
    pub(super) holder: &'static str,
    /// The lease behind the lock, and for how long it lasts, in seconds.
    pub(super) lease: AtomicI64,
    pub(super) lasts: AtomicI64,
    /// The lease behind the place of the ask; 0 if it has no place.
    pub(super) place: AtomicI64,
    /// The leases that it renewed, and those that it ended.
    pub(super) renewed: Mutex<Vec<i64>>,
    pub(super) revoked: Mutex<Vec<i64>>,
    /// How often it read a line.
    pub(super) lines: AtomicI64,
}

impl Member {
    pub(super) fn new() -> Self {
        Self {
            terms: (4, 4),
            grants: AtomicI64::new(LASTS),
            agrees: true,
            renews: true,
            is_silent: false,
            loses_writes: false,
            denies_writes: AtomicBool::new(false),
            status: AtomicU16::new(200),
            revokes: true,
            holder: OWNER,
            lease: AtomicI64::new(0),
            lasts: AtomicI64::new(LASTS),
            place: AtomicI64::new(0),
            renewed: Mutex::default(),
            revoked: Mutex::default(),
            lines: AtomicI64::new(0),
        }
    }

    pub(super) async fn serve(&self, listener: TcpListener) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                client = listener.accept() => {
                    connections.push(self.serve_one(client.expect("a client").0));
                }
                Some(()) = connections.next() => {}
            }
        }
    }

    async fn serve_one(&self, stream: TcpStream) {
        let mut calls = h2::server::handshake(stream).await.expect("HTTP/2");
        let mut answers = FuturesUnordered::new();
        loop {
            tokio::select! {
                call = calls.accept() => match call {
                    Some(Ok((call, to))) => answers.push(self.answer(call, to)),
                    _ => return,
                },
                Some(()) = answers.next() => {}
            }
        }
    }

    async fn answer(&self, call: Request<RecvStream>, mut to: SendResponse<Bytes>) {
        let path = call.uri().path().to_owned();
        let (mut body, mut asked) = (call.into_body(), Vec::new());
        while let Some(part) = body.data().await {
            asked.extend_from_slice(&part.expect("it is sent whole"));
        }
        let is_write = path.ends_with("Txn") && writes_a_lock(&asked[5..]);
        let code = match self.status.load(Ordering::Relaxed) {
            200 if !self.renews && path.ends_with("LeaseKeepAlive") => Some("1"),
            200 if is_write && self.denies_writes.load(Ordering::Relaxed) => Some("7"),
            200 => None,
            status => {
                let response = Response::builder().status(status).body(()).expect("a status");
                to.send_response(response, true).expect("it listens");
                return;
            }
        };
        let mut status = HeaderMap::new();
        if let Some(code) = code {
            status.insert("grpc-status", HeaderValue::from_static(code));
            let mut response = Response::new(());
            *response.headers_mut() = status;
            to.send_response(response, true).expect("it listens");
            return;
        }
        let answer = self.answer_to(&path, &asked[5..]);
        let is_first = self.revoked.lock().expect("no panic").len() == 1;
        let is_lost = path.ends_with("LeaseRevoke") && is_first && !self.revokes
            || path.ends_with("LeaseKeepAlive") && self.is_silent
            || self.loses_writes && is_write;
        if is_lost {
            std::future::pending::<()>().await;
        }
        let length = u32::try_from(answer.as_bytes().len()).expect("short");
        let framed = [&[0], &length.to_be_bytes()[..], answer.as_bytes()].concat();
        status.insert("grpc-status", HeaderValue::from_static("0"));
        let mut sending = to.send_response(Response::new(()), false).expect("it listens");
        sending.send_data(framed.into(), false).expect("it listens");
        sending.send_trailers(status).expect("it listens");
    }

    fn answer_to(&self, path: &str, asked: &[u8]) -> Message {
        let (writes, renews) = self.terms;
        let header = |term| Message::default().number(3, CHANGE).number(4, term);
        match path {
            "/etcdserverpb.Lease/LeaseGrant" => {
                self.lease.store(number(asked, 2), Ordering::Relaxed);
                let grants = self.grants.load(Ordering::Relaxed);
                self.lasts.store(grants, Ordering::Relaxed);
                Message::default().message(1, &header(writes)).number(3, grants)
            }
            "/etcdserverpb.Lease/LeaseKeepAlive" => {
                self.renewed.lock().expect("no panic").push(number(asked, 1));
                Message::default().message(1, &header(renews)).number(3, LASTS)
            }
            "/etcdserverpb.Lease/LeaseRevoke" => {
                self.revoked.lock().expect("no panic").push(number(asked, 1));
                Message::default().message(1, &header(writes))
            }
            "/etcdserverpb.KV/Txn" => {
                let parts = || Fields::of(asked).map(|it| it.expect("a field"));
                let succeeds = self.agrees || parts().all(|(field, _)| field != 1);
                let branch = if succeeds { 2 } else { 3 };
                let done = Message::default().message(1, &header(writes)).flag(2, succeeds);
                parts().filter(|(field, _)| *field == branch).fold(done, |done, (_, operation)| {
                    let read = self.carry_out(operation.bytes().expect("an operation"));
                    let answer = read.map(|read| Message::default().message(1, &read));
                    done.message(3, &answer.unwrap_or_default())
                })
            }
            _ => Message::default(),
        }
    }

    /// Carries out an operation of a transaction. Returns the keys that it read.
    fn carry_out(&self, operation: &[u8]) -> Option<Message> {
        let (kind, asked) = Fields::of(operation).next()?.expect("a field");
        let asked = asked.bytes().expect("an operation");
        let mut texts = Fields::of(asked).map(|it| it.expect("a field"));
        let key = texts.next()?.1.bytes().expect("a key");
        let is_held = key.starts_with(b"x/held/");
        let is_line = texts.next().is_some_and(|(field, _)| field == 2);
        match kind {
            1 if is_held => Some(self.pair(key, self.holder, &self.lease)),
            1 => {
                self.lines.fetch_add(i64::from(is_line), Ordering::Relaxed);
                let place = [&b"x/line/a\t"[..], OWNER.as_bytes()].concat();
                Some(self.pair(&place, OWNER, &self.place))
            }
            2 if !is_held => {
                self.place.store(number(asked, 3), Ordering::Relaxed);
                None
            }
            3 if !is_held => {
                self.place.store(0, Ordering::Relaxed);
                None
            }
            _ => None,
        }
    }

    /// A key of an owner, if it has a lease.
    fn pair(&self, key: &[u8], owner: &'static str, lease: &AtomicI64) -> Message {
        let lease = lease.load(Ordering::Relaxed);
        if lease == 0 {
            return Message::default();
        }
        let lasts = self.lasts.load(Ordering::Relaxed);
        let value = Entry::of(&ask(owner), lasts, SystemHost::shared().wall()).write();
        let pair = Message::default().bytes(1, key).number(3, CHANGE).bytes(5, &value);
        Message::default().message(2, &pair.number(6, lease)).number(4, 1)
    }
}

/// A number of a message.
fn number(message: &[u8], field: u32) -> i64 {
    let mut fields = Fields::of(message).map(|it| it.expect("a field"));
    let (_, value) = fields.find(|(it, _)| *it == field).expect("it is there");
    value.number().expect("a number")
}

/// Whether a transaction writes the key of a lock.
fn writes_a_lock(asked: &[u8]) -> bool {
    let parts = Fields::of(asked).map(|it| it.expect("a field"));
    parts.filter(|(field, _)| *field == 2).any(|(_, operation)| {
        let operation = operation.bytes().expect("an operation");
        let (kind, put) = Fields::of(operation).next().expect("one").expect("a field");
        let put = put.bytes().expect("an operation");
        let (_, key) = Fields::of(put).next().expect("a key").expect("a field");
        kind == 2 && key.bytes().expect("a key").starts_with(b"x/held/")
    })
}
