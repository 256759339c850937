//! The one connection on which a client is told what it waits for.
//!
//! It is opened when somebody first waits, and closed with the store. One that is lost is made
//! again if anybody takes hints still. After every subscription its client is told
//! [`Hint::Missed`]: what was published before was said to nobody.
//!
//! Holders that are no clients of ours publish nothing. Where the server tells of changed keys, it
//! is asked on the same connection to do so for theirs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::home::Home;
use super::link::{Channels, Connector, Message, Messages, News, Subscriber};
use super::tracked::Tracked;
use super::{keys, message};
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::{Host, random_u32};
use crate::store::sinks::Sinks;
use crate::store::{Hint, HintSink, within};

/// How long it may take to connect, and to have a subscription confirmed.
const STEP_LIMIT: Duration = Duration::from_secs(2);

/// The pauses between failed attempts; meanwhile everybody polls.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// How long after the end of a runtime hints are taken on the host's thread.
const GOES_ON_AFTER: Duration = Duration::from_millis(100);

/// How long a missing right is taken for granted: it may be given, or a password be set right.
const DENIED_FOR: Duration = Duration::from_mins(1);

/// From how many inboxes on it is looked whether their clients are still there.
const INBOXES_LOOKED_AT: usize = 256;

/// Where hints come in, and go from there.
pub(super) struct Hints {
    host: Arc<dyn Host>,
    connector: Arc<dyn Connector>,
    /// Whether no message that hands a key over is believed.
    confirms: bool,
    sinks: Sinks,
    state: Mutex<State>,
    /// Another inbox is to be listened to or another key to be asked about, or the store is gone.
    news: Arc<Notify>,
    /// Whether any key was ever tracked: else no grant has to look.
    has_tracked: AtomicBool,
}

#[derive(Default)]
struct State {
    inboxes: BTreeMap<ClientId, Listening>,
    /// With how many inboxes to look again whether their clients are still there.
    look_at: usize,
    running: bool,
    /// Where the task runs: on the host's thread once the runtime of those who wait did not carry
    /// it through.
    home: Home,
    /// The user has no right to subscribe: until then everybody polls, and then it is tried again.
    denied_until: Option<Moment>,
    /// `None` where the server does not tell of changed keys.
    tracked: Option<Tracked>,
}

impl State {
    /// Nobody is listened to, and no task runs. Whoever decides that does it under the same lock:
    /// a listener that came in between would be forgotten.
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
    pub(super) fn new(host: Arc<dyn Host>, connector: Arc<dyn Connector>) -> Arc<Self> {
        Arc::new(Self {
            host,
            confirms: connector.terms().confirm,
            connector,
            sinks: Sinks::default(),
            state: Mutex::default(),
            news: Arc::new(Notify::new()),
            has_tracked: AtomicBool::new(false),
        })
    }

    pub(super) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        self.sinks.watch(inbox, sink);
    }

    /// Tells a client of this process.
    pub(super) fn send(&self, inbox: &ClientId, hint: Hint) {
        self.sinks.send(inbox, hint);
    }

    /// From now on messages for `inbox` are listened to. Once they are, it is told `Missed`.
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

    /// Somebody who is no client of ours holds `key`, and the client of `inbox` is the first of
    /// ours who waits for it: it is told when the key changes.
    ///
    /// Nothing is missed where there is no connection yet: who waits asks again once there is.
    pub(super) fn track(&self, key: &Key, inbox: &ClientId) {
        let now = self.host.now();
        let mut state = self.state();
        if state.tracked.as_mut().is_some_and(|tracked| tracked.want(key, inbox, now)) {
            self.has_tracked.store(true, Ordering::Relaxed);
            self.news.notify_one();
        }
    }

    /// Who waited for `key` has it.
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

    /// On a new connection no key is tracked.
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

    /// Anybody who may publish can say that a key was handed over. What is not believed makes the
    /// waiter ask: no ask has the number 0.
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

    /// The connection is gone: nobody is listened to. Returns whether anybody still wants to be. If
    /// not, the task ends by that: who listens from now on starts another.
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
        // Once is enough to know it.
        if !was_denied {
            tracing::warn!(cause = %error, "no right to be told; waiting goes on by polling");
        }
    }

    /// Whether most inboxes are of clients that are gone.
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

    /// The task was dropped with its runtime: it begins anew on the host's thread after a while,
    /// since who keeps a lease idle does not ask again.
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

    /// Not at once: most runtimes end with their process, which is not to open one more connection
    /// on its way out.
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

/// The task behind the connection. It does not keep the hints alive.
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
        let mut pauses = RECONNECT.delays();
        loop {
            let connected = within(Arc::clone(&host), STEP_LIMIT, connector.subscribe()).await;
            let ended = match connected {
                Ok(subscriber) => self.serve(&host, subscriber, &mut pauses).await,
                Err(error) => Ended::Failed(error),
            };
            let Some(hints) = self.hints.upgrade() else { return };
            match ended {
                Ended::StoreGone => return,
                Ended::Disconnected => tracing::debug!("the connection for hints ended"),
                Ended::Failed(error) if error.kind() == ErrorKind::Denied => {
                    return hints.denied(&error);
                }
                Ended::Failed(error) => {
                    tracing::debug!(%error, "no connection for hints; waiting goes on by polling");
                }
            }
            if !hints.disconnected() {
                return;
            }
            drop(hints);
            let pause = pauses.next(random_u32(&*host));
            host.sleep_until(host.now() + pause).await;
        }
    }

    /// Listens for as long as it can.
    async fn serve(
        &self,
        host: &Arc<dyn Host>,
        subscriber: Subscriber,
        pauses: &mut Delays,
    ) -> Ended {
        let Subscriber { mut channels, mut messages } = subscriber;
        if let Some(hints) = self.hints.upgrade() {
            hints.connected(channels.tracks());
        }
        loop {
            let asked = self.ask(host, &mut *channels, &mut *messages, pauses).await;
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

    /// Asks the server for all that is wanted of it.
    async fn ask(
        &self,
        host: &Arc<dyn Host>,
        channels: &mut dyn Channels,
        messages: &mut dyn Messages,
        pauses: &mut Delays,
    ) -> Result<(), Ended> {
        while let Some(inbox) = self.next_wanted() {
            let added = channels.add(&keys::inbox(&inbox));
            self.attend(messages, within(Arc::clone(host), STEP_LIMIT, added)).await?;
            pauses.reset();
            if let Some(hints) = self.hints.upgrade() {
                hints.confirmed(&inbox);
                if hints.is_overgrown() {
                    // Another connection listens for the living alone.
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
                    tracing::debug!(%error, "changes of keys are not told; they are polled");
                    if let Some(hints) = self.hints.upgrade() {
                        hints.connected(false);
                    }
                }
                Err(ended) => return Err(ended),
            }
        }
        Ok(())
    }

    /// Carries out what needs messages to be taken meanwhile, since its answer is among them.
    async fn attend<T>(
        &self,
        messages: &mut dyn Messages,
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

/// Why nobody listens any more.
enum Ended {
    StoreGone,
    Disconnected,
    Failed(Error),
}

impl Drop for Running {
    fn drop(&mut self) {
        // The runtime of whoever waited may be gone, or do no input and output.
        if !self.has_ended
            && let Some(hints) = self.hints.upgrade()
        {
            hints.dropped();
        }
    }
}

#[cfg(test)]
mod tests;
