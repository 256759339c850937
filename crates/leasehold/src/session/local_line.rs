//! The local line: the tasks of one client that wait for one key, and the lease that the client has
//! of it.
//!
//! A client has one place in the store's line of a key, whatever the number of its tasks that wait:
//! they queue here, in order, and one of them at a time, the *asker*, speaks with the store. What
//! one of them releases is passed on to the next.
//!
//! | lease | asker | what the first in line waits for |
//! |---|---|---|
//! | in use, on the same terms | none | that it is passed on |
//! | idle, on the same terms | none | nobody waits |
//! | leaving | one | that the asker learns whether it was kept |
//! | none, or on other terms | one | that the asker has it, and then its lease |

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

/// How many tasks of one client wait for one key at most.
pub(crate) const TASKS_MAX: usize = 100_000;

/// The local lines of a client, by their keys.
#[derive(Default)]
pub(super) struct LocalLines {
    lines: Mutex<HashMap<Key, LocalLine>>,
    /// Across all of them: a line that is gone and made anew must not take a task for another.
    arrivals: AtomicU64,
}

/// One key.
#[derive(Default)]
pub(super) struct LocalLine {
    /// The lease that tasks of this client pass on, if it has one.
    pub(super) lease: Option<Arc<Held>>,
    /// Whether a task speaks with the store on behalf of the line.
    pub(super) has_asker: bool,
    /// How many tasks ask the store beside the line, since they do not wait.
    pub(super) tries: usize,
    /// Another client asked for the key while the store was asked for it by a task of this one.
    pub(super) was_wanted: bool,
    /// Why the asker could not ask the store the last time, if it could not.
    pub(super) outage: Option<Error>,
    /// Who waits, by arrival.
    tasks: BTreeMap<u64, Task>,
    /// Whom hints wake: who asks, by its token.
    asking: BTreeMap<OwnerToken, Arc<Wake>>,
}

/// One task that waits.
pub(super) struct Task {
    pub(super) spec: Arc<Spec>,
    pub(super) tell: oneshot::Sender<Told>,
}

/// What a task is told that waits.
pub(super) enum Told {
    /// The lease was passed on to it.
    Passed(Hold),
    /// It speaks with the store from now on.
    Ask(Asker),
    /// Whoever asked on behalf of the line failed, and so would this task.
    Failed(Error),
}

/// What a task meets of the lease of its client.
pub(super) enum Met {
    Nothing,
    InUse,
    /// It is the task's.
    Taken(Arc<Held>, Turn),
    /// It is of no use as it is: the store has to say what becomes of it.
    Leaving(Arc<Held>),
    /// It is on other terms.
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

    /// Does something with the line of a key, which is made if it is not there. It goes when
    /// nothing is left in it. Nothing in `work` may call the store or wake anybody.
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

    /// Does something with every line, in the order of their keys.
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

    /// Appends a task, by its number.
    pub(super) fn append(&mut self, number: u64, task: Task) {
        self.tasks.insert(number, task);
    }

    /// Takes a task out that waits no more, if it is still there. To drop it wakes it.
    pub(super) fn remove(&mut self, number: u64) -> Option<Task> {
        self.tasks.remove(&number)
    }

    /// Whether the first task wants just such a lease.
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

    /// Takes those tasks out, in order, whose asks would fare as one for `spec`.
    pub(super) fn take_tasks_like(&mut self, spec: &Spec) -> Vec<Task> {
        let alike = self.tasks.extract_if(.., |_, task| task.spec.fares_as(spec));
        alike.map(|(_, task)| task).collect()
    }

    /// What becomes of the lease when a task on these terms comes that nobody is ahead of.
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

    /// The lease is gone, if it is this one.
    pub(super) fn forget(&mut self, held: &Arc<Held>) {
        if self.is_lease(held) {
            self.lease = None;
        }
    }

    /// Takes the first task out if it has to become the asker: nobody is, and there is no lease
    /// that could be passed on to it.
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

    /// Whom to wake where the key may be free.
    pub(super) fn asking(&self) -> impl Iterator<Item = Arc<Wake>> {
        self.asking.values().cloned()
    }

    pub(super) fn asking_as(&self, owner: &OwnerToken) -> Option<Arc<Wake>> {
        self.asking.get(owner).cloned()
    }
}

impl LocalLines {
    /// Wakes who asks for `key`. Returns whether anybody does.
    pub(super) fn wake(&self, key: &Key) -> bool {
        let asking: Vec<_> = self.with(key, |line| line.asking().collect());
        // Without the lines in hand: a waker may do anything.
        asking.iter().for_each(|wake| wake.may_be_free());
        !asking.is_empty()
    }

    pub(super) fn wake_all(&self) {
        let mut asking = Vec::new();
        self.with_each(|line| asking.extend(line.asking()));
        asking.iter().for_each(|wake| wake.wake());
    }

    /// Tells the one who asks by `owner` that the key was handed to it. Returns whether there is
    /// one.
    pub(super) fn hand_over(&self, key: &Key, owner: &OwnerToken, handed_over: HandOver) -> bool {
        let asking = self.with(key, |line| line.asking_as(owner));
        asking.inspect(|wake| wake.hand_over(handed_over)).is_some()
    }
}
