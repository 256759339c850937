//! A schema as the outside of a [`VirtualHost`](crate::VirtualHost). Its clock is the virtual one.
//! Virtual time goes on only if nothing is on its way.
//!
//! Each request has one answer that ends in `ReadyForQuery`. A connection that listens gets one
//! more request, which is empty, after all other requests are answered. When its answer arrives,
//! all messages before it have arrived.

mod watched;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use leasehold::core::Moment;
use leasehold::store::postgres::{Opening, PostgresConnector};

use self::watched::Watched;
use super::schema::Schema;
use crate::servers::PATIENCE;
use crate::virtual_host::{Outside, unstepped_wall};

/// A schema on virtual time, and the connections to it.
pub struct SchemaOutside {
    schema: Schema,
    went_out: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

/// The requests and connections that are on their way.
#[derive(Default)]
struct State {
    /// Connections that are being opened.
    opening: usize,
    connections: Vec<Arc<Mutex<Seen>>>,
}

/// The traffic that was seen on one connection.
#[derive(Debug, Default)]
struct Seen {
    /// Requests without an answer, the login included.
    pending: usize,
    listens: bool,
    is_closed: bool,
    probes_asked: u64,
    probes_sent: u64,
    probes_answered: u64,
    /// Wakes the task that reads.
    reader: Option<std::task::Waker>,
}

impl SchemaOutside {
    /// Uses a schema of the shared server.
    #[must_use]
    pub fn new(schema: Schema) -> Arc<Self> {
        let (went_out, state) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Self { schema, went_out, state, changed: Condvar::new() })
    }

    /// The schema.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }

    /// A connector whose connections virtual time waits for.
    ///
    /// # Panics
    ///
    /// Never, since the URL is the kit's own.
    #[must_use]
    pub fn connector(self: &Arc<Self>) -> PostgresConnector {
        let connector = PostgresConnector::new(&self.schema.url()).expect("a URL of the kit");
        let outside = Arc::downgrade(self);
        connector.through(move |opening| {
            let Some(outside) = outside.upgrade() else { return opening };
            Watched::opening(outside, opening)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn goes_out(&self) {
        self.went_out.fetch_add(1, Ordering::AcqRel);
    }

    /// Tells the task that settles that something changed.
    fn change(&self) {
        drop(self.state());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_settled: impl Fn(&State) -> bool) {
        let waits = |state: &mut State| !is_settled(state);
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, waits);
        let (state, limit) = waited.unwrap_or_else(PoisonError::into_inner);
        let seen = format!("{:?}", state.connections);
        drop(state);
        assert!(!limit.timed_out(), "{:?} does not settle: {seen}", self.schema);
    }
}

fn seen(connection: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An [`Opening`] of the store.
type Opened = Opening;

impl Outside for SchemaOutside {
    fn settle(&self) {
        let is_quiet = |connection: &Arc<Mutex<Seen>>| {
            let seen = seen(connection);
            seen.is_closed || seen.pending == 0
        };
        self.wait_until(|state| state.opening == 0 && state.connections.iter().all(is_quiet));
        // All messages of those requests have been sent, since the server sends them with the
        // commit.
        let mut state = self.state();
        state.connections.retain(|connection| !seen(connection).is_closed);
        let mut woken = Vec::new();
        for connection in &state.connections {
            let mut seen = seen(connection);
            if seen.listens {
                seen.probes_asked += 1;
                woken.extend(seen.reader.clone());
            }
        }
        drop(state);
        woken.into_iter().for_each(std::task::Waker::wake);
        let is_answered = |connection: &Arc<Mutex<Seen>>| {
            let seen = seen(connection);
            seen.is_closed || seen.probes_answered == seen.probes_asked
        };
        self.wait_until(|state| state.connections.iter().all(is_answered));
    }

    fn went_out(&self) -> u64 {
        self.went_out.load(Ordering::Acquire)
    }

    fn time_is(&self, now: Moment) {
        self.schema.freeze_at(unstepped_wall(now).as_unix_micros());
    }
}

impl fmt::Debug for SchemaOutside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemaOutside({:?})", self.schema)
    }
}
