//! Every call ends within its limit.

use crate::history::invariant::{Invariant, Violation};
use crate::history::story::{Call, Story};

/// A call with a limit ends within it. The time in which its process stood still does not count. An
/// open call is judged as if it ended with the history. After `Over`, a living and running process
/// has no open call, whatever its limit.
///
/// A process may be late by `wake`, or by `notice` if it stood still meanwhile.
pub(super) fn check(story: &Story<'_>) -> Vec<Violation> {
    let calls = story.keys.values().flat_map(|of_key| &of_key.calls);
    calls.filter_map(|call| hangs(story, call)).collect()
}

fn hangs(story: &Story<'_>, call: &Call) -> Option<Violation> {
    let (bounds, life) = (story.bounds, story.life(call.process));
    let until = call.returned.map_or(story.end, |(at, _)| at);
    let ran = life.ran(call.called, until);
    let stood = life.stood(call.called, until);
    let late = if stood { bounds.notice } else { bounds.wake };
    let over_limit = call.limit.is_some_and(|limit| ran > limit + late);
    let is_open = call.returned.is_none() && story.is_over;
    let is_alive = life.crashed.is_none() && !life.stood(story.end, story.end);
    (over_limit || is_open && is_alive).then(|| {
        let ends = if call.returned.is_some() { "ends" } else { "has not ended" };
        let limit = call.limit.map_or_else(|| "none".to_owned(), |limit| format!("{limit:?}"));
        Violation {
            invariant: Invariant::CallsReturn,
            at: until,
            text: format!("{} {ends} after {ran:?}; its limit: {limit}", call.name()),
            promised: true,
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::history::Invariant::CallsReturn;
    use crate::history::build::tale;
    use crate::history::event::CallKind::{Lock, TryLock};
    use crate::history::event::Outcome::{Dropped, Unknown, WaitElapsed};

    #[test]
    fn a_call_that_ends_late_is_found() {
        let tale = tale().fault("delay").calls(1, TryLock, Some(3.0)).at(3.1);
        tale.returns(1, Unknown).breaks(CallsReturn);
    }

    #[test]
    fn a_call_that_never_ends_is_found() {
        let tale = tale().fault("delay");
        let open = tale.calls(1, TryLock, Some(3.0)).at(3.1).forgets();
        open.breaks(CallsReturn);
    }

    #[test]
    fn a_wait_that_is_left_over_is_found() {
        tale().fault("delay").locks(1).at(99.0).over().breaks(CallsReturn);
        tale().fault("delay").locks(1).at(99.0).forgets().passes();
    }

    #[test]
    fn a_call_that_ends_at_its_limit_passes() {
        let tale = tale().fault("delay").calls(1, Lock, Some(3.0)).at(3.0).returns(1, WaitElapsed);
        tale.locks(2).at(99.0).returns(2, Dropped).over().passes();
    }

    #[test]
    fn time_in_which_its_process_stood_still_does_not_count() {
        let tale = |ends: f64| {
            let tale = tale().fault("client-stop").calls(1, Lock, Some(3.0)).at(1.0).stops(1);
            tale.at(50.0).resumes(1).at(ends).returns(1, WaitElapsed)
        };
        tale(52.1).passes();
        tale(52.2).breaks(CallsReturn);
    }

    #[test]
    fn the_calls_of_the_dead_do_not_end() {
        let tale = tale().fault("client-crash").calls(1, Lock, Some(3.0)).at(1.0).crashes(1);
        tale.locks(2).stops(2).at(99.0).over().passes();
    }
}
