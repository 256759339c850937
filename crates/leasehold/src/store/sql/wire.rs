//! The ordered wire: requests go out in the order of their calls, over one connection after the
//! other.
//!
//! | state | a new request |
//! |---|---|
//! | idle, no connection | waits while a task connects |
//! | connected, nothing under way | is sent at once |
//! | connected, a message under way | waits for its answer, then goes with all that wait ([`batch`]) |
//! | paused after a failure | is refused with that failure |
//!
//! A request that was not sent in time is taken back, and `Unavailable`. A request that was sent
//! and has no answer is `Unknown`. No request is sent twice, unless the server certainly did not
//! carry it out.

use std::collections::VecDeque;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::batch::{self, Over, Request, Sending, Whereabouts, Work};
use super::engine::{Engine, Link as _};
use super::row::Answer;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, Sleep};
use crate::store::net::{ConnectPause, Home};
use crate::store::within;
use crate::unpoisoned::Unpoisoned;

/// The most requests that wait for a connection. A further one is `Unavailable`.
const QUEUE_MAX: usize = 10_000;

/// How long a message may have no answer before its connection counts as dead. It is longer than
/// the limit of any request.
pub(super) const SILENT_AFTER: Duration = Duration::from_millis(1_500);

/// The longest such time. An overloaded server is silent too, and new connections are the most
/// expensive thing to ask of it. So each silent connection doubles the time for the next, until an
/// answer comes soon.
pub(super) const SILENT_AFTER_MAX: Duration = Duration::from_secs(12);

/// The longest round trip. An answer that takes longer says that the server is overloaded.
const TRIP_MAX: Duration = Duration::from_millis(500);

/// After a connection that lasted this long, the next one comes without a pause.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Sends requests in order. After it was dropped, it still sends those in its queue, and then ends.
pub(super) struct Wire<E: Engine> {
    shared: Arc<Shared<E>>,
}

struct Shared<E> {
    host: Arc<dyn Host>,
    engine: E,
    /// How long a connection may be silent at most.
    silent_after_max: Duration,
    state: Unpoisoned<State>,
    /// Wakes the task: there is a request, or the wire is gone.
    news: Notify,
}

struct State {
    queue: VecDeque<Request>,
    is_running: bool,
    home: Home,
    is_closed: bool,
    pause: ConnectPause,
    /// How long the connection may be silent.
    silent_after: Duration,
    /// How many requests the next message may have.
    size: usize,
    /// How long the quickest message with a single request took on this connection: about a round
    /// trip. No message can take less.
    trip: Option<Duration>,
}

impl<E: Engine> Wire<E> {
    /// A wire without a connection. `silent_after_max`: how long a connection may be silent
    /// after others were, at least [`SILENT_AFTER`].
    pub(super) fn new(
        host: Arc<dyn Host>,
        engine: E,
        home: Home,
        silent_after_max: Duration,
    ) -> Self {
        let state = State {
            queue: VecDeque::new(),
            is_running: false,
            home,
            is_closed: false,
            pause: ConnectPause::default(),
            silent_after: SILENT_AFTER,
            size: E::Link::BATCH_MAX,
            trip: None,
        };
        let (state, news) = (Unpoisoned::new(state), Notify::new());
        Self { shared: Arc::new(Shared { host, engine, silent_after_max, state, news }) }
    }

    /// Submits a request now. It may share a transaction with others. The future waits for its
    /// answer for at most `limit`. Dropping it takes nothing back.
    pub(super) fn submit(
        &self,
        limit: Duration,
        work: Work,
        sql: String,
    ) -> impl Future<Output = Answer> + Send + 'static + use<E> {
        let (reply, answer) = oneshot::channel();
        let stage = Arc::<Sending>::default();
        let request = Request { sql, work, stage: Arc::clone(&stage), reply };
        let queued = self.shared.enqueue(request);
        let shared = Arc::clone(&self.shared);
        async move {
            queued?;
            let host = Arc::clone(&shared.host);
            let told = async { answer.await.unwrap_or_else(|_| Err(ended())) };
            match within(host, limit, told).await {
                Err(error) if error.kind() == ErrorKind::Unknown => {
                    // The request must not be sent after its caller gave up.
                    let label = shared.engine.label();
                    Err(match stage.take_back() {
                        Whereabouts::Server => error,
                        Whereabouts::Queue => unsent(limit).at(&label),
                        Whereabouts::QueueAgain => rolled_back(limit).at(&label),
                    })
                }
                answer => answer,
            }
        }
    }
}

impl<E: Engine> Drop for Wire<E> {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.news.notify_one();
    }
}

impl<E: Engine> fmt::Debug for Wire<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({:?})", self.shared.engine)
    }
}

fn ended() -> Error {
    let message = "the runtime of the connection ended; the request may have taken effect";
    Error::new(ErrorKind::Unknown, message)
}

fn unsent(limit: Duration) -> Error {
    let message = format!(
        "the request had to wait for longer than {limit:?}, or there was no connection to the \
         server; no request was sent; check whether the server is stopped, overloaded or out of \
         reach"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// The error for a request that was rolled back, and not sent again in time.
fn rolled_back(limit: Duration) -> Error {
    let message = format!(
        "the server did not carry the request out, because another request waited for a locked \
         row; it was not sent again within {limit:?}; nothing was changed; look for a transaction \
         that has been open for long"
    );
    Error::new(ErrorKind::Unavailable, message)
}

impl<E: Engine> Shared<E> {
    fn enqueue(self: &Arc<Self>, request: Request) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.pause.check(self.host.now())?;
        if state.queue.len() >= QUEUE_MAX {
            let message = format!(
                "{QUEUE_MAX} requests already wait for the server, which is the limit; no request \
                 was sent; try again later"
            );
            return Err(Error::new(ErrorKind::Unavailable, message).at(&self.engine.label()));
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

    /// Refuses all waiting requests, and further ones for a while.
    fn failed(&self, error: &Error) {
        let mut state = self.state.lock();
        state.pause.failed(&*self.host, error);
        let refused = std::mem::take(&mut state.queue);
        drop(state);
        for request in refused {
            if request.stage.take_back() != Whereabouts::Server {
                drop(request.reply.send(Err(error.clone())));
            }
        }
    }

    /// A connection was silent for too long. Gives the next message more time and fewer requests.
    fn was_silent(&self) {
        let mut state = self.state.lock();
        state.silent_after = (state.silent_after * 2).min(self.silent_after_max);
        state.size = (state.size / 2).max(1);
    }

    /// Notes that a message of this many requests was answered after this long.
    fn was_answered(&self, requests: usize, took: Duration, over: &Over) {
        let mut state = self.state.lock();
        if requests == 1 && over.is_done {
            state.trip = Some(state.trip.unwrap_or(took).min(took));
        }
        if took < SILENT_AFTER {
            state.silent_after = SILENT_AFTER;
        }
        let beyond = took.saturating_sub(state.trip.unwrap_or_default().min(TRIP_MAX));
        state.size = batch::next_size(state.size, beyond, over.is_done).min(E::Link::BATCH_MAX);
    }

    /// Puts requests that were not carried out back into the queue, in front of later ones.
    fn send_again(&self, requests: Vec<Request>) {
        let mut state = self.state.lock();
        requests.into_iter().rev().for_each(|request| state.queue.push_front(request));
    }

    fn connected(&self) {
        let mut state = self.state.lock();
        state.pause.connected();
        state.trip = None;
    }

    /// Notes that a connection has ended. Returns the pause before the next one, if this one ended
    /// soon and was of no use. A server may end each connection, or refuse each request.
    fn disconnected(&self, since: Moment, was_useful: bool) -> Option<Sleep> {
        let now = self.host.now();
        let mut state = self.state.lock();
        if was_useful || now.since(since) >= STABLE_AFTER {
            state.pause.reset();
            return None;
        }
        let next = state.pause.next(&*self.host);
        Some(self.host.sleep_until(next))
    }
}

/// The task that connects and serves the wire. If a runtime drops it, waiting requests continue on
/// the host's thread.
struct Serving<E: Engine> {
    shared: Arc<Shared<E>>,
    is_over: bool,
}

impl<E: Engine> Serving<E> {
    async fn serve(mut self) {
        while self.has_work() {
            match self.shared.engine.connect(&self.shared.host).await {
                Ok(link) => {
                    let since = self.shared.host.now();
                    self.shared.connected();
                    let was_useful = Serve::new(&self.shared, link).run().await;
                    if let Some(pause) = self.shared.disconnected(since, was_useful) {
                        pause.await;
                    }
                }
                Err(error) => self.shared.failed(&error),
            }
        }
    }

    /// Whether requests wait. If not, the task ends, and the next request starts another one.
    fn has_work(&mut self) -> bool {
        let mut state = self.shared.state.lock();
        if state.queue.is_empty() {
            state.is_running = false;
            self.is_over = true;
        }
        !self.is_over
    }
}

impl<E: Engine> Drop for Serving<E> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.shared.state.lock();
        state.is_running = state.home.moves_to_host() && !state.queue.is_empty();
        let goes_on = state.is_running;
        drop(state);
        if goes_on {
            self.shared.start(Home::Host);
        }
    }
}

/// One connection while it lasts.
struct Serve<'a, E: Engine> {
    shared: &'a Arc<Shared<E>>,
    link: E::Link,
    /// The message that has no answer yet.
    under_way: Option<UnderWay>,
    /// Whether a message was carried out.
    is_useful: bool,
}

struct UnderWay {
    since: Moment,
    /// How many requests the message has.
    requests: usize,
    answered: Pin<Box<dyn Future<Output = Over> + Send>>,
    /// When the connection counts as dead.
    silence: Sleep,
}

impl<'a, E: Engine> Serve<'a, E> {
    fn new(shared: &'a Arc<Shared<E>>, link: E::Link) -> Self {
        Self { shared, link, under_way: None, is_useful: false }
    }

    /// Serves requests until the connection ends, is silent for too long, or the wire is gone.
    /// Returns whether it was of any use.
    async fn run(mut self) -> bool {
        while self.go_on().await {}
        let Self { link, under_way, shared, is_useful } = self;
        // The callers of requests without an answer are told that there will be none.
        drop(link);
        if let Some(under_way) = under_way {
            shared.send_again(under_way.answered.await.again);
        }
        is_useful
    }

    /// Does what is due. Returns whether the connection goes on.
    async fn go_on(&mut self) -> bool {
        if self.under_way.is_none() {
            self.send();
        }
        if self.is_done() {
            return false;
        }
        let Self { link, under_way, shared, is_useful } = self;
        let has_message = under_way.is_some();
        let message = async {
            let Some(it) = under_way else { pending().await };
            tokio::select! {
                biased;
                over = &mut it.answered => Some((it.since, it.requests, over)),
                () = &mut it.silence => None,
            }
        };
        tokio::select! {
            biased;
            goes_on = poll_fn(|cx| link.poll_moving(cx)) => goes_on,
            answer = message => {
                let Some((since, requests, over)) = answer else {
                    shared.was_silent();
                    return false;
                };
                shared.was_answered(requests, shared.host.now().since(since), &over);
                shared.send_again(over.again);
                *is_useful |= over.is_done;
                self.under_way = None;
                !over.ends_connection
            }
            () = shared.news.notified(), if !has_message => true,
        }
    }

    /// Sends the next message, if requests wait.
    fn send(&mut self) {
        let batch = {
            let mut state = self.shared.state.lock();
            let size = state.size;
            batch::take(&mut state.queue, size)
        };
        let requests = batch.len();
        if requests == 0 {
            return;
        }
        let label = self.shared.engine.label();
        let asking = self.link.ask_all(batch);
        let since = self.shared.host.now();
        let answered = Box::pin(async move {
            let (batch, ended) = asking.await;
            batch::end(ended, &label, batch)
        });
        let silent_after = self.shared.state.lock().silent_after;
        let silence = self.shared.host.sleep_until(since + silent_after);
        self.under_way = Some(UnderWay { since, requests, answered, silence });
    }

    fn is_done(&self) -> bool {
        let state = self.shared.state.lock();
        self.under_way.is_none() && state.is_closed && state.queue.is_empty()
    }
}

#[cfg(test)]
mod tests;
