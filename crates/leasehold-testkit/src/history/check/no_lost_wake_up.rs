//! A key that has a waiter is soon held.

use std::time::Duration;

use leasehold::core::Moment;

use crate::history::bounds::Bounds;
use crate::history::event::{CallKind, Outcome};
use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// In calm weather, a key with a living and running waiter in a `Lock` call is never without a
/// window for longer than `poll + slack`. A lost wake-up costs one poll. A client that keeps a
/// lease may add `wanted` if no hint tells it of the waiter, and a line that stands aside for other
/// libraries may add `opened`.
///
/// Calm begins after the aftermath of the last fault: a lease that nobody uses, a dead place behind
/// it, and every back-off. A call that ends without the lock, meanwhile or just before, may have
/// been handed the key at that very moment. It must then hand the key on, so each such call adds
/// the same time. Nothing is checked outside of calm.
///
/// A holder may leave its lease to expire, if somebody may still work under it or the key is to
/// stay taken. The store keeps it beyond that deadline, for the lock delay and the drift of clocks.
/// That time does not count.
///
/// A client learns at its next renewal that an operator ended its lease. Until then, its own tasks
/// wait for its own holder, and not at the store.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let of_key = |(key, of_key): (&&str, &OfKey<'_>)| {
        let free = gaps(story, of_key).into_iter().map(|gap| (free_from(of_key, &gap), gap.to));
        let text = format!("`{key}` is waited for and held by nobody");
        unused(story, of_key, free, &text)
    };
    story.keys.iter().flat_map(of_key).collect()
}

/// Finds the spans that are too long, of those in which somebody waits and could have the key. The
/// text says so, without the length of the span.
pub(super) fn unused(
    story: &Story<'_>,
    of_key: &OfKey<'_>,
    spans: impl IntoIterator<Item = (Moment, Moment)>,
    text: &str,
) -> Vec<Violation> {
    let Bounds { poll, slack, wanted, opened, .. } = *story.bounds;
    let patience = poll + slack + wanted + opened;
    let long = spans.into_iter().filter(|(from, to)| to.since(*from) > patience);
    let calm = long.flat_map(|(from, to)| story.weather.calm(from, to));
    let too_long = |(from, to): (Moment, Moment)| {
        let allowed = patience * (1 + ended_without(of_key, from.minus(slack), to));
        let span = to.since(from);
        (span > allowed).then(|| Violation {
            invariant: Invariant::NoLostWakeUp,
            at: from + allowed,
            text: format!("{text} for {span:?}"),
            promised: true,
        })
    };
    calm.filter_map(too_long).collect()
}

/// The moment from which the store may give the key away in a gap. If a lease was left until its
/// deadline, that is when the store drops it. A lease that was given up earlier is released, so
/// nobody waits for its end.
fn free_from(of_key: &OfKey<'_>, gap: &Gap) -> Moment {
    let is_left = |window: &&Window<'_>| window.ran_out() || window.is_left_taken;
    let left = of_key.windows.iter().filter(is_left).filter(|window| window.end() <= gap.from);
    let stored = left.map(|window| {
        let beyond = window.stored_until.since(window.end());
        window.stored_until + Bounds::drift(beyond)
    });
    stored.fold(gap.from, Moment::max)
}

/// How many calls ended without the key between two moments.
fn ended_without(of_key: &OfKey<'_>, from: Moment, to: Moment) -> u32 {
    let ended = of_key.calls.iter().filter(|call| {
        call.returned.is_some_and(|(at, outcome)| {
            let asks = matches!(call.kind, CallKind::Lock | CallKind::TryLock);
            let empty_handed = !matches!(outcome, Outcome::Granted | Outcome::Taken);
            asks && empty_handed && from <= at && at <= to
        })
    });
    u32::try_from(ended.count()).unwrap_or(u32::MAX - 1)
}

/// A span in which a key had a waiter and no holder.
#[derive(Clone, Copy, Debug)]
pub(in crate::history) struct Gap {
    pub(in crate::history) from: Moment,
    pub(in crate::history) to: Moment,
    /// Whether a window begins at the end of the gap.
    pub(in crate::history) ends_held: bool,
    /// Whether a window ends at the beginning of the gap.
    pub(in crate::history) begins_held: bool,
}

impl Gap {
    pub(in crate::history) fn span(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// A change in the number of holders or waiters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Holders(i32),
    Waiters(i32),
}

/// All spans in which the key had a waiter and no holder, in any weather.
pub(in crate::history) fn gaps(story: &Story<'_>, of_key: &OfKey<'_>) -> Vec<Gap> {
    let mut edges = Vec::new();
    for window in of_key.windows.iter().filter(|window| !window.is_empty()) {
        edges.push((window.began, Edge::Holders(1)));
        edges.push((window.end().min(story.end), Edge::Holders(-1)));
    }
    for call in of_key.calls.iter().filter(|call| call.kind == CallKind::Lock) {
        let until = call.returned.map_or(story.end, |(at, _)| at);
        let believed = of_key.windows.iter().filter(|window| window.process == call.process);
        let believed: Vec<_> = believed.filter_map(Window::believed).collect();
        for (from, to) in story.life(call.process).running(call.called, until) {
            for (from, to) in without((from, to), &believed) {
                edges.push((from, Edge::Waiters(1)));
                edges.push((to, Edge::Waiters(-1)));
            }
        }
    }
    edges.sort_unstable();
    sweep(&edges)
}

/// The parts of a span that are outside of all these spans.
fn without(span: (Moment, Moment), cut: &[(Moment, Moment)]) -> Vec<(Moment, Moment)> {
    cut.iter().fold(vec![span], |parts, (begin, end)| {
        let around = |(from, to): (Moment, Moment)| [(from, to.min(*begin)), (from.max(*end), to)];
        let parts = parts.into_iter().flat_map(around);
        parts.filter(|(from, to)| from < to).collect()
    })
}

fn sweep(edges: &[(Moment, Edge)]) -> Vec<Gap> {
    let (mut holders, mut waiters) = (0, 0);
    let mut open: Option<(Moment, bool)> = None;
    let mut gaps = Vec::new();
    for at_once in edges.chunk_by(|(one, _), (other, _)| one == other) {
        let at = at_once[0].0;
        let held_before = holders > 0;
        for (_, edge) in at_once {
            match edge {
                Edge::Holders(more) => holders += more,
                Edge::Waiters(more) => waiters += more,
            }
        }
        let is_gap = holders == 0 && waiters > 0;
        match open {
            None if is_gap => open = Some((at, held_before)),
            Some((from, begins_held)) if !is_gap => {
                gaps.push(Gap { from, to: at, ends_held: holders > 0, begins_held });
                open = None;
            }
            _ => {}
        }
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Invariant::NoLostWakeUp;
    use crate::history::build::{Tale, tale};
    use crate::history::event::Outcome::{Dropped, WaitElapsed};
    use crate::history::event::Request::{Evict, Renew};

    /// A client holds the lock until 5 s, and another one waits.
    fn handed_over() -> Tale {
        tale().takes(1, "A", 1, 9.9).at(2.0).locks(2).at(5.0).gives_up("A")
    }

    #[test]
    fn a_waiter_that_is_woken_late_is_found() {
        handed_over().at(6.5).gets(2, "B", 2, 16.0).at(7.0).gives_up("B").breaks(NoLostWakeUp);
    }

    #[test]
    fn a_waiter_that_is_never_woken_is_found() {
        handed_over().at(7.0).forgets().breaks(NoLostWakeUp);
    }

    #[test]
    fn a_waiter_that_finds_the_free_key_by_its_poll_passes() {
        handed_over().at(6.4).gets(2, "B", 2, 16.0).at(7.0).gives_up("B").passes();
    }

    #[test]
    fn a_key_that_somebody_else_gets_meanwhile_is_not_forgotten() {
        let tale = handed_over().at(5.1).takes(3, "B", 2, 16.0).at(14.0).gives_up("B");
        tale.at(14.3).gets(2, "C", 3, 24.0).at(15.0).gives_up("C").passes();
    }

    #[test]
    fn in_trouble_and_for_a_while_after_nothing_is_asked() {
        let trouble = handed_over().fault("subscriber-kill").heals().at(22.0);
        trouble.gets(2, "B", 2, 30.0).at(24.0).gives_up("B").passes();
        let later = handed_over().fault("subscriber-kill").heals().at(30.0);
        later.gets(2, "B", 2, 40.0).at(31.0).gives_up("B").breaks(NoLostWakeUp);
    }

    #[test]
    fn a_client_that_is_stopped_twice_or_killed_while_stopped_does_not_disturb_for_ever() {
        let late = |tale: Tale| {
            let tale = tale.at(50.0).takes(1, "A", 1, 59.9).at(52.0).locks(2).at(55.0);
            let tale = tale.gives_up("A").at(56.5).gets(2, "B", 2, 66.0);
            tale.at(57.0).gives_up("B").breaks(NoLostWakeUp);
        };
        late(tale().stops(2).at(1.0).stops(2).at(2.0).resumes(2).at(3.0).resumes(2));
        late(tale().stops(3).at(1.0).crashes(3).at(2.0).stops(3));
    }

    #[test]
    fn a_client_that_stands_still_waits_for_nothing() {
        let tale = handed_over().stops(2).at(99.0).resumes(2).at(99.1).gets(2, "B", 2, 120.0);
        tale.at(110.0).gives_up("B").passes();
    }

    /// The store keeps the lease until 11 s, and another client waits from 2 s on.
    fn left_at(ended: f64, got: f64) -> Tale {
        let tale = tale().lock_delay(1.0).takes(1, "A", 1, 9.9).at(2.0).locks(2);
        let tale = tale.at(9.8).compares("A", 0.1, "A", 1.2).at(ended).gives_up("A");
        tale.at(got).gets(2, "B", 2, got + 9.9).at(got + 1.0).gives_up("B")
    }

    #[test]
    fn a_lease_that_its_holder_left_to_expire_is_waited_for_until_the_store_drops_it() {
        left_at(9.9, 12.3).passes();
        left_at(9.9, 12.5).breaks(NoLostWakeUp);
    }

    #[test]
    fn a_lease_that_was_given_up_before_its_deadline_keeps_nobody_waiting() {
        left_at(9.89, 12.3).breaks(NoLostWakeUp);
    }

    /// The renewal that leaves the key taken is the last that anybody sees of the lease.
    #[test]
    fn a_key_that_is_left_taken_by_its_last_renewal_is_waited_for_until_that_time_is_over() {
        let left = |got: f64| {
            let tale = tale().takes(1, "A", 1, 9.9).at(2.0).locks(2).at(3.0).leaves_taken("A");
            let kept = tale.serves(Renew, "A", "A", "A").at(3.1).gives_up("A");
            kept.at(got).gets(2, "B", 2, got + 9.9).at(got + 1.0).gives_up("B")
        };
        left(14.2).passes();
        left(15.0).breaks(NoLostWakeUp);
    }

    #[test]
    fn a_task_waits_for_an_evicted_holder_of_its_own_client_until_the_client_knows() {
        let waits = |who| {
            let evicted = tale().takes(1, "A", 1, 40.0).at(2.0).serves(Evict, "A", "A", "");
            let waits = evicted.at(3.0).locks(who).at(20.0).loses("A").at(20.5);
            waits.gets(who, "B", 2, 30.0).at(21.0).gives_up("B")
        };
        waits(1).passes();
        waits(2).breaks(NoLostWakeUp);
    }

    #[test]
    fn spans_are_cut_out_of_a_span() {
        let at = |(from, to)| (Moment::from_nanos(from), Moment::from_nanos(to));
        // Columns: the spans to cut, and the rest of 10..20.
        for (cut, left) in [
            (vec![], vec![(10, 20)]),
            (vec![(0, 10), (20, 30)], vec![(10, 20)]),
            (vec![(0, 12), (14, 15), (18, 30)], vec![(12, 14), (15, 18)]),
            (vec![(5, 25)], vec![]),
        ] {
            let cut: Vec<_> = cut.into_iter().map(at).collect();
            let left: Vec<_> = left.into_iter().map(at).collect();
            assert_eq!(without(at((10, 20)), &cut), left, "{cut:?}");
        }
    }

    #[test]
    fn a_call_that_ends_as_it_is_handed_the_key_hands_it_on() {
        let tale = |outcome| {
            let tale = tale().takes(1, "A", 1, 9.9).locks(3).at(2.0).locks(2).at(5.0);
            let tale = tale.gives_up("A").returns(3, outcome).at(7.0).gets(2, "B", 2, 16.0);
            tale.at(8.0).gives_up("B")
        };
        tale(Dropped).passes();
        tale(WaitElapsed).passes();
    }
}
