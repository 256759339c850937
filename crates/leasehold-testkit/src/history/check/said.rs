//! Decides whether a process could have sent a release that it owes.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::core::Moment;

/// The longest pause between two attempts to release a token, and the longest time until the first
/// attempt. Pauses double up to the first value. The second value is the time between two looks of
/// the releasing task for work. It also covers the largest first pause, 10 ms.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const LOOKED_AFTER: Duration = Duration::from_millis(150);

/// When acquires and releases were sent, by sender and receiver.
pub(super) struct Said<By>(BTreeMap<By, Vec<Moment>>);

impl<By> Default for Said<By> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<By: Ord> Said<By> {
    /// Records that acquires or releases were sent. Must be called in order of time.
    pub(super) fn note(&mut self, by: By, at: Moment) {
        self.0.entry(by).or_default().push(at);
    }

    /// Whether a release that was due at `after` would surely have been sent before `until`.
    ///
    /// A release is refused while the server cannot be reached, and repeated after a pause. So two
    /// other requests must have been sent. The first one, in the first half of that time, shows
    /// that the server could be reached. The second one comes when the pause was surely over.
    pub(super) fn could_release(&self, by: &By, after: Moment, until: Moment) -> bool {
        let said = self.0.get(by).map_or(&[][..], Vec::as_slice);
        let next = |after: Moment| said.get(said.partition_point(|at| *at <= after)).copied();
        let Some(first) = next(after).filter(|at| *at < after + until.since(after) / 2) else {
            return false;
        };
        // Each pause is drawn from the upper half of a limit that doubles. So a pause may be twice
        // as long as all earlier ones together, plus the first limit.
        let pause = (first.since(after) * 2).min(PAUSE_MAX) + LOOKED_AFTER;
        next(first + pause).is_some_and(|at| at < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_due_where_something_was_sent_early_and_again_after_a_pause() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        // Columns: when other requests were sent, and whether a release was due from 1 s to 5 s.
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
            assert_eq!(all.could_release(&1, at(1_000), at(5_000)), due, "{said:?}");
            assert!(!all.could_release(&2, at(1_000), at(5_000)));
        }
    }
}
