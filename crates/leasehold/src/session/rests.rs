//! How long a client stays away from a key that it left to others.
//!
//! Without this pause, the client's next ask would reach the store before anybody else learns that
//! the key is free. That ask would hand the key to the head of the line, and clients that poll
//! would never get it.

use std::collections::HashMap;

use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::unpoisoned::Unpoisoned;

/// How many keys are remembered at most. Above this number, a client does not stay away from
/// further keys.
const KEYS_MAX: usize = 1_024;

/// The keys that a client stays away from, with the end of each pause.
#[derive(Debug, Default)]
pub(super) struct Rests(Unpoisoned<HashMap<Key, Moment>>);

impl Rests {
    /// Stays away from `key` until `until`.
    pub(super) fn begin(&self, key: &Key, now: Moment, until: Moment) {
        let mut ends = self.0.lock();
        if ends.len() >= KEYS_MAX {
            ends.retain(|_, end| *end > now);
        }
        if ends.len() < KEYS_MAX {
            ends.insert(key.clone(), until);
        }
    }

    /// Until when to stay away from `key`, if that is after `now`.
    pub(super) fn end_of(&self, key: &Key, now: Moment) -> Option<Moment> {
        self.0.lock().get(key).copied().filter(|end| *end > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn key(number: usize) -> Key {
        Key::new(format!("k{number}")).expect("a name")
    }

    #[test]
    fn a_key_rests_until_its_end() {
        let rests = Rests::default();
        rests.begin(&key(0), at(5), at(15));
        assert_eq!(rests.end_of(&key(0), at(14)), Some(at(15)));
        assert_eq!(rests.end_of(&key(0), at(15)), None);
        assert_eq!(rests.end_of(&key(1), at(5)), None);
    }

    #[test]
    fn rests_that_are_over_make_room_and_the_others_are_kept() {
        let rests = Rests::default();
        for number in 0..KEYS_MAX {
            rests.begin(&key(number), at(0), at(10 + number as u64 % 2));
        }
        rests.begin(&key(KEYS_MAX), at(9), at(20));
        assert_eq!(rests.end_of(&key(KEYS_MAX), at(9)), None, "there is no room");
        rests.begin(&key(KEYS_MAX), at(10), at(20));
        assert_eq!(rests.end_of(&key(KEYS_MAX), at(10)), Some(at(20)));
        assert_eq!(rests.0.lock().len(), KEYS_MAX / 2 + 1);
        assert_eq!(rests.end_of(&key(1), at(10)), Some(at(11)));
    }
}
