//! Decides whether a process could have sent a release that it owes.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::core::Moment;

/// The longest pause between two attempts to release a token, and the longest time until the first
/// attempt. Pauses double up to the first value. The second value is how often the releasing task
/// looks for work, and covers the largest first pause of 10 ms.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const LOOKED_AFTER: Duration = Duration::from_millis(150);

/// When a release was due.
#[derive(Clone, Copy)]
pub(super) struct Due {
    /// When it may have been tried first: the calls with the token had ended.
    pub(super) earliest: Moment,
    /// When it was surely being tried: no call could take the token over any more.
    pub(super) latest: Moment,
}

impl Due {
    /// A release that has nothing to release before `at`. It may have been tried in vain by then.
    pub(super) fn not_before(self, at: Moment) -> Self {
        Self { latest: self.latest.max(at), ..self }
    }
}

/// When acquires and releases were sent, by sender and receiver.
pub(super) struct Said<By>(BTreeMap<By, Vec<Moment>>);

impl<By> Default for Said<By> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<By: Ord> Said<By> {
    /// Must be called in order of time.
    pub(super) fn note(&mut self, by: By, at: Moment) {
        self.0.entry(by).or_default().push(at);
    }

    /// Whether a release would surely have been sent before `until`.
    ///
    /// A release is refused while the server cannot be reached, and repeated after a pause. So two
    /// other requests must have been sent after `due.latest`. The first one, in the first half of
    /// that time, shows that the server could be reached. The second one comes when the pause was
    /// surely over, even if the release was refused from `due.earliest` on.
    pub(super) fn could_release(&self, by: &By, due: Due, until: Moment) -> bool {
        let Due { earliest, latest: after } = due;
        let said = self.0.get(by).map_or(&[][..], Vec::as_slice);
        let next = |after: Moment| said.get(said.partition_point(|at| *at <= after)).copied();
        let Some(first) = next(after).filter(|at| *at < after + until.since(after) / 2) else {
            return false;
        };
        // Each pause is drawn from the upper half of a limit that doubles. So a pause may be twice
        // as long as all earlier ones together, plus the first limit.
        let pause = (first.since(earliest) * 2).min(PAUSE_MAX) + LOOKED_AFTER;
        next(first + pause).is_some_and(|at| at < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_due_where_something_was_sent_early_and_again_after_a_pause() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        // when other requests were sent, and whether a release was due from 1 s to 5 s
        let table: [(&[u64], bool); 12] = [
            (&[], false),
            (&[500, 1_000], false),
            (&[1_001, 1_100], false),
            (&[1_001, 1_200], true),
            (&[1_001, 5_000], false),
            (&[1_320, 2_100], false),
            (&[1_320, 2_120], true),
            (&[2_900, 3_800], false),
            (&[2_900, 4_100], true),
            (&[3_000, 4_900], false),
            (&[500, 1_500, 2_600], false),
            (&[500, 1_500, 2_700], true),
        ];
        for (said, due) in table {
            let mut all = Said::default();
            said.iter().for_each(|ms| all.note(1, at(*ms)));
            let from = Due { earliest: at(1_000), latest: at(1_000) };
            assert_eq!(all.could_release(&1, from, at(5_000)), due, "{said:?}");
            assert!(!all.could_release(&2, from, at(5_000)));
        }
    }

    #[test]
    fn a_release_that_was_refused_before_may_pause_for_longer() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let mut said = Said::default();
        [1_001, 1_500].iter().for_each(|ms| said.note(1, at(*ms)));
        for (earliest, is_due) in [(1_000, true), (830, true), (820, false), (0, false)] {
            let due = Due { earliest: at(earliest), latest: at(1_000) };
            assert_eq!(said.could_release(&1, due, at(5_000)), is_due, "{earliest}");
        }
    }
}
