//! How many permits a key has at each moment, as far as its history says so.

use leasehold::core::Moment;

use super::event::{CallId, Share};

/// How many permits a key has, and when that changed.
///
/// If the history has the steps of the server, these steps tell the number. Otherwise the calls
/// that change the number tell it. The change of a call takes effect between its beginning and its
/// end. If the call did not succeed, the change may take effect at any later moment, or never.
#[derive(Debug, Default)]
pub(super) struct Permits {
    /// The first number that a client knew.
    first: Option<u32>,
    changes: Vec<Change>,
    /// The numbers of the server, in order.
    told: Vec<Told>,
    /// The last step of the server.
    stepped: Moment,
}

/// A number that the steps of the server show.
#[derive(Debug)]
struct Told {
    /// `None` if the server knew no number.
    of: Option<u32>,
    /// The first moment at which the server may have had this number.
    from: Moment,
    /// The moment from which on the server surely had another number.
    until: Option<Moment>,
}

/// A call that changes the number.
#[derive(Debug)]
struct Change {
    call: CallId,
    of: u32,
    from: Moment,
    /// When the call succeeded.
    done: Option<Moment>,
}

impl Permits {
    /// Notes the number that a client knows.
    pub(super) fn are_known(&mut self, share: Share) {
        if let Share::Permits { of, .. } = share {
            self.first.get_or_insert(of);
        }
    }

    /// Notes that a call is about to change the number.
    pub(super) fn resizes(&mut self, call: CallId, from: Moment, of: u32) {
        self.changes.push(Change { call, of, from, done: None });
    }

    /// Notes that a call succeeded. Ignores calls that do not change the number.
    pub(super) fn resized(&mut self, call: CallId, at: Moment) {
        if let Some(change) = self.changes.iter_mut().find(|change| change.call == call) {
            change.done = Some(at);
        }
    }

    /// Notes the number of the server before and after a step.
    pub(super) fn stand(&mut self, at: Moment, before: Option<u32>, after: Option<u32>) {
        // Nobody saw when a number came that the last step did not show. It was some moment between
        // the two steps, so both numbers are possible there.
        for (from, of) in [(self.stepped, before), (at, after)] {
            if let Some(last) = self.told.last_mut() {
                if last.of == of {
                    continue;
                }
                last.until = Some(at);
            }
            self.told.push(Told { of, from, until: None });
        }
        self.stepped = at;
    }

    /// Whether anybody was about to change the number by that moment.
    pub(super) fn were_resized_by(&self, at: Moment) -> bool {
        self.changes.iter().any(|change| change.from <= at)
    }

    /// The highest number to which anybody changed it; 0 if nobody did.
    pub(super) fn highest(&self) -> u32 {
        self.changes.iter().map(|change| change.of).max().unwrap_or_default()
    }

    /// The highest number that may have held at any moment of a span. `None` if that is unknown.
    pub(super) fn most(&self, from: Moment, to: Moment) -> Option<u32> {
        // Calls may take no time. A request of the same moment may have come before the change.
        self.possible((from, to), |done| done < from)?.into_iter().max()
    }

    /// The lowest such number.
    pub(super) fn least(&self, from: Moment, to: Moment) -> Option<u32> {
        self.possible((from, to), |done| done <= from)?.into_iter().min()
    }

    /// When the possible numbers may change.
    pub(super) fn moments(&self) -> impl Iterator<Item = Moment> + '_ {
        let told = self.told.iter().flat_map(|told| [Some(told.from), told.until]);
        let called = self.changes.iter().flat_map(|change| [Some(change.from), change.done]);
        told.chain(called).flatten()
    }

    /// The numbers that may hold in a span. `is_over` tells whether a change that was done at that
    /// moment surely came before the span.
    fn possible(
        &self,
        (from, to): (Moment, Moment),
        is_over: impl Fn(Moment) -> bool,
    ) -> Option<Vec<u32>> {
        if !self.told.is_empty() {
            let meets = |told: &&Told| told.from <= to && told.until.is_none_or(|at| from < at);
            return self.told.iter().filter(meets).map(|told| told.of).collect();
        }
        // A later change that was surely made replaces an earlier one.
        let is_replaced = |number: usize, done: Moment| {
            let mut later = self.changes[number..].iter();
            later.any(|later| later.from >= done && later.done.is_some_and(&is_over))
        };
        let first = self.first.filter(|_| !is_replaced(0, Moment::default()));
        let changes = self.changes.iter().zip(1..).filter(|(change, _)| change.from <= to);
        let changes = changes
            .filter(|(change, next)| change.done.is_none_or(|done| !is_replaced(*next, done)));
        let changed = changes.map(|(change, _)| change.of);
        let possible: Vec<_> = first.into_iter().chain(changed).collect();
        (!possible.is_empty()).then_some(possible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// The lowest and the highest number between two moments.
    fn range(permits: &Permits, from: u64, to: u64) -> Option<(u32, u32)> {
        permits.least(at(from), at(to)).zip(permits.most(at(from), at(to)))
    }

    #[test]
    fn the_steps_of_the_server_tell_the_number() {
        let mut permits = Permits::default();
        permits.are_known(Share::Permits { want: 1, of: 9 });
        permits.stand(at(1), None, Some(3));
        permits.stand(at(5), Some(3), Some(2));
        // Somebody changed the number after 5 s, and this step shows it. Nobody knows when.
        permits.stand(at(9), Some(4), Some(4));
        // Columns: from, to, the lowest and the highest number.
        for (from, to, expected) in [
            (0, 0, None),
            (0, 2, None),
            (1, 4, Some((3, 3))),
            (1, 5, Some((2, 4))),
            (6, 7, Some((2, 4))),
            (9, 9, Some((4, 4))),
        ] {
            assert_eq!(range(&permits, from, to), expected, "{from}..{to}");
        }
    }

    #[test]
    fn calls_tell_the_number_if_there_are_no_steps() {
        let mut permits = Permits::default();
        assert_eq!(range(&permits, 0, 9), None);
        permits.are_known(Share::Permits { want: 1, of: 3 });
        permits.resizes(CallId(1), at(10), 5);
        permits.resized(CallId(1), at(12));
        permits.resizes(CallId(2), at(20), 1);
        permits.resizes(CallId(3), at(30), 4);
        permits.resized(CallId(3), at(32));
        // Columns: from, to, the lowest and the highest number. Nobody knows whether the second
        // call took effect, or when.
        for (from, to, expected) in [
            (0, 9, (3, 3)),
            (0, 11, (3, 5)),
            (11, 11, (3, 5)),
            (12, 19, (5, 5)),
            (12, 25, (1, 5)),
            (25, 31, (1, 5)),
            // A request at 32 s may have come before the third call ended.
            (32, 99, (1, 5)),
            (33, 99, (1, 4)),
        ] {
            assert_eq!(range(&permits, from, to), Some(expected), "{from}..{to}");
        }
        // A call that takes no time does not replace itself.
        permits.resizes(CallId(4), at(100), 7);
        permits.resized(CallId(4), at(100));
        assert_eq!(range(&permits, 100, 101), Some((1, 7)));
        assert!(permits.were_resized_by(at(10)) && !permits.were_resized_by(at(9)));
        assert_eq!(permits.highest(), 7);
    }
}
