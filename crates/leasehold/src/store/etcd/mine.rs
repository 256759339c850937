//! The leases and places that a store asked for.
//!
//! It saves questions, and proves nothing: the cluster decides in each step.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::leases::Lease;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;

/// From how many entries on the old ones are looked for. The number then grows with what is left,
/// so a look at all of them is rare, however many there are.
const MANY: usize = 10_000;

/// How long an entry is kept that nobody used. No lease lasts longer unrenewed.
const KEPT_FOR: Duration = Duration::from_secs(2 * Ttl::MAX.get().as_secs());

/// The leases of one owner: of its lock, of its place, and those in doubt.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The lease of etcd behind its lock, and the last change of the key.
    pub(super) held: Option<(Lease, i64)>,
    /// The lease of etcd behind its place.
    pub(super) place: Option<Lease>,
    /// Leases with which a key may still be written: the answers to those requests were lost.
    pub(super) doubts: Vec<i64>,
    used: Moment,
}

/// The leases and places of all owners.
#[derive(Debug, Default)]
pub(super) struct Mine(Mutex<Owners>);

#[derive(Debug, Default)]
struct Owners {
    known: HashMap<(Key, OwnerToken), Known>,
    /// How many were left by the last look for old ones.
    left: usize,
}

impl Owners {
    fn forget_old(&mut self, now: Moment) {
        if self.known.len() >= MANY.max(2 * self.left) {
            self.known.retain(|_, known| now.since(known.used) < KEPT_FOR);
            self.left = self.known.len();
        }
    }
}

impl Mine {
    fn all(&self) -> MutexGuard<'_, Owners> {
        // Whole at every moment: single steps change it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, key: &Key, owner: &OwnerToken) -> Known {
        self.all().known.get(&(key.clone(), owner.clone())).cloned().unwrap_or_default()
    }

    /// Changes what is known of an owner.
    pub(super) fn note(
        &self,
        now: Moment,
        (key, owner): (&Key, &OwnerToken),
        change: impl FnOnce(&mut Known),
    ) {
        let mut all = self.all();
        all.forget_old(now);
        let known = all.known.entry((key.clone(), owner.clone())).or_default();
        known.used = now;
        change(known);
    }

    pub(super) fn forget(&self, key: &Key, owner: &OwnerToken) {
        self.all().known.remove(&(key.clone(), owner.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_owners_are_forgotten_and_many_living_ones_are_not_looked_through_each_time() {
        let mut owners = Owners::default();
        let name = |number: usize| {
            let key = Key::new(format!("k{number}")).expect("a name");
            (key, OwnerToken::new("x").expect("a token"))
        };
        let add = |owners: &mut Owners, number, used| {
            owners.forget_old(used);
            owners.known.insert(name(number), Known { used, ..Known::default() });
        };
        let (early, late) = (Moment::from_nanos(1), Moment::from_nanos(1) + KEPT_FOR);
        (0..=MANY).for_each(|number| add(&mut owners, number, early));
        assert_eq!((owners.known.len(), owners.left), (MANY + 1, MANY), "all are young");
        (0..MANY).for_each(|number| add(&mut owners, MANY + 1 + number, late));
        assert_eq!((owners.known.len(), owners.left), (MANY, MANY - 1), "the early ones are gone");
    }
}
