//! Timers on virtual time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Shared;
use leasehold::core::Moment;

/// A timer: its end on the clock that stands still during suspend, and a unique number.
pub(super) type TimerId = (Moment, u64);

/// The timers that tasks wait for, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    armed: BTreeMap<TimerId, Waker>,
    numbered: u64,
}

impl Timers {
    /// When the earliest timer ends.
    pub(super) fn next(&self) -> Option<Moment> {
        self.armed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out every timer that has ended at `now`.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = self.armed.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        due
    }

    fn number(&mut self) -> u64 {
        self.numbered += 1;
        self.numbered
    }
}

/// A timer. It is armed while a task waits for it, and removed when it is dropped.
pub(super) struct VirtualSleep {
    shared: Arc<Shared>,
    at: Moment,
    armed: Option<TimerId>,
}

impl VirtualSleep {
    /// Makes a timer. `at` is on the clock that stands still during suspend.
    pub(super) fn new(shared: Arc<Shared>, at: Moment) -> Self {
        Self { shared, at, armed: None }
    }
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        if state.clock.awake() >= self.at {
            return Poll::Ready(());
        }
        let at = self.at;
        let id = *self.armed.get_or_insert_with(|| (at, state.timers.number()));
        let replaced = state.timers.armed.insert(id, context.waker().clone());
        drop(state);
        // Dropped after the lock is released, because a waker may own anything.
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(id) = self.armed {
            let waker = self.shared.state().timers.armed.remove(&id);
            drop(waker);
        }
    }
}
