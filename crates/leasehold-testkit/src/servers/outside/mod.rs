//! A real server as the outside of a [`VirtualHost`](crate::VirtualHost). Tests on virtual time can
//! use it, and its clock is the virtual one.
//!
//! Virtual time may go on only if nothing is on its way between the tasks and the server. The kit
//! proves this instead of waiting for a while. Data that a server sends over one connection arrives
//! in order. So the kit sends one more request on each connection, and on those that receive
//! messages last. When the answers arrive, everything before them has arrived.
//!
//! ```no_run
//! use leasehold::store::redis::RedisConnector;
//! use leasehold_testkit::VirtualHost;
//! use leasehold_testkit::servers::{ServerOutside, pool};
//!
//! let host = VirtualHost::new(7);
//! let outside = ServerOutside::new(pool::lend());
//! let connector = outside.watch(RedisConnector::new(&outside.server().url()).expect("a URL"));
//! host.attach(outside);
//! ```

mod arrival;
mod probe;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use leasehold::core::Moment;
use leasehold::store::redis::Connector;

pub use self::watched::Watched;

use self::probe::Probe;
use super::{PATIENCE, RedisServer};
use crate::virtual_host::{Outside, unstepped_wall};

/// A server on virtual time, and the connections to it.
///
/// Its time of day is the host's, but without the host's clock steps, because the server is another
/// machine.
///
/// The kit does not wait for a [paused](RedisServer::pause) server, whose answers come when it goes
/// on. A proxy between the connections and the server must not hold anything back, or the test
/// fails after a long wait.
pub struct ServerOutside {
    server: Box<dyn Deref<Target = RedisServer> + Send + Sync>,
    went_out: AtomicU64,
    requests: AtomicU64,
    /// How many futures wait for something from outside besides answers and messages.
    under_way: Mutex<usize>,
    arrived: Condvar,
    probes: Mutex<Vec<Arc<Probe>>>,
}

impl ServerOutside {
    /// Uses a server with a [clock](RedisServer::clock): a server from the [pool](super::pool), or
    /// one in an [`Arc`].
    #[must_use]
    pub fn new(server: impl Deref<Target = RedisServer> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            server: Box::new(server),
            went_out: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            under_way: Mutex::default(),
            arrived: Condvar::new(),
            probes: Mutex::default(),
        })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Wraps a connector so that this outside sees its connections.
    #[must_use]
    pub fn watch<C: Connector>(self: &Arc<Self>, connector: C) -> Watched<C> {
        Watched::new(connector, Arc::clone(self))
    }

    /// How many requests left on watched connections so far, without those that make a connection
    /// or receive messages.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Counts a request or a connection that goes out.
    fn goes_out(&self) {
        self.went_out.fetch_add(1, Ordering::AcqRel);
    }

    fn waits(&self) {
        *lock(&self.under_way) += 1;
        self.goes_out();
    }

    fn waits_no_more(&self) {
        *lock(&self.under_way) -= 1;
        self.arrived.notify_all();
    }

    fn settle_under_way(&self) {
        let under_way = lock(&self.under_way);
        let settled =
            self.arrived.wait_timeout_while(under_way, PATIENCE, |under_way| *under_way > 0);
        let (_under_way, waited) = settled.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "connecting to {:?} is still under way", self.server());
    }

    /// Waits until everything has arrived on the connections that receive messages, or on the
    /// others.
    fn settle_probes(&self, receives: bool) {
        let probes: Vec<_> = {
            let mut probes = lock(&self.probes);
            probes.retain(|probe| !probe.has_ended());
            probes.iter().filter(|probe| probe.is_open(receives)).cloned().collect()
        };
        // Send all probes first, so that the answers come at the same time.
        probes.iter().for_each(|probe| probe.ask());
        for probe in probes {
            assert!(
                probe.is_answered(),
                "{:?} does not answer in {PATIENCE:?}; does anything hold back the answer?",
                self.server()
            );
        }
    }
}

impl Outside for ServerOutside {
    fn settle(&self) {
        if self.server.is_paused() {
            return;
        }
        self.settle_under_way();
        self.settle_probes(false);
        // Probe these connections last, because the messages that a request publishes are sent
        // before its answer.
        self.settle_probes(true);
    }

    fn went_out(&self) -> u64 {
        self.went_out.load(Ordering::Acquire)
    }

    fn time_is(&self, now: Moment) {
        self.server.clock().freeze_at(unstepped_wall(now).as_unix_micros());
    }
}

impl fmt::Debug for ServerOutside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerOutside({:?})", self.server())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The value is valid even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
