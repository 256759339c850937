//! The leases and places that a store asked for.
//!
//! This memory saves requests, but proves nothing. The cluster decides in each step.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::leases::Lease;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::unpoisoned::Unpoisoned;

/// With this many entries, the store searches for old ones. The number then grows with the entries
/// that are left, so the store rarely reads all of them.
const MANY: usize = 10_000;

/// How long an unused entry is kept if nobody knows how long its leases last. No unrenewed lease
/// lasts longer.
const KEPT_FOR: Duration = Duration::from_secs(2 * Ttl::MAX.get().as_secs());

/// The leases of one owner: of its lock, of its place, and those in doubt.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The lease of etcd behind its lock, and the last change of the key.
    pub(super) held: Option<(Lease, i64)>,
    /// The lease of etcd behind its place.
    pub(super) place: Option<Lease>,
    /// Leases with which a key may still be written, because the answers to those requests were
    /// lost.
    pub(super) doubts: Vec<i64>,
    /// The last moment at which the lease of its lock or place certainly had its whole time left.
    /// `None` if that is not known.
    pub(super) since: Option<Moment>,
    used: Moment,
}

impl Known {
    /// How long the entry is kept after its last use. Its leases have ended by then.
    fn kept_for(&self) -> Duration {
        let lasts = self.held.map(|(held, _)| held).into_iter().chain(self.place);
        let longest = lasts.map(|lease| lease.seconds.unsigned_abs()).max();
        let known = longest.filter(|_| self.doubts.is_empty());
        known.map_or(KEPT_FOR, |seconds| Duration::from_secs(2 * seconds).min(KEPT_FOR))
    }

    /// The leases of etcd that its lock and its place have.
    pub(super) fn leases(&self) -> impl Iterator<Item = i64> {
        self.held.map(|(held, _)| held.id).into_iter().chain(self.place.map(|place| place.id))
    }

    /// When a lease of etcd certainly had its whole time left, as far as is known.
    pub(super) fn since(&self, lease: i64) -> Option<Moment> {
        let held = self.held.map(|(held, _)| held.id);
        let place = self.place.map(|place| place.id);
        self.since.filter(|_| held == Some(lease) || place == Some(lease))
    }
}

/// The leases and places of all owners.
#[derive(Debug, Default)]
pub(super) struct Mine(Unpoisoned<Owners>);

#[derive(Debug, Default)]
struct Owners {
    known: HashMap<(Key, OwnerToken), Known>,
    /// The doubts of all owners. A lease that is given back is looked up here.
    in_doubt: HashSet<i64>,
    /// How many entries the last search for old ones left.
    left: usize,
}

impl Owners {
    fn forget_old(&mut self, now: Moment) {
        if self.known.len() >= MANY.max(2 * self.left) {
            let Self { known, in_doubt, .. } = self;
            known.retain(|_, known| {
                let stays = now.since(known.used) < known.kept_for();
                if !stays {
                    for doubt in &known.doubts {
                        in_doubt.remove(doubt);
                    }
                }
                stays
            });
            self.left = self.known.len();
        }
    }
}

impl Mine {
    pub(super) fn of(&self, key: &Key, owner: &OwnerToken) -> Known {
        self.0.lock().known.get(&(key.clone(), owner.clone())).cloned().unwrap_or_default()
    }

    /// Changes what is known of an owner. A lease that its lock or place has by now is no longer in
    /// doubt, because the request has arrived.
    pub(super) fn note(
        &self,
        now: Moment,
        (key, owner): (&Key, &OwnerToken),
        change: impl FnOnce(&mut Known),
    ) {
        let mut all = self.0.lock();
        all.forget_old(now);
        let Owners { known, in_doubt, .. } = &mut *all;
        let known = known.entry((key.clone(), owner.clone())).or_default();
        known.used = now;
        change(known);
        let arrived: Vec<_> = known.leases().collect();
        for settled in known.doubts.extract_if(.., |doubt| arrived.contains(doubt)) {
            in_doubt.remove(&settled);
        }
        in_doubt.extend(&known.doubts);
    }

    /// Forgets an owner. Returns its leases in doubt.
    pub(super) fn forget(&self, key: &Key, owner: &OwnerToken) -> Vec<i64> {
        let mut all = self.0.lock();
        let known = all.known.remove(&(key.clone(), owner.clone())).unwrap_or_default();
        for doubt in &known.doubts {
            all.in_doubt.remove(doubt);
        }
        known.doubts
    }

    /// Notes that a key of an owner may still be written with a lease, because the answer to the
    /// request was lost.
    pub(super) fn doubt(&self, now: Moment, of: (&Key, &OwnerToken), lease: i64) {
        self.note(now, of, |known| known.doubts.push(lease));
    }

    /// Whether a lease is in doubt. The release of its owner will end it, so no other key may get
    /// it.
    pub(super) fn is_in_doubt(&self, lease: i64) -> bool {
        self.0.lock().in_doubt.contains(&lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_in_doubt_until_its_request_has_arrived_or_its_owner_has_ended() {
        let (mine, now) = (Mine::default(), Moment::from_nanos(1));
        let (key, other) = (Key::new("a").expect("a name"), Key::new("b").expect("a name"));
        let owner = OwnerToken::new("x").expect("a token");
        mine.doubt(now, (&key, &owner), 1);
        mine.doubt(now, (&key, &owner), 2);
        mine.doubt(now, (&other, &owner), 3);
        mine.note(now, (&key, &owner), |known| known.place = Some(Lease { id: 1, seconds: 5 }));
        assert_eq!(mine.of(&key, &owner).doubts, [2]);
        assert_eq!([1, 2, 3].map(|lease| mine.is_in_doubt(lease)), [false, true, true]);
        assert_eq!(mine.forget(&key, &owner), [2]);
        assert_eq!([1, 2, 3].map(|lease| mine.is_in_doubt(lease)), [false, false, true]);
    }

    /// A lease that was detached or kept is neither renewed nor released by this client.
    #[test]
    fn an_owner_is_forgotten_once_its_leases_have_surely_ended() {
        let lease = |seconds| Lease { id: 1, seconds };
        let (held, place) = (Some((lease(60), 7)), Some(lease(10)));
        let table = [
            (Known { held, place, ..Known::default() }, 120),
            (Known { place, ..Known::default() }, 20),
            (Known { held, doubts: vec![2], ..Known::default() }, KEPT_FOR.as_secs()),
            (Known::default(), KEPT_FOR.as_secs()),
        ];
        for (known, seconds) in table {
            assert_eq!(known.kept_for(), Duration::from_secs(seconds), "{known:?}");
        }
    }

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
