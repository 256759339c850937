//! Windows never overlap.

use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;
use crate::history::window::Window;

/// For each key, the windows `[granted, end)` are disjoint. A window ends at the first of these
/// moments: its holder gives it up, is told of the loss or dies, its lease is evicted, or its last
/// known `until` passes.
///
/// A window may begin at the very moment at which another ends.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (key, of_key) in &story.keys {
        let windows = of_key.windows.iter().filter(|window| !window.is_empty());
        let mut last: Option<&Window<'_>> = None;
        for window in windows {
            let Some(before) = last else {
                last = Some(window);
                continue;
            };
            if window.began < before.end() {
                violations.push(overlap(story, key, before, window));
            }
            if window.end() > before.end() {
                last = Some(window);
            }
        }
    }
    violations
}

fn overlap(story: &Story<'_>, key: &str, first: &Window<'_>, second: &Window<'_>) -> Violation {
    let both = first.end().min(second.end()).since(second.began);
    Violation {
        invariant: Invariant::NoOverlap,
        at: second.began,
        text: format!("`{key}` is in {} and {} for {both:?}", first.name(), second.name()),
        promised: story.weather.windows_promised(first.called.min(second.called), second.began),
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::NoOverlap;
    use crate::history::build::{ASK, tale};
    use crate::history::event::Request::{Evict, Release};

    #[test]
    fn two_windows_at_once_are_found() {
        tale()
            .takes(1, "A", 1, 9.9)
            .at(5.0)
            .takes(2, "B", 2, 14.0)
            .at(6.0)
            .gives_up("A")
            .breaks(NoOverlap);
    }

    #[test]
    fn a_window_that_begins_as_another_ends_passes() {
        let tale = tale().fault("delay").takes(1, "A", 1, 9.9).at(5.0).gives_up("A");
        let tale = tale.takes(2, "B", 2, 14.0);
        let tale = tale.at(9.0).loses("B").takes(3, "C", 3, 12.0).on("b").takes(1, "D", 1, 12.0);
        tale.at(10.0).crashes(3).passes();
    }

    #[test]
    fn a_window_within_a_longer_one_does_not_hide_the_next() {
        let tale = tale().takes(1, "A", 1, 9.9).at(5.0).takes(2, "B", 2, 14.0).at(5.5);
        let tale = tale.gives_up("B").at(6.0).takes(3, "C", 3, 14.0).at(6.5).gives_up("C");
        assert_eq!(tale.at(7.0).gives_up("A").violations().len(), 2);
    }

    #[test]
    fn dead_and_evicted_holders_block_no_client() {
        let tale = tale().fault("client-crash").takes(1, "A", 1, 9.9).at(5.0).crashes(1).at(6.0);
        let tale = tale.takes(2, "B", 2, 15.9).at(7.0).serves(Evict, "B", "B", "").at(7.5);
        tale.takes(3, "C", 3, 17.0).at(8.0).loses("B").gives_up("C").passes();
    }

    #[test]
    fn a_window_ends_with_the_first_eviction_of_its_own_lease() {
        // The request for A arrives once more after the eviction, and that lease is evicted too.
        let evicted = tale().serves(ASK, "A", "", "A").takes(1, "A", 1, 9.9).at(2.0);
        let evicted = evicted.serves(Evict, "A", "A", "").at(2.5).takes(2, "B", 2, 12.5).at(3.0);
        let evicted = evicted.gives_up("A").gives_up("B").serves(Release, "B", "B", "");
        let evicted = evicted.at(4.0).serves(ASK, "A", "", "A").at(4.1);
        evicted.serves(Evict, "A", "A", "").passes();
        // The first answer to A is lost, an operator ends that lease, and A asks again.
        let tale = tale().at(1.0).serves(ASK, "A", "", "A").at(2.0);
        let tale = tale.serves(Evict, "A", "A", "").at(3.0).serves(ASK, "A", "", "A");
        let tale = tale.takes(1, "A", 1, 12.9).at(4.5).takes(2, "B", 2, 14.5).at(5.0);
        tale.gives_up("A").gives_up("B").breaks(NoOverlap);
    }

    #[test]
    fn only_a_fault_that_ends_leases_excuses_it_and_only_for_a_while() {
        let overlap = |kind: &str, gap: f64| {
            let tale = tale().at(1.0).takes(1, "A", 1, 10.9).fault(kind).heals();
            let tale = tale.at(9.0).extends("A", 9.0 + gap).at(8.0 + gap);
            tale.takes(2, "B", 2, 30.0).at(8.5 + gap).gives_up("A").gives_up("B")
        };
        overlap("restart-empty", 1.0).breaks_unpromised(NoOverlap);
        overlap("restart-empty", 8.0).breaks(NoOverlap);
        overlap("server-restart", 1.0).breaks(NoOverlap);
    }
}
