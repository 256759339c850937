use super::*;

/// A ttl of 10 s with its defaults: the command is told to stop 2.5 s before the deadline, and
/// killed 200 ms before it.
pub(super) const POLICY: Policy = Policy {
    ttl: Duration::from_secs(10),
    grace: Duration::from_millis(2_500),
    stop: Signal::TERM,
    limit: None,
};

/// The time left of a 10 s lease right after a renewal, in milliseconds.
pub(super) const FRESH: u64 = 9_898;

pub(super) fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A signal that a process sent to us.
pub(super) fn sent(signal: Signal) -> Input {
    Input::Signal(Received { signal, sender: Sender::Process(7) })
}

/// A signal for a key at the terminal.
fn typed(signal: Signal) -> Input {
    Input::Signal(Received { signal, sender: Sender::Kernel })
}

fn with(terminal: Terminal, policy: Policy) -> Supervision {
    Supervision::new(policy, terminal, policy.keeper_kills_at(at(0), ms(FRESH), ms(0)))
}

fn away_from_a_terminal(policy: Policy) -> Supervision {
    with(Terminal::Apart, policy)
}

/// Feeds `inputs` of (now, time left, input) and returns the actions for the last one.
pub(super) fn last(policy: Policy, inputs: &[(u64, u64, Input)]) -> Vec<Action> {
    last_of(away_from_a_terminal(policy), inputs)
}

/// The same at a terminal.
fn last_at_terminal(inputs: &[(u64, u64, Input)]) -> Vec<Action> {
    last_of(with(Terminal::Shared, POLICY), inputs)
}

fn last_of(mut supervision: Supervision, inputs: &[(u64, u64, Input)]) -> Vec<Action> {
    let mut actions = Vec::new();
    for (now, left, input) in inputs {
        actions = supervision.on(at(*now), ms(*left), *input);
    }
    actions
}

pub(super) fn finish(exit: Exit, lease: Lease) -> Vec<Action> {
    finish_because(Cause::Command, exit, lease)
}

fn finish_because(cause: Cause, exit: Exit, lease: Lease) -> Vec<Action> {
    let by_itself = cause == Cause::Command && exit != Exit::INTERNAL;
    vec![Action::Finish(Verdict { exit, lease, cause, by_itself, hung_up: false })]
}

fn killed_for_the_lease() -> Vec<Action> {
    vec![Action::Say(News::Killing), Action::Kill]
}

#[test]
fn a_command_that_ends_by_itself_ends_us_as_it_ended_and_frees_the_lock() {
    for exit in [Exit::Code(0), Exit::Code(3), Exit::Code(79), Exit::Signal(15)] {
        let inputs = [(5, FRESH, Input::Ended(exit)), (5, FRESH, Input::AllGone)];
        assert_eq!(last(POLICY, &inputs), finish(exit, Lease::Release));
    }
}

#[test]
fn signals_are_forwarded_and_the_command_decides() {
    let others = [Signal::USR1, Signal::USR2, Signal::WINCH];
    for signal in FATAL.into_iter().chain(others) {
        let inputs = [(5, FRESH, sent(signal))];
        for actions in [last(POLICY, &inputs), last_at_terminal(&inputs)] {
            assert_eq!(actions, [Action::Forward(signal)], "{signal:?}");
        }
    }
    let inputs = [(5, FRESH, typed(Signal::INT))];
    assert_eq!(last(POLICY, &inputs), [Action::Forward(Signal::INT)]);
    let inputs = [
        (5, FRESH, sent(Signal::TERM)),
        (9, FRESH, Input::Ended(Exit::Code(0))),
        (9, FRESH, Input::AllGone),
    ];
    assert_eq!(
        last(POLICY, &inputs),
        finish_because(Cause::Request, Exit::Code(0), Lease::Release)
    );
}

#[test]
fn at_a_terminal_ctrl_c_is_left_to_the_command_however_often() {
    for key in KEYS {
        let press = (5, FRESH, typed(key));
        let actions = last_at_terminal(&[press, press, press, press]);
        assert_eq!(actions, [Action::ForwardOutside(key)], "a command elsewhere did not get it");
    }
}

#[test]
fn events_after_the_end_of_the_command_leave_its_success() {
    let (ended, gone) = ((5, FRESH, Input::Ended(Exit::Code(0))), (9, FRESH, Input::AllGone));
    let verdict = |inputs: &[_]| match last(POLICY, inputs)[..] {
        [.., Action::Finish(verdict)] => verdict,
        ref other => panic!("{other:?}"),
    };
    for asked in [sent(Signal::TERM), Input::Revoked] {
        let asked = (7, FRESH, asked);
        assert!(verdict(&[ended, asked, gone]).by_itself, "{asked:?}");
        assert!(!verdict(&[asked, ended, gone]).by_itself, "{asked:?}");
    }
    // A HUP long before the end may have been a request to stop.
    let (hup, late) = (sent(Signal::HUP), (9_000, FRESH, Input::AllGone));
    assert!(!verdict(&[ended, (7, FRESH, hup), gone]).hung_up);
    let ended = verdict(&[(5, FRESH, hup), (9_000, FRESH, Input::Ended(Exit::Code(0))), late]);
    assert!(ended.hung_up && ended.by_itself, "{ended:?}");
}

#[test]
fn a_request_for_the_end_is_its_cause_even_at_a_terminal_or_after_a_loss() {
    let finishes = |actions: Vec<Action>| match actions[..] {
        [.., Action::Finish(verdict)] => verdict.cause,
        ref other => panic!("{other:?}"),
    };
    let cause = |inputs: &[_]| finishes(last(POLICY, inputs));
    let ended = |code| (9, FRESH, Input::Ended(Exit::Code(code)));
    let gone = (9, FRESH, Input::AllGone);
    let signal = |signal| (5, FRESH, sent(signal));
    let lost = (4, 0, Input::Lost(Lost::NotOurs));
    for code in [0, 1, 79] {
        assert_eq!(cause(&[ended(code), gone]), Cause::Command);
        assert_eq!(cause(&[signal(Signal::USR1), ended(code), gone]), Cause::Command);
        assert_eq!(cause(&[lost, ended(code), gone]), Cause::Lease);
        assert_eq!(cause(&[signal(Signal::TERM), ended(code), gone]), Cause::Request);
        let pressed = (5, FRESH, typed(Signal::INT));
        let at_terminal = last_at_terminal(&[pressed, ended(code), gone]);
        assert_eq!(finishes(at_terminal), Cause::Request);
        // A HUP from a process may only have made a daemon read its settings. A HUP from a terminal
        // that closed is a request.
        let later =
            [(5_000, FRESH, Input::Ended(Exit::Code(code))), (5_000, FRESH, Input::AllGone)];
        let (hup, closed) = (signal(Signal::HUP), (5, FRESH, typed(Signal::HUP)));
        assert_eq!(cause(&[hup, ended(code), gone]), Cause::Request);
        assert_eq!(cause(&[hup, later[0], later[1]]), Cause::Command);
        assert_eq!(cause(&[hup, closed, later[0], later[1]]), Cause::Request);
        let both = [lost, signal(Signal::TERM), ended(code), gone];
        assert_eq!(cause(&both), Cause::Request);
    }
    let by_key = [(9, FRESH, Input::Ended(Exit::Signal(2))), gone];
    assert_eq!(finishes(last_at_terminal(&by_key)), Cause::Request, "our own signal may be late");
    assert_eq!(cause(&by_key), Cause::Command);
    // `--stop-signal INT`: the command is told to stop by the signal of a key.
    for (why, expected) in [(lost, Cause::Lease), ((5, FRESH, Input::Revoked), Cause::Revoked)] {
        let [ended, gone] = by_key;
        assert_eq!(finishes(last_at_terminal(&[why, ended, gone])), expected);
    }
}

#[test]
fn a_stop_that_nobody_could_undo_continues_all_processes_while_the_lock_is_ours() {
    let cannot = (5, FRESH, Input::CannotSuspend);
    let continued = [Action::SignalAll(Signal::CONT)];
    assert_eq!(last(POLICY, &[cannot]), continued);
    assert_eq!(last_at_terminal(&[cannot]), continued);
    assert_eq!(last(POLICY, &[(4, 0, Input::Lost(Lost::NotOurs)), cannot]), []);
}

#[test]
fn the_second_request_kills_and_the_third_leaves_without_releasing() {
    let inputs = [
        (5, FRESH, sent(Signal::TERM)),
        (6, FRESH, sent(Signal::INT)),
        (205, FRESH, sent(Signal::TERM)),
    ];
    assert_eq!(last(POLICY, &inputs[..2]), [Action::Say(News::KillingAsAsked), Action::Kill]);
    let exit = Exit::Signal(15);
    let (lease, cause) = (Lease::LeaveToExpire, Cause::Request);
    let left = Verdict { exit, lease, cause, by_itself: false, hung_up: false };
    assert_eq!(last(POLICY, &inputs), [Action::Say(News::Leaving), Action::Finish(left)]);
}

#[test]
fn a_command_killed_as_asked_ends_us_as_it_ended_and_frees_the_lock() {
    let inputs = [
        (5, FRESH, sent(Signal::TERM)),
        (205, FRESH, sent(Signal::TERM)),
        (207, FRESH, Input::Ended(Exit::Signal(9))),
        (208, FRESH, Input::AllGone),
    ];
    assert_eq!(
        last(POLICY, &inputs),
        finish_because(Cause::Request, Exit::Signal(9), Lease::Release)
    );
}

#[test]
fn an_overdue_renewal_is_reported_once_and_so_is_its_end() {
    let timer = |now, left| (now, left, Input::Timer);
    assert_eq!(last(POLICY, &[timer(3_000, 6_800)]), []);
    // The first renewal may have failed only just now, so the reason is not known yet.
    assert_eq!(last(POLICY, &[timer(4_300, 5_500)]), []);
    let overdue = [timer(3_000, 6_800), timer(4_800, 5_098)];
    assert_eq!(last(POLICY, &overdue), [Action::Say(News::Overdue { left: ms(5_098) })]);
    let again = [timer(4_800, 5_098), timer(4_900, 4_998)];
    assert_eq!(last(POLICY, &again), []);
    let renewed = [timer(4_800, 5_098), timer(4_900, FRESH)];
    assert_eq!(last(POLICY, &renewed), [Action::Say(News::Renewed)]);
}

#[test]
fn an_unconfirmed_lease_stops_the_command_at_grace_and_kills_it_before_the_deadline() {
    // The deadline is at 9898.
    let stop = (7_398, 2_500, Input::Timer);
    assert_eq!(
        last(POLICY, &[(5_000, 4_898, Input::Timer), stop]),
        [Action::Say(News::Stopping { left: ms(2_500) }), Action::SignalAll(Signal::TERM)]
    );
    assert_eq!(last(POLICY, &[stop, (9_697, 201, Input::Timer)]), []);
    assert_eq!(last(POLICY, &[stop, (9_698, 200, Input::Timer)]), killed_for_the_lease());
    let killed = (9_698, 200, Input::Timer);
    assert_eq!(last(POLICY, &[stop, killed, (9_708, 190, Input::Timer)]), [Action::Kill]);
}

#[test]
fn a_command_stopped_for_its_lease_ends_us_with_79_even_if_the_lease_still_stands() {
    for left in [1_000, FRESH] {
        let inputs = [
            (7_398, 2_500, Input::Timer),
            (8_000, left, Input::Ended(Exit::Code(0))),
            (8_000, left, Input::AllGone),
        ];
        assert_eq!(last(POLICY, &inputs), finish_because(Cause::Lease, Exit::LOST, Lease::Release));
    }
}

#[test]
fn a_lease_that_is_not_ours_stops_at_once_kills_within_2_s_and_is_never_released() {
    let lost = (1_000, 0, Input::Lost(Lost::NotOurs));
    let said = Action::Say(News::Lost(Lost::NotOurs));
    assert_eq!(last(POLICY, &[lost]), [said, Action::SignalAll(Signal::TERM)]);
    assert_eq!(last(POLICY, &[lost, (2_999, 0, Input::Timer)]), []);
    assert_eq!(last(POLICY, &[lost, (3_000, 0, Input::Timer)]), killed_for_the_lease());
    let inputs = [lost, (1_500, 0, Input::Ended(Exit::Code(0))), (1_500, 0, Input::AllGone)];
    assert_eq!(last(POLICY, &inputs), finish_because(Cause::Lease, Exit::LOST, Lease::Lost));
}

#[test]
fn a_short_grace_also_shortens_what_a_definite_loss_leaves() {
    let policy = Policy { grace: ms(500), ..POLICY };
    let lost = (1_000, 0, Input::Lost(Lost::NotOurs));
    assert_eq!(last(policy, &[lost, (1_499, 0, Input::Timer)]), []);
    assert_eq!(last(policy, &[lost, (1_500, 0, Input::Timer)]), killed_for_the_lease());
}

#[test]
fn a_loss_while_stopping_only_makes_the_end_come_sooner() {
    let stopping = (7_398, 2_500, Input::Timer);
    let early = (7_400, 0, Input::Lost(Lost::NotOurs));
    let said = [Action::Say(News::Lost(Lost::NotOurs))];
    assert_eq!(last(POLICY, &[stopping, early]), said);
    assert_eq!(last(POLICY, &[stopping, early, (9_400, 0, Input::Timer)]), killed_for_the_lease());
    let late = (9_000, 0, Input::Lost(Lost::NotOurs));
    assert_eq!(last(POLICY, &[stopping, late, (9_698, 0, Input::Timer)]), killed_for_the_lease());
}

#[test]
fn a_passed_deadline_kills_at_once_for_any_observer() {
    let said = Action::Say(News::Lost(Lost::Deadline));
    let expected = [said, Action::Say(News::Killing), Action::Kill];
    for input in [Input::Timer, Input::Lost(Lost::Deadline)] {
        assert_eq!(last(POLICY, &[(9_898, 0, input)]), expected);
    }
}

#[test]
fn a_command_continued_after_its_lease_lapsed_is_killed_and_not_continued() {
    let stop = (1_000, 8_898, sent(Signal::TSTP));
    let said = Action::Say(News::Suspending { left: ms(8_898) });
    let both = [said, Action::Forward(Signal::STOP), Action::Suspend];
    assert_eq!(last(POLICY, &[stop]), both);
    assert_eq!(last_at_terminal(&[stop]), both);
    let key = (1_000, 8_898, typed(Signal::TSTP));
    assert_eq!(
        last_at_terminal(&[key]),
        [said, Action::ForwardOutside(Signal::STOP), Action::Suspend]
    );
    assert_eq!(
        last(POLICY, &[stop, (2_000, 8_000, sent(Signal::CONT))]),
        [Action::Forward(Signal::CONT)]
    );
    assert_eq!(
        last_at_terminal(&[key, (2_000, 8_000, sent(Signal::CONT))]),
        [Action::Forward(Signal::CONT), Action::ForwardOutside(Signal::CONT)]
    );
    let late = last(POLICY, &[stop, (20_000, 0, sent(Signal::CONT))]);
    assert!(late.contains(&Action::Kill), "{late:?}");
    assert!(!late.contains(&Action::Forward(Signal::CONT)), "{late:?}");
}

#[test]
fn processes_that_outlive_the_command_keep_the_lock_and_are_mentioned_once() {
    let ended = (1_000, FRESH, Input::Ended(Exit::Code(4)));
    assert_eq!(last(POLICY, &[ended, (1_299, FRESH, Input::Timer)]), []);
    let said = [Action::Say(News::Lingering)];
    let mention = (1_300, FRESH, Input::Timer);
    assert_eq!(last(POLICY, &[ended, mention]), said);
    assert_eq!(last(POLICY, &[ended, mention, (1_400, FRESH, Input::Timer)]), []);
    let gone = (2_000, FRESH, Input::AllGone);
    assert_eq!(last(POLICY, &[ended, mention, gone]), finish(Exit::Code(4), Lease::Release));
    // The rules of the lease still apply.
    let near = last(POLICY, &[ended, mention, (8_000, 2_500, Input::Timer)]);
    assert!(near.contains(&Action::SignalAll(Signal::TERM)), "{near:?}");
}

#[test]
fn the_run_goes_on_while_the_end_of_the_command_was_not_seen() {
    assert_eq!(last(POLICY, &[(5, FRESH, Input::AllGone)]), []);
}

/// Runs through a whole outage for every ttl, and through a whole `--max-hold`.
#[test]
fn the_command_is_told_to_stop_and_then_killed_before_the_deadline_for_every_ttl() {
    let graces = [3, 4, 10, 1_000, 1_000_000];
    for ttl in [10_u64, 20, 50, 100, 300, 1_000, 3_000, 10_000, 60_000, 251_000, 86_400_000] {
        for (grace_of, is_held) in graces.into_iter().flat_map(|of| [(of, false), (of, true)]) {
            let grace = (ms(ttl) / grace_of).min(Duration::from_secs(5));
            let deadline = ttl - ttl / 100 - 2;
            let limit = is_held.then_some(at(deadline));
            let policy = Policy { ttl: ms(ttl), grace, limit, ..POLICY };
            let mut supervision = away_from_a_terminal(policy);
            let mut now = Duration::from_nanos(0);
            let mut stopped = None;
            let killed = loop {
                let left = if is_held { ms(ttl) } else { ms(deadline).saturating_sub(now) };
                let moment = Moment::default() + now;
                let actions = supervision.on(moment, left, Input::Timer);
                if actions.iter().any(|action| matches!(action, Action::SignalAll(_))) {
                    stopped.get_or_insert(now);
                }
                if actions.contains(&Action::Kill) {
                    break now;
                }
                now += supervision.next_look(moment, left);
            };
            assert!(killed < ms(deadline), "ttl {ttl} ms, grace {grace:?}: killed at {killed:?}");
            let told = killed - stopped.unwrap_or(killed);
            let least = grace.saturating_sub(policy.margin()).max(policy.margin());
            assert!(told >= least, "ttl {ttl} ms, grace {grace:?}: told for {told:?}");
        }
    }
}

#[test]
fn a_killed_keeper_means_that_the_command_is_killed_and_the_lock_is_released() {
    let gone = (1_000, FRESH, Input::KeeperGone);
    assert_eq!(last(POLICY, &[gone]), [Action::Say(News::KeeperGone), Action::Kill]);
    let all_gone = (1_010, FRESH, Input::AllGone);
    let released = |exit| finish(exit, Lease::Release);
    assert_eq!(last(POLICY, &[gone, all_gone]), released(Exit::INTERNAL));
    let ended = (900, FRESH, Input::Ended(Exit::Code(4)));
    assert_eq!(last(POLICY, &[ended, gone, all_gone]), released(Exit::Code(4)));
    let lost = (1_005, 0, Input::Lost(Lost::NotOurs));
    assert_eq!(
        last(POLICY, &[gone, lost, all_gone]),
        finish_because(Cause::Lease, Exit::LOST, Lease::Lost)
    );
}

#[test]
fn a_command_that_the_keeper_killed_in_time_ends_us_with_79() {
    let killed = (9_800, 98, Input::KilledInTime);
    let inputs = [
        (5, FRESH, Input::Timer),
        killed,
        (9_900, FRESH, Input::Ended(Exit::Signal(9))),
        (9_900, FRESH, Input::AllGone),
    ];
    assert_eq!(last(POLICY, &inputs), finish_because(Cause::Lease, Exit::LOST, Lease::Release));
}

#[test]
fn the_keeper_kills_after_we_would_have_and_before_the_deadline() {
    for ttl in [10_u64, 50, 1_000, 10_000, 86_400_000] {
        let policy = Policy { ttl: ms(ttl), grace: ms(ttl / 4), ..POLICY };
        for took in [0, 1, 20, 10_000] {
            let mut supervision = away_from_a_terminal(policy);
            assert_eq!(supervision.on(at(0), ms(ttl), Input::Counted(ms(took))), []);
            let deadline = at(ttl);
            let keeper = supervision.kill_at(at(0), ms(ttl)).expect("a lease that is ours");
            let ours = deadline.minus(supervision.kill_below());
            assert!(ours < keeper && keeper < deadline, "ttl {ttl} ms, a scan took {took} ms");
        }
    }
    let mut supervision = away_from_a_terminal(POLICY);
    supervision.on(at(5), ms(0), Input::Lost(Lost::NotOurs));
    let ours = at(5) + LOST_GRACE_MAX;
    assert!(!supervision.on(at(2_004), ms(0), Input::Timer).contains(&Action::Kill));
    let keeper = supervision.kill_at(at(2_004), ms(0)).expect("the grace of a loss ends");
    assert!(ours < keeper && keeper < ours + ms(500));
    assert!(supervision.on(at(2_005), ms(0), Input::Timer).contains(&Action::Kill));
    assert_eq!(supervision.kill_at(at(2_005), ms(0)), None, "it has its order");
    // The loss was noticed shortly before the end of the lease.
    let before = POLICY.keeper_kills_at(at(5), ms(500), ms(0));
    let mut supervision = Supervision::new(POLICY, Terminal::Apart, before);
    supervision.on(at(5), ms(0), Input::Lost(Lost::NotOurs));
    assert_eq!(supervision.kill_at(at(6), ms(0)), Some(before), "it kills no later");
}

/// Looking at 4 000 processes takes about 60 ms.
#[test]
fn a_command_of_many_processes_is_told_and_killed_that_much_earlier() {
    let policy = Policy { ttl: ms(1_000), grace: ms(250), ..POLICY };
    let counted = (5, 980, Input::Counted(ms(60)));
    assert_eq!(last(policy, &[counted, (500, 491, Input::Timer)]), []);
    let stop = (510, 490, Input::Timer);
    let stopped = last(policy, &[counted, stop]);
    assert!(stopped.contains(&Action::SignalAll(Signal::TERM)), "{stopped:?}");
    assert_eq!(last(policy, &[counted, stop, (739, 261, Input::Timer)]), []);
    assert_eq!(last(policy, &[counted, stop, (740, 260, Input::Timer)]), killed_for_the_lease());
    // A lease with two thirds left is not in danger, even if a scan takes long.
    let slow = (5, 980, Input::Counted(ms(60_000)));
    assert_eq!(last(policy, &[slow, (100, 667, Input::Timer)]), []);
}

#[test]
fn without_a_keeper_no_request_lets_us_leave() {
    let ask = |now| (now, FRESH, sent(Signal::TERM));
    let inputs = [ask(1), (2, FRESH, Input::KeeperGone), ask(300), ask(600), ask(900)];
    assert_eq!(last(POLICY, &inputs), [Action::Kill]);
}

#[test]
fn a_command_is_stopped_and_killed_before_its_longest_hold_is_over_and_the_lock_released() {
    let policy = Policy { limit: Some(at(60_000)), ..POLICY };
    let early = (57_000, FRESH, Input::Timer);
    assert_eq!(last(policy, &[early]), []);
    let time_over = (57_600, FRESH, Input::Timer);
    let told = [Action::Say(News::TimeOver { left: ms(2_400) }), Action::SignalAll(Signal::TERM)];
    assert_eq!(last(policy, &[early, time_over]), told);
    let kill = (59_801, FRESH, Input::Timer);
    let killed = [Action::Say(News::KillingInTime), Action::Kill];
    assert_eq!(last(policy, &[time_over, kill]), killed);
    for inputs in [&[time_over][..], &[time_over, kill]] {
        let gone = [(59_900, FRESH, Input::Ended(Exit::OK)), (59_900, FRESH, Input::AllGone)];
        let inputs = [inputs, &gone].concat();
        let expected = finish_because(Cause::Lease, Exit::Code(124), Lease::Release);
        assert_eq!(last(policy, &inputs), expected);
    }
    let keeper = away_from_a_terminal(policy).kill_at(at(55_000), ms(FRESH));
    assert_eq!(keeper, Some(at(59_900)), "the keeper knows it as well");
}

#[test]
fn the_bound_that_ends_first_decides_how_a_stopped_command_ends_us() {
    let policy = Policy { limit: Some(at(60_000)), ..POLICY };
    let lease = (50_000, 2_400, Input::Timer);
    let told = [Action::Say(News::Stopping { left: ms(2_400) }), Action::SignalAll(Signal::TERM)];
    assert_eq!(last(policy, &[lease])[1..], told, "after the word about the renewal");
    let gone = [(51_000, 1_400, Input::Ended(Exit::OK)), (51_000, 1_400, Input::AllGone)];
    let inputs = [&[lease][..], &gone].concat();
    assert_eq!(last(policy, &inputs), finish_because(Cause::Lease, Exit::LOST, Lease::Release));
    // A lock that is lost meanwhile is worse.
    let lost = (57_700, 0, Input::Lost(Lost::NotOurs));
    let gone = [(57_800, 0, Input::Ended(Exit::OK)), (57_800, 0, Input::AllGone)];
    let inputs = [&[(57_600, FRESH, Input::Timer), lost][..], &gone].concat();
    assert_eq!(last(policy, &inputs), finish_because(Cause::Lease, Exit::LOST, Lease::Lost));
}

#[test]
fn a_request_to_let_go_tells_the_command_to_stop_once_and_never_kills_it() {
    let asked = (5, FRESH, Input::Revoked);
    for stop in [Signal::TERM, Signal::INT] {
        assert_eq!(last(Policy { stop, ..POLICY }, &[asked]), [Action::SignalAll(stop)]);
    }
    assert_eq!(last(POLICY, &[asked, asked]), []);
    assert_eq!(last(POLICY, &[asked, (3_600_000, FRESH, Input::Timer)]), []);
    for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(15)] {
        let inputs = [asked, (9, FRESH, Input::Ended(exit)), (9, FRESH, Input::AllGone)];
        let expected = finish_because(Cause::Revoked, exit, Lease::Release);
        assert_eq!(last(POLICY, &inputs), expected);
    }
    // The lease still decides, and so does a person.
    let late = (7_400, 2_400, Input::Timer);
    assert!(last(POLICY, &[asked, late]).contains(&Action::SignalAll(Signal::TERM)));
    let signal = (6, FRESH, sent(Signal::TERM));
    assert_eq!(last(POLICY, &[asked, signal]), [Action::Forward(Signal::TERM)]);
    assert_eq!(last(POLICY, &[signal, asked]), [], "it is stopping already");
    assert_eq!(last(POLICY, &[(6, 0, Input::Lost(Lost::NotOurs)), asked]), []);
}
