use super::tests::{FRESH, POLICY, at, finish, last, sent};
use super::*;

/// The work was done in time, so with `--once-per` it counts as done.
#[test]
fn a_command_that_ended_in_time_keeps_its_code_if_what_it_left_is_stopped_by_the_longest_hold() {
    let policy = Policy { limit: Some(at(60_000)), ..POLICY };
    for code in [Exit::OK, Exit::Code(4)] {
        let inputs = [
            (1_000, FRESH, Input::Ended(code)),
            (57_600, FRESH, Input::Timer),
            (59_801, FRESH, Input::Timer),
            (59_900, FRESH, Input::AllGone),
        ];
        assert_eq!(last(policy, &inputs), finish(code, Lease::Release));
    }
}

#[test]
fn processes_that_cannot_be_killed_are_mentioned_once() {
    let killed = [(1, FRESH, sent(Signal::TERM)), (300, FRESH, sent(Signal::TERM))];
    let later = |at| [&killed[..], &[(at, FRESH, Input::Timer)]].concat();
    assert_eq!(last(POLICY, &later(5_299)), [Action::Kill]);
    assert_eq!(last(POLICY, &later(5_300)), [Action::Kill, Action::Say(News::Unkilled)]);
    let again = [&later(5_300)[..], &[(9_000, FRESH, Input::Timer)]].concat();
    assert_eq!(last(POLICY, &again), [Action::Kill]);
}
