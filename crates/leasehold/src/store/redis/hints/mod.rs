//! The connection on which a client receives hints.
//!
//! The first waiter opens it. It is closed with the store. A lost connection is made again if any
//! client still takes hints. After every subscription, its client is told [`Hint::Missed`], because
//! nobody received earlier messages.
//!
//! At a node of a cluster, each client listens to a shard channel too, see [`shards`].
//!
//! Holders with other client software publish nothing. If the server can track keys, it is asked on
//! the same connection to report changes of their keys.

pub(super) mod listen;
mod message;
mod running;
mod shards;
mod tracked;
mod tries;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use self::listen::{Message, News};
use self::running::Running;
use self::shards::{Refused, Shards};
use self::tracked::Tracked;
use super::connector::Connector;
use super::keys;
use super::wire::serving::Home;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::store::Hint;
use crate::store::sinks::Sinks;

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
    /// Wakes the task that reads the map of the cluster. `None` without a cluster.
    stale: Option<Arc<Notify>>,
    state: Mutex<State>,
    /// Wakes the task: there is a new inbox or a key to track, or the store is gone.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    inboxes: BTreeMap<ClientId, Listening>,
    /// With this many inboxes, the client next checks for clients that are gone.
    look_at: usize,
    running: bool,
    /// Where the task runs. It moves to the host's thread if the runtime of the waiters drops it.
    home: Home,
    /// When the client tries again, if the user had no right to subscribe. Until then, waiters
    /// poll.
    denied_until: Option<Moment>,
    /// `None` if the server does not report changed keys.
    tracked: Option<Tracked>,
    shards: Shards,
}

impl State {
    /// Notes that the connection is gone, and with it all subscriptions. Forgets all inboxes but
    /// those that still want hints, and returns whether any is left. If not, the task ends, and the
    /// next listener starts another one. All of this happens under one lock, or a new listener
    /// could be forgotten.
    fn disconnect(&mut self, wants: impl Fn(&ClientId) -> bool) -> bool {
        self.tracked = None;
        self.shards.disconnected();
        self.inboxes.retain(|inbox, listening| {
            *listening = Listening::Wanted;
            wants(inbox)
        });
        self.running = !self.inboxes.is_empty();
        self.running
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Listening {
    Wanted,
    Confirmed,
}

/// A channel to subscribe to.
enum Wanted {
    Inbox(ClientId),
    Shard(ClientId, u32),
}

impl Hints {
    pub(super) fn new(
        host: Arc<dyn Host>,
        connector: Arc<dyn Connector>,
        sinks: Arc<Sinks>,
        stale: Option<Arc<Notify>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            host,
            confirms: connector.access().terms.confirm,
            connector,
            sinks,
            stale,
            state: Mutex::default(),
            news: Arc::new(Notify::new()),
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
        } else if state.shards.wanted(inbox, self.host.now()).is_some() {
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

    /// Asks the server to tell `inbox` when `key` changes. Call this if the holder uses other
    /// client software, and this client is the first of Leasehold that waits.
    ///
    /// Without a connection, nothing is lost, because the waiters ask again once there is one.
    pub(super) fn track(&self, key: &Key, inbox: &ClientId) {
        let now = self.host.now();
        let mut state = self.state();
        if state.tracked.as_mut().is_some_and(|tracked| tracked.want(key, inbox, now)) {
            self.news.notify_one();
        }
    }

    /// Notes that a waiter of this process has got `key`.
    pub(super) fn granted(&self, key: &Key) {
        if let Some(tracked) = &mut self.state().tracked {
            tracked.granted(key);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the state of the hints")
    }

    /// Sets the tag that the map of the cluster gives the node, see [`shards`].
    pub(super) fn live_at(&self, tag: Option<u32>) {
        if self.state().shards.live_at(tag) {
            self.news.notify_one();
        }
    }

    /// The tag of the shard channel that a place of this client should name, if any.
    pub(super) fn tag(&self, inbox: &ClientId) -> Option<u32> {
        self.stale.as_ref()?;
        self.state().shards.named(inbox, self.host.now())
    }

    fn next_wanted(&self) -> Option<Wanted> {
        let (state, now) = (self.state(), self.host.now());
        state.inboxes.iter().find_map(|(inbox, listening)| {
            // First the shard channel, so that the requests after `Missed` name it.
            match state.shards.wanted(inbox, now) {
                Some(tag) => Some(Wanted::Shard(inbox.clone(), tag)),
                None if *listening == Listening::Wanted => Some(Wanted::Inbox(inbox.clone())),
                None => None,
            }
        })
    }

    /// When a refused shard channel is tried again.
    fn tried_again_at(&self) -> Option<Moment> {
        let now = self.host.now();
        self.state().shards.tried_again_at(now)
    }

    fn confirmed(&self, inbox: &ClientId) {
        self.state().inboxes.insert(inbox.clone(), Listening::Confirmed);
        self.sinks.send(inbox, Hint::Missed);
    }

    /// Notes that a shard channel is subscribed to. If it replaces another channel, the client asks
    /// again, because its places name the old channel. Returns the tag of the channel to leave.
    fn shard_confirmed(&self, inbox: &ClientId, tag: u32) -> Option<u32> {
        let mut state = self.state();
        let old = state.shards.confirmed(inbox, tag);
        let listens = state.inboxes.get(inbox) == Some(&Listening::Confirmed);
        drop(state);
        if listens {
            self.sinks.send(inbox, Hint::Missed);
        }
        old
    }

    /// Notes that the node refused a shard channel. The client listens only to its inbox then.
    fn shard_refused(&self, refused: Refused, tag: u32) {
        if self.state().shards.refused(refused, tag, self.host.now()) {
            tracing::warn!(
                server = self.connector.label(),
                "no right to shard channels; wake-ups go through all nodes of the cluster"
            );
        }
        if refused == Refused::Elsewhere {
            self.map_is_stale();
        }
    }

    /// Notes that the node ended the subscription of this shard channel.
    fn shard_left(&self, channel: &str) {
        let left = keys::client_of_shard_inbox(channel);
        if left.is_some_and(|(tag, inbox)| self.state().shards.left(&inbox, tag)) {
            self.map_is_stale();
        }
    }

    fn map_is_stale(&self) {
        if let Some(stale) = &self.stale {
            stale.notify_one();
        }
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
            News::Left(channel) => self.shard_left(&channel),
        }
    }

    fn take_message(&self, message: &Message) {
        let channel = message.channel.as_str();
        let of_shard = || keys::client_of_shard_inbox(channel).map(|(_, inbox)| inbox);
        let Some(inbox) = keys::client_of_inbox(channel).or_else(of_shard) else { return };
        match message::hint(&message.payload) {
            Some(hint) => self.sinks.send(&inbox, self.as_far_as_believed(hint)),
            None => tracing::debug!(channel, "a message that is not a hint"),
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

    /// Notes that the connection is gone. Returns whether the task goes on.
    fn disconnected(&self) -> bool {
        self.state().disconnect(|inbox| self.sinks.has(inbox))
    }

    fn denied(&self, error: &Error) {
        let until = self.host.now() + DENIED_FOR;
        let mut state = self.state();
        state.disconnect(|_| false);
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

    /// Starts the task again on the host's thread after a while. It was dropped with its runtime,
    /// and a holder that keeps a lease idle does not ask again.
    fn dropped(self: &Arc<Self>) {
        let mut state = self.state();
        let was_asker = std::mem::replace(&mut state.home, Home::Host) == Home::Asker;
        let goes_on = state.disconnect(|inbox| was_asker && self.sinks.has(inbox));
        state.running = false;
        drop(state);
        if goes_on {
            self.go_on_later();
        }
    }

    /// Starts the task again after a pause. Most runtimes end together with their process, which
    /// should not open one more connection.
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

#[cfg(test)]
mod tests;
