//! The connection on which a client receives hints.
//!
//! The first waiter opens it. It is closed with the store. A lost connection is made again if any
//! client still takes hints. After every subscription, its client is told [`Hint::Missed`], because
//! nobody received earlier messages.
//!
//! Holders with other client software publish nothing. If the server can track keys, it is asked on
//! the same connection to report changes of their keys.

pub(super) mod listen;
mod message;
mod tracked;
mod tries;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use self::listen::{Channels, Message, Messages, News, Subscriber, establish, log_in};
use self::tracked::Tracked;
use self::tries::{Tries, no_messages};
use super::connector::{Connector, Stream};
use super::keys;
use super::wire::serving::Home;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::{Host, random_u32};
use crate::store::sinks::Sinks;
use crate::store::{Hint, within};

/// The time limit for connecting, and for each subscription.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// How long after the end of a runtime the connection is opened again on the host's thread.
const GOES_ON_AFTER: Duration = Duration::from_millis(100);

/// How long the client does not try again after a refusal. Meanwhile, somebody may grant the right
/// or correct the password.
const DENIED_FOR: Duration = Duration::from_mins(1);

/// From this many inboxes on, the client checks for inboxes of clients that are gone.
const INBOXES_LOOKED_AT: usize = 256;

/// Receives the hints of the server and passes them to the clients.
pub(super) struct Hints {
    host: Arc<dyn Host>,
    connector: Arc<dyn Connector>,
    /// Whether every message that hands a key over needs to be confirmed.
    confirms: bool,
    sinks: Arc<Sinks>,
    state: Mutex<State>,
    /// Wakes the task: there is a new inbox or a key to track, or the store is gone.
    news: Arc<Notify>,
    /// Whether any key was ever tracked. If not, grants need not look for tracked keys.
    has_tracked: AtomicBool,
}

#[derive(Default)]
struct State {
    inboxes: BTreeMap<ClientId, Listening>,
    /// The number of inboxes for the next check for clients that are gone.
    look_at: usize,
    running: bool,
    /// Where the task runs. It moves to the host's thread if the runtime of the waiters drops it.
    home: Home,
    /// The user may not subscribe. Until then, waiters poll; then the client tries again.
    denied_until: Option<Moment>,
    /// `None` if the server does not report changed keys.
    tracked: Option<Tracked>,
}

impl State {
    /// Forgets all inboxes and the task. The caller must hold the lock from its decision on, or a
    /// new listener could be forgotten.
    fn end(&mut self) {
        self.running = false;
        self.inboxes.clear();
        self.tracked = None;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listening {
    Wanted,
    Confirmed,
}

impl Hints {
    pub(super) fn new(
        host: Arc<dyn Host>,
        connector: Arc<dyn Connector>,
        sinks: Arc<Sinks>,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            confirms: connector.access().terms.confirm,
            connector,
            sinks,
            state: Mutex::default(),
            news: Arc::new(Notify::new()),
            has_tracked: AtomicBool::new(false),
        })
    }

    /// Whether the messages for `inbox` are subscribed to, or will be.
    pub(super) fn listens(&self, inbox: &ClientId) -> bool {
        self.state().inboxes.contains_key(inbox)
    }

    /// The inboxes whose messages are subscribed to, or will be.
    pub(super) fn inboxes(&self) -> Vec<ClientId> {
        self.state().inboxes.keys().cloned().collect()
    }

    /// Subscribes to the messages for `inbox`. Once that is done, the inbox is told `Missed`.
    pub(super) fn listen(self: &Arc<Self>, inbox: &ClientId) {
        let mut state = self.state();
        if state.denied_until.is_some_and(|until| self.host.now() < until) {
            return;
        }
        if !state.inboxes.contains_key(inbox) {
            state.inboxes.insert(inbox.clone(), Listening::Wanted);
            self.news.notify_one();
        }
        if std::mem::replace(&mut state.running, true) {
            return;
        }
        let home = state.home;
        drop(state);
        self.run(home);
    }

    fn run(self: &Arc<Self>, home: Home) {
        let (hints, news) = (Arc::downgrade(self), Arc::clone(&self.news));
        let running = Running { hints, news, has_ended: false };
        let task = running.run(Arc::clone(&self.host), Arc::clone(&self.connector));
        home.spawn(&self.host, Box::pin(task));
    }

    /// Asks the server to tell `inbox` when `key` changes. The holder uses other client software,
    /// and this client is the first of ours that waits.
    ///
    /// Without a connection, nothing is lost: the waiters ask again once there is one.
    pub(super) fn track(&self, key: &Key, inbox: &ClientId) {
        let now = self.host.now();
        let mut state = self.state();
        if state.tracked.as_mut().is_some_and(|tracked| tracked.want(key, inbox, now)) {
            self.has_tracked.store(true, Ordering::Relaxed);
            self.news.notify_one();
        }
    }

    /// The waiter of this process has got `key`.
    pub(super) fn granted(&self, key: &Key) {
        if self.has_tracked.load(Ordering::Relaxed)
            && let Some(tracked) = &mut self.state().tracked
        {
            tracked.granted(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state of the hints")
    }

    fn next_wanted(&self) -> Option<ClientId> {
        let state = self.state();
        let wanted = state.inboxes.iter().find(|(_, listening)| **listening == Listening::Wanted);
        wanted.map(|(inbox, _)| inbox.clone())
    }

    fn confirmed(&self, inbox: &ClientId) {
        self.state().inboxes.insert(inbox.clone(), Listening::Confirmed);
        self.sinks.send(inbox, Hint::Missed);
    }

    /// Starts without tracked keys, because a new connection has none.
    fn connected(&self, tracks: bool) {
        self.state().tracked = tracks.then(Tracked::default);
    }

    fn next_wanted_key(&self) -> Option<Key> {
        self.state().tracked.as_mut()?.next_wanted()
    }

    fn changed(&self, key: &Key) {
        let told = self.state().tracked.as_mut().map(|tracked| tracked.changed(key));
        for inbox in told.unwrap_or_default() {
            self.sinks.send(&inbox, Hint::MaybeFree { key: key.clone() });
        }
    }

    fn take(&self, news: News) {
        match news {
            News::Published(message) => self.take_message(&message),
            News::Changed(key) => {
                let key = String::from_utf8(key).ok().and_then(|key| Key::new(key).ok());
                if let Some(key) = key {
                    self.changed(&key);
                }
            }
            News::AllChanged => {
                let tracked = self.state().tracked.as_ref().map(Tracked::tracked);
                for key in tracked.unwrap_or_default() {
                    self.changed(&key);
                }
            }
        }
    }

    fn take_message(&self, message: &Message) {
        let Some(inbox) = keys::client_of_inbox(&message.channel) else { return };
        match message::hint(&message.payload) {
            Some(hint) => self.sinks.send(&inbox, self.as_far_as_believed(hint)),
            None => tracing::debug!(channel = message.channel, "a message that is no hint"),
        }
    }

    /// Anybody who may publish can claim that a key was handed over. If the claim is not believed,
    /// the hint gets the number 0, which no request has, so the waiter asks the server.
    fn as_far_as_believed(&self, hint: Hint) -> Hint {
        match hint {
            Hint::Granted { key, owner, fencing, .. }
                if self.confirms || !message::is_of_now(fencing, self.host.wall()) =>
            {
                Hint::Granted { key, owner, fencing: None, ask_no: 0 }
            }
            hint => hint,
        }
    }

    /// The connection is gone, and with it all subscriptions. Returns whether any client still
    /// wants hints. If not, the task ends, and the next listener starts another one.
    fn disconnected(&self) -> bool {
        let mut state = self.state();
        let goes_on = self.disconnect(&mut state);
        state.running = goes_on;
        goes_on
    }

    fn disconnect(&self, state: &mut State) -> bool {
        state.tracked = None;
        state.inboxes.retain(|inbox, listening| {
            *listening = Listening::Wanted;
            self.sinks.has(inbox)
        });
        !state.inboxes.is_empty()
    }

    fn denied(&self, error: &Error) {
        let until = self.host.now() + DENIED_FOR;
        let mut state = self.state();
        state.end();
        let was_denied = state.denied_until.replace(until).is_some();
        drop(state);
        // Log it only once.
        if !was_denied {
            tracing::warn!(cause = %error, "this server sends no wake-ups; waiters poll instead");
        }
    }

    /// Whether most inboxes belong to clients that are gone.
    fn is_overgrown(&self) -> bool {
        let mut state = self.state();
        let all = state.inboxes.len();
        if all < state.look_at.max(INBOXES_LOOKED_AT) {
            return false;
        }
        let living = state.inboxes.keys().filter(|inbox| self.sinks.has(inbox)).count();
        state.look_at = 2 * living;
        all > 2 * living
    }

    /// The task was dropped with its runtime. It starts again on the host's thread after a while,
    /// because a holder that keeps a lease idle does not ask again.
    fn dropped(self: &Arc<Self>) {
        let mut state = self.state();
        let goes_on = state.home == Home::Asker && self.disconnect(&mut state);
        state.home = Home::Host;
        if goes_on {
            state.running = false;
            drop(state);
            return self.go_on_later();
        }
        state.end();
    }

    /// Not at once: most runtimes end together with their process. That process should not open one
    /// more connection.
    fn go_on_later(self: &Arc<Self>) {
        let sleep = self.host.sleep_until(self.host.now() + GOES_ON_AFTER);
        let hints = Arc::downgrade(self);
        self.host.spawn(Box::pin(async move {
            sleep.await;
            let Some(hints) = hints.upgrade() else { return };
            let mut state = hints.state();
            state.inboxes.retain(|inbox, _| hints.sinks.has(inbox));
            if state.inboxes.is_empty() || std::mem::replace(&mut state.running, true) {
                return;
            }
            drop(state);
            hints.run(Home::Host);
        }));
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.news.notify_one();
    }
}

/// The task behind the connection. It does not keep [`Hints`] alive.
struct Running {
    hints: Weak<Hints>,
    news: Arc<Notify>,
    has_ended: bool,
}

impl Running {
    async fn run(mut self, host: Arc<dyn Host>, connector: Arc<dyn Connector>) {
        self.listen(host, connector).await;
        self.has_ended = true;
    }

    async fn listen(&self, host: Arc<dyn Host>, connector: Arc<dyn Connector>) {
        let mut tries = Tries::default();
        loop {
            let stream = within(Arc::clone(&host), STEP_LIMIT, log_in(&*connector)).await;
            let is_let_in = stream.is_ok();
            let ended = match stream {
                Ok(stream) => self.serve(&host, stream, &mut tries).await,
                Err(error) => Ended::Failed(error),
            };
            let Some(hints) = self.hints.upgrade() else { return };
            match ended {
                Ended::StoreGone => return,
                Ended::Failed(error)
                    if matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unsupported) =>
                {
                    return hints.denied(&error);
                }
                _ if is_let_in && tries.is_vain() => return hints.denied(&no_messages()),
                Ended::Disconnected => tracing::debug!("the connection for hints ended"),
                Ended::Failed(error) => {
                    tracing::debug!(%error, "no connection for hints; waiters poll until it is \
                                             back");
                }
            }
            if !hints.disconnected() {
                return;
            }
            drop(hints);
            let pause = tries.pause(random_u32(&*host));
            host.sleep_until(host.now() + pause).await;
        }
    }

    /// Listens until the connection or the store is gone.
    async fn serve(
        &self,
        host: &Arc<dyn Host>,
        stream: Box<dyn Stream>,
        tries: &mut Tries,
    ) -> Ended {
        let established = within(Arc::clone(host), STEP_LIMIT, establish(stream)).await;
        let Subscriber { mut channels, mut messages } = match established {
            Ok(subscriber) => subscriber,
            Err(error) => return Ended::Failed(error),
        };
        if let Some(hints) = self.hints.upgrade() {
            hints.connected(channels.tracks());
        }
        loop {
            let asked = self.ask(host, &mut channels, &mut messages, tries).await;
            if let Err(ended) = asked {
                return ended;
            }
            if self.hints.strong_count() == 0 {
                return Ended::StoreGone;
            }
            tokio::select! {
                biased;
                news = messages.next() => match news {
                    Some(news) => self.take(news),
                    None => return Ended::Disconnected,
                },
                () = self.news.notified() => {}
            }
        }
    }

    /// Asks the server for all wanted inboxes and keys.
    async fn ask(
        &self,
        host: &Arc<dyn Host>,
        channels: &mut Channels,
        messages: &mut Messages,
        tries: &mut Tries,
    ) -> Result<(), Ended> {
        while let Some(inbox) = self.next_wanted() {
            let channel = keys::inbox(&inbox);
            let added = channels.add(&channel);
            self.attend(messages, within(Arc::clone(host), STEP_LIMIT, added)).await?;
            tries.worked();
            if let Some(hints) = self.hints.upgrade() {
                hints.confirmed(&inbox);
                if hints.is_overgrown() {
                    // A new connection listens only for the clients that are left.
                    return Err(Ended::Disconnected);
                }
            }
        }
        while let Some(key) = self.next_wanted_key() {
            let tracked = channels.track(key.as_str());
            match self.attend(messages, within(Arc::clone(host), STEP_LIMIT, tracked)).await {
                Ok(true) => {}
                Ok(false) => {
                    if let Some(hints) = self.hints.upgrade() {
                        hints.changed(&key);
                    }
                }
                Err(Ended::Failed(error)) if error.kind() != ErrorKind::Unavailable => {
                    tracing::debug!(%error, "the server does not report changed keys; waiters poll \
                                             instead");
                    if let Some(hints) = self.hints.upgrade() {
                        hints.connected(false);
                    }
                }
                Err(ended) => return Err(ended),
            }
        }
        Ok(())
    }

    /// Waits for an answer and takes messages meanwhile, because the answer comes among them.
    async fn attend<T>(
        &self,
        messages: &mut Messages,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Ended> {
        let mut asking = pin!(asking);
        loop {
            tokio::select! {
                biased;
                news = messages.next() => match news {
                    Some(news) => self.take(news),
                    None => return Err(Ended::Disconnected),
                },
                answer = &mut asking => return answer.map_err(Ended::Failed),
            }
        }
    }

    fn next_wanted(&self) -> Option<ClientId> {
        self.hints.upgrade()?.next_wanted()
    }

    fn next_wanted_key(&self) -> Option<Key> {
        self.hints.upgrade()?.next_wanted_key()
    }

    fn take(&self, news: News) {
        if let Some(hints) = self.hints.upgrade() {
            hints.take(news);
        }
    }
}

/// Why the task stopped listening.
enum Ended {
    StoreGone,
    Disconnected,
    Failed(Error),
}

impl Drop for Running {
    fn drop(&mut self) {
        // The runtime of the waiter may be gone, or may have no I/O.
        if !self.has_ended
            && let Some(hints) = self.hints.upgrade()
        {
            hints.dropped();
        }
    }
}

#[cfg(test)]
mod tests;
