//! The local line: the tasks of one client that wait for one key, and the client's lease of it.
//!
//! A client has one place in the store's line of a key, however many of its tasks wait. They queue
//! here in order. One of them at a time, the *asker*, talks to the store. A lease that one task
//! releases is passed on to the next.
//!
//! | lease | asker | the first task in line waits for |
//! |---|---|---|
//! | in use, same settings | none | the lease to be passed on |
//! | idle, same settings | none | (nobody waits) |
//! | leaving | one | the answer whether the client kept it |
//! | none, or other settings | one | the asker to get the key, and then its lease |

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::asker::Asker;
use super::held::{Held, Hold};
use super::spec::Spec;
use super::wake::{HandOver, Wake};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::{Taking, Turn};
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;

/// The most tasks of one client that wait for one key.
pub(crate) const TASKS_MAX: usize = 100_000;

/// The local lines of a client, by their keys.
#[derive(Default)]
pub(super) struct LocalLines {
    lines: Mutex<HashMap<Key, LocalLine>>,
    /// Counts across all lines: a new line of the same key must not reuse a task's number.
    arrivals: AtomicU64,
}

/// The line of one key.
#[derive(Default)]
pub(super) struct LocalLine {
    /// The lease that tasks of this client pass on, if there is one.
    pub(super) lease: Option<Arc<Held>>,
    /// Whether a task talks to the store for the line.
    pub(super) has_asker: bool,
    /// How many tasks ask the store without waiting, beside the line.
    pub(super) tries: usize,
    /// Another client waits for the key, which a task of this client is asking for.
    pub(super) was_wanted: bool,
    /// Why the asker's last request failed, if it did.
    pub(super) outage: Option<Error>,
    /// The waiting tasks, by arrival.
    tasks: BTreeMap<u64, Task>,
    /// The asking tasks that hints wake, by token.
    asking: BTreeMap<OwnerToken, Arc<Wake>>,
}

/// A task that waits.
pub(super) struct Task {
    pub(super) spec: Arc<Spec>,
    pub(super) tell: oneshot::Sender<Told>,
}

/// The news for a waiting task.
pub(super) enum Told {
    /// It gets the lease.
    Passed(Hold),
    /// It talks to the store from now on.
    Ask(Asker),
    /// The asker failed, and this task would fail like it.
    Failed(Error),
}

/// The state of the client's lease when a task comes.
pub(super) enum Met {
    Nothing,
    InUse,
    /// The task gets it.
    Taken(Arc<Held>, Turn),
    /// The lease cannot be used as it is: the store must decide what happens to it.
    Leaving(Arc<Held>),
    /// The lease has other settings.
    OfOthers(Arc<Held>),
}

impl LocalLines {
    fn lines(&self) -> MutexGuard<'_, HashMap<Key, LocalLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a task that arrives now.
    pub(super) fn arrive(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `work` on the line of a key. Makes the line if it is missing, and removes it if it is
    /// empty afterwards. `work` must not call the store or wake anybody.
    pub(super) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut LocalLine) -> T) -> T {
        let mut lines = self.lines();
        if let Some(line) = lines.get_mut(key) {
            let done = work(line);
            if line.is_vacant() {
                lines.remove(key);
            }
            return done;
        }
        let mut line = LocalLine::default();
        let done = work(&mut line);
        if !line.is_vacant() {
            lines.insert(key.clone(), line);
        }
        done
    }

    /// Runs `work` on every line, in the order of their keys.
    pub(super) fn with_each(&self, mut work: impl FnMut(&mut LocalLine)) {
        let mut lines = self.lines();
        let mut lines: Vec<_> = lines.iter_mut().collect();
        lines.sort_unstable_by_key(|(key, _)| *key);
        lines.into_iter().for_each(|(_, line)| work(line));
    }
}

impl LocalLine {
    fn is_vacant(&self) -> bool {
        let asks = self.has_asker || self.tries > 0 || !self.asking.is_empty();
        self.lease.is_none() && !asks && self.tasks.is_empty()
    }

    pub(super) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.tasks.len() >= TASKS_MAX
    }

    /// Appends a task under its number.
    pub(super) fn append(&mut self, number: u64, task: Task) {
        self.tasks.insert(number, task);
    }

    /// Removes a task that no longer waits, if it is still there. Dropping the task wakes it.
    pub(super) fn remove(&mut self, number: u64) -> Option<Task> {
        self.tasks.remove(&number)
    }

    /// Whether the first task wants a lease with these settings.
    pub(super) fn has_heir(&self, spec: &Arc<Spec>) -> bool {
        self.tasks.first_key_value().is_some_and(|(_, first)| first.spec == *spec)
    }

    /// Takes the first task out.
    pub(super) fn next(&mut self) -> Option<Task> {
        self.tasks.pop_first().map(|(_, task)| task)
    }

    /// Takes all tasks out, in order.
    pub(super) fn take_tasks(&mut self) -> impl Iterator<Item = Task> + use<> {
        std::mem::take(&mut self.tasks).into_values()
    }

    /// Takes the tasks out, in order, that would fail just like one with `spec`.
    pub(super) fn take_tasks_like(&mut self, spec: &Spec) -> Vec<Task> {
        let alike = self.tasks.extract_if(.., |_, task| task.spec.fares_as(spec));
        alike.map(|(_, task)| task).collect()
    }

    /// Decides about the lease when a task with these settings comes and no task is ahead of it.
    pub(super) fn meet(&mut self, spec: &Arc<Spec>, now: Moment) -> Met {
        let Some(lease) = self.lease.take() else { return Met::Nothing };
        if lease.spec != *spec {
            return Met::OfOthers(lease);
        }
        let taking = lease.life().take(now);
        match taking {
            Taking::Take(turn) => {
                self.lease = Some(Arc::clone(&lease));
                Met::Taken(lease, turn)
            }
            Taking::InUse => {
                self.lease = Some(lease);
                Met::InUse
            }
            Taking::Leave => Met::Leaving(lease),
            Taking::Gone => Met::Nothing,
        }
    }

    pub(super) fn is_lease(&self, held: &Arc<Held>) -> bool {
        self.lease.as_ref().is_some_and(|lease| Arc::ptr_eq(lease, held))
    }

    /// Removes the lease, if it is this one.
    pub(super) fn forget(&mut self, held: &Arc<Held>) {
        if self.is_lease(held) {
            self.lease = None;
        }
    }

    /// Takes the first task out if it must become the asker: there is no asker, and no lease that
    /// could be passed on to it.
    pub(super) fn next_asker(&mut self) -> Option<Task> {
        if self.has_asker {
            return None;
        }
        if self.lease.as_ref().is_some_and(|lease| self.has_heir(&lease.spec)) {
            return None;
        }
        let task = self.next()?;
        self.has_asker = true;
        Some(task)
    }

    pub(super) fn ask_as(&mut self, owner: OwnerToken, wake: Arc<Wake>) {
        self.asking.insert(owner, wake);
    }

    pub(super) fn stop_asking(&mut self, owner: &OwnerToken) {
        self.asking.remove(owner);
    }

    /// The tasks to wake when the key may be free.
    pub(super) fn asking(&self) -> impl Iterator<Item = Arc<Wake>> {
        self.asking.values().cloned()
    }

    pub(super) fn asking_as(&self, owner: &OwnerToken) -> Option<Arc<Wake>> {
        self.asking.get(owner).cloned()
    }
}

impl LocalLines {
    /// Wakes the tasks that ask for `key`. Returns whether there are any.
    pub(super) fn wake(&self, key: &Key) -> bool {
        let asking: Vec<_> = self.with(key, |line| line.asking().collect());
        // Outside the lock of the lines: a waker may run any code.
        asking.iter().for_each(|wake| wake.may_be_free());
        !asking.is_empty()
    }

    pub(super) fn wake_all(&self) {
        let mut asking = Vec::new();
        self.with_each(|line| asking.extend(line.asking()));
        asking.iter().for_each(|wake| wake.wake());
    }

    /// Tells the task that asks as `owner` that the key was handed to it. Returns whether such a
    /// task exists.
    pub(super) fn hand_over(&self, key: &Key, owner: &OwnerToken, handed_over: HandOver) -> bool {
        let asking = self.with(key, |line| line.asking_as(owner));
        asking.inspect(|wake| wake.hand_over(handed_over)).is_some()
    }
}
