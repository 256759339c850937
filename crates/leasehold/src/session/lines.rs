//! The local lines of a client, by key, and the tasks that ask the store for each of them.
//!
//! [`LocalLine`] decides what a task has to do.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::asker::Told;
use super::held::Held;
use super::spec::Spec;
use super::wake::{HandOver, Wake};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::local_line::LocalLine;
use crate::core::token::OwnerToken;

/// The local lines of a client, by their keys.
#[derive(Default)]
pub(super) struct Lines {
    lines: Mutex<HashMap<Key, Line>>,
    /// Counts across all lines: a new line of the same key must not reuse a task's number.
    arrivals: AtomicU64,
}

/// The line of one key, and who asks for it.
#[derive(Default)]
pub(super) struct Line {
    pub(super) tasks: LocalLine<Arc<Held>, oneshot::Sender<Told>>,
    /// How many tasks ask the store without waiting, beside the line.
    pub(super) tries: usize,
    /// Another client waits for the key, which a task of this client is asking for.
    was_wanted: bool,
    /// Why the asker's last request failed, if it did.
    pub(super) outage: Option<Error>,
    /// The asking tasks that hints wake, by token.
    asking: BTreeMap<OwnerToken, Asking>,
}

/// A task that asks.
struct Asking {
    wake: Arc<Wake>,
    /// Lower than that of each task that began later.
    arrival: u64,
    /// Whether it may get the key although tasks before it wait: it shares the key, or has no place
    /// in line.
    has_no_turn: bool,
}

impl Lines {
    fn lines(&self) -> MutexGuard<'_, HashMap<Key, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a task that arrives now.
    pub(super) fn arrive(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `work` on the line of a key. Makes the line if it is missing, and removes it if it is
    /// empty afterwards. `work` must not call the store or wake anybody.
    pub(super) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut Line) -> T) -> T {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(key) {
            let done = work(line);
            if line.is_vacant() {
                lines.remove(key);
            }
            return done;
        }
        let mut line = Line::default();
        let done = work(&mut line);
        if !line.is_vacant() {
            lines.insert(key.clone(), line);
        }
        done
    }

    /// Runs `work` on every line, in the order of their keys.
    pub(super) fn with_each(&self, mut work: impl FnMut(&mut Line)) {
        let mut lines = self.lines();
        let mut lines: Vec<_> = lines.iter_mut().collect();
        lines.sort_unstable_by_key(|(key, _)| *key);
        lines.into_iter().for_each(|(_, line)| work(line));
    }

    /// Wakes the tasks that may get `key` if it is free.
    pub(super) fn wake(&self, key: &Key) {
        let first: Vec<_> = self.with(key, |line| line.first_asking());
        // Outside the lock of the lines: a waker may run any code.
        first.iter().for_each(|wake| wake.may_be_free());
    }

    pub(super) fn wake_all(&self) {
        let mut asking = Vec::new();
        self.with_each(|line| {
            asking.extend(line.asking.values().map(|task| Arc::clone(&task.wake)));
        });
        asking.iter().for_each(|wake| wake.wake());
    }

    /// Tells the task that asks as the new owner that the key was handed to it. Returns whether
    /// there is such a task.
    pub(super) fn hand_over(&self, key: &Key, handed_over: HandOver) -> bool {
        let asking = self.with(key, |line| {
            line.asking.get(&handed_over.owner).map(|task| Arc::clone(&task.wake))
        });
        asking.inspect(|wake| wake.hand_over(handed_over)).is_some()
    }
}

impl Line {
    pub(super) fn is_vacant(&self) -> bool {
        self.tasks.is_vacant() && self.tries == 0 && self.asking.is_empty()
    }

    /// Another client waits for the key. Returns the lease that it waits for, if this client has
    /// it. If this client is about to get the lease, it learns of that then.
    pub(super) fn want(&mut self) -> Option<Arc<Held>> {
        let lease = self.tasks.lease().cloned();
        self.was_wanted = lease.is_none() && (self.tasks.has_asker() || self.tries > 0);
        lease
    }

    /// The client has a lease from now on. Returns whether another client waits for it.
    pub(super) fn enter(&mut self, held: &Arc<Held>) -> bool {
        self.tasks.enter(Arc::clone(held));
        std::mem::take(&mut self.was_wanted)
    }

    /// Notes that a task begins to ask.
    pub(super) fn begin_asking(
        &mut self,
        owner: OwnerToken,
        wake: Arc<Wake>,
        arrival: u64,
        spec: &Spec,
    ) {
        let has_no_turn = spec.unqueued || !spec.claim.is_alone();
        self.asking.insert(owner, Asking { wake, arrival, has_no_turn });
    }

    /// A task goes on with a `fresh` token instead of the spent one.
    pub(super) fn ask_as(&mut self, fresh: OwnerToken, spent: &OwnerToken) {
        if let Some(task) = self.asking.remove(spent) {
            self.asking.insert(fresh, task);
        }
    }

    pub(super) fn stop_asking(&mut self, owner: &OwnerToken) {
        self.asking.remove(owner);
    }

    /// The tasks to wake when the key may be free: the first of those that take turns, since their
    /// places at the store are in the order of their arrival, and each of the others. A task that
    /// has not noticed an earlier hint is passed over: perhaps nobody polls it.
    fn first_asking(&self) -> Vec<Arc<Wake>> {
        let in_turn = self.asking.values().filter(|task| !task.has_no_turn && !task.wake.is_told());
        let first = in_turn.min_by_key(|task| task.arrival);
        let others = self.asking.values().filter(|task| task.has_no_turn);
        first.into_iter().chain(others).map(|task| Arc::clone(&task.wake)).collect()
    }
}
