//! The state of a lock, as one read of the cluster shows it.

use super::entry::Seen;
use super::keys::Keys;
use super::rpc::{Do, Range, Reading, TxnDone};
use crate::core::key::Key;
use crate::core::token::OwnerToken;

/// How many places of a line one step reads. All others are counted.
const PLACES_READ_MAX: u32 = 128;

/// The holder of a lock, and its waiters.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) held: Option<Seen>,
    /// The first places of the line, the oldest first, and the place that was read separately.
    /// Empty if the line was only counted.
    pub(super) line: Vec<Seen>,
    /// How many places the line has.
    pub(super) count: u32,
    /// The last change of the cluster that this state shows.
    pub(super) revision: i64,
    pub(super) term: i64,
}

/// The reads for a state.
pub(super) fn look(keys: &Keys, name: &Key) -> Vec<Do> {
    let by_age = Reading { limit: PLACES_READ_MAX.into(), by_age: true, keys_only: false };
    vec![
        Do::Read(Range::one(keys.held(name)), Reading::default()),
        Do::Read(keys.line(name), by_age),
    ]
}

/// The reads for a state that shows the place of an owner, wherever it is in the line.
pub(super) fn look_for(keys: &Keys, name: &Key, owner: &OwnerToken) -> Vec<Do> {
    let mut reads = look(keys, name);
    reads.push(read_place(keys, name, owner));
    reads
}

/// The reads for a state without the line, but with the place of an owner.
pub(super) fn glance_for(keys: &Keys, name: &Key, owner: &OwnerToken) -> Vec<Do> {
    let held = Do::Read(Range::one(keys.held(name)), Reading::default());
    vec![held, read_place(keys, name, owner)]
}

fn read_place(keys: &Keys, name: &Key, owner: &OwnerToken) -> Do {
    Do::Read(Range::one(keys.place(name, owner.as_str())), Reading::default())
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
    /// The state from the answer to [`look`] or [`look_for`].
    pub(super) fn of(done: TxnDone) -> Self {
        let mut read = done.read.into_iter();
        let held = read.next().unwrap_or_default();
        let mut line = read.next().unwrap_or_default();
        let apart = read.next().unwrap_or_default().kvs.into_iter().next();
        line.kvs.extend(apart.filter(|apart| line.kvs.iter().all(|place| place.key != apart.key)));
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

    /// The index of an owner's place among the places that were read.
    pub(super) fn place_of(&self, owner: &OwnerToken) -> Option<usize> {
        self.line.iter().position(|place| place.is_of(owner))
    }

    /// How many places are ahead of an owner's, or are in the line if it has none. If its place is
    /// far back, this is the most that there can be.
    pub(super) fn ahead(&self, owner: &OwnerToken) -> u32 {
        match self.place_of(owner).map(u32::try_from) {
            Some(Ok(at)) if at < PLACES_READ_MAX => at,
            Some(_) => self.count.saturating_sub(1),
            None => self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::claim::Claim;
    use crate::core::moment::WallTime;
    use crate::core::ttl::Ttl;
    use crate::store::Ask;
    use crate::store::etcd::entry::Entry;
    use crate::store::etcd::rpc::{Kv, Ranged};

    #[test]
    fn a_place_that_was_read_apart_is_behind_those_of_the_line() {
        let owner = |name: &str| OwnerToken::new(name).expect("printable");
        let kv = |name: &str| {
            let key = Key::new("k").expect("a name");
            let ask = Ask::new(key, owner(name), Claim::Exclusive, Ttl::MIN);
            let value = Entry::of(&ask, 2, WallTime::from_unix_micros(0)).write();
            Kv { key: name.as_bytes().to_vec(), value, ..Kv::default() }
        };
        let first: Vec<_> = (0..PLACES_READ_MAX).map(|number| kv(&format!("x{number}"))).collect();
        for (name, count, at, ahead) in
            [("x0", 128, Some(0), 0), ("x127", 200, Some(127), 127), ("y", 200, Some(128), 199)]
        {
            let line = Ranged { kvs: first.clone(), count, ..Ranged::default() };
            let apart = Ranged { kvs: vec![kv(name)], count: 1, ..Ranged::default() };
            let read = vec![Ranged::default(), line, apart];
            let state = State::of(TxnDone { read, ..TxnDone::default() });
            assert_eq!((state.place_of(&owner(name)), state.ahead(&owner(name))), (at, ahead));
            assert_eq!(state.ahead(&owner("z")), u32::try_from(count).expect("not many"));
        }
    }
}
