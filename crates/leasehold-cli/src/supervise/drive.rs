//! Carries out the decisions of the machine on a real command.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::host::{Host, SystemHost};
use leasehold::store::Revocation;
use leasehold::{Guard, Lost, MultiGuard};
use rustix::process::Signal;

use super::child::{Change, Child};
use super::machine::{Action, Input, News, Supervision};
use super::policy::Policy;
use super::verdict::Outcome;
use crate::duration::human;
use crate::log;
use crate::signals::{self, FATAL, Received, Sender, Signals, may_stop_for};
use crate::stderr;
use crate::talk::{Level, Talk};
use crate::view::asked;

/// Watches over `child` until no process of it is left, or until we are told to leave.
#[allow(clippy::large_futures, reason = "there is one")]
pub(crate) async fn supervise(
    guard: &MultiGuard,
    child: &mut Child,
    signals: &mut Signals,
    policy: Policy,
    talk: &Talk,
) -> Outcome {
    let clock = SystemHost;
    let mut supervision = Supervision::new(policy, child.terminal(), child.killed_at());
    let first_lost = guard.lost();
    let mut lost = pin!(async { first_lost.await.1 });
    let mut revoked = pin!(guard.revoked());
    let (mut told, mut asked, mut request) = (false, false, None);
    loop {
        if let Some(at) = supervision.kill_at(clock.now(), guard.remaining()) {
            child.kill_at(at);
        }
        let look = supervision.next_look(clock.now(), guard.remaining());
        let input = tokio::select! {
            biased;
            received = signals.next() => of_signal(received),
            reason = &mut lost, if !told => Input::Lost(reason),
            (name, revoked) = &mut revoked, if !asked => {
                say_asked(talk, &name, &revoked);
                Input::Revoked
            }
            () = child.stirs() => Input::Timer,
            () = tokio::time::sleep(look) => Input::Timer,
        };
        told |= matches!(input, Input::Lost(_));
        asked |= input == Input::Revoked;
        // Look for changes even without a signal: several signals may arrive as one.
        let changes = child.changes().into_iter().map(|change| match change {
            Change::Ended(exit) => Input::Ended(exit),
            Change::AllGone => Input::AllGone,
            Change::KilledInTime => Input::KilledInTime,
            Change::KeeperGone => Input::KeeperGone,
            Change::Signal(signal) => Input::Signal(Received { signal, sender: Sender::OurKeeper }),
            Change::Counted(census) => Input::Counted(census.took),
        });
        let mut inputs: Vec<Input> = changes.chain([input]).collect();
        // Take signals last, since the signal that ended the command may have been sent to us too.
        inputs.extend(signals.take_requests().into_iter().map(Input::Signal));
        request = request.or_else(|| inputs.iter().find_map(of_request));
        if child.came_too_late() {
            return Outcome::TooLate(request);
        }
        for input in in_order(inputs, supervision.is_asked_to_stop()) {
            let left = guard.remaining();
            let reason = if told { None } else { why_none_is_left(left, lost.as_mut()) };
            told |= reason.is_some();
            let inputs = reason.map(Input::Lost).into_iter().chain([input]);
            let actions = inputs.flat_map(|input| supervision.on(clock.now(), left, input));
            for action in actions.collect::<Vec<_>>() {
                match action {
                    Action::Forward(signal) => child.forward(signal),
                    Action::ForwardOutside(signal) => child.forward_outside(signal),
                    Action::SignalAll(signal) => child.signal_all(signal),
                    Action::Kill => child.kill(),
                    Action::Suspend => {
                        // Once we are stopped, no thread writes the message about it.
                        stderr::finish();
                        if !signals.are_continued() {
                            signals::suspend();
                        }
                    }
                    Action::Say(news) => say(talk, guard, child, policy, news),
                    Action::Finish(verdict) => return Outcome::Ran(verdict),
                }
            }
        }
    }
}

/// A signal that we received, or a stop that nobody could undo.
fn of_signal(received: Received) -> Input {
    let is_stop = received.signal == Signal::TSTP;
    if is_stop && !may_stop_for(received.sender) {
        return Input::CannotSuspend;
    }
    Input::Signal(received)
}

/// Puts the inputs in the order in which they are decided. A loss comes first: after it no time is
/// left, and without the reason a change would look like the deadline. Then come requests to stop,
/// because they may have caused the changes.
///
/// Once nothing is left of the command, a further request has nothing to kill or to leave behind.
/// So only the first one counts, as the cause. A HUP is no such request by itself.
fn in_order(mut inputs: Vec<Input>, mut is_asked: bool) -> Vec<Input> {
    if inputs.contains(&Input::AllGone) {
        inputs.retain(|input| match of_request(input) {
            None | Some(Signal::HUP) => true,
            Some(_) => !std::mem::replace(&mut is_asked, true),
        });
    }
    inputs.sort_by_key(|input| match input {
        Input::Lost(_) => 0,
        input if is_request(input) => 1,
        _ => 2,
    });
    inputs
}

/// The signal of a request to stop.
fn of_request(input: &Input) -> Option<Signal> {
    match input {
        Input::Signal(received) => Some(received.signal).filter(|it| FATAL.contains(it)),
        _ => None,
    }
}

fn is_request(input: &Input) -> bool {
    of_request(input).is_some()
}

/// Why nothing is left of the lease, if that is known. A lease that is not ours has no time left
/// either. Without the reason, the next input would look like the deadline, and kill a command that
/// may still be told to stop.
fn why_none_is_left(left: Duration, lost: Pin<&mut impl Future<Output = Lost>>) -> Option<Lost> {
    if !left.is_zero() {
        return None;
    }
    match lost.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reason) => Some(reason),
        Poll::Pending => None,
    }
}

/// Why the lease has not been renewed since its last renewal, if `left` of it remains.
fn why_not_renewed(policy: Policy, left: Duration) -> Option<String> {
    log::trouble_since(SystemHost.now().minus(policy.ttl.saturating_sub(left)))
}

/// The lock that a message names. If the time left matters, it is the lock with the least time.
fn about(guard: &MultiGuard, news: News) -> Option<&str> {
    let is_about_one = matches!(news, News::Overdue { .. } | News::Stopping { .. } | News::Lost(_));
    match guard.guards() {
        [only] => Some(only.name()),
        all if is_about_one => all.iter().min_by_key(|one| one.remaining()).map(Guard::name),
        _ => None,
    }
}

fn why_killed(news: News) -> &'static str {
    match news {
        News::KillingInTime => "killing the command: --max-hold is over",
        News::KillingAsAsked => {
            "second signal: killing the command; a third one ends leasehold at once"
        }
        _ => "killing the command: it must not outlive its lease",
    }
}

const UNKILLED: &str = "processes of the command live on although they were killed; waiting for \
                        their end; if they belong to another user, end them as that user or as \
                        root";

/// Says who asks us to let go of a lock.
fn say_asked(talk: &Talk, name: &str, revoked: &Revocation) {
    let text = format!(
        "{}: the command is told to stop, and the lock is held until it has ended",
        asked(revoked)
    );
    talk.notice(Level::Warning, "revoked", Some(name), &text);
}

fn say(talk: &Talk, guard: &MultiGuard, child: &Child, policy: Policy, news: News) {
    let name = about(guard, news);
    let (level, event, text) = match news {
        News::Overdue { left: span } => (
            Level::Warning,
            "renewal-overdue",
            format!(
                "the lease was not renewed in time: {}; still trying, but the command is told to \
                 stop if no renewal succeeds within {}",
                why_not_renewed(policy, span)
                    .unwrap_or_else(|| "the store has not answered yet".to_owned()),
                human(span.saturating_sub(policy.notice()))
            ),
        ),
        News::Renewed => (Level::Info, "renewed", "the lease is renewed again".to_owned()),
        News::Stopping { left: span } => (
            Level::Warning,
            "stopping",
            format!(
                "the lease could not be renewed and ends in {}: telling the command to stop{}",
                human(span),
                why_not_renewed(policy, span)
                    .map(|cause| format!(" ({cause})"))
                    .unwrap_or_default()
            ),
        ),
        News::Lost(reason) => {
            (Level::Error, "lost", format!("the lock is lost: {reason}; ending the command"))
        }
        News::TimeOver { left: span } => (
            Level::Warning,
            "time-over",
            format!("--max-hold is over in {}: telling what still runs to stop", human(span)),
        ),
        News::Killing | News::KillingInTime | News::KillingAsAsked => {
            (Level::Warning, "killing", why_killed(news).to_owned())
        }
        News::KeeperGone => (
            Level::Error,
            "keeper-gone",
            "the keeper process of the command was killed; killing the command".to_owned(),
        ),
        News::Leaving => (
            Level::Warning,
            "leaving",
            "exiting; the command may still run, so the lock stays held until its ttl ends"
                .to_owned(),
        ),
        News::Suspending { left: span } => (
            Level::Warning,
            "suspending",
            format!(
                "suspended, so the lease is not renewed and ends in {}; the command is killed \
                 before that",
                human(span)
            ),
        ),
        News::Unkilled => (Level::Error, "unkilled", UNKILLED.to_owned()),
        News::Lingering => (
            Level::Info,
            "lingering",
            format!(
                "the command has ended, and {} of its processes still run: \
                 the lock is held until they end",
                child.alive()
            ),
        ),
    };
    talk.notice(level, event, name, &text);
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn the_reason_of_a_loss_is_known_first_if_no_time_is_left() {
        let second = Duration::from_secs(1);
        let lost = || pin_of(ready(Lost::NotOurs));
        assert_eq!(why_none_is_left(Duration::ZERO, lost().as_mut()), Some(Lost::NotOurs));
        assert_eq!(why_none_is_left(second, lost().as_mut()), None, "it is told later");
        assert_eq!(why_none_is_left(Duration::ZERO, pin_of(pending()).as_mut()), None);
    }

    #[test]
    fn a_loss_and_then_requests_are_decided_on_before_what_happened_to_the_command() {
        let (ended, gone) = (Input::Ended(crate::exit::Exit::OK), Input::AllGone);
        let lost = Input::Lost(Lost::NotOurs);
        let of = |signal| Input::Signal(Received { signal, sender: Sender::OurKeeper });
        let (term, winch) = (of(Signal::TERM), of(Signal::WINCH));
        let sorted = in_order(vec![ended, winch, gone, term, lost], false);
        assert_eq!(sorted, [lost, term, ended, winch, gone]);
        let timer = vec![Input::KilledInTime, gone, Input::Timer];
        assert_eq!(in_order(timer.clone(), false), timer);
    }

    #[test]
    fn only_one_request_counts_after_all_processes_ended() {
        let (ended, gone) = (Input::Ended(crate::exit::Exit::OK), Input::AllGone);
        let of = |signal| Input::Signal(Received { signal, sender: Sender::OurKeeper });
        let (term, int, hup) = (of(Signal::TERM), of(Signal::INT), of(Signal::HUP));
        for (inputs, is_asked, expected) in [
            (vec![ended, gone, term, int], false, vec![term, ended, gone]),
            (vec![ended, gone, term, int], true, vec![ended, gone]),
            (vec![ended, gone, hup, term, int], false, vec![hup, term, ended, gone]),
            (vec![ended, term, int], false, vec![term, int, ended]),
        ] {
            assert_eq!(in_order(inputs, is_asked), expected);
        }
    }

    fn pin_of(lost: impl Future<Output = Lost>) -> Pin<Box<impl Future<Output = Lost>>> {
        Box::pin(lost)
    }
}
