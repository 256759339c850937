//! A latch counts each count once, and a task that waits for it soon sees it open.

use std::time::Duration;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{CallKind, Outcome};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, OfKey, Story};

/// The longest pause between two looks of a task that waits for a latch: `LOOKS` in `latch.rs` of
/// the library.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// A call sees no more counts than calls may have made by its end, and no fewer than were surely
/// made before its beginning. So a latch does not open early, no count is made twice, and none is
/// lost.
///
/// A count is sure once its call has returned. A call without an answer may have counted, and takes
/// its count back at some time, so it may count for ever here.
///
/// A fault that ends leases early excuses a wrong number if it met one of the counts.
pub(super) fn counts(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key, latch) in all(story) {
        for call in &of_key.calls {
            let (Some(left), Some((returned, _))) = (call.left, call.returned) else { continue };
            let seen = latch.of.saturating_sub(left) as usize;
            let (surely, maybe) = (latch.surely(call.called), latch.maybe(returned));
            if (surely.min(latch.of as usize)..=maybe).contains(&seen) {
                continue;
            }
            violations.push(Violation {
                invariant: Invariant::LatchCounts,
                at: returned,
                text: format!(
                    "{} sees {seen} of {} counts of `{key}`, and not {surely} to {maybe}",
                    call.name(),
                    latch.of
                ),
                promised: latch.lasts(story, returned),
            });
        }
    }
    violations
}

/// In calm weather, a running process that waits for a latch sees it open within one pause and one
/// round trip after the last count.
pub(super) fn opens(story: &Story<'_>) -> Vec<Violation> {
    let patience = noticed_within(story.bounds);
    let mut violations = Vec::new();
    for (key, of_key, latch) in all(story) {
        let Some(open) = latch.open() else { continue };
        for call in of_key.calls.iter().filter(|call| call.kind == CallKind::AwaitLatch) {
            let from = open.max(call.called);
            let until = call.returned.map_or(story.end, |(at, _)| at);
            let is_late = until > from + patience && story.weather.is_calm(from, from + patience);
            let is_alive = story.life(call.process).crashed.is_none_or(|at| at > from + patience);
            if is_late && is_alive {
                violations.push(Violation {
                    invariant: Invariant::LatchOpens,
                    at: from + patience,
                    text: format!("{} still waits for `{key}`, which is open", call.name()),
                    promised: latch.lasts(story, from + patience),
                });
            }
        }
    }
    violations
}

/// How long a waiting task may take to see that its latch is open.
pub(super) fn noticed_within(bounds: &Bounds) -> Duration {
    LOOKS_EVERY + Bounds::drift(LOOKS_EVERY) + bounds.slack
}

/// Whether a call saw its latch open.
pub(super) fn sees_open(call: &Call) -> bool {
    call.left == Some(0)
}

/// The counts of one latch.
struct Latch {
    of: u32,
    /// The moments from which each count is sure, in order.
    sure: Vec<Moment>,
    /// The start of each call that may have counted, in order.
    begun: Vec<Moment>,
}

fn all<'s, 'a>(story: &'s Story<'a>) -> impl Iterator<Item = (&'a str, &'s OfKey<'a>, Latch)> {
    story.keys.iter().filter_map(|(key, of_key)| {
        let of = of_key.latch?;
        let calls = || of_key.calls.iter().filter(|call| call.kind == CallKind::CountDown);
        let is_refused = |call: &&Call| matches!(call.returned, Some((_, Outcome::Taken)));
        let mut sure: Vec<_> = calls().filter_map(counted).collect();
        let mut begun: Vec<_> = calls().filter(|it| !is_refused(it)).map(|it| it.called).collect();
        sure.sort_unstable();
        begun.sort_unstable();
        Some((*key, of_key, Latch { of, sure, begun }))
    })
}

/// The moment at which a call reported that it counted.
fn counted(call: &Call) -> Option<Moment> {
    call.returned.and_then(|(at, outcome)| (outcome == Outcome::Done).then_some(at))
}

impl Latch {
    /// How many counts were surely made before `at`.
    fn surely(&self, at: Moment) -> usize {
        self.sure.partition_point(|counted| *counted < at)
    }

    /// How many counts may have been made by `at`.
    fn maybe(&self, at: Moment) -> usize {
        self.begun.partition_point(|called| *called <= at)
    }

    /// The moment from which the latch is surely open.
    fn open(&self) -> Option<Moment> {
        self.sure.get((self.of as usize).checked_sub(1)?).copied()
    }

    /// Whether its counts are promised to last until `at`.
    fn lasts(&self, story: &Story<'_>, at: Moment) -> bool {
        let first = self.begun.first().copied().unwrap_or(at);
        story.weather.lasting_promised(first.min(at), at)
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::{LatchCounts, LatchOpens};
    use crate::history::build::{Tale, tale};
    use crate::history::event::CallKind::{AwaitLatch, CountDown, Look};
    use crate::history::event::Outcome::{Done, Dropped, Taken, Unknown, WaitElapsed};

    fn counts(tale: Tale, process: u32) -> Tale {
        tale.calls(process, CountDown, None).returns(process, Done)
    }

    /// Two counts of a latch of two, at 1 s and 2 s.
    fn opened() -> Tale {
        counts(counts(tale().latches(2).at(1.0), 1).at(2.0), 2)
    }

    fn looks(tale: Tale, at: f64, left: u32) -> Tale {
        tale.at(at).calls(3, Look, None).remains(3, left)
    }

    #[test]
    fn a_latch_that_counts_twice_or_opens_early_is_found() {
        let once = || counts(tale().latches(2).at(1.0), 1);
        looks(once(), 1.5, 1).passes();
        looks(once(), 1.5, 0).breaks(LatchCounts);
        let waits = once().calls(3, AwaitLatch, None).at(1.6);
        waits.remains(3, 0).breaks(LatchCounts);
    }

    #[test]
    fn a_count_that_is_lost_is_found() {
        looks(opened(), 2.5, 0).passes();
        looks(opened(), 2.5, 1).breaks(LatchCounts);
        // A surplus count changes nothing.
        looks(counts(opened(), 1), 2.5, 0).passes();
    }

    #[test]
    fn a_call_without_an_answer_may_have_counted() {
        for outcome in [Unknown, Dropped] {
            let tale = || tale().latches(2).fault("reply-lost").at(1.0).calls(1, CountDown, None);
            let tale = || tale().at(1.1).returns(1, outcome);
            looks(tale(), 1.5, 1).passes();
            looks(tale(), 1.5, 2).passes();
            looks(tale(), 1.5, 0).breaks(LatchCounts);
        }
        let refused = tale().latches(2).at(1.0).calls(1, CountDown, None).returns(1, Taken);
        looks(refused, 1.5, 1).breaks(LatchCounts);
    }

    #[test]
    fn counts_that_a_server_forgot_are_excused() {
        let forgotten = || opened().at(3.0).fault("flushall").forgets().heals();
        looks(forgotten(), 9.0, 2).breaks_unpromised(LatchCounts);
        let before = tale().latches(1).fault("flushall").forgets().heals().at(1.0);
        looks(counts(before, 1), 9.0, 1).breaks(LatchCounts);
    }

    #[test]
    fn a_long_wait_for_an_open_latch_is_found() {
        let waits = |until: f64| opened().calls(3, AwaitLatch, None).at(until);
        waits(3.3).returns(3, WaitElapsed).passes();
        waits(3.6).returns(3, WaitElapsed).breaks(LatchOpens);
        waits(9.0).crashes(3).breaks(LatchOpens);
        opened().calls(3, AwaitLatch, None).at(2.5).crashes(3).at(9.0).passes();
        let earlier = tale().latches(1).calls(3, AwaitLatch, None).at(5.0);
        let earlier = counts(earlier, 1);
        earlier.at(6.3).remains(3, 0).passes();
        waits(2.5).fault("delay").at(9.0).returns(3, WaitElapsed).passes();
    }
}
