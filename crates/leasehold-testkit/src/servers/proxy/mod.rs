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

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    ToServer,
    /// From the server to clients.
    ToClient,
    /// Both.
    Both,
}

/// What went through a [`Proxy`] since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were opened through it.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// Requests that it passed on to the server, whole ones.
    pub requests: u64,
    /// Bytes of requests that it passed on to the server.
    pub request_bytes: u64,
    /// Replies and messages that it took from the server, whether it passed them on or not.
    pub replies: u64,
    /// Replies that it was told to lose, and did.
    pub lost: u64,
    /// Requests that it sent twice.
    pub repeated: u64,
}

/// What becomes of a connection one of whose replies was lost. Nothing more gets through either
/// way: a server that left out one answer would give each later one to the wrong question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is closed.
    Closed,
    /// It stays open, and is silent.
    Silent,
}

/// Stands between clients and a server on 127.0.0.1, passes on what they say, and does to it what a
/// test wants. Gone when this is dropped, with every connection through it.
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

/// Which reply is cut off.
#[derive(Clone, Copy)]
struct Cut {
    /// How many pass before it.
    replies: u64,
    /// How much of it passes.
    bytes: usize,
    then: Then,
}

/// Which requests are sent twice.
#[derive(Clone, Copy)]
struct Repeat {
    /// How many, from the next one on.
    requests: u64,
    /// How long after the first time.
    later: Duration,
}

/// How bytes go in one direction.
#[derive(Clone, Copy, Default)]
struct Lane {
    held: bool,
    delay: Duration,
    /// How much more than `delay` at most.
    jitter: Duration,
}

impl Proxy {
    /// In front of the server on that port of 127.0.0.1, which may also come and go.
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

    /// The URL of the server through it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// Holds back what comes that way. Nothing of it is lost, not even if its sender gives up and
    /// closes the connection meanwhile.
    pub fn hold(&self, way: Way) {
        self.set(way, |lane| lane.held = true);
    }

    /// Lets go what was held back.
    pub fn go_on(&self, way: Way) {
        self.set(way, |lane| lane.held = false);
    }

    /// Holds back the requests of the connections that are open now, as [`hold`](Self::hold) does;
    /// others pass. Whoever gives such a connection up and makes a new one is overtaken by nothing,
    /// until the old requests arrive late.
    pub fn strand(&self) {
        self.shared.state().connections.iter().for_each(|connection| connection.strand(true));
    }

    /// Lets go what was stranded.
    pub fn land(&self) {
        self.shared.state().connections.iter().for_each(|connection| connection.strand(false));
        self.shared.changed.notify_all();
    }

    /// From now on what comes that way arrives that much later, or up to twice that if there is
    /// much of it.
    pub fn delay(&self, way: Way, span: Duration) {
        self.delay_between(way, span, span);
    }

    /// As [`delay`](Self::delay), by a span between these two, another one for each piece. What was
    /// sent first arrives first all the same.
    pub fn delay_between(&self, way: Way, least: Duration, most: Duration) {
        self.set(way, |lane| {
            lane.delay = least;
            lane.jitter = most.saturating_sub(least);
        });
    }

    /// Closes every connection, with what was held back in it.
    pub fn close_all(&self) {
        let connections = self.shared.state().connections.clone();
        connections.iter().for_each(|connection| connection.close());
        self.shared.changed.notify_all();
    }

    /// From now on the server on that port is behind it, also for the connections that are open, as
    /// behind a proxy that keeps them over a failover. No answer may be under way.
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

    /// Closes the connection whose reply is next, after so many bytes of it, and after the whole of
    /// it if it is shorter. The server has carried the request out.
    pub fn cut_next_reply_after(&self, bytes: usize) {
        self.cut(Cut { replies: 0, bytes, then: Then::Closed });
    }

    /// Loses the reply after the next `replies` ones, of whatever connection it is: the server has
    /// carried the request out, and the client cannot know.
    pub fn lose_reply_after(&self, replies: u64, then: Then) {
        self.cut(Cut { replies, bytes: 0, then });
    }

    /// Sends the next `requests` that run a script a second time, so much later, on a connection of
    /// their own, as something in between would that had no answer. Nobody hears the second answer.
    pub fn repeat_scripts(&self, requests: u64, later: Duration) {
        self.shared.state().repeat = Some(Repeat { requests, later });
    }

    /// Loses and repeats nothing from now on that is not lost or repeated yet.
    pub fn be_faithful(&self) {
        let mut state = self.shared.state();
        (state.cut, state.repeat) = (None, None);
    }

    /// Closes the connection whose reply is next, without a byte of it: the server has carried the
    /// request out, and the client cannot know.
    pub fn swallow_next_reply(&self) {
        self.cut_next_reply_after(0);
    }

    /// Nobody listens any more: who connects is refused. Open connections stay.
    pub fn refuse(&self) {
        self.listening().take();
    }

    /// Somebody listens again.
    pub fn accept(&self) {
        let shared = Arc::clone(&self.shared);
        self.listening().get_or_insert_with(|| {
            Listening::on(&self.port, move |client| {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server()));
                // Without a server the client is closed.
                if let Ok(server) = server {
                    Connection::begin(&shared, client, server);
                }
            })
        });
    }

    /// What went through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.state().counts
    }

    /// Waits until that much went through.
    ///
    /// # Panics
    ///
    /// If it does not in a long time.
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
        // Whole at every moment, also if a check of a test failed.
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
