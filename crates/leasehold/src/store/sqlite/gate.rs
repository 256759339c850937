//! The queue of processes that wait for the file.
//!
//! SQLite has one writer. Processes that find the file locked try again, and chance decides which
//! succeeds. Hundreds of trying processes take the processor from the writer. So only one of them
//! tries, the owner of the *gate*: a `flock` on the directory of the bells. The kernel queues the
//! others in order, and they sleep.
//!
//! The gate protects nothing. A process that finds the file free at once does not need it. A
//! process that waits long for the gate tries without it, since the owner may be stopped. A
//! blocking `flock` has no time limit, so a separate thread waits in it, started when first needed.
//! If no thread can start, every process tries without a queue.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::bells::Belfry;
use crate::host::Host;

/// The access of one handle to the gate.
pub(super) struct Gate {
    host: Arc<dyn Host>,
    belfry: Belfry,
    /// `None` until it is needed.
    shared: Mutex<Option<Arc<Shared>>>,
}

struct Shared {
    dir: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether a thread of this handle waits for the gate.
    is_wanted: bool,
    /// Whether this handle has the gate.
    is_ours: bool,
    has_clerk: bool,
    /// Whether the clerk waits in the kernel's queue.
    is_queued: bool,
    is_broken: bool,
    is_closed: bool,
}

impl Gate {
    pub(super) fn new(host: Arc<dyn Host>, belfry: Belfry) -> Self {
        Self { host, belfry, shared: Mutex::new(None) }
    }

    /// Whether this thread may block. It may not in a simulation, which has only one thread.
    pub(super) fn may_wait(&self) -> bool {
        self.host.may_block()
    }

    /// Waits for the gate for at most `limit`. Returns whether this handle has it; `None` if there
    /// is no gate. After `Some(false)`, the handle keeps its place in the queue.
    pub(super) fn enter(&self, limit: Duration) -> Option<bool> {
        let shared = self.shared()?;
        let mut state = shared.state();
        if state.is_ours {
            return Some(true);
        }
        if !state.is_queued {
            match flock(&shared.dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    state.is_ours = true;
                    return Some(true);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(_) => return None,
            }
        }
        if !state.has_clerk {
            let clerk = Arc::clone(&shared);
            let queue = Box::pin(async move { clerk.queue() });
            // Without a thread, every process tries as if there were no gate.
            self.host.spawn_blocking("leasehold-gate", queue).ok()?;
            state.has_clerk = true;
        }
        state.is_wanted = true;
        shared.changed.notify_all();
        let is_waiting = |state: &mut State| !state.is_ours && !state.is_broken;
        let (mut state, _) = shared
            .changed
            .wait_timeout_while(state, limit, is_waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if !state.is_ours {
            state.is_wanted = false;
        }
        if state.is_broken { None } else { Some(state.is_ours) }
    }

    /// Lets the next process through.
    pub(super) fn leave(&self) {
        if let Some(shared) = &*self.lock() {
            let mut state = shared.state();
            state.is_wanted = false;
            if std::mem::take(&mut state.is_ours) {
                let _left = flock(&shared.dir, FlockOperation::Unlock);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shared(&self) -> Option<Arc<Shared>> {
        let mut shared = self.lock();
        if shared.is_none() && self.host.has_threads() {
            let dir = self.belfry.open().ok()?;
            let state = Mutex::default();
            *shared = Some(Arc::new(Shared { dir, state, changed: Condvar::new() }));
        }
        shared.clone()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of the clerk: it waits in the kernel's queue for this handle.
    fn queue(&self) {
        loop {
            let mut state = self
                .changed
                .wait_while(self.state(), |state| !state.is_wanted && !state.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_closed {
                return;
            }
            state.is_queued = true;
            drop(state);
            let entered = loop {
                match flock(&self.dir, FlockOperation::LockExclusive) {
                    Err(rustix::io::Errno::INTR) => {}
                    entered => break entered,
                }
            };
            let mut state = self.state();
            state.is_queued = false;
            state.is_broken = entered.is_err();
            if entered.is_ok() && state.is_wanted {
                state.is_wanted = false;
                state.is_ours = true;
            } else if entered.is_ok() {
                let _left = flock(&self.dir, FlockOperation::Unlock);
            }
            if state.is_broken {
                state.has_clerk = false;
                self.changed.notify_all();
                return;
            }
            self.changed.notify_all();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.leave();
        if let Some(shared) = &*self.lock() {
            shared.state().is_closed = true;
            shared.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemHost;

    const EVENTUALLY: Duration = Duration::from_secs(60);

    #[test]
    fn one_has_the_gate_and_the_next_has_it_after_that() {
        let dir = tempfile::tempdir().expect("a directory");
        let gate = || {
            let belfry = Belfry::beside(&dir.path().join("locks.db"), 0o600);
            Gate::new(SystemHost::shared(), belfry)
        };
        let (one, other) = (gate(), gate());
        for _ in 0..3 {
            assert_eq!(one.enter(EVENTUALLY), Some(true));
            assert_eq!(one.enter(EVENTUALLY), Some(true), "it has it");
            assert_eq!(other.enter(Duration::from_millis(1)), Some(false));
            one.leave();
            assert_eq!(other.enter(EVENTUALLY), Some(true));
            other.leave();
        }
        // A handle that queued and gave up lets the next one through.
        assert_eq!(one.enter(EVENTUALLY), Some(true));
        assert_eq!(other.enter(Duration::from_millis(1)), Some(false));
        other.leave();
        drop(one);
        let third = gate();
        assert_eq!(third.enter(EVENTUALLY), Some(true));
        drop((other, third));
    }
}
