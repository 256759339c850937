//! Free permits are soon used.

use std::collections::BTreeMap;

use leasehold::core::Moment;

use super::no_lost_wake_up::unused;
use crate::history::bounds::Bounds;
use crate::history::event::{CallKind, Share};
use crate::history::invariant::Violation;
use crate::history::story::{OfKey, Story};
use crate::history::window::Window;

/// In calm weather, waiters do not wait for longer than `poll + slack` while there is room for each
/// of them. There is room for a waiter if its permits, and those of all windows, are no more than
/// there are. So a higher number of permits is used in time.
///
/// If there is room for the largest claim, there is room for whoever is first in the line. While a
/// large claim waits for more, the smaller ones wait behind it, and nothing is asked.
///
/// The same bounds hold as for a key that one holder has: `wanted`, `opened`, and the time for each
/// call that ends without permits.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let of_key = |(key, of_key): (&&str, &OfKey<'_>)| {
        let text = format!("`{key}` has room for all clients that wait,");
        unused(story, of_key, with_room(story, of_key), &text)
    };
    story.keys.iter().flat_map(of_key).collect()
}

/// A change that decides whether there is room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Frees(u32),
    Takes(u32),
    Leaves(u32),
    Waits(u32),
    /// The number of permits may change.
    Resizes,
}

/// The spans in which somebody waits, and there is room for all who do.
fn with_room(story: &Story<'_>, of_key: &OfKey<'_>) -> Vec<(Moment, Moment)> {
    let mut edges = Vec::new();
    for call in of_key.calls.iter().filter(|call| call.kind == CallKind::Lock) {
        let Some(Share::Permits { want, .. }) = call.wants else { continue };
        let until = call.returned.map_or(story.end, |(at, _)| at);
        for (from, to) in story.life(call.process).running(call.called, until) {
            edges.push((from, Edge::Waits(want)));
            edges.push((to, Edge::Leaves(want)));
        }
    }
    if edges.is_empty() {
        return Vec::new();
    }
    for window in of_key.windows.iter().filter(|window| !window.is_empty()) {
        let want = window.share.permits();
        edges.push((window.began, Edge::Takes(want)));
        edges.push((taken_until(window).min(story.end), Edge::Frees(want)));
    }
    edges.extend(of_key.permits.moments().map(|at| (at, Edge::Resizes)));
    edges.sort_unstable();
    sweep(of_key, &edges)
}

/// Until when the store counts the permits of a window as taken. If a lease was left until its
/// deadline, the store drops it later.
fn taken_until(window: &Window<'_>) -> Moment {
    let end = window.end();
    if !window.ran_out() && !window.is_left_taken {
        return end;
    }
    let beyond = window.stored_until.since(end);
    end.max(window.stored_until + Bounds::drift(beyond))
}

fn sweep(of_key: &OfKey<'_>, edges: &[(Moment, Edge)]) -> Vec<(Moment, Moment)> {
    let (mut taken, mut waiting) = (0_i64, BTreeMap::<u32, i32>::new());
    let (mut open, mut spans) = (None, Vec::new());
    for at_once in edges.chunk_by(|(one, _), (other, _)| one == other) {
        let at = at_once[0].0;
        for (_, edge) in at_once {
            match edge {
                Edge::Frees(permits) => taken -= i64::from(*permits),
                Edge::Takes(permits) => taken += i64::from(*permits),
                Edge::Waits(permits) => *waiting.entry(*permits).or_default() += 1,
                Edge::Leaves(permits) => *waiting.entry(*permits).or_default() -= 1,
                Edge::Resizes => {}
            }
        }
        waiting.retain(|_, calls| *calls > 0);
        let largest = waiting.last_key_value().map(|(permits, _)| i64::from(*permits));
        let has_room = largest
            .zip(of_key.permits.least(at, at))
            .is_some_and(|(largest, of)| taken + largest <= i64::from(of));
        match open {
            None if has_room => open = Some(at),
            Some(from) if !has_room => {
                spans.push((from, at));
                open = None;
            }
            _ => {}
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::NoLostWakeUp;
    use crate::history::build::{JOIN, Tale, tale};
    use crate::history::event::CallKind::Lock;
    use crate::history::event::Outcome::WaitElapsed;
    use crate::history::event::Request::{Release, Resize};
    use crate::history::event::{Share, Standing};

    const fn permits(want: u32, of: u32) -> Share {
        Share::Permits { want, of }
    }

    /// One client has one of two permits from 1 s on, and another client waits for two.
    fn waits_for_two() -> Tale {
        let tale = tale().at(1.0).takes(1, "A", 1, 9.9).shares("A", permits(1, 2));
        tale.calls(2, Lock, None).wants(2, permits(2, 2))
    }

    /// The waiter gets its permits at that moment.
    fn served(tale: Tale, at: f64, of: u32) -> Tale {
        let tale = tale.at(at).gets(2, "B", 2, at + 9.9).shares("B", permits(2, of));
        tale.at(at + 0.5).gives_up("A").gives_up("B")
    }

    #[test]
    fn permits_that_a_higher_number_adds_are_used_in_time() {
        let grown = || waits_for_two().at(2.0).resized(9, 3);
        // A waiter that misses its wake-up asks once a second.
        served(grown(), 3.3, 3).passes();
        served(grown(), 3.5, 3).breaks(NoLostWakeUp);
    }

    #[test]
    fn a_number_that_the_server_shows_counts_from_its_step_on() {
        let stands = |of, line: &[(&str, Share)]| Standing {
            of: Some(of),
            holders: vec![("A".into(), permits(1, of))],
            line: line.iter().map(|(name, share)| ((*name).into(), *share)).collect(),
            ..Standing::default()
        };
        let waits = [("B", permits(2, 2))];
        let grown = || {
            let tale = waits_for_two().steps(JOIN, "B", stands(2, &[]), stands(2, &waits));
            let mut after = stands(3, &[]);
            after.holders.push(("B".into(), permits(2, 3)));
            tale.resizes(3).at(4.0).steps(Resize, "", stands(2, &waits), after)
        };
        served(grown(), 5.3, 3).passes();
        served(grown(), 5.5, 3).breaks(NoLostWakeUp);
    }

    #[test]
    fn permits_that_were_given_back_are_used_in_time() {
        let freed = |at: f64| {
            let tale = waits_for_two().at(2.0).gives_up("A").sends(1, Release, "A");
            tale.at(at).gets(2, "B", 2, at + 9.9).shares("B", permits(2, 2))
        };
        freed(3.3).at(4.0).gives_up("B").passes();
        freed(3.5).at(4.0).gives_up("B").breaks(NoLostWakeUp);
    }

    #[test]
    fn a_large_claim_that_does_not_fit_keeps_the_smaller_ones_waiting() {
        let tale = waits_for_two().calls(3, Lock, Some(8.0)).wants(3, permits(1, 2));
        let tale = tale.at(5.0).returns(3, WaitElapsed).gives_up("A");
        tale.gets(2, "B", 2, 14.9).shares("B", permits(2, 2)).gives_up("B").passes();
    }

    #[test]
    fn in_trouble_free_permits_may_stay_free() {
        let trouble = waits_for_two().at(2.0).fault("delay").resized(9, 3).heals();
        served(trouble, 9.0, 3).passes();
    }
}
