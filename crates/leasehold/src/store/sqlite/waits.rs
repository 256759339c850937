//! Who waits in this process, and how changes by other processes are noticed for them.
//!
//! Whoever hands a key to another process rings its bell, see `bells`. Then, and once in a while in
//! case that was lost, a process that waits looks at the locks that it waits for. `PRAGMA
//! data_version` tells it for about a microsecond whether anybody else has committed since. Where
//! there are no bells, it looks every few milliseconds. A process that does not wait does not look.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::Connection;

use super::line_rows;
use super::lock_row::LockRow;
use super::turn::{Seen, Waiting};
use crate::core::key::Key;
use crate::core::line::Stance;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::store::Hint;

/// How often a process looks for changes by others that began to wait just now. A waiter is woken
/// half of this late on average.
pub(super) const LOOK_EVERY_MIN: Duration = Duration::from_millis(4);

/// How often a process looks that has waited for long. To wake a thread costs some 50 µs, and a
/// look as much again, so looking more often would cost still more than half a percent of a core.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(18);

/// How often a process looks that has a bell: in case that whoever should have rung it died between
/// the commit and that. Sooner than a lease that was handed over ends.
const LOOK_RARELY: Duration = Duration::from_secs(2);

/// How often to look after `waited`: the longer it took so far, the less a moment more matters.
fn look_every(waited: Duration) -> Duration {
    (waited / 32).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
}

/// The places in line whose clients are in this process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// In order, as are their places: what is told in which order follows from nothing else.
    keys: BTreeMap<Key, KeyWaits>,
    /// `data_version` at the last look; `None` if there was none since somebody began to wait.
    data_version: Option<i64>,
    /// When the last of them began to wait.
    began: Moment,
    due: Moment,
    /// Whether bells wake them.
    has_bells: bool,
}

#[derive(Debug)]
struct KeyWaits {
    seen: Seen,
    places: BTreeMap<OwnerToken, Place>,
}

#[derive(Debug)]
struct Place {
    inbox: ClientId,
    stance: Stance,
    ask_no: u32,
    until: Moment,
    is_far: bool,
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

    /// There are no bells any more.
    pub(super) fn look_often(&mut self, now: Moment) {
        self.has_bells = false;
        self.due = self.due.min(now + LOOK_EVERY_MIN);
    }

    /// A client took or refreshed a place; `has_bells`: and is woken by a bell.
    pub(super) fn waits(&mut self, key: Key, waiting: Waiting, now: Moment, has_bells: bool) {
        self.has_bells = has_bells;
        let look_every = if has_bells { LOOK_RARELY } else { LOOK_EVERY_MIN };
        if self.keys.is_empty() {
            // Others may have committed between that answer and the first look.
            self.data_version = None;
            self.due = now + look_every;
        }
        let Waiting { owner, inbox, stance, ask_no, until, is_far, seen } = waiting;
        // What others of this process have seen of the lock stays: they are still to be told.
        let waits =
            self.keys.entry(key).or_insert_with(|| KeyWaits { seen, places: BTreeMap::new() });
        let place = Place { inbox, stance, ask_no, until, is_far };
        if waits.places.insert(owner, place).is_none() {
            self.began = now;
            self.due = self.due.min(now + look_every);
        }
    }

    /// That owner waits no more.
    pub(super) fn settled(&mut self, key: &Key, owner: &OwnerToken) {
        if let Some(waits) = self.keys.get_mut(key) {
            waits.places.remove(owner);
            if waits.places.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Looks for what other processes changed, and returns the hints that follow. If the file
    /// cannot be read, everybody who waits is told to ask again.
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
        let version =
            conn.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.data_version == Some(version) {
            return Ok(());
        }
        for (key, waits) in &mut self.keys {
            let row = LockRow::find(conn, key)?;
            waits.call_up(conn, key, hints)?;
            waits.compare(key, &row, now, hints);
        }
        self.keys.retain(|_, waits| !waits.places.is_empty());
        self.data_version = Some(version);
        Ok(())
    }
}

impl KeyWaits {
    /// Tells those to ask who were far back in the line and have come near.
    fn call_up(
        &mut self,
        conn: &Connection,
        key: &Key,
        hints: &mut Vec<(ClientId, Hint)>,
    ) -> rusqlite::Result<()> {
        for (owner, place) in self.places.iter_mut().filter(|(_, place)| place.is_far) {
            if line_rows::is_near(conn, key, owner.as_str())? {
                place.is_far = false;
                hints.push((place.inbox.clone(), Hint::MaybeFree { key: key.clone() }));
            }
        }
        Ok(())
    }

    /// Compares what was seen of a lock with what it is now.
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
    fn who_has_waited_for_long_is_looked_after_less_often() {
        for (waited, every) in [(0, 4), (128, 4), (320, 10), (576, 18), (60_000, 18)] {
            assert_eq!(
                look_every(Duration::from_millis(waited)),
                Duration::from_millis(every),
                "{waited} ms"
            );
        }
    }
}
