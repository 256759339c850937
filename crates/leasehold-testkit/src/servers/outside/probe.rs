//! Proves that everything has arrived that a server has sent on one connection.

use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};

use super::{PATIENCE, lock};

/// A server answers in order. So the kit adds a request of its own to the requests of the client,
/// and hides its answer from the client.
#[derive(Debug, Default)]
pub(super) struct Probe {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the client has sent anything. Before that, there may be no task that moves the
    /// bytes.
    has_begun: bool,
    /// Whether the client receives messages.
    receives: bool,
    asked: u64,
    sent: u64,
    answered: u64,
    has_ended: bool,
    /// Wakes the task that moves the bytes.
    mover: Option<Waker>,
}

impl Probe {
    /// The client sends a request.
    pub(super) fn sees(&self, name: &[u8]) {
        let mut state = lock(&self.state);
        state.has_begun = true;
        state.receives |= matches!(name, b"HELLO" | b"SUBSCRIBE");
    }

    /// Whether the connection is open and in use, and receives messages or not.
    pub(super) fn is_open(&self, receives: bool) -> bool {
        let state = lock(&self.state);
        state.has_begun && !state.has_ended && state.receives == receives
    }

    /// Asks for one more answer.
    pub(super) fn ask(&self) {
        let mut state = lock(&self.state);
        state.asked += 1;
        let mover = state.mover.clone();
        drop(state);
        if let Some(mover) = mover {
            mover.wake();
        }
    }

    /// Whether to send a request now.
    pub(super) fn is_due(&self, cx: &Context<'_>) -> bool {
        let mut state = lock(&self.state);
        let before = state.mover.replace(cx.waker().clone());
        let is_due = state.has_begun && state.sent < state.asked;
        state.sent += u64::from(is_due);
        drop(state);
        drop(before);
        is_due
    }

    pub(super) fn hears(&self) {
        lock(&self.state).answered += 1;
        self.changed.notify_all();
    }

    pub(super) fn ends(&self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        let mover = state.mover.take();
        drop(state);
        drop(mover);
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).has_ended
    }

    /// Blocks until the answer has arrived or the connection has ended. Returns false if that takes
    /// too long.
    pub(super) fn is_answered(&self) -> bool {
        let waits = |state: &mut State| state.answered < state.asked && !state.has_ended;
        let answered = self.changed.wait_timeout_while(lock(&self.state), PATIENCE, waits);
        !answered.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}
