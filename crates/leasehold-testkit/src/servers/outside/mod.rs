//! A real server as the outside of a [`VirtualHost`](crate::VirtualHost). Tests on virtual time can
//! use it, and its clock is the virtual one.
//!
//! Virtual time may go on only if nothing is on its way between the tasks and the server. The kit
//! proves this instead of waiting for a while. Data that a server sends over one connection arrives
//! in order. So the kit sends one more request on each connection, and one more message to each
//! connection that receives messages, on a channel of its own. When these arrive, everything before
//! them has arrived.
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
mod inlet;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::io;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Instant;

use leasehold::core::Moment;
use leasehold::store::redis::{Command, Link, LinkConnector, LinkError, LinkFuture, Value};

pub use self::watched::Watched;

use self::inlet::Inlet;
use super::resp::Client;
use super::{PATIENCE, RedisServer};
use crate::virtual_host::{Outside, unstepped_wall};

/// A server on virtual time, and the connections to it.
///
/// Its time of day is the host's, but without the host's steps, because the server is another
/// machine.
///
/// Nothing is expected from a [paused](RedisServer::pause) server: its answers come when it goes
/// on. A proxy between the connections and the server must not hold anything back, or the test
/// fails after a long wait.
pub struct ServerOutside {
    server: Box<dyn Deref<Target = RedisServer> + Send + Sync>,
    /// The connection that publishes marks.
    marks: Mutex<Option<Client>>,
    marked: AtomicU64,
    went_out: AtomicU64,
    requests: AtomicU64,
    /// How many futures wait for something from outside besides answers and messages.
    under_way: Mutex<usize>,
    arrived: Condvar,
    /// The links whose input and output are being polled.
    links: Mutex<Vec<Weak<dyn Link>>>,
    inlets: Mutex<Vec<Arc<Inlet>>>,
}

impl ServerOutside {
    /// Uses a server with a [clock](RedisServer::clock): a server from the [pool](super::pool), or
    /// one in an [`Arc`].
    #[must_use]
    pub fn new(server: impl Deref<Target = RedisServer> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            server: Box::new(server),
            marks: Mutex::default(),
            marked: AtomicU64::new(0),
            went_out: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            under_way: Mutex::default(),
            arrived: Condvar::new(),
            links: Mutex::default(),
            inlets: Mutex::default(),
        })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Wraps a connector so that this outside sees its connections.
    #[must_use]
    pub fn watch<C: LinkConnector>(self: &Arc<Self>, connector: C) -> Watched<C> {
        Watched::new(connector, Arc::clone(self))
    }

    /// How many requests were submitted on watched connections so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Counts something that goes out.
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

    /// Waits until all submitted requests are answered.
    fn settle_links(&self) {
        let live: Vec<_> = lock(&self.links).iter().filter_map(Weak::upgrade).collect();
        // All at once, so that the answers come at the same time.
        let asked: Vec<_> = live.iter().map(|link| link.submit(Command::new("PING"))).collect();
        for answer in asked {
            // A refusal also proves the order, and so does the end of the connection.
            let _ = self.wait_for(answer);
        }
    }

    /// Waits until all published messages have been passed on.
    fn settle_inlets(&self) {
        let inlets = {
            let mut inlets = lock(&self.inlets);
            inlets.retain(|inlet| !inlet.has_ended());
            inlets.clone()
        };
        let mark = self.marked.fetch_add(1, Ordering::AcqRel) + 1;
        for inlet in &inlets {
            // Without a server the connection has ended, and its other end will notice.
            let _ = self.publish(inlet.channel(), mark);
        }
        for inlet in inlets {
            assert!(
                inlet.has_seen(mark),
                "a message of {:?} does not arrive in {PATIENCE:?}; does anything hold it back?",
                self.server()
            );
        }
    }

    fn publish(&self, channel: &str, mark: u64) -> io::Result<()> {
        let mut slot = lock(&self.marks);
        let mut client = match slot.take().filter(Client::is_open) {
            Some(client) => client,
            None => self.server.connect()?,
        };
        client.ask(&["PUBLISH", channel, &mark.to_string()])?;
        *slot = Some(client);
        Ok(())
    }

    /// Blocks until the answer arrives.
    fn wait_for(&self, answer: LinkFuture<Result<Value, LinkError>>) -> Result<Value, LinkError> {
        let began = Instant::now();
        let mut answer = pin!(answer);
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            if let Poll::Ready(output) = answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            let left = PATIENCE.saturating_sub(began.elapsed());
            assert!(
                !left.is_zero(),
                "{:?} does not answer in {PATIENCE:?}; does anything hold back the answer?",
                self.server()
            );
            std::thread::park_timeout(left);
        }
    }
}

impl Outside for ServerOutside {
    fn settle(&self) {
        if self.server.is_paused() {
            return;
        }
        self.settle_under_way();
        self.settle_links();
        // Last, because the messages that a request publishes are sent before its answer.
        self.settle_inlets();
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

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Always valid, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
