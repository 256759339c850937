//! The words of a command.

use super::numbers;
use super::reply::Refusal;

/// The name and the arguments of a command, in one buffer that is reused.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arguments {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(argument);
        self.ends.push(self.bytes.len());
    }

    /// The number of words, with the name.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The argument at that place; the name is at 0.
    ///
    /// # Panics
    ///
    /// If there is no such argument. The number of arguments is checked before a command runs.
    pub(super) fn at(&self, place: usize) -> &[u8] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[place]]
    }

    /// The arguments from that place on.
    pub(super) fn from(&self, place: usize) -> impl Iterator<Item = &[u8]> {
        (place..self.len()).map(|place| self.at(place))
    }

    /// Whether the argument there is that word, ignoring case.
    pub(super) fn is(&self, place: usize, word: &str) -> bool {
        self.at(place).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The argument there as a whole number.
    pub(super) fn integer(&self, place: usize) -> Result<i64, Refusal> {
        numbers::integer(self.at(place)).ok_or(Refusal::NOT_AN_INTEGER)
    }
}
