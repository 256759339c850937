//! Watches the locks that clients of this process wait for, over one stream.
//!
//! A watch begins after the revision that the waiter saw, so nothing is missed in between. A stream
//! that breaks is made again, and goes on where the old one ended.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::channel::{Answers, Channel, Sending};
use super::entry::Seen;
use super::keys::Keys;
use super::message::Message;
use super::rpc::{Event, News, Range, unwatch, watch};
use super::wire::Wire;
use crate::core::backoff::Backoff;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::host::random_u32;
use crate::store::net::Home;
use crate::store::{Hint, Sinks};
use crate::unpoisoned::Unpoisoned;

/// How often ended waits are searched for, and the connection is checked.
const TICK: Duration = Duration::from_secs(1);

/// The pauses before a stream is made again after a failure.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(2) };

/// After a stream that lasted for longer than this, the pauses start again from the shortest one.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// How long a stream stays open while nobody waits, so that the next waiter needs no new one.
const LINGER: Duration = Duration::from_secs(10);

/// One waiter of this process.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) inbox: ClientId,
    /// The number of the owner's last ask that certainly refreshed its place; 0 if none did.
    pub(super) ask_no: u32,
    /// How many places are ahead of its own.
    pub(super) ahead: u32,
    /// The last change that this ask saw. Earlier changes may concern an earlier place of its
    /// owner.
    pub(super) seen: i64,
    /// When this wait is forgotten, unless the owner asks again.
    pub(super) until: Moment,
}

/// The watches of a store.
pub(super) struct Hints {
    wire: Arc<Wire>,
    keys: Keys,
    sinks: Arc<Sinks>,
    state: Unpoisoned<State>,
    /// Wakes the task: a wait began or ended, or the store is gone.
    news: Notify,
}

#[derive(Default)]
struct State {
    watched: HashMap<Key, Watched>,
    /// The keys by the numbers of their watches on the stream.
    numbers: HashMap<i64, Key>,
    last_number: i64,
    /// The keys that may need a watch on the stream.
    due: Vec<Key>,
    /// Watches that nobody needs any more.
    ended: Vec<i64>,
    is_running: bool,
    is_closed: bool,
}

/// A lock that somebody waits for.
struct Watched {
    /// The number of the lock's watch; 0 if it has none on this stream.
    number: i64,
    /// The first change that was not seen.
    from: i64,
    /// The last change that the watch reported: its number, and the new holder if there is one.
    last: Option<(i64, Option<OwnerToken>)>,
    waits: HashMap<OwnerToken, Wait>,
}

/// Hints, and the inboxes that they are for.
type Mail = Vec<(ClientId, Hint)>;

impl Hints {
    pub(super) fn new(wire: Arc<Wire>, keys: Keys, sinks: Arc<Sinks>) -> Arc<Self> {
        let (state, news) = (Unpoisoned::default(), Notify::new());
        Arc::new(Self { wire, keys, sinks, state, news })
    }

    /// Notes that an owner waits.
    pub(super) fn wait(self: &Arc<Self>, key: &Key, owner: &OwnerToken, wait: Wait) {
        let inbox = wait.inbox.clone();
        let mut state = self.state.lock();
        let has_missed = state.wait(key, owner, wait);
        let is_new = !state.due.is_empty();
        let starts = !std::mem::replace(&mut state.is_running, true);
        drop(state);
        if starts {
            let ours = Arc::clone(self);
            Home::Host.spawn(&self.wire.host, Box::pin(async move { ours.run().await }));
        } else if is_new {
            self.news.notify_one();
        }
        if has_missed {
            self.sinks.send(&inbox, Hint::MaybeFree { key: key.clone() });
        }
    }

    /// How many places are ahead of an owner's, as far as its last ask and its watch tell.
    pub(super) fn ahead(&self, key: &Key, owner: &OwnerToken) -> Option<u32> {
        self.state.lock().watched.get(key)?.waits.get(owner).map(|wait| wait.ahead)
    }

    /// Makes the watch only wake this owner from now on, and grant it nothing. The owner is about
    /// to write with a lease that may end soon. The watch may tell of that write before anybody
    /// knows whether the lease lasts.
    pub(super) fn only_wake(&self, key: &Key, owner: &OwnerToken) {
        let mut state = self.state.lock();
        let watched = state.watched.get_mut(key);
        if let Some(wait) = watched.and_then(|watched| watched.waits.get_mut(owner)) {
            wait.ask_no = 0;
        }
    }

    /// The number of the ask from which a grant of its watch would count.
    #[cfg(test)]
    pub(super) fn ask_no(&self, key: &Key, owner: &OwnerToken) -> Option<u32> {
        self.state.lock().watched.get(key)?.waits.get(owner).map(|wait| wait.ask_no)
    }

    /// Notes that an owner waits no more.
    pub(super) fn done(&self, key: &Key, owner: &OwnerToken) {
        let mut state = self.state.lock();
        let Some(watched) = state.watched.get_mut(key) else { return };
        watched.waits.remove(owner);
        state.end_unused(key);
        let is_ended = !state.ended.is_empty();
        drop(state);
        if is_ended {
            self.news.notify_one();
        }
    }

    /// Ends the task.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.news.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let host = &self.wire.host;
        let mut pauses = PAUSES.delays();
        while self.has_work() {
            let began = host.now();
            let served = match self.begin().await {
                Ok((channel, sending, answers)) => self.serve(&channel, sending, answers).await,
                Err(cause) => Err(cause),
            };
            let waits = self.state.lock().begin_anew();
            let Err(cause) = served else { continue };
            tracing::debug!(cause, "the watch of etcd ended, and is made again");
            // The next stream will also report changes from the time without a stream. Opening it
            // may take long, so tell the waiters to ask now. If this stream was short, they asked a
            // moment ago.
            if host.now().since(began) > STABLE_AFTER {
                pauses.reset();
                waits.iter().for_each(|inbox| self.sinks.send(inbox, Hint::Missed));
            }
            let pause = pauses.next(random_u32(&**host));
            host.sleep_until(host.now() + pause).await;
        }
    }

    fn has_work(&self) -> bool {
        let mut state = self.state.lock();
        let has_work = !state.is_closed && !state.watched.is_empty();
        state.is_running = has_work;
        has_work
    }

    /// Opens a stream with its first watch.
    async fn begin(&self) -> Result<(Channel, Sending, Answers), String> {
        let channel = self.wire.channel().await.map_err(|error| error.to_string())?;
        let first = self.state.lock().new_watches(&self.keys).into_iter();
        let mut sending = None;
        for message in first {
            let sent = match &mut sending {
                None => {
                    let stream = channel.stream("/etcdserverpb.Watch/Watch", &message).await;
                    stream.map(|stream| sending = Some(stream))
                }
                Some((sending, _)) => sending.send(&message, false),
            };
            sent.map_err(|failure| format!("{failure:?}"))?;
        }
        let (sending, answers) = sending.ok_or("nobody waits")?;
        Ok((channel, sending, answers))
    }

    /// Passes news on until the stream ends. `Ok` if nobody has waited for a while, or the store is
    /// gone.
    async fn serve(
        &self,
        channel: &Channel,
        mut sending: Sending,
        mut answers: Answers,
    ) -> Result<(), String> {
        let host = &self.wire.host;
        let mut tick = host.sleep_until(host.now() + TICK);
        let mut used = host.now();
        while channel.is_open() {
            let messages = {
                let mut state = self.state.lock();
                if !state.watched.is_empty() {
                    used = host.now();
                }
                if state.is_closed || host.now().since(used) >= LINGER {
                    return Ok(());
                }
                state.messages(&self.keys)
            };
            for message in messages {
                sending.send(&message, false).map_err(|failure| format!("{failure:?}"))?;
            }
            tokio::select! {
                biased;
                answer = answers.next() => {
                    let answer = answer.map_err(|failure| format!("{failure:?}"))?;
                    let answer = answer.ok_or("the server ended it")?;
                    self.take(News::read(&answer).map_err(|malformed| malformed.to_string())?)?;
                }
                () = self.news.notified() => {}
                () = &mut tick => {
                    self.state.lock().forget_old(host.now());
                    tick = host.sleep_until(host.now() + TICK);
                }
            }
        }
        Err("its connection is used no more".to_owned())
    }

    /// Passes news of one watch on.
    fn take(&self, news: News) -> Result<(), String> {
        let mail = self.state.lock().take(news)?;
        // The lock is free here, because a sink may call anything.
        for (inbox, hint) in mail {
            self.sinks.send(&inbox, hint);
        }
        Ok(())
    }
}

impl State {
    /// Adds a waiter. Returns whether it has missed a change that concerns it.
    fn wait(&mut self, key: &Key, owner: &OwnerToken, wait: Wait) -> bool {
        if !self.watched.contains_key(key) {
            self.watched.insert(key.clone(), Watched::after(wait.seen));
            self.due.push(key.clone());
        }
        self.watched.get_mut(key).is_some_and(|watched| watched.wait(owner, wait))
    }

    /// The messages that are due: new watches, and the ends of watches that nobody needs.
    fn messages(&mut self, keys: &Keys) -> Vec<Message> {
        let mut messages: Vec<_> = self.ended.drain(..).map(unwatch).collect();
        messages.extend(self.new_watches(keys));
        messages
    }

    fn new_watches(&mut self, keys: &Keys) -> Vec<Message> {
        let mut messages = Vec::new();
        for key in std::mem::take(&mut self.due) {
            let Some(watched) = self.watched.get_mut(&key).filter(|it| it.number == 0) else {
                continue;
            };
            self.last_number += 1;
            watched.number = self.last_number;
            let held = Range::one(keys.held(&key));
            messages.push(watch(self.last_number, &held, watched.from));
            self.numbers.insert(self.last_number, key);
        }
        messages
    }

    /// Notes that the stream ended, and its watches with it. Returns the inboxes of all waiters.
    fn begin_anew(&mut self) -> Vec<ClientId> {
        self.numbers.clear();
        self.ended.clear();
        self.due = self.watched.keys().cloned().collect();
        let mut inboxes = Vec::new();
        for watched in self.watched.values_mut() {
            watched.number = 0;
            inboxes.extend(watched.waits.values().map(|wait| wait.inbox.clone()));
        }
        inboxes.sort_unstable();
        inboxes.dedup();
        inboxes
    }

    fn forget_old(&mut self, now: Moment) {
        for watched in self.watched.values_mut() {
            watched.waits.retain(|_, wait| wait.until > now);
        }
        let unused = self.watched.iter().filter(|(_, it)| it.waits.is_empty());
        for key in unused.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.end_unused(&key);
        }
    }

    /// Ends the watch of a lock if nobody waits for it.
    fn end_unused(&mut self, key: &Key) {
        if self.watched.get(key).is_some_and(|it| it.waits.is_empty())
            && let Some(unused) = self.watched.remove(key)
            && self.numbers.remove(&unused.number).is_some()
        {
            self.ended.push(unused.number);
        }
    }

    fn take(&mut self, news: News) -> Result<Mail, String> {
        let mut mail = Mail::new();
        if news.is_created && news.is_cancelled {
            // The number of a refused watch may belong to no watch of this store. The next stream
            // begins all watches again.
            return Err("the server refused a watch".to_owned());
        }
        let Some(key) = self.numbers.get(&news.watch).cloned() else { return Ok(mail) };
        let Some(watched) = self.watched.get_mut(&key) else { return Ok(mail) };
        if news.is_cancelled {
            // The server forgot old changes, or does not serve the watch any more.
            watched.from = watched.from.max(news.compacted);
            watched.number = 0;
            self.numbers.remove(&news.watch);
            let waits = watched.waits.values();
            mail.extend(
                waits.map(|wait| (wait.inbox.clone(), Hint::MaybeFree { key: key.clone() })),
            );
            self.due.push(key);
            return Ok(mail);
        }
        for event in news.events {
            // Do not use the revision of the answer. The first answer has the current revision, and
            // older changes follow.
            watched.from = watched.from.max(event.kv.modified.saturating_add(1));
            watched.take(&key, event, &mut mail);
        }
        self.end_unused(&key);
        Ok(mail)
    }
}

impl Watched {
    /// A lock whose changes after this one are news.
    fn after(seen: i64) -> Self {
        Self { number: 0, from: seen.saturating_add(1), last: None, waits: HashMap::new() }
    }

    /// Adds a waiter. Returns whether it has missed a change that concerns it, because the watch
    /// belongs to all waiters of this lock and tells each change once. Only the last change counts.
    /// If any newer change counted, each ask on a busy lock would cause the next one.
    fn wait(&mut self, owner: &OwnerToken, mut wait: Wait) -> bool {
        let has_missed = match &self.last {
            Some((change, holder)) if *change > wait.seen => match holder {
                None => wait.ahead == 0,
                Some(holder) if holder == owner => true,
                Some(_) => {
                    wait.ahead = wait.ahead.saturating_sub(1);
                    false
                }
            },
            Some(_) => false,
            // Another waiter began the watch, after a change that this one has not seen.
            None => self.from > wait.seen.saturating_add(1),
        };
        self.waits.insert(owner.clone(), wait);
        has_missed
    }

    /// Passes a change on to the waiters that have not seen it. A member that fell behind tells of
    /// changes late. If a waiter has lost its place meanwhile and asked again, a grant to its
    /// earlier place must not count from that ask.
    fn take(&mut self, key: &Key, event: Event, mail: &mut Mail) {
        let changed = event.kv.modified;
        if event.is_delete {
            self.last = Some((changed, None));
            // The waiters at the front ask. If all of them are dead, the others ask soon anyway.
            let front = self.waits.values().filter(|it| it.ahead == 0 && it.seen < changed);
            mail.extend(
                front.map(|wait| (wait.inbox.clone(), Hint::MaybeFree { key: key.clone() })),
            );
            return;
        }
        let seen = Seen::new(event.kv);
        let Some(entry) = &seen.entry else { return };
        let is_same =
            |(_, holder): &(i64, Option<OwnerToken>)| holder.as_ref() == Some(&entry.owner);
        if self.last.as_ref().is_some_and(is_same) {
            // The holder has written again, as with a longer lease.
            return;
        }
        self.last = Some((changed, Some(entry.owner.clone())));
        if self.waits.get(&entry.owner).is_some_and(|wait| wait.seen < changed)
            && let Some(wait) = self.waits.remove(&entry.owner)
        {
            let hint = Hint::Granted {
                key: key.clone(),
                owner: entry.owner.clone(),
                fencing: seen.block(),
                ask_no: wait.ask_no,
            };
            mail.push((wait.inbox, hint));
        }
        // The new holder was in front of all waiters.
        for wait in self.waits.values_mut().filter(|wait| wait.seen < changed) {
            wait.ahead = wait.ahead.saturating_sub(1);
        }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hints({})", self.state.lock().watched.len())
    }
}

#[cfg(test)]
mod tests;
