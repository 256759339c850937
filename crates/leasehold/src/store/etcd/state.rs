//! The state of a lock, as one read of the cluster shows it.

use super::entry::Seen;
use super::keys::Keys;
use super::rpc::{Do, Range, Reading, TxnDone};
use crate::core::key::Key;
use crate::core::token::OwnerToken;

/// How many places of a line one step reads. All others are counted.
const PLACES_READ: i64 = 128;

/// Who has a lock, and who waits for it.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) held: Option<Seen>,
    /// The first places of the line, the oldest first. Empty if it was only counted.
    pub(super) line: Vec<Seen>,
    /// How many places the line has.
    pub(super) count: u32,
    /// The last change of the cluster that this state shows.
    pub(super) revision: i64,
    pub(super) term: i64,
}

/// The reads for a state.
pub(super) fn look(keys: &Keys, name: &Key) -> Vec<Do> {
    let by_age = Reading { limit: PLACES_READ, by_age: true, keys_only: false };
    vec![
        Do::Read(Range::one(keys.held(name)), Reading::default()),
        Do::Read(keys.line(name), by_age),
    ]
}

/// The reads for a state whose line is only counted.
pub(super) fn glance(keys: &Keys, name: &Key) -> Vec<Do> {
    let counted = Reading { limit: 1, by_age: false, keys_only: true };
    vec![
        Do::Read(Range::one(keys.held(name)), Reading::default()),
        Do::Read(keys.line(name), counted),
    ]
}

impl State {
    /// The state from the answer to [`look`].
    pub(super) fn of(done: TxnDone) -> Self {
        let mut read = done.read.into_iter();
        let held = read.next().unwrap_or_default();
        let line = read.next().unwrap_or_default();
        Self {
            held: held.kvs.into_iter().next().map(Seen::new),
            line: line.kvs.into_iter().map(Seen::new).collect(),
            count: u32::try_from(line.count).unwrap_or(u32::MAX),
            revision: done.header.revision,
            term: done.header.term,
        }
    }

    /// The state from the answer to [`glance`].
    pub(super) fn glanced(done: TxnDone) -> Self {
        Self { line: Vec::new(), ..Self::of(done) }
    }

    /// The holder, if that owner has the lock.
    pub(super) fn held_by(&self, owner: &OwnerToken) -> Option<&Seen> {
        self.held.as_ref().filter(|held| held.is_of(owner))
    }

    /// Where the place of an owner is among those that were read.
    pub(super) fn place_of(&self, owner: &OwnerToken) -> Option<usize> {
        self.line.iter().position(|place| place.is_of(owner))
    }

    /// How many places are ahead of an owner's, or are in the line if it has none. If its place is
    /// far back, this is the most that there can be.
    pub(super) fn ahead(&self, owner: &OwnerToken, has_place: bool) -> u32 {
        match self.place_of(owner) {
            Some(at) => u32::try_from(at).unwrap_or(u32::MAX),
            None => self.count.saturating_sub(u32::from(has_place)),
        }
    }
}
