//! A holder is told of a loss before its own deadline.

use leasehold::core::Moment;

use crate::history::invariant::{Invariant, Violation};
use crate::history::story::Story;
use crate::history::window::Window;

/// The holder of a window is told of the loss before the last `until` passes, unless it gave the
/// window up or its process died before. If a key was left taken, nobody is told.
///
/// A running process may be late by `wake`. A process that stood still at the deadline, or shortly
/// before it, may be late by `notice`, counted while it ran. Its timers stopped too, so it looks at
/// the clock a little later. A holder that was not told by the end of the history is judged as if
/// it were told then.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let windows = story.keys.values().flat_map(|of_key| &of_key.windows);
    let watched = windows.filter(|window| !window.is_left_taken);
    watched.filter_map(|window| told_late(story, window)).collect()
}

fn told_late(story: &Story<'_>, window: &Window<'_>) -> Option<Violation> {
    let (bounds, life) = (story.bounds, story.life(window.process));
    let deadline = window.until;
    let told = [window.told, window.gave_up, window.crashed, window.evicted];
    let told = told.into_iter().flatten().min();
    let until = told.unwrap_or(story.end);
    // Allow `notice` if the process was never told, since the history may simply have ended too
    // soon.
    let stood = life.stood(deadline.minus(bounds.notice), until);
    let allowed = if stood || told.is_none() { bounds.notice } else { bounds.wake };
    let late = life.ran(deadline, until);
    (late > allowed).then(|| violation(window, deadline + allowed, told))
}

fn violation(window: &Window<'_>, at: Moment, told: Option<Moment>) -> Violation {
    let told = told.map_or_else(|| "never".to_owned(), |told| format!("at {told:?}"));
    Violation {
        invariant: Invariant::ToldBeforeDeadline,
        at,
        text: format!("{} ended at {:?} and was told {told}", window.name(), window.until),
        promised: true,
    }
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::ToldBeforeDeadline;
    use crate::history::build::tale;

    #[test]
    fn a_loss_told_after_the_deadline_is_found() {
        let tale = tale().fault("partition").takes(1, "A", 1, 9.898).at(9.9);
        tale.loses("A").breaks(ToldBeforeDeadline);
    }

    #[test]
    fn nobody_is_told_of_a_key_that_was_left_taken() {
        let tale = tale().takes(1, "A", 1, 9.898).at(5.0).leaves_taken("A");
        tale.at(10.1).over().passes();
    }

    #[test]
    fn a_loss_never_told_is_found() {
        let tale = tale().takes(1, "A", 1, 9.898).at(10.1);
        tale.over().breaks(ToldBeforeDeadline);
    }

    #[test]
    fn a_release_after_the_deadline_is_found() {
        tale().takes(1, "A", 1, 9.898).at(9.95).gives_up("A").breaks(ToldBeforeDeadline);
    }

    #[test]
    fn a_loss_told_at_the_deadline_that_was_moved_last_passes() {
        let tale = tale().fault("partition").takes(1, "A", 1, 9.898);
        tale.at(3.0).extends("A", 12.0).at(12.001).loses("A").at(99.0).over().passes();
    }

    #[test]
    fn a_process_that_stood_still_is_told_as_soon_as_it_looks_at_the_clock() {
        let tale = |looks: f64| {
            let tale = tale().fault("client-stop").takes(1, "A", 1, 9.898).at(5.0).stops(1);
            tale.at(20.0).resumes(1).at(20.0 + looks).loses("A")
        };
        tale(0.14).passes();
        tale(0.16).breaks(ToldBeforeDeadline);
    }

    #[test]
    fn a_process_that_slept_until_shortly_before_the_deadline_may_look_later() {
        let tale = tale().fault("client-suspend").takes(1, "A", 1, 9.898).at(5.0).stops(1);
        tale.at(9.8).resumes(1).at(9.95).loses("A").passes();
    }

    #[test]
    fn a_process_that_died_or_stands_still_is_not_told() {
        let tale = tale().fault("client-stop").takes(1, "A", 1, 9.898).on("b");
        let tale = tale.takes(2, "B", 1, 9.898).at(5.0).stops(1).crashes(2);
        tale.at(99.0).forgets().passes();
    }
}
