//! The local lines of a client, by key, and the tasks that ask the store for each of them.
//!
//! [`LocalLine`] decides what a task has to do.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use super::asker::Told;
use super::held::Held;
use super::wake::{HandOver, Wake};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::local_line::LocalLine;
use crate::core::token::OwnerToken;
use crate::host::shielded::shield;
use crate::unpoisoned::Unpoisoned;

/// The local lines of a client, by their keys.
#[derive(Default)]
pub(super) struct Lines {
    lines: Unpoisoned<HashMap<Key, Line>>,
    /// Counts the tasks of all lines. A new line of the same key must not reuse a task's number.
    arrivals: AtomicU64,
}

/// The line of one key, and the tasks that ask for it.
#[derive(Default)]
pub(super) struct Line {
    pub(super) tasks: LocalLine<Arc<Held>, oneshot::Sender<Told>>,
    /// How many tasks ask the store without waiting, outside the line.
    pub(super) tries: usize,
    /// Whether another client waits for the key while a task of this client asks for it.
    was_wanted: bool,
    /// Why the asker's last request failed, or that it has no answer yet. `None` once the store has
    /// answered.
    pub(super) outage: Option<Error>,
    /// The asking tasks that hints wake, by token.
    asking: BTreeMap<OwnerToken, Arc<Wake>>,
}

impl Lines {
    /// The number of a task that arrives now.
    pub(super) fn arrive(&self) -> u64 {
        self.arrivals.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs `work` on the line of a key. Makes the line if it is missing, and removes it if it is
    /// empty afterwards. `work` must not call the store or wake anybody.
    pub(super) fn with<T>(&self, key: &Key, work: impl FnOnce(&mut Line) -> T) -> T {
        let mut lines = self.lines.lock();
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
        let mut lines = self.lines.lock();
        let mut lines: Vec<_> = lines.iter_mut().collect();
        lines.sort_unstable_by_key(|(key, _)| *key);
        lines.into_iter().for_each(|(_, line)| work(line));
    }

    /// Wakes the tasks that ask for `key`.
    pub(super) fn wake(&self, key: &Key) {
        let asking: Vec<_> = self.with(key, |line| line.asking().collect());
        // Wake them outside the lock of the lines, because a waker may run any code.
        asking.iter().for_each(|wake| shield(|| wake.may_be_free()));
    }

    /// Wakes the task that asks as this owner.
    pub(super) fn call_up(&self, key: &Key, owner: &OwnerToken) {
        let asking = self.with(key, |line| line.asking.get(owner).cloned());
        asking.iter().for_each(|wake| shield(|| wake.wake()));
    }

    pub(super) fn wake_all(&self) {
        let mut asking = Vec::new();
        self.with_each(|line| asking.extend(line.asking()));
        asking.iter().for_each(|wake| shield(|| wake.wake()));
    }

    /// Tells the task that asks as the new owner that the key was handed to it. Returns whether
    /// there is such a task.
    pub(super) fn hand_over(&self, key: &Key, handed_over: HandOver) -> bool {
        let asking = self.with(key, |line| line.asking.get(&handed_over.owner).cloned());
        asking.inspect(|wake| wake.hand_over(handed_over)).is_some()
    }
}

impl Line {
    pub(super) fn is_vacant(&self) -> bool {
        self.tasks.is_vacant() && self.tries == 0 && self.asking.is_empty()
    }

    /// Notes that another client waits for the key. Returns this client's lease of the key, if it
    /// has one. If a task is still asking for the key, `enter` reports the news later.
    pub(super) fn want(&mut self) -> Option<Arc<Held>> {
        let lease = self.tasks.lease().cloned();
        self.was_wanted = lease.is_none() && (self.tasks.has_asker() || self.tries > 0);
        lease
    }

    /// Adds the client's new lease, which the store has granted just now. Returns whether another
    /// client waits for the key.
    pub(super) fn enter(&mut self, held: &Arc<Held>) -> bool {
        self.tasks.enter(Arc::clone(held));
        self.outage = None;
        std::mem::take(&mut self.was_wanted)
    }

    pub(super) fn ask_as(&mut self, owner: OwnerToken, wake: Arc<Wake>) {
        self.asking.insert(owner, wake);
    }

    pub(super) fn stop_asking(&mut self, owner: &OwnerToken) {
        self.asking.remove(owner);
    }

    /// The tasks to wake when the key may be free.
    fn asking(&self) -> impl Iterator<Item = Arc<Wake>> {
        self.asking.values().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_kept_for_as_long_as_a_task_asks_or_tries() {
        let (lines, key) = (Lines::default(), Key::new("a").expect("a name"));
        let owner = OwnerToken::new("a-token").expect("printable");
        let kept = || lines.lines.lock().len();
        lines.with(&key, |_| ());
        assert_eq!(kept(), 0);
        lines.with(&key, |line| line.tries += 1);
        assert_eq!(kept(), 1);
        lines.with(&key, |line| line.ask_as(owner.clone(), Arc::default()));
        lines.with(&key, |line| line.tries -= 1);
        assert_eq!(kept(), 1, "another task still asks");
        let handed_over = HandOver { owner: owner.clone(), ask_no: 1, fencing: None };
        let stranger = OwnerToken::new("another").expect("printable");
        let for_nobody = HandOver { owner: stranger, ..handed_over.clone() };
        assert!(lines.hand_over(&key, handed_over) && !lines.hand_over(&key, for_nobody));
        lines.with(&key, |line| line.stop_asking(&owner));
        assert_eq!(kept(), 0);
    }
}
