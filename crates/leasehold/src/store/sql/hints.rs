//! The task that receives the hints of a store, over one connection after the other.
//!
//! The first waiter starts it. It runs while any client takes hints. Each time that it starts to
//! listen again, its clients are told [`Hint::Missed`], because nobody received earlier hints.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

#[cfg(feature = "postgres")]
use super::batch::Work;
use super::engine::Engine;
#[cfg(feature = "postgres")]
use super::row::Answer;
use super::wire::Wire;
use crate::core::backoff::Backoff;
#[cfg(feature = "postgres")]
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::{Host, random_u32};
use crate::store::net::Home;
use crate::store::{Hint, Sinks};
use crate::unpoisoned::Unpoisoned;

/// An engine whose hints can be received.
pub(in crate::store) trait Receive: Engine {
    /// Whether the client must ask for hints. Then it asks more often while a client waits.
    const POLLS: bool;

    /// Receives hints until the connection ends, or nobody takes them any more.
    fn receive(hints: &Arc<Hints<Self>>, link: Self::Link) -> impl Future<Output = ()> + Send;
}

/// Receives the hints of the server and passes them to the clients.
pub(in crate::store) struct Hints<E: Receive> {
    pub(in crate::store) host: Arc<dyn Host>,
    pub(in crate::store) engine: E,
    /// The connection of all other requests, which ends with the store.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only `LISTEN` is tried"))]
    asks: Weak<Wire<E>>,
    sinks: Arc<Sinks>,
    state: Unpoisoned<State>,
    /// Wakes the task: there is a new inbox, or the store is gone.
    pub(in crate::store) news: Notify,
}

#[derive(Default)]
struct State {
    /// The inboxes, and whether the server has confirmed that their hints come here.
    inboxes: BTreeMap<ClientId, bool>,
    is_running: bool,
    is_closed: bool,
    home: Home,
    /// Until when a client waits, as far as is known.
    waits_until: Option<Moment>,
    /// Since when no wait has begun, and no hint has come.
    quiet_since: Moment,
    /// How many connections in a row did not deliver the client's own trial message.
    #[cfg(feature = "postgres")]
    misses: u32,
    /// Until when the client goes without hints, because they do not arrive.
    without_until: Option<Moment>,
}

/// After a connection that lasted for longer than this, the pauses start again from the shortest
/// one.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// After this many misses, the client goes without hints. A server that is replaced meanwhile may
/// cause one miss.
#[cfg(feature = "postgres")]
const MISSES_MAX: u32 = 2;

/// How long the client does not listen after hints did not arrive. Then it tries again.
#[cfg(feature = "postgres")]
const WITHOUT_FOR: Duration = Duration::from_secs(600);

impl<E: Receive> Hints<E> {
    pub(super) fn new(
        host: Arc<dyn Host>,
        engine: E,
        asks: Weak<Wire<E>>,
        sinks: Arc<Sinks>,
    ) -> Arc<Self> {
        let (state, news) = (Unpoisoned::default(), Notify::new());
        Arc::new(Self { host, engine, asks, sinks, state, news })
    }

    /// Asks over the connection of all other requests.
    #[cfg(feature = "postgres")]
    pub(in crate::store) async fn ask_elsewhere(&self, limit: Duration, sql: String) -> Answer {
        // Waiting for the answer must not keep the store alive.
        let asked = self.asks.upgrade().map(|asks| asks.submit(limit, Work::Alone, sql));
        match asked {
            Some(answer) => answer.await,
            None => Err(Error::new(ErrorKind::Unavailable, "the store has ended")),
        }
    }

    /// Begins to receive the hints of an inbox, if that has not begun.
    pub(super) fn listen(self: &Arc<Self>, inbox: &ClientId) {
        let mut state = self.state.lock();
        let is_known = state.inboxes.contains_key(inbox);
        if state.is_closed || is_known || !self.sinks.has(inbox) || self.is_without(&state) {
            return;
        }
        state.inboxes.retain(|inbox, _| self.sinks.has(inbox));
        state.inboxes.insert(inbox.clone(), false);
        let starts = !std::mem::replace(&mut state.is_running, true);
        let home = state.home;
        drop(state);
        if starts {
            self.start(home);
        } else {
            self.news.notify_one();
        }
    }

    /// Notes that a client waits, and asks again within this span if it goes on waiting. `begins`:
    /// whether this is its first ask.
    pub(super) fn waits(&self, span: Duration, begins: bool) {
        if !E::POLLS {
            return;
        }
        let now = self.host.now();
        let mut state = self.state.lock();
        let is_first = state.waits_until.is_none_or(|until| until <= now);
        state.waits_until = state.waits_until.max(Some(now + span));
        if begins || is_first {
            state.quiet_since = now;
            drop(state);
            self.news.notify_one();
        }
    }

    /// Notes that a hint has come.
    #[cfg(feature = "mysql")]
    pub(in crate::store) fn heard(&self) {
        self.state.lock().quiet_since = self.host.now();
    }

    /// For how long no wait has begun and no hint has come; `None` if no client waits.
    #[cfg(feature = "mysql")]
    pub(in crate::store) fn quiet_for(&self, now: Moment) -> Option<Duration> {
        let state = self.state.lock();
        state.waits_until.is_some_and(|until| until > now).then(|| now.since(state.quiet_since))
    }

    /// All inboxes.
    #[cfg(feature = "mysql")]
    pub(in crate::store) fn inboxes(&self) -> Vec<ClientId> {
        self.state.lock().inboxes.keys().cloned().collect()
    }

    /// Ends when hints are not [wanted](Self::is_wanted) any more.
    #[cfg(feature = "postgres")]
    pub(in crate::store) async fn until_unwanted(&self) {
        while self.is_wanted() {
            self.news.notified().await;
        }
    }

    /// Notes that the trial message has arrived.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn arrived(&self) {
        self.state.lock().misses = 0;
    }

    /// Notes that the trial message did not arrive. If that happens on several connections in a
    /// row, the client goes without hints for a while.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn missed(&self) {
        let mut state = self.state.lock();
        state.misses += 1;
        if state.misses < MISSES_MAX {
            return;
        }
        let is_first = state.without_until.is_none();
        (state.misses, state.without_until) = (0, Some(self.host.now() + WITHOUT_FOR));
        drop(state);
        if is_first {
            tracing::warn!(
                server = self.engine.label(),
                "hints of this server do not arrive, as behind a proxy that runs each transaction \
                 on another connection; waiters ask once a second instead; connect to the server \
                 itself, or use the session mode of the proxy"
            );
        }
    }

    fn is_without(&self, state: &State) -> bool {
        state.without_until.is_some_and(|until| until > self.host.now())
    }

    /// Ends with the store.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.news.notify_one();
    }

    fn start(self: &Arc<Self>, home: Home) {
        let running = Running { hints: Arc::clone(self), is_over: false };
        home.spawn(&self.host, Box::pin(running.run()));
    }

    /// The inboxes that the server must still be told.
    pub(in crate::store) fn new_inboxes(&self) -> Vec<ClientId> {
        let state = self.state.lock();
        let new = state.inboxes.iter().filter(|(_, is_confirmed)| !**is_confirmed);
        new.map(|(inbox, _)| inbox.clone()).collect()
    }

    /// Whether the store is there, and any client takes hints.
    pub(in crate::store) fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        !state.is_closed && state.inboxes.keys().any(|inbox| self.sinks.has(inbox))
    }

    pub(in crate::store) fn confirm(&self, inboxes: &[ClientId]) {
        let mut state = self.state.lock();
        for inbox in inboxes {
            if let Some(is_confirmed) = state.inboxes.get_mut(inbox) {
                *is_confirmed = true;
            }
        }
        drop(state);
        for inbox in inboxes {
            self.sinks.send(inbox, Hint::Missed);
        }
    }

    fn disconnected(&self) {
        self.state.lock().inboxes.values_mut().for_each(|is_confirmed| *is_confirmed = false);
    }

    /// Passes a hint to the client of an inbox.
    pub(in crate::store) fn pass(&self, inbox: &ClientId, hint: Hint) {
        self.sinks.send(inbox, hint);
    }
}

/// The task that connects and receives. If a runtime drops it, it continues on the host's thread.
struct Running<E: Receive> {
    hints: Arc<Hints<E>>,
    is_over: bool,
}

impl<E: Receive> Running<E> {
    async fn run(mut self) {
        let hints = Arc::clone(&self.hints);
        let mut delays = Backoff::DEFAULT.delays();
        while self.has_work() {
            match hints.engine.connect(&hints.host).await {
                Ok(link) => {
                    let since = hints.host.now();
                    E::receive(&hints, link).await;
                    // A connection that ends soon may be one more than the server can serve.
                    if hints.host.now().since(since) > STABLE_AFTER {
                        delays.reset();
                    }
                }
                Err(error) => tracing::debug!(cause = %error, "hints cannot be received"),
            }
            hints.disconnected();
            if self.has_work() {
                let pause = delays.next(random_u32(&*hints.host));
                let mut pause = hints.host.sleep_until(hints.host.now() + pause);
                // Only the loss of the last listener ends the pause. More waiters must not hurry a
                // busy server.
                while self.has_work() {
                    tokio::select! {
                        () = &mut pause => break,
                        () = hints.news.notified() => {}
                    }
                }
            }
        }
    }

    /// Whether any client takes hints. If not, the task ends, and the next listener starts another
    /// one.
    fn has_work(&mut self) -> bool {
        let mut state = self.hints.state.lock();
        state.inboxes.retain(|inbox, _| self.hints.sinks.has(inbox));
        if self.hints.is_without(&state) {
            state.inboxes.clear();
        }
        if state.is_closed || state.inboxes.is_empty() {
            state.is_running = false;
            self.is_over = true;
        }
        !self.is_over
    }
}

impl<E: Receive> Drop for Running<E> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.hints.disconnected();
        let mut state = self.hints.state.lock();
        state.is_running =
            state.home.moves_to_host() && !state.is_closed && !state.inboxes.is_empty();
        let goes_on = state.is_running;
        drop(state);
        if goes_on {
            self.hints.start(Home::Host);
        }
    }
}

#[cfg(all(test, feature = "mysql"))]
mod tests;
