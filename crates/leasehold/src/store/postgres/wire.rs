//! The ordered wire: requests go out in the order of their calls, over one connection after the
//! other.
//!
//! | state | a new request |
//! |---|---|
//! | idle, no connection | waits while a task connects |
//! | connected | is sent at once, behind the others |
//! | paused after a failure | is refused with that failure |
//!
//! A request that was not sent in time is taken back, and `Unavailable`. One that was sent and has
//! no answer is `Unknown`. Nothing is sent twice.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Client;

use super::connect::PostgresConnector;
use super::error::{Stage, failure};
use super::link::{self, Link, Row};
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, Sleep, random_u32};
use crate::store::net::Home;
use crate::store::within;

/// The most requests that wait for a connection. A further one is `Unavailable`.
const QUEUE_MAX: usize = 10_000;

/// How long the oldest request may have no answer before its connection counts as dead. Longer than
/// the limit of any request.
const SILENT_AFTER: Duration = Duration::from_millis(1_500);

type Answer = Result<Vec<Row>, Error>;

/// Sends requests in order. Dropping it lets the waiting requests go out first.
pub(super) struct Wire {
    shared: Arc<Shared>,
}

struct Shared {
    host: Arc<dyn Host>,
    connector: PostgresConnector,
    state: Mutex<State>,
    /// Wakes the task: there is a request, or the wire is gone.
    news: Notify,
}

struct State {
    queue: VecDeque<Request>,
    is_running: bool,
    home: Home,
    is_closed: bool,
    /// Until when nothing is tried, and why.
    paused: Option<(Moment, Error)>,
    delays: Delays,
}

struct Request {
    sql: String,
    stage: Arc<Sending>,
    reply: oneshot::Sender<Answer>,
}

/// How far a request is.
#[derive(Default)]
struct Sending(AtomicU8);

impl Sending {
    const QUEUED: u8 = 0;
    const SENT: u8 = 1;
    const TAKEN_BACK: u8 = 2;

    fn go_on_to(&self, next: u8) -> bool {
        let from_queue =
            self.0.compare_exchange(Self::QUEUED, next, Ordering::AcqRel, Ordering::Acquire);
        from_queue.is_ok()
    }
}

impl Wire {
    pub(super) fn new(host: Arc<dyn Host>, connector: PostgresConnector, home: Home) -> Self {
        let state = State {
            queue: VecDeque::new(),
            is_running: false,
            home,
            is_closed: false,
            paused: None,
            delays: Backoff::DEFAULT.delays(),
        };
        let (state, news) = (Mutex::new(state), Notify::new());
        Self { shared: Arc::new(Shared { host, connector, state, news }) }
    }

    /// Submits a request now. The future waits for its answer for at most `limit`. Dropping it
    /// takes nothing back.
    pub(super) fn submit(
        &self,
        limit: Duration,
        sql: String,
    ) -> impl Future<Output = Answer> + Send + 'static + use<> {
        let (reply, answer) = oneshot::channel();
        let stage = Arc::<Sending>::default();
        let request = Request { sql, stage: Arc::clone(&stage), reply };
        let queued = self.shared.enqueue(request);
        let shared = Arc::clone(&self.shared);
        async move {
            queued?;
            let host = Arc::clone(&shared.host);
            let told = async { answer.await.unwrap_or_else(|_| Err(ended())) };
            match within(host, limit, told).await {
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    // If it is still in the queue, it must not be sent after its caller gave up.
                    let is_back = stage.go_on_to(Sending::TAKEN_BACK);
                    Err(if is_back { unsent(limit).at(&shared.connector.label()) } else { error })
                }
                answer => answer,
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.news.notify_one();
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({:?})", self.shared.connector)
    }
}

fn ended() -> Error {
    let message = "the runtime of the connection ended; the request may have taken effect";
    Error::new(ErrorKind::Unknown, message)
}

fn unsent(limit: Duration) -> Error {
    let message = format!(
        "there was no connection to the server within {limit:?}; no request was sent; check \
         whether the server is stopped, overloaded or out of reach"
    );
    Error::new(ErrorKind::Unavailable, message)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Always valid: it is changed by single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enqueue(self: &Arc<Self>, request: Request) -> Result<(), Error> {
        let mut state = self.state();
        if let Some((until, why)) = &state.paused
            && self.host.now() < *until
        {
            return Err(why.clone());
        }
        if state.queue.len() >= QUEUE_MAX {
            let message = format!(
                "{QUEUE_MAX} requests already wait for the server, which is the limit; no request \
                 was sent; try again later"
            );
            return Err(Error::new(ErrorKind::Unavailable, message).at(&self.connector.label()));
        }
        state.queue.push_back(request);
        let starts = !std::mem::replace(&mut state.is_running, true);
        let home = state.home;
        drop(state);
        if starts {
            self.start(home);
        } else {
            self.news.notify_one();
        }
        Ok(())
    }

    fn start(self: &Arc<Self>, home: Home) {
        let serving = Serving { shared: Arc::clone(self), is_over: false };
        home.spawn(&self.host, Box::pin(serving.serve()));
    }

    /// The next request to send. Requests that their callers took back are left out.
    fn next(&self) -> Option<Request> {
        let mut state = self.state();
        loop {
            let request = state.queue.pop_front()?;
            if request.stage.go_on_to(Sending::SENT) {
                return Some(request);
            }
        }
    }

    /// Refuses all waiting requests, and further ones for a while.
    fn failed(&self, error: &Error) {
        let mut state = self.state();
        let pause = state.delays.next(random_u32(&*self.host));
        state.paused = Some((self.host.now() + pause, error.clone()));
        let refused = std::mem::take(&mut state.queue);
        drop(state);
        for request in refused {
            if request.stage.go_on_to(Sending::TAKEN_BACK) {
                drop(request.reply.send(Err(error.clone())));
            }
        }
    }

    fn connected(&self) {
        let mut state = self.state();
        state.paused = None;
        state.delays.reset();
    }
}

/// The task that connects and serves the wire. If a runtime drops it, waiting requests go on on the
/// host's thread.
struct Serving {
    shared: Arc<Shared>,
    is_over: bool,
}

impl Serving {
    async fn serve(mut self) {
        while self.has_work() {
            match self.shared.connector.connect(&self.shared.host).await {
                Ok(link) => {
                    self.shared.connected();
                    Serve::new(&self.shared, link).run().await;
                }
                Err(error) => self.shared.failed(&error),
            }
        }
    }

    /// Whether requests wait. If not, the task is over: the next request starts another one.
    fn has_work(&mut self) -> bool {
        let mut state = self.shared.state();
        if state.queue.is_empty() {
            state.is_running = false;
            self.is_over = true;
        }
        !self.is_over
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.shared.state();
        state.is_running = state.home.moves_to_host() && !state.queue.is_empty();
        let goes_on = state.is_running;
        drop(state);
        if goes_on {
            self.shared.start(Home::Host);
        }
    }
}

/// One connection while it lasts.
struct Serve<'a> {
    shared: &'a Arc<Shared>,
    client: Arc<Client>,
    link: Link,
    under_way: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// When each request without an answer was sent, the oldest first.
    sent: VecDeque<Moment>,
    /// When to look whether the connection is silent.
    watch: Option<Sleep>,
}

impl<'a> Serve<'a> {
    fn new(shared: &'a Arc<Shared>, link: Link) -> Self {
        let (client, under_way) = (Arc::clone(&link.client), FuturesUnordered::new());
        Self { shared, client, link, under_way, sent: VecDeque::new(), watch: None }
    }

    /// Serves requests until the connection ends, is silent for too long, or the wire is gone.
    async fn run(mut self) {
        while self.go_on().await {}
        let Self { link, mut under_way, .. } = self;
        // Requests without an answer are told that there will be none.
        drop(link);
        while under_way.next().await.is_some() {}
    }

    /// Does what is due. Returns whether the connection goes on.
    async fn go_on(&mut self) -> bool {
        while let Some(request) = self.shared.next() {
            self.send(request);
        }
        if self.is_done() {
            return false;
        }
        if let (None, Some(oldest)) = (&self.watch, self.sent.front()) {
            self.watch = Some(self.shared.host.sleep_until(*oldest + SILENT_AFTER));
        }
        let watch = async {
            match &mut self.watch {
                Some(watch) => watch.await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            message = poll_fn(|cx| self.link.wire.poll_message(cx)) => {
                return matches!(message, Some(Ok(_)));
            }
            Some(()) = self.under_way.next(), if !self.sent.is_empty() => {
                self.sent.pop_front();
            }
            () = self.shared.news.notified() => {}
            () = watch => {
                self.watch = None;
                let now = self.shared.host.now();
                return self.sent.front().is_none_or(|oldest| *oldest + SILENT_AFTER > now);
            }
        }
        true
    }

    /// Sends a request. Its first poll puts it behind the others.
    fn send(&mut self, request: Request) {
        let Request { sql, stage: _, reply } = request;
        let (client, label) = (Arc::clone(&self.client), self.shared.connector.label());
        let mut answer: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            let answer = link::ask(&client, &sql).await;
            let answer = answer.map_err(|error| failure(&error, Stage::Asking).at(&label));
            drop(reply.send(answer));
        });
        // The task is polled again anyway, so this poll needs no waker of its own.
        let mut nobody = Context::from_waker(Waker::noop());
        if answer.as_mut().poll(&mut nobody).is_pending() {
            self.sent.push_back(self.shared.host.now());
            self.under_way.push(answer);
        }
    }

    fn is_done(&self) -> bool {
        let state = self.shared.state();
        self.sent.is_empty() && state.is_closed && state.queue.is_empty()
    }
}
