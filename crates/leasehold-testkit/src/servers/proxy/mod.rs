//! A bad network between a client and a server.

mod connection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::connection::Connection;
use super::PATIENCE;
use super::listening::Listening;
use super::port::Port;
use crate::virtual_host::SeededRandom;

/// A direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    ToClient,
    /// Both directions.
    Both,
}

/// Counts of what a [`Proxy`] has passed on since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were opened through it.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// Whole requests that it passed on to the server.
    pub requests: u64,
    /// Bytes of requests that it passed on to the server.
    pub request_bytes: u64,
    /// Replies and messages that it took from the server, passed on or not.
    pub replies: u64,
    /// Replies that it lost on purpose.
    pub lost: u64,
    /// Requests that it sent twice.
    pub repeated: u64,
}

/// The fate of a connection after one of its replies was lost. Nothing more gets through in either
/// direction, since each later answer would seem to belong to the wrong request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The connection is closed.
    Closed,
    /// It stays open, but silent.
    Silent,
}

/// Passes bytes between clients and a server on 127.0.0.1, and disturbs them as a test wants.
/// Dropping it closes every connection through it.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    listening: Mutex<Option<Listening>>,
}

struct Shared {
    server: AtomicU16,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    counts: Counts,
    to_server: Lane,
    to_client: Lane,
    cut: Option<Cut>,
    repeat: Option<Repeat>,
    connections: Vec<Arc<Connection>>,
    random: SeededRandom,
}

/// The reply to cut off.
#[derive(Clone, Copy)]
struct Cut {
    /// How many replies pass before this one.
    replies: u64,
    /// How many of its bytes pass.
    bytes: usize,
    then: Then,
}

/// The requests to send twice.
#[derive(Clone, Copy)]
struct Repeat {
    /// How many requests, from the next one on.
    requests: u64,
    /// The time between the first and the second sending.
    later: Duration,
}

/// The state of one direction.
#[derive(Clone, Copy, Default)]
struct Lane {
    held: bool,
    delay: Duration,
    /// The largest random addition to `delay`.
    jitter: Duration,
}

impl Proxy {
    /// A proxy for the server on that port of 127.0.0.1. The server may come and go.
    #[must_use]
    pub fn to(server: u16) -> Self {
        let state = State {
            counts: Counts::default(),
            to_server: Lane::default(),
            to_client: Lane::default(),
            cut: None,
            repeat: None,
            connections: Vec::new(),
            // Real time is not repeatable anyway.
            random: SeededRandom::new(server.into()),
        };
        let shared = Arc::new(Shared {
            server: AtomicU16::new(server),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let proxy = Self { port: Port::reserve(), shared, listening: Mutex::default() };
        proxy.accept();
        proxy
    }

    /// The URL of the server through the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Holds back all bytes in that direction. Nothing is lost, even if the sender gives up and
    /// closes the connection meanwhile.
    pub fn hold(&self, way: Way) {
        self.set(way, |lane| lane.held = true);
    }

    /// Lets the held bytes go.
    pub fn go_on(&self, way: Way) {
        self.set(way, |lane| lane.held = false);
    }

    /// Holds back the requests of the current connections, as [`hold`](Self::hold) does. New
    /// connections pass. So a client that gives its connection up goes on over a new one. Its old
    /// requests arrive late.
    pub fn strand(&self) {
        self.shared.state().connections.iter().for_each(|connection| connection.strand(true));
    }

    /// Lets the stranded requests go.
    pub fn land(&self) {
        self.shared.state().connections.iter().for_each(|connection| connection.strand(false));
        self.shared.changed.notify_all();
    }

    /// Delays all bytes in that direction by `span` from now on, or by up to twice as much if there
    /// are many.
    pub fn delay(&self, way: Way, span: Duration) {
        self.delay_between(way, span, span);
    }

    /// Like [`delay`](Self::delay), with a random delay between two spans for each piece. The order
    /// of the pieces stays.
    pub fn delay_between(&self, way: Way, least: Duration, most: Duration) {
        self.set(way, |lane| {
            lane.delay = least;
            lane.jitter = most.saturating_sub(least);
        });
    }

    /// Closes every connection. Held bytes are lost.
    pub fn close_all(&self) {
        let connections = self.shared.state().connections.clone();
        connections.iter().for_each(|connection| connection.close());
        self.shared.changed.notify_all();
    }

    /// Moves to the server on that port, with all open connections, like a proxy that keeps
    /// connections over a failover. No answer may be under way.
    ///
    /// # Panics
    ///
    /// If there is no such server.
    #[track_caller]
    pub fn move_to(&self, server: u16) {
        self.shared.server.store(server, Ordering::Release);
        for connection in &self.shared.state().connections {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server));
            connection.move_to(server.expect("a server that takes connections"));
        }
    }

    /// Cuts the next reply off after this many bytes, or at its end if it is shorter, and closes
    /// its connection. The server has carried the request out.
    pub fn cut_next_reply_after(&self, bytes: usize) {
        self.cut(Cut { replies: 0, bytes, then: Then::Closed });
    }

    /// Loses the reply after the next `replies` ones, on any connection. The server has carried the
    /// request out, but the client cannot know.
    pub fn lose_reply_after(&self, replies: u64, then: Then) {
        self.cut(Cut { replies, bytes: 0, then });
    }

    /// Sends the next `requests` that run a script a second time, `later` after the first, on new
    /// connections. A middlebox that gets no answer does the same. Nobody receives the second
    /// answer.
    pub fn repeat_scripts(&self, requests: u64, later: Duration) {
        self.shared.state().repeat = Some(Repeat { requests, later });
    }

    /// From now on, loses and repeats nothing more.
    pub fn be_faithful(&self) {
        let mut state = self.shared.state();
        (state.cut, state.repeat) = (None, None);
    }

    /// Closes the connection of the next reply before its first byte. The server has carried the
    /// request out, but the client cannot know.
    pub fn swallow_next_reply(&self) {
        self.cut_next_reply_after(0);
    }

    /// Stops listening, so that new connections are refused. Open connections stay.
    pub fn refuse(&self) {
        self.listening().take();
    }

    /// Listens again.
    pub fn accept(&self) {
        let shared = Arc::clone(&self.shared);
        self.listening().get_or_insert_with(|| {
            Listening::on(&self.port, move |client| {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server()));
                // Without a server, the client's connection is closed.
                if let Ok(server) = server {
                    Connection::begin(&shared, client, server);
                }
            })
        });
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// Waits until the counts are enough.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    #[track_caller]
    pub fn until(&self, enough: impl Fn(&Counts) -> bool) -> Counts {
        let waits = |state: &mut State| !enough(&state.counts);
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), PATIENCE, waits);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let counts = state.counts;
        drop(state);
        assert!(!waited.timed_out(), "no more than {counts:?} went through in {PATIENCE:?}");
        counts
    }

    fn cut(&self, cut: Cut) {
        self.shared.state().cut = Some(cut);
    }

    fn set(&self, way: Way, set: impl Fn(&mut Lane)) {
        let mut state = self.shared.state();
        if way != Way::ToClient {
            set(&mut state.to_server);
        }
        if way != Way::ToServer {
            set(&mut state.to_client);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn listening(&self) -> MutexGuard<'_, Option<Listening>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn server(&self) -> u16 {
        self.server.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid even if a test has failed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.state().counts);
        self.changed.notify_all();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy(port {}, {:?})", self.port(), self.counts())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.close_all();
    }
}
