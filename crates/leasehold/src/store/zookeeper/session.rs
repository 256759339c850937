//! A session at an ensemble, over one connection at a time. It goes on over reconnects, until the
//! server says that it has ended.
//!
//! # How long the server certainly keeps a session
//!
//! The leader ends a session when it has not heard of its client for the timeout. A follower does
//! not tell the leader of each request. Every half tick, the leader asks, and the follower tells
//! which clients were active. So a change proves that the leader leads, but not that it restarted
//! the time of the session.
//!
//! | what is certain | why |
//! |---|---|
//! | the client is silent for [`gap_max`] at most | it sends pings; after a longer pause, it connects again before it sends anything |
//! | the server is silent for less than the margin | a connection on which [`silence_max`] passes without an answer is given up, and this is checked once per ping |
//! | a new connection restarts the time | the server asks the leader whether the session lives |
//! | the leader hears of all this within the rest of the [`margin`] | the assumption of this store, see GUARANTEES.md |
//!
//! So a session lasts for its timeout less the margin, counted from before any change that was
//! answered. No lease may be longer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::error::{Failure, Fault};
use super::jute::Malformed;
use super::rpc::Request;
use crate::core::moment::Moment;
use crate::host::Host;
use crate::host::shielded::Shielded;
use crate::unpoisoned::Unpoisoned;

/// The least margin: half of a tick is one second by default.
const MARGIN_MIN: Duration = Duration::from_secs(2);

/// How much shorter, at least, a lease is than the timeout of its session.
pub(super) fn margin(timeout: Duration) -> Duration {
    (timeout / 4).max(MARGIN_MIN)
}

/// How long the client is silent at most, so that the session certainly lasts.
pub(super) fn gap_max(timeout: Duration) -> Duration {
    margin(timeout) / 3
}

/// The longest silence of a server. Locks are often shorter than the session, and must not be lost
/// while the client waits for a server that has failed.
const SILENCE_LIMIT: Duration = Duration::from_millis(2_500);

/// How long the server may be silent. Until that is noticed, the client sends pings that may not
/// arrive.
pub(super) fn silence_max(timeout: Duration) -> Duration {
    (margin(timeout) * 2 / 3).min(SILENCE_LIMIT)
}

/// News that no request asked for.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Watched nodes that are gone.
    pub(super) gone: Vec<String>,
    /// Whether a connection has ended with its watches, or a session with its places.
    pub(super) are_watches_lost: bool,
}

/// The news of all sessions of a store.
#[derive(Debug, Default)]
pub(super) struct Board {
    news: Unpoisoned<News>,
    /// Wakes the task that reads the news.
    pub(super) reader: Notify,
}

impl Board {
    pub(super) fn add(&self, write: impl FnOnce(&mut News)) {
        write(&mut self.news.lock());
        self.reader.notify_one();
    }

    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.news.lock())
    }
}

/// A session.
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) timeout: Duration,
    queue: UnboundedSender<Item>,
    shared: Arc<Shared>,
    host: Arc<dyn Host>,
    label: Arc<str>,
}

pub(super) struct Shared {
    pub(super) is_over: AtomicBool,
    pub(super) is_closed: AtomicBool,
    /// The number of the connection. Watches end with their connection.
    pub(super) connection: AtomicU64,
    pub(super) board: Arc<Board>,
}

pub(super) enum Item {
    Ask(Packet),
    /// The store is gone.
    Close,
}

/// A request that waits to be sent.
pub(super) struct Packet {
    pub(super) request: Request,
    pub(super) caller: Caller,
}

/// The caller that waits for an answer.
pub(super) struct Caller {
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
    /// Since when it waits.
    pub(super) since: Moment,
}

impl Session {
    /// A session by its number and its timeout, and the parts that its driver needs.
    pub(super) fn new(
        host: &Arc<dyn Host>,
        (id, timeout): (i64, Duration),
        label: Arc<str>,
        board: Arc<Board>,
    ) -> (Self, (Arc<Shared>, UnboundedReceiver<Item>)) {
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            connection: AtomicU64::new(1),
            board,
        });
        let (queue, items) = unbounded_channel();
        let (host, to_driver) = (Arc::clone(host), (Arc::clone(&shared), items));
        (Self { id, timeout, queue, shared, host, label }, to_driver)
    }

    /// A session without a connection: it answers nothing.
    #[cfg(test)]
    pub(super) fn unconnected() -> Arc<Self> {
        let host = crate::host::SystemHost::shared();
        Arc::new(Self::new(&host, (1, MARGIN_MIN * 2), "".into(), Arc::default()).0)
    }

    /// Whether the session has ended, and all its nodes with it.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Acquire)
    }

    /// The number of the connection.
    pub(super) fn connection(&self) -> u64 {
        self.shared.connection.load(Ordering::Acquire)
    }

    /// Ends the session, after all requests that were made before.
    pub(super) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        // The session may have ended by itself.
        drop(self.queue.send(Item::Close));
    }

    /// Sends a request when this is called, and reads its answer. The driver limits how long that
    /// takes, because a timer for each request would cost more than the request.
    pub(super) fn ask<T: 'static>(
        &self,
        request: Request,
        read: fn(&[u8]) -> Result<T, Malformed>,
    ) -> impl Future<Output = Result<T, Fault>> + Send + 'static + use<T> {
        let (label, effect) = (Arc::clone(&self.label), request.effect);
        let (answer, answered) = oneshot::channel();
        let caller = Caller { answer, since: self.host.now() };
        let is_queued = self.queue.send(Item::Ask(Packet { request, caller })).is_ok();
        async move {
            if !is_queued {
                return Err(Fault::SessionOver);
            }
            let unattended = || Err(Failure::Broken("the connection's task has ended".to_owned()));
            // A panic of the caller's waker must not end the driver, and all locks with it.
            let answer = Shielded::new(answered).await.unwrap_or_else(|_| unattended());
            answer
                .and_then(|body| Ok(read(&body)?))
                .map_err(|failure| failure.fault(effect, &label))
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x}, over: {})", self.id, self.is_over())
    }
}

impl Caller {
    pub(super) fn end(self, answer: Result<Vec<u8>, Failure>) {
        // The caller may be gone.
        drop(self.answer.send(answer));
    }
}
