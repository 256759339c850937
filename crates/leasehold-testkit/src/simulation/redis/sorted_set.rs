//! A set of members sorted by their scores.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A sorted set: each member has a score. Members with the same score are sorted by their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SortedSet {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

/// A score: any number except NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score(f64);

/// A range of scores: each end, and whether the range excludes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) min: (f64, bool),
    pub(super) max: (f64, bool),
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        // The end of a range may be minus zero, which equals zero.
        self.0.partial_cmp(&other.0).unwrap_or_else(|| self.0.total_cmp(&other.0))
    }
}

impl Range {
    fn has(&self, score: f64) -> bool {
        let ((min, above), (max, below)) = (self.min, self.max);
        let from = if above { score > min } else { score >= min };
        from && if below { score < max } else { score <= max }
    }
}

impl SortedSet {
    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    /// The members and their scores, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = (Vec<u8>, f64)> {
        self.order.iter().map(|(score, member)| (member.clone(), score.0))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.0)
    }

    /// Sets the score of a member. Returns whether it is a new member.
    pub(super) fn set(&mut self, member: &[u8], score: f64) -> bool {
        // A real server's small sets do not keep minus zero.
        let score = Score(score + 0.0);
        let before = self.scores.insert(member.to_vec(), score);
        if before == Some(score) {
            return false;
        }
        if let Some(before) = before {
            self.order.remove(&(before, member.to_vec()));
        }
        self.order.insert((score, member.to_vec()));
        before.is_none()
    }

    /// Removes a member. Returns whether it existed.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some((member, score)) = self.scores.remove_entry(member) else { return false };
        self.order.remove(&(score, member))
    }

    /// How many members come before this one; `None` if it is not a member.
    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let place = (*self.scores.get(member)?, member.to_vec());
        Some(self.order.range(..place).count())
    }

    /// The members and their scores, lowest score first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&[u8], f64)> {
        self.order.iter().map(|(score, member)| (member.as_slice(), score.0))
    }

    /// The members whose scores are in the range.
    pub(super) fn within(&self, range: Range) -> impl Iterator<Item = (&[u8], f64)> {
        let first = (Score(range.min.0), Vec::new());
        let from = self.order.range(first..).map(|(score, member)| (member.as_slice(), score.0));
        from.skip_while(move |(_, score)| range.min.1 && *score <= range.min.0)
            .take_while(move |(_, score)| range.has(*score))
    }
}
