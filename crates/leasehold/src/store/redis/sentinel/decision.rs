//! Which of the sentinels' answers counts.

use std::cmp::Reverse;

use crate::core::error::Error;
use crate::store::redis::place::Place;

/// The server that a sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) place: Place,
    pub(super) epoch: u64,
}

/// The answer of one sentinel.
#[derive(Debug)]
pub(super) enum Answer {
    Named(Named),
    /// The sentinel knows no primary of this name.
    Unknown,
    Failed(Error),
}

impl Answer {
    /// Whether the answer names a server, and is not older than the last choice.
    pub(super) fn is_no_older_than(&self, last: Option<&Named>) -> bool {
        match self {
            Self::Named(named) => last.is_none_or(|last| named.epoch >= last.epoch),
            Self::Unknown | Self::Failed(_) => false,
        }
    }
}

/// Chooses the answer that counts: the one with the highest epoch. `last` is the choice before. If
/// the answers of the highest epoch name several servers, `last` stays if it is one of them.
/// Otherwise the server that most sentinels name counts.
///
/// An older epoch than that of `last` counts only if a majority of the sentinels name a server.
/// Then they may have been set up again.
pub(super) fn decide<'a>(
    answers: impl Iterator<Item = &'a Answer>,
    sentinels: usize,
    last: Option<&Named>,
) -> Option<Named> {
    let named: Vec<&Named> = answers
        .filter_map(|answer| if let Answer::Named(named) = answer { Some(named) } else { None })
        .collect();
    let epoch = named.iter().map(|named| named.epoch).max()?;
    if let Some(last) = last.filter(|last| epoch < last.epoch && named.len() <= sentinels / 2) {
        return Some(last.clone());
    }
    let newest = || named.iter().filter(|named| named.epoch == epoch);
    if let Some(last) = last.filter(|last| newest().any(|named| named == last)) {
        return Some(last.clone());
    }
    let votes = |named: &Named| newest().filter(|other| **other == named).count();
    // The order of places decides a draw, so that all clients decide alike.
    let first = newest().max_by_key(|named| (votes(named), Reverse(&named.place)))?;
    Some((*first).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;

    fn named_as(host: &str, epoch: u64) -> Named {
        Named { place: (host.to_owned(), 6379), epoch }
    }

    #[test]
    fn the_highest_epoch_counts_and_an_older_one_only_with_a_majority() {
        let a = |epoch| Answer::Named(named_as("a", epoch));
        let b = |epoch| Answer::Named(named_as("b", epoch));
        let failed = || Answer::Failed(Error::new(ErrorKind::Unavailable, "down"));
        // The answers of three sentinels, what counted before, and what counts now.
        let table = [
            (vec![], None, None),
            (vec![failed(), failed(), failed()], Some(named_as("a", 1)), None),
            (vec![Answer::Unknown, failed()], None, None),
            (vec![a(1), b(2), a(1)], None, Some(named_as("b", 2))),
            (vec![b(2), a(1), failed()], None, Some(named_as("b", 2))),
            (vec![a(1)], None, Some(named_as("a", 1))),
            (vec![Answer::Unknown, a(1)], None, Some(named_as("a", 1))),
            (vec![b(3)], Some(named_as("a", 2)), Some(named_as("b", 3))),
            // One epoch, two servers. The choice does not go back and forth.
            (vec![b(1), a(1)], None, Some(named_as("a", 1))),
            (vec![a(1), b(1), b(1)], None, Some(named_as("b", 1))),
            (vec![a(1), b(1), b(1)], Some(named_as("a", 1)), Some(named_as("a", 1))),
            // The sentinel that announced b is silent.
            (vec![a(1), failed(), failed()], Some(named_as("b", 2)), Some(named_as("b", 2))),
            (vec![a(1), Answer::Unknown], Some(named_as("b", 2)), Some(named_as("b", 2))),
            // The sentinels were set up again.
            (vec![a(0), a(0), failed()], Some(named_as("b", 9)), Some(named_as("a", 0))),
        ];
        for (answers, last, expected) in table {
            let decided = decide(answers.iter(), 3, last.as_ref());
            assert_eq!(decided, expected, "{answers:?} after {last:?}");
        }
        // Half of the sentinels are not most of them.
        let last = named_as("b", 2);
        for sentinels in [2, 4] {
            let older = || std::iter::repeat_with(|| a(1)).take(sentinels / 2).collect::<Vec<_>>();
            assert_eq!(decide(older().iter(), sentinels, Some(&last)), Some(last.clone()));
        }
    }
}
