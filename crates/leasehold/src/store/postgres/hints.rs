//! The connection on which a client receives hints.
//!
//! The first waiter opens it. It is made again while any client takes hints. After each time that
//! it listens anew, its clients are told [`Hint::Missed`], because nobody received earlier
//! messages. A proxy that runs each transaction on another connection drops `LISTEN`: then waiters
//! poll, since they ask again by themselves.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::connect::PostgresConnector;
use super::link::{Link, News};
use crate::core::backoff::Backoff;
use crate::core::key::Key;
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken};
use crate::host::{Host, random_u32};
use crate::store::net::Home;
use crate::store::sinks::Sinks;
use crate::store::{Hint, within};

/// The beginning of the name of each channel.
const CHANNEL: &str = "leasehold:";

/// How often a quiet connection is probed, and how long the answer may take.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// Receives the hints of the server and passes them to the clients.
pub(super) struct Hints {
    host: Arc<dyn Host>,
    connector: PostgresConnector,
    sinks: Arc<Sinks>,
    state: Mutex<State>,
    /// Wakes the task: there is a new inbox, or the store is gone.
    news: Notify,
}

#[derive(Default)]
struct State {
    /// The inboxes, and whether the server has confirmed that their hints come here.
    inboxes: BTreeMap<ClientId, bool>,
    is_running: bool,
    is_closed: bool,
    home: Home,
}

impl Hints {
    pub(super) fn new(
        host: Arc<dyn Host>,
        connector: PostgresConnector,
        sinks: Arc<Sinks>,
    ) -> Arc<Self> {
        let (state, news) = (Mutex::default(), Notify::new());
        Arc::new(Self { host, connector, sinks, state, news })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Always valid: it is changed by single steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to receive the hints of an inbox, if that has not begun.
    pub(super) fn listen(self: &Arc<Self>, inbox: &ClientId) {
        let mut state = self.state();
        if state.is_closed || state.inboxes.contains_key(inbox) || !self.sinks.has(inbox) {
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

    /// Ends with the store.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.news.notify_one();
    }

    fn start(self: &Arc<Self>, home: Home) {
        let running = Running { hints: Arc::clone(self), is_over: false };
        home.spawn(&self.host, Box::pin(running.run()));
    }

    /// The inboxes that the server must still be told.
    fn new_inboxes(&self) -> Vec<ClientId> {
        let state = self.state();
        let new = state.inboxes.iter().filter(|(_, is_confirmed)| !**is_confirmed);
        new.map(|(inbox, _)| inbox.clone()).collect()
    }

    /// Whether the store is there, and any client takes hints.
    fn is_wanted(&self) -> bool {
        let state = self.state();
        !state.is_closed && state.inboxes.keys().any(|inbox| self.sinks.has(inbox))
    }

    fn confirm(&self, inboxes: &[ClientId]) {
        let mut state = self.state();
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
        self.state().inboxes.values_mut().for_each(|is_confirmed| *is_confirmed = false);
    }

    fn receive(&self, channel: &str, text: &str) {
        let inbox = channel.strip_prefix(CHANNEL).and_then(ClientId::new);
        if let (Some(inbox), Some(hint)) = (inbox, read(text)) {
            self.sinks.send(&inbox, hint);
        }
    }
}

/// The task that connects and receives. If a runtime drops it, it goes on on the host's thread.
struct Running {
    hints: Arc<Hints>,
    is_over: bool,
}

impl Running {
    async fn run(mut self) {
        let hints = Arc::clone(&self.hints);
        let mut delays = Backoff::DEFAULT.delays();
        while self.has_work() {
            match hints.connector.connect(&hints.host).await {
                Ok(link) => {
                    delays.reset();
                    receive(&hints, link).await;
                }
                Err(error) => tracing::debug!(cause = %error, "hints cannot be received"),
            }
            hints.disconnected();
            if self.has_work() {
                let pause = delays.next(random_u32(&*hints.host));
                let pause = hints.host.sleep_until(hints.host.now() + pause);
                tokio::select! {
                    () = pause => {}
                    () = hints.news.notified() => {}
                }
            }
        }
    }

    /// Whether any client takes hints. If not, the task is over: the next one starts another.
    fn has_work(&mut self) -> bool {
        let mut state = self.hints.state();
        state.inboxes.retain(|inbox, _| self.hints.sinks.has(inbox));
        if state.is_closed || state.inboxes.is_empty() {
            state.is_running = false;
            self.is_over = true;
        }
        !self.is_over
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.hints.disconnected();
        let mut state = self.hints.state();
        state.is_running =
            state.home.moves_to_host() && !state.is_closed && !state.inboxes.is_empty();
        let goes_on = state.is_running;
        drop(state);
        if goes_on {
            self.hints.start(Home::Host);
        }
    }
}

/// Receives hints until the connection ends.
async fn receive(hints: &Arc<Hints>, mut link: Link) {
    loop {
        let new = hints.new_inboxes();
        if !new.is_empty() {
            let listen: String = new
                .iter()
                .map(|inbox| format!("LISTEN \"{CHANNEL}{}\";", inbox.as_str()))
                .collect();
            if ask(hints, &mut link, &listen).await.is_none() {
                return;
            }
            hints.confirm(&new);
        }
        if !hints.is_wanted() {
            return;
        }
        let probe_at = hints.host.now() + PROBE_EVERY;
        tokio::select! {
            biased;
            message = poll_fn(|cx| link.wire.poll_message(cx)) => match message {
                Some(Ok(message)) => pass_on(hints, News::from(message)),
                Some(Err(_)) | None => return,
            },
            () = hints.news.notified() => {}
            // A peer that vanished sends nothing, not even an error.
            () = hints.host.sleep_until(probe_at) => {
                if ask(hints, &mut link, "").await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Asks, and passes on the messages that come before the answer. `None` if there is no answer.
async fn ask(hints: &Arc<Hints>, link: &mut Link, sql: &str) -> Option<()> {
    let asking = async {
        let mut came = Vec::new();
        let answer = link.ask_beside(sql, |news| came.push(news)).await;
        came.into_iter().for_each(|news| pass_on(hints, news));
        answer.map_err(|error| super::error::failure(&error, super::error::Stage::Asking))
    };
    match within(Arc::clone(&hints.host), PROBE_LIMIT, asking).await {
        Ok(_) => Some(()),
        Err(error) => {
            tracing::debug!(cause = %error, "the connection for hints is made again");
            None
        }
    }
}

fn pass_on(hints: &Hints, news: News) {
    if let News::Message(channel, text) = news {
        hints.receive(&channel, &text);
    }
}

/// Reads a hint, as `line.sql` writes it. `None` if somebody else sent it.
fn read(text: &str) -> Option<Hint> {
    let (kind, rest) = text.split_once(' ')?;
    match kind {
        "wanted" => Some(Hint::Wanted { key: Key::new(rest).ok()? }),
        "free" => Some(Hint::MaybeFree { key: Key::new(rest).ok()? }),
        "granted" => {
            let mut parts = rest.splitn(5, ' ');
            let ask_no = parts.next()?.parse().ok()?;
            let first = FencingToken::new(parts.next()?.parse().ok()?);
            let count = parts.next()?.parse().ok()?;
            let owner = OwnerToken::new(parts.next()?).ok()?;
            let key = Key::new(parts.next()?).ok()?;
            let fencing = first.map(|first| FencingBlock { first, count });
            Some(Hint::Granted { key, owner, fencing, ask_no })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_reads_back_and_other_texts_do_not() {
        let key = Key::new("a b c").expect("a name");
        let block = FencingToken::new(41).map(|first| FencingBlock { first, count: 2 });
        let owner = OwnerToken::new("token").expect("printable");
        let granted = |fencing| {
            let (key, owner) = (key.clone(), owner.clone());
            Some(Hint::Granted { key, owner, fencing, ask_no: 7 })
        };
        for (text, hint) in [
            ("granted 7 41 2 token a b c", granted(block)),
            ("granted 7 0 0 token a b c", granted(None)),
            ("wanted a b c", Some(Hint::Wanted { key: key.clone() })),
            ("free a b c", Some(Hint::MaybeFree { key: key.clone() })),
            ("granted 7 41 2 token", None),
            ("granted x 41 2 token a", None),
            ("granted 4294967296 41 2 token a", None),
            ("other a", None),
            ("free", None),
            ("free ", None),
            ("", None),
        ] {
            assert_eq!(read(text), hint, "{text}");
        }
    }
}
