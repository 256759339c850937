//! A connection on which messages come in, and the marks among them.

use std::sync::{Condvar, Mutex, PoisonError};

use leasehold::store::redis::{Messages, News};
use tokio::sync::mpsc::UnboundedSender;

use super::{PATIENCE, lock};

/// Which marks came in. They come on a channel of their own, over the same connection as every
/// message, so in order with them.
#[derive(Debug)]
pub(super) struct Inlet {
    channel: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    seen: u64,
    ended: bool,
}

impl Inlet {
    pub(super) fn new(channel: String) -> Self {
        Self { channel, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Hands messages on, the marks among them excepted, until the connection ends. All the time,
    /// so that a mark is seen also while nobody takes messages.
    pub(super) async fn hand_on(&self, mut from: Box<dyn Messages>, to: UnboundedSender<News>) {
        let _ended = Ended(self);
        while let Some(news) = from.next().await {
            match news {
                News::Published(message) if message.channel == self.channel => {
                    let mark = String::from_utf8_lossy(&message.payload).parse();
                    self.see(mark.expect("the kit alone publishes here"));
                }
                news => {
                    if to.send(news).is_err() {
                        return;
                    }
                }
            }
        }
        // Whoever waits for messages is told before those who wait for marks.
        drop(to);
    }

    fn see(&self, mark: u64) {
        lock(&self.state).seen = mark;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Blocks until the mark came in or nothing comes any more; false if that takes too long.
    pub(super) fn has_seen(&self, mark: u64) -> bool {
        let waits = |state: &mut State| state.seen < mark && !state.ended;
        let seen = self.changed.wait_timeout_while(lock(&self.state), PATIENCE, waits);
        !seen.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Tells of the end, also when the task is dropped.
struct Ended<'a>(&'a Inlet);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.changed.notify_all();
    }
}
