//! A connection that receives messages, and the marks among them.

use std::sync::{Condvar, Mutex, PoisonError};

use leasehold::store::redis::{Messages, News};
use tokio::sync::mpsc::UnboundedSender;

use super::{PATIENCE, lock};

/// The marks that have arrived. Marks have their own channel, but share the connection with all
/// messages, so they keep the order.
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

    /// Passes on all messages except marks, until the connection ends. It runs all the time, so
    /// that marks are seen even while nobody takes messages.
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
        // Tasks that wait for messages must learn of the end before threads that wait for marks.
        drop(to);
    }

    fn see(&self, mark: u64) {
        lock(&self.state).seen = mark;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Blocks until the mark has arrived or the connection has ended. Returns false if that takes
    /// too long.
    pub(super) fn has_seen(&self, mark: u64) -> bool {
        let waits = |state: &mut State| state.seen < mark && !state.ended;
        let seen = self.changed.wait_timeout_while(lock(&self.state), PATIENCE, waits);
        !seen.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Reports the end of the connection, even if the task is dropped.
struct Ended<'a>(&'a Inlet);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.changed.notify_all();
    }
}
