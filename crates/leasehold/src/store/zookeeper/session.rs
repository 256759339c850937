//! A session at an ensemble, over one connection at a time. It goes on over reconnects, until the
//! server says that it has ended.
//!
//! # How long the server surely keeps a session
//!
//! The leader ends a session when it has not heard of its client for the timeout. A follower does
//! not tell it of each request. It tells whose clients were active when the leader asks, which is
//! each half of a tick. So a change that was made proves that the leader leads, and not that it
//! restarted the time of the session.
//!
//! | what is certain | why |
//! |---|---|
//! | the client is silent for [`gap_max`] at most | it sends pings; after a longer pause, it connects anew before it sends anything |
//! | the server is silent for less than the margin | a connection on which [`silence_max`] passes without an answer is given up, and that is looked at once per ping |
//! | a new connection restarts the time | the server asks the leader whether the session lives |
//! | the leader hears of all this within the rest of the [`margin`] | the assumption of this store, see GUARANTEES.md |
//!
//! So a session lasts for its timeout less the margin, counted from before any change that was
//! answered. No lease may be longer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::connect::{Opened, ZookeeperConnector};
use super::driver::Driver;
use super::error::{Failure, Fault};
use super::jute::Malformed;
use super::rpc::Request;
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::net::Home;

/// How long a request may take. Longer than the limit of any request of the contract.
const ASK_LIMIT: Duration = Duration::from_millis(1_500);

/// The least margin: half of a tick is one second by default.
const MARGIN_MIN: Duration = Duration::from_secs(2);

/// By how much a lease is shorter than the timeout of its session, at least.
pub(super) fn margin(timeout: Duration) -> Duration {
    (timeout / 4).max(MARGIN_MIN)
}

/// How long the client is silent at most, so that the session surely lasts.
pub(super) fn gap_max(timeout: Duration) -> Duration {
    margin(timeout) / 3
}

/// How long the server may be silent. Until that is noticed, the client sends pings that may not
/// arrive.
pub(super) fn silence_max(timeout: Duration) -> Duration {
    margin(timeout) * 2 / 3
}

/// What the server said without being asked.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Watched nodes that are gone.
    pub(super) gone: Vec<String>,
    /// There was another connection before, whose watches are lost.
    pub(super) is_reconnected: bool,
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
    news: Mutex<News>,
    /// Told of news, and of the end.
    pub(super) notify: Arc<Notify>,
}

pub(super) enum Item {
    Ask(Packet),
    /// The store is gone.
    Close,
}

/// A request that waits to be sent, or for its answer.
pub(super) struct Packet {
    pub(super) request: Request,
    answer: oneshot::Sender<Result<Vec<u8>, Failure>>,
    pub(super) stage: Arc<AtomicU8>,
}

/// The stages of a request.
pub(super) mod stage {
    pub(in crate::store::zookeeper) const WAITS: u8 = 0;
    pub(in crate::store::zookeeper) const SENT: u8 = 1;
    /// Its caller gave up before it was sent.
    pub(in crate::store::zookeeper) const DROPPED: u8 = 2;
}

impl Session {
    /// Begins to work on a connection. Tells `notify` of news.
    pub(super) fn begin(
        host: &Arc<dyn Host>,
        connector: ZookeeperConnector,
        opened: Opened,
        notify: Arc<Notify>,
    ) -> Arc<Self> {
        let label = connector.label().into();
        let (session, ends) = Self::new(host, (opened.ticket.id, opened.timeout), label, notify);
        let driver = Driver::new(host, connector, &opened, ends);
        Home::Host.spawn(host, Box::pin(driver.run(opened)));
        Arc::new(session)
    }

    /// A session by its number and its timeout, and what its driver needs.
    pub(super) fn new(
        host: &Arc<dyn Host>,
        (id, timeout): (i64, Duration),
        label: Arc<str>,
        notify: Arc<Notify>,
    ) -> (Self, (Arc<Shared>, UnboundedReceiver<Item>)) {
        let shared = Arc::new(Shared {
            is_over: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            connection: AtomicU64::new(1),
            news: Mutex::default(),
            notify,
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

    pub(super) fn take_news(&self) -> News {
        std::mem::take(&mut *self.shared.news())
    }

    /// Ends the session, after all requests that were made before.
    pub(super) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        // It may have ended by itself.
        drop(self.queue.send(Item::Close));
    }

    /// Sends a request when it is called, and reads its answer.
    pub(super) fn ask<T: 'static>(
        &self,
        request: Request,
        read: fn(&[u8]) -> Result<T, Malformed>,
    ) -> impl Future<Output = Result<T, Fault>> + Send + 'static + use<T> {
        let (host, label, effect) =
            (Arc::clone(&self.host), Arc::clone(&self.label), request.effect);
        let (answer, answered) = oneshot::channel();
        let stage = Arc::new(AtomicU8::new(stage::WAITS));
        let packet = Packet { request, answer, stage: Arc::clone(&stage) };
        let is_queued = self.queue.send(Item::Ask(packet)).is_ok();
        async move {
            if !is_queued {
                return Err(Fault::SessionOver);
            }
            let answer = tokio::select! {
                biased;
                answer = answered => answer.unwrap_or_else(|_| {
                    Err(Failure::Broken("nobody tends it any more".to_owned()))
                }),
                () = host.sleep_until(host.now() + ASK_LIMIT) => Err(give_up(&stage)),
            };
            answer
                .and_then(|body| Ok(read(&body)?))
                .map_err(|failure| failure.fault(effect, &label))
        }
    }
}

/// The failure of a request that got no answer in time.
fn give_up(stage: &AtomicU8) -> Failure {
    let (from, to) = (stage::WAITS, stage::DROPPED);
    match stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let message = format!(
                "there was no connection within {ASK_LIMIT:?}; no request was sent; check whether \
                 a majority of the servers runs"
            );
            Failure::Unsent(Error::new(ErrorKind::Unavailable, message))
        }
        Err(_) => Failure::Silent(ASK_LIMIT),
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:x}, over: {})", self.id, self.is_over())
    }
}

impl Shared {
    pub(super) fn news(&self) -> MutexGuard<'_, News> {
        // Whole at every moment: single steps change it.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Packet {
    pub(super) fn end(self, answer: Result<Vec<u8>, Failure>) {
        // Its caller may be gone.
        drop(self.answer.send(answer));
    }
}
