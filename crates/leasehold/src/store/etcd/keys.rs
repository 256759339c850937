//! The keys of a lock in etcd.
//!
//! | key | exists while | value |
//! |---|---|---|
//! | `PREFIX/held/NAME` | somebody has the lock | the holder, see `entry` |
//! | `PREFIX/line/NAME<TAB>TOKEN` | this owner waits for it | the waiter |
//!
//! A name has no control characters. So the tab ends it, and keys are in the order of the names.

use super::rpc::Range;
use crate::core::key::Key;

/// Ends a name, and the first byte after it.
const TAB: u8 = b'\t';
const AFTER_TAB: u8 = TAB + 1;

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    held: Vec<u8>,
    line: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let below = |part: &str| format!("{prefix}/{part}/").into_bytes();
        Self { held: below("held"), line: below("line") }
    }

    /// A key that never exists.
    pub(super) fn probe(&self) -> Vec<u8> {
        self.held.clone()
    }

    /// The holder of a lock.
    pub(super) fn held(&self, name: &Key) -> Vec<u8> {
        [&self.held, name.as_str().as_bytes()].concat()
    }

    /// One place in the line of a lock.
    pub(super) fn place(&self, name: &Key, owner: &str) -> Vec<u8> {
        [&self.line, name.as_str().as_bytes(), &[TAB], owner.as_bytes()].concat()
    }

    /// The line of a lock.
    pub(super) fn line(&self, name: &Key) -> Range {
        let with = |end: u8| [&self.line, name.as_str().as_bytes(), &[end]].concat();
        Range { from: with(TAB), to: with(AFTER_TAB) }
    }

    /// The holders of all locks whose names come after `name`.
    pub(super) fn all_held(&self, name: Option<&Key>) -> Range {
        // The smallest name after another one has one more byte.
        Self::all(&self.held, name, 0)
    }

    /// The places of all locks whose names come after `name`.
    pub(super) fn all_places(&self, name: Option<&Key>) -> Range {
        Self::all(&self.line, name, AFTER_TAB)
    }

    fn all(below: &[u8], name: Option<&Key>, after: u8) -> Range {
        let from = name.map_or_else(
            || below.to_vec(),
            |name| [below, name.as_str().as_bytes(), &[after]].concat(),
        );
        let mut to = below.to_vec();
        // The slash at its end becomes the next character.
        to.pop();
        to.push(b'/' + 1);
        Range { from, to }
    }

    /// The name of the lock that a key belongs to. `None` if it is no key of Leasehold.
    pub(super) fn name_of(&self, key: &[u8]) -> Option<Key> {
        let name = match key.strip_prefix(&self.held[..]) {
            Some(name) => name,
            None => key.strip_prefix(&self.line[..])?.split(|byte| *byte == TAB).next()?,
        };
        Key::new(str::from_utf8(name).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_belongs_to_one_lock_and_says_which() {
        let keys = Keys::new("app/x");
        let name = |text: &str| Key::new(text).expect("a name");
        for text in ["a", "a/b", "a b", "held", "ü", "line/a"] {
            let name = name(text);
            assert_eq!(keys.name_of(&keys.held(&name)), Some(name.clone()));
            let place = keys.place(&name, "a.b");
            assert_eq!(keys.name_of(&place), Some(name.clone()));
            let Range { from, to } = keys.line(&name);
            assert!(from < place && place < to);
            let all = keys.all_places(None);
            assert!(all.from < place && place < all.to);
            let after = keys.all_places(Some(&name));
            assert!(place < after.from, "its places are left out");
            assert!(keys.held(&name) < keys.all_held(Some(&name)).from);
        }
        // The line of one lock has no place of another.
        let Range { from, to } = keys.line(&name("a"));
        for other in ["a!", "a/", "b", "a\u{a0}"] {
            let place = keys.place(&name(other), "x");
            assert!(place < from || place >= to, "{other}");
        }
        assert_eq!(keys.name_of(b"app/x/other/a"), None);
        assert_eq!(keys.held(&name("a")), b"app/x/held/a");
    }
}
