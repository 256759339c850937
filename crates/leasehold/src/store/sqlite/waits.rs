//! The waiters of this process, and how it notices changes by other processes.
//!
//! The process that hands a key over rings the bell of the next holder's process, see `bells`. A
//! waiting process then looks at the locks that it waits for. It also looks now and then, in case a
//! bell was lost. `PRAGMA data_version` tells it within about a microsecond whether another process
//! has committed since. Without bells, it looks every few milliseconds. A process without waiters
//! does not look.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;

use super::line_rows;
use super::lock_row::LockRow;
use super::shares;
use super::turn::{Place, Prepared as _, Seen};
use crate::core::key::Key;
use crate::core::line::Stance;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::store::Hint;

/// How often a process without bells looks when a waiter has just arrived. It notices a change
/// after half of this on average.
pub(super) const LOOK_EVERY_MIN: Duration = Duration::from_millis(4);

/// How often it looks after a long wait. Waking a thread costs about 50 µs, and so does reading the
/// file. Looking more often would cost more than half a percent of a core.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(18);

/// How often a process with bells looks. The process that should ring may die after its commit.
/// This is shorter than the life of a lease that was handed over, unless the ttl is shorter still.
const LOOK_RARELY: Duration = Duration::from_secs(2);

/// How often to look after `waited`. After a long wait, a little more delay matters less.
fn look_every(waited: Duration) -> Duration {
    (waited / 32).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
}

/// The places in line whose clients are in this process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// In order, as are the places, so that hints always go out in the same order.
    keys: BTreeMap<Key, KeyWaits>,
    /// The `data_version` that was read last. `None` if it was not read since the first waiter
    /// came.
    data_version: Option<i64>,
    /// When the latest waiter began to wait.
    began: Moment,
    due: Moment,
    /// Whether bells wake the waiters.
    has_bells: bool,
}

#[derive(Debug)]
struct KeyWaits {
    seen: Seen,
    places: BTreeMap<OwnerToken, Place>,
}

impl Waits {
    /// When to look next; `None` while nobody waits.
    pub(super) fn due(&self) -> Option<Moment> {
        (!self.keys.is_empty()).then_some(self.due)
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Looks often from now on, because bells no longer work.
    pub(super) fn look_often(&mut self, now: Moment) {
        self.has_bells = false;
        self.due = self.due.min(now + LOOK_EVERY_MIN);
    }

    /// Notes that a client took or refreshed a place. `has_bells` tells whether a bell wakes it.
    pub(super) fn waits(
        &mut self,
        (key, owner): (Key, OwnerToken),
        mut place: Place,
        seen: Seen,
        now: Moment,
        has_bells: bool,
    ) {
        self.has_bells = has_bells;
        let look_every = if has_bells { LOOK_RARELY } else { LOOK_EVERY_MIN };
        if self.keys.is_empty() {
            // Others may commit between that answer and the first check of the file.
            self.data_version = None;
            self.due = now + look_every;
        }
        // If other waiters of this process have an entry, keep what they saw. They must still be
        // told of each change since then.
        let waits =
            self.keys.entry(key).or_insert_with(|| KeyWaits { seen, places: BTreeMap::new() });
        // A later ask never makes the place end earlier.
        place.until = place.until.max(waits.places.get(&owner).map_or(now, |known| known.until));
        if waits.places.insert(owner, place).is_none() {
            self.began = now;
            self.due = self.due.min(now + look_every);
        }
    }

    /// Notes that this owner no longer waits.
    pub(super) fn settled(&mut self, key: &Key, owner: &OwnerToken) {
        if let Some(waits) = self.keys.get_mut(key) {
            waits.places.remove(owner);
            if waits.places.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Looks for changes by other processes and returns the resulting hints. If the file cannot be
    /// read, all waiters are told to ask again.
    pub(super) fn look(&mut self, conn: &Connection, now: Moment) -> Vec<(ClientId, Hint)> {
        let waited = now.since(self.began);
        self.due = now + if self.has_bells { LOOK_RARELY } else { look_every(waited) };
        self.drop_ended(now);
        let mut hints = Vec::new();
        if self.look_for_hints(conn, now, &mut hints).is_err() {
            self.data_version = None;
            let places = self.keys.values().flat_map(|waits| waits.places.values());
            hints.extend(places.map(|place| (place.inbox.clone(), Hint::Missed)));
        }
        hints
    }

    fn drop_ended(&mut self, now: Moment) {
        self.keys.retain(|_, waits| {
            waits.places.retain(|_, place| place.until > now);
            !waits.places.is_empty()
        });
    }

    fn look_for_hints(
        &mut self,
        conn: &Connection,
        now: Moment,
        hints: &mut Vec<(ClientId, Hint)>,
    ) -> rusqlite::Result<()> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let version = conn.one("PRAGMA data_version", [])?;
        if self.data_version == Some(version) {
            return Ok(());
        }
        for (key, waits) in &mut self.keys {
            let row = LockRow::find(conn, key)?;
            waits.call_up(conn, key, hints)?;
            if row.is_shared(now) {
                waits.look_at_shares(conn, key, &row, now, hints)?;
            } else {
                waits.compare(key, &row, now, hints);
            }
        }
        self.keys.retain(|_, waits| !waits.places.is_empty());
        self.data_version = Some(version);
        Ok(())
    }
}

impl KeyWaits {
    /// Tells waiters to ask if they were far back in the line and have come near.
    fn call_up(
        &mut self,
        conn: &Connection,
        key: &Key,
        hints: &mut Vec<(ClientId, Hint)>,
    ) -> rusqlite::Result<()> {
        for (owner, place) in self.places.iter_mut().filter(|(_, place)| place.is_far) {
            if line_rows::is_near(conn, key, owner.as_str())? {
                place.is_far = false;
                let hint = Hint::CalledUp { key: key.clone(), owner: owner.clone() };
                hints.push((place.inbox.clone(), hint));
            }
        }
        Ok(())
    }

    /// Looks for waiters that share the key by now, and for one that is due and must ask, because
    /// one step hands over to a limited number of waiters.
    fn look_at_shares(
        &mut self,
        conn: &Connection,
        key: &Key,
        row: &LockRow,
        now: Moment,
        hints: &mut Vec<(ClientId, Hint)>,
    ) -> rusqlite::Result<()> {
        let seen = row.seen();
        if seen == self.seen {
            return Ok(());
        }
        let mut granted = Vec::new();
        for (owner, place) in &self.places {
            if let Some(share) = shares::find(conn, row, key, owner.as_str(), now)? {
                let (owner, fencing, ask_no) = (owner.clone(), share.fencing, place.ask_no);
                let hint =
                    Hint::Granted { key: key.clone(), owner: owner.clone(), fencing, ask_no };
                hints.push((place.inbox.clone(), hint));
                granted.push(owner);
            } else if line_rows::is_due(conn, row, key, owner.as_str(), now)? {
                hints.push((place.inbox.clone(), Hint::MaybeFree { key: key.clone() }));
            }
        }
        self.places.retain(|owner, _| !granted.contains(owner));
        self.seen = seen;
        Ok(())
    }

    /// Compares the last seen state of a lock with the current one.
    fn compare(
        &mut self,
        key: &Key,
        row: &LockRow,
        now: Moment,
        hints: &mut Vec<(ClientId, Hint)>,
    ) {
        let living = row.living(now);
        let granted = living
            .and_then(|held| OwnerToken::new(&held.owner).ok())
            .and_then(|owner| self.places.remove_entry(&owner));
        if let Some((owner, place)) = granted {
            let fencing = living.and_then(|held| held.fencing);
            let hint = Hint::Granted { key: key.clone(), owner, fencing, ask_no: place.ask_no };
            hints.push((place.inbox, hint));
        }
        let seen = row.seen();
        if seen == self.seen {
            return;
        }
        let changed_owner = seen.owner != self.seen.owner;
        self.seen = seen;
        let told = self
            .places
            .values()
            .filter(|place| living.is_none() || changed_owner && place.stance == Stance::Watching);
        hints.extend(told.map(|place| (place.inbox.clone(), Hint::MaybeFree { key: key.clone() })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_of_long_standing_is_checked_less_often() {
        for (waited, every) in [(0, 4), (128, 4), (320, 10), (576, 18), (60_000, 18)] {
            assert_eq!(
                look_every(Duration::from_millis(waited)),
                Duration::from_millis(every),
                "{waited} ms"
            );
        }
    }

    /// Otherwise they would wait for their own next ask, although the key may be theirs.
    #[test]
    fn a_waiter_is_told_to_ask_again_each_time_the_file_cannot_be_read() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let inbox = ClientId::from_random([1; ClientId::CHARS]);
        let owner = OwnerToken::from_random([1; OwnerToken::RANDOM_BYTES], &inbox);
        let key = Key::new("a").expect("a name");
        let (stance, until) = (Stance::Joined, at(1_000));
        let place = Place { inbox: inbox.clone(), stance, ask_no: 1, until, is_far: false };
        let seen = Seen { version: 1, owner: None };
        let mut waits = Waits::default();
        waits.waits((key, owner), place, seen, at(0), false);
        // It has no table of locks.
        let file = Connection::open_in_memory().expect("a file");
        for ms in [4, 8] {
            assert_eq!(waits.look(&file, at(ms)), [(inbox.clone(), Hint::Missed)], "{ms}");
        }
        assert_eq!(waits.look(&file, at(1_000)), [], "it does not wait any more");
    }
}
