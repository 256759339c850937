//! The line of tasks inside one client: the tasks that wait for one key, and the client's lease of
//! it, which they pass on.
//!
//! A client has one place in the store's line of a key, however many of its tasks wait. They queue
//! here in order. One of them at a time, the *asker*, talks to the store. When a guard ends, its
//! lease goes to the first task, if that task wants the same settings.
//!
//! The line knows the lease that it may pass on. When a task comes:
//!
//! | lease in the line | nobody waits or asks | others wait, or one asks |
//! |---|---|---|
//! | none, lost or too old | asks | waits |
//! | in use, same settings | waits | waits |
//! | idle, same settings | has it. If the store must decide, asks | waits |
//! | other settings | asks, and the lease leaves the line | waits |
//!
//! When a guard ends and its lease is not lost:
//!
//! | lease | asker | first task | the lease is |
//! |---|---|---|---|
//! | in the line | none | same settings | passed on. If the store must decide, the task asks |
//! | in the line | none | other settings | released |
//! | in the line | none | none | kept idle, or released |
//! | in the line | one | any or none | released |
//! | not in the line | any | any | released |
//!
//! The first task asks when the asker ends, when a lease is lost or released, or when a task goes
//! away. It does not ask if another task does, or if the line has a lease with its settings.

use std::collections::BTreeMap;
use std::ops::DerefMut;
use std::time::Duration;

use crate::core::lease::{LeaseLife, Parting, Taking, Turn};
use crate::core::moment::Moment;

/// The most tasks of one client that wait for one key.
pub(crate) const TASKS_MAX: usize = 100_000;

/// A lease, as the tasks of its client share it.
pub(crate) trait SharedLease: Clone {
    /// The settings of a lease. A lease is passed on to tasks that want the same settings.
    type Settings: Clone + PartialEq;

    fn settings(&self) -> &Self::Settings;

    /// The life of the lease, locked while the result exists.
    fn life(&self) -> impl DerefMut<Target = LeaseLife> + '_;

    /// Whether both are the same lease.
    fn is(&self, other: &Self) -> bool;
}

/// The line of one key, with a `T` to tell each waiting task something.
pub(crate) struct LocalLine<L: SharedLease, T> {
    /// The lease that is passed on, if there is one.
    lease: Option<L>,
    /// Whether a task talks to the store for the line.
    has_asker: bool,
    /// The waiting tasks, by arrival.
    tasks: BTreeMap<u64, (L::Settings, T)>,
}

/// The next step of a task that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Coming<L> {
    /// The task gets an error, since too many tasks wait.
    Full,
    /// The task waits until it is told something.
    Waits,
    /// The task has the lease.
    Takes(L, Turn),
    /// The task talks to the store for the line, after it has dealt with the lease that it found.
    Asks(Found<L>),
}

/// The lease that a task finds and cannot have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<L> {
    Nothing,
    /// Release it. If the task waits, the store hands it over or grants it to this client again, in
    /// one step.
    Leaving(L),
    /// The lease has other settings. Release it if no guard uses it.
    OfOthers(L),
}

impl<L: SharedLease, T> Default for LocalLine<L, T> {
    fn default() -> Self {
        Self { lease: None, has_asker: false, tasks: BTreeMap::new() }
    }
}

impl<L: SharedLease, T> LocalLine<L, T> {
    /// Whether the line has neither a lease nor a task, so that it may be forgotten.
    pub(crate) fn is_vacant(&self) -> bool {
        self.lease.is_none() && !self.is_wanted()
    }

    /// Whether a task asks or waits.
    pub(crate) fn is_wanted(&self) -> bool {
        self.has_asker || self.has_tasks()
    }

    pub(crate) const fn has_asker(&self) -> bool {
        self.has_asker
    }

    pub(crate) fn has_tasks(&self) -> bool {
        !self.tasks.is_empty()
    }

    pub(crate) const fn lease(&self) -> Option<&L> {
        self.lease.as_ref()
    }

    /// Handles a task that comes and waits if it must. `number` is higher than that of each task
    /// before it. `task` is called if the task waits. A lease that the task found has left the
    /// line.
    pub(crate) fn come(
        &mut self,
        now: Moment,
        settings: &L::Settings,
        number: u64,
        task: impl FnOnce() -> T,
    ) -> Coming<L> {
        if self.tasks.len() >= TASKS_MAX {
            return Coming::Full;
        }
        if self.is_wanted() {
            self.tasks.insert(number, (settings.clone(), task()));
            return Coming::Waits;
        }
        let found = match self.lease.take() {
            None => Found::Nothing,
            Some(lease) if lease.settings() != settings => Found::OfOthers(lease),
            Some(lease) => {
                let taking = lease.life().take(now);
                match taking {
                    Taking::Take(turn) => {
                        self.lease = Some(lease.clone());
                        return Coming::Takes(lease, turn);
                    }
                    Taking::InUse => {
                        self.lease = Some(lease);
                        self.tasks.insert(number, (settings.clone(), task()));
                        return Coming::Waits;
                    }
                    Taking::Leave => Found::Leaving(lease),
                    Taking::Gone => Found::Nothing,
                }
            }
        };
        self.has_asker = true;
        Coming::Asks(found)
    }

    /// Handles a task that comes and does not wait. Returns the lease, if it is idle and can be
    /// used as it is. If not, the task asks the store itself, without a place in the line. A lease
    /// that it found stays in the line until it is [forgotten](Self::forget) or
    /// [ended](Self::end_idle).
    pub(crate) fn try_take(
        &self,
        now: Moment,
        settings: &L::Settings,
    ) -> Result<(L, Turn), Found<L>> {
        let Some(lease) = self.lease.clone().filter(|_| !self.is_wanted()) else {
            return Err(Found::Nothing);
        };
        if lease.settings() != settings {
            return Err(Found::OfOthers(lease));
        }
        let taking = lease.life().take(now);
        match taking {
            Taking::Take(turn) => Ok((lease, turn)),
            Taking::Leave => Err(Found::Leaving(lease)),
            Taking::InUse | Taking::Gone => Err(Found::Nothing),
        }
    }

    /// Removes a waiting task that goes away. Returns it, unless it was told something before.
    pub(crate) fn leave(&mut self, number: u64) -> Option<T> {
        self.tasks.remove(&number).map(|(_, task)| task)
    }

    /// Ends the turn `turn` of a guard. `keep_idle` is how long the lease may be kept if no task of
    /// this client wants it. Returns the task to which the lease passes. If the lease leaves, the
    /// guard becomes the asker, for the first task.
    pub(crate) fn end_turn(
        &mut self,
        now: Moment,
        lease: &L,
        turn: u64,
        keep_idle: Duration,
    ) -> (Parting, Option<T>) {
        let is_shared = self.is_lease(lease);
        let has_heir = is_shared && !self.has_asker && self.has_heir(lease.settings());
        let keep_idle = if is_shared && !self.is_wanted() { keep_idle } else { Duration::ZERO };
        let parting = lease.life().part(now, turn, has_heir, keep_idle);
        let heir = match parting {
            Parting::Pass(_) => self.first(),
            _ => None,
        };
        if !matches!(parting, Parting::Pass(_) | Parting::Idle) {
            self.forget(lease);
        }
        self.has_asker |= parting == Parting::Leave;
        (parting, heir)
    }

    /// Ends a lease if no guard uses it. Returns whether it did.
    pub(crate) fn end_idle(&mut self, now: Moment, lease: &L) -> bool {
        let mut life = lease.life();
        let is_idle = life.is_idle();
        if is_idle {
            // The driver notices a passed deadline. A release is harmless.
            let _was_ours = life.release(now);
            self.forget(lease);
        }
        is_idle
    }

    /// Adds a lease that the client has from now on.
    pub(crate) fn enter(&mut self, lease: L) {
        self.lease = Some(lease);
    }

    /// Forgets the lease that can be passed on, if it is this one.
    pub(crate) fn forget(&mut self, lease: &L) {
        if self.is_lease(lease) {
            self.lease = None;
        }
    }

    /// Takes the first task out if it must become the asker, since there is no asker and no lease
    /// that could be passed on to it.
    pub(crate) fn next_asker(&mut self) -> Option<T> {
        if self.has_asker {
            return None;
        }
        if self.lease.as_ref().is_some_and(|lease| self.has_heir(lease.settings())) {
            return None;
        }
        let next = self.first()?;
        self.has_asker = true;
        Some(next)
    }

    /// Replaces an asker that goes away. Takes the first task out if it wants the same settings, so
    /// that it can continue the asker's work. It is the asker then.
    pub(crate) fn next_with(&mut self, settings: &L::Settings) -> Option<T> {
        if self.has_heir(settings) { self.first() } else { None }
    }

    /// Notes that the asker ended. Takes the first task out of the line if it must become the
    /// asker.
    pub(crate) fn end_asker(&mut self) -> Option<T> {
        self.has_asker = false;
        self.next_asker()
    }

    /// Notes that the asker failed, so that nobody asks any more. Takes out, in order, the tasks
    /// that would fail just like it.
    pub(crate) fn asker_failed(&mut self, like_it: impl Fn(&L::Settings) -> bool) -> Vec<T> {
        self.has_asker = false;
        let alike = self.tasks.extract_if(.., |_, (settings, _)| like_it(settings));
        alike.map(|(_, (_, task))| task).collect()
    }

    /// Takes all tasks out, in order.
    pub(crate) fn take_tasks(&mut self) -> impl Iterator<Item = T> + use<L, T> {
        std::mem::take(&mut self.tasks).into_values().map(|(_, task)| task)
    }

    fn is_lease(&self, lease: &L) -> bool {
        self.lease.as_ref().is_some_and(|own| own.is(lease))
    }

    /// Whether the first task wants a lease with these settings.
    fn has_heir(&self, settings: &L::Settings) -> bool {
        self.tasks.first_key_value().is_some_and(|(_, (first, _))| first == settings)
    }

    fn first(&mut self) -> Option<T> {
        self.tasks.pop_first().map(|(_, (_, task))| task)
    }
}

#[cfg(test)]
mod tests;
