//! Decides what to do with a running command, as a pure function.
//!
//! | state | asked to stop | 2nd, 3rd time | left <= grace | not ours | deadline | all gone |
//! |---|---|---|---|---|---|---|
//! | running | forward | kill, leave | → stopping | → stopping | → killing | release |
//! | stopping | forward | kill, leave | - | kill sooner | → killing | 79 |
//! | killing | forward, kill | kill, leave | kill again | kill again | kill again | as before |
//!
//! An arrow names the next state. When *stopping* begins, the command is told to stop. When
//! *killing* begins, it is killed.
//!
//! *Stopping* has a time limit, and *killing* begins at its end. If the lease was still ours when
//! *stopping* began, the limit ends before the deadline. "All gone" means that the command and
//! every process it started have ended. A lost lease is never released. If the keeper is killed,
//! the command is killed, and a third signal kills again instead of leaving. [`Requests`] decides
//! what counts as another request: a HUP never does. With `--max-hold`, what is left of that
//! time counts like the lease, if it is less, and ends with 124. No state leads back to *running*:
//! if the store answers again, a command that was told to stop must still end.
//!
//! A request to let go tells a *running* command to stop, once, and changes no state. The lease is
//! still ours, so the command may take its time. It is never killed for that.

use std::time::Duration;

use leasehold::Lost;
use leasehold::core::Moment;
use rustix::process::Signal;

pub(crate) use super::news::News;
use super::policy::Policy;
use super::requests::Requests;
use super::terminal::Terminal;
use super::verdict::{Cause, Lease, Verdict};
use crate::exit::Exit;
use crate::signals::{FATAL, Received, Sender};

/// The longest pause between two readings of the clock: timers of the runtime stand still in
/// suspend.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The shortest pause between two rounds of killing. The pauses grow, since we probably cannot kill
/// a process that survives for long.
const KILL_EVERY: Duration = Duration::from_millis(1);

/// The longest grace that a command gets after a definite loss.
const LOST_GRACE_MAX: Duration = Duration::from_secs(2);

/// The signals of the keys that ask a command at a terminal to stop.
const KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// How long processes that outlive the command go unmentioned.
const LINGER_QUIETLY: Duration = Duration::from_millis(300);

/// How long processes that do not end by being killed go unmentioned.
const UNKILLED_QUIETLY: Duration = Duration::from_secs(5);

/// An event that the supervisor learns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A signal came to us or to the keeper.
    Signal(Received),
    /// We were told to stop where nobody could continue us. The terminal may have stopped the
    /// command, since to the kernel our keeper looks like a shell.
    CannotSuspend,
    /// The command itself ended.
    Ended(Exit),
    /// Nothing that the command started lives any more.
    AllGone,
    /// The lease was lost.
    Lost(Lost),
    /// Somebody asks us to let go of the lock.
    Revoked,
    /// The keeper killed the command at its set moment, because no later moment had been sent.
    KilledInTime,
    /// The keeper was killed: only we watch over the command now.
    KeeperGone,
    /// Looking at all processes of the command took this long.
    Counted(Duration),
    /// Time passed.
    Timer,
}

/// An action of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Passes a signal on to the command.
    Forward(Signal),
    /// Passes a signal of our terminal on to a command that has left our process group.
    ForwardOutside(Signal),
    /// Sends a signal to everything that the command started, and continues suspended processes.
    SignalAll(Signal),
    /// Kills everything that the command started.
    Kill,
    /// Stops ourselves until somebody continues us.
    Suspend,
    /// Says something.
    Say(News),
    /// Ends the supervision.
    Finish(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping { kill_at: Moment },
    Killing { since: Moment },
}

/// The bound that a command was stopped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// The lease is lost, or about to end.
    Lease,
    /// `--max-hold` is over.
    MaxHold,
}

/// The state of one supervision.
#[derive(Debug)]
pub(crate) struct Supervision {
    policy: Policy,
    terminal: Terminal,
    phase: Phase,
    /// Why the command was stopped, unless we were asked to.
    stopped_for: Option<Bound>,
    lost: Option<Lost>,
    requests: Requests,
    /// Whether the command was told to stop because we were asked to let go.
    revoked: bool,
    /// Whether a person at the terminal asked the command to stop.
    asked_at_terminal: bool,
    /// Whether the keeper was killed.
    broken: bool,
    /// How much earlier to stop and kill the command because it has many processes.
    reserve: Duration,
    ended: Option<(Exit, Moment)>,
    ended_by_itself: bool,
    ended_after_hup: bool,
    /// The time at which the keeper will kill the command, as we last told it.
    keeper_kills_at: Moment,
    overdue: bool,
    lingering_said: bool,
    unkilled_said: bool,
    finished: bool,
    actions: Vec<Action>,
}

impl Supervision {
    /// Starts supervising a command that runs from now on, with a keeper that kills it at
    /// `keeper_kills_at` if it hears of no other moment.
    pub(crate) fn new(policy: Policy, terminal: Terminal, keeper_kills_at: Moment) -> Self {
        Self {
            policy,
            terminal,
            phase: Phase::Running,
            stopped_for: None,
            lost: None,
            requests: Requests::default(),
            revoked: false,
            asked_at_terminal: false,
            broken: false,
            reserve: Duration::ZERO,
            ended: None,
            ended_by_itself: false,
            ended_after_hup: false,
            keeper_kills_at,
            overdue: false,
            lingering_said: false,
            unkilled_said: false,
            finished: false,
            actions: Vec::new(),
        }
    }

    /// Decides on `input`, which arrived at `now` with `left` of the lease remaining.
    pub(crate) fn on(&mut self, now: Moment, left: Duration, input: Input) -> Vec<Action> {
        // Check the lease before a signal is passed on, since a command that is continued after the
        // lease expired must not run for another instant.
        if left.is_zero() && self.lost.is_none() && input != Input::Lost(Lost::NotOurs) {
            self.lose(now, Lost::Deadline);
        }
        match input {
            Input::Signal(came) => self.on_signal(now, left, came),
            Input::CannotSuspend if self.lost.is_none() => {
                self.actions.push(Action::SignalAll(Signal::CONT));
            }
            Input::Ended(exit) => {
                self.ended = Some((exit, now));
                self.ended_by_itself = self.cause() == Cause::Command;
                self.ended_after_hup = self.requests.has_hung_up();
            }
            Input::AllGone => self.on_all_gone(),
            Input::Lost(lost) => self.lose(now, lost),
            Input::Revoked => self.on_revoked(),
            Input::KilledInTime => self.on_killed_in_time(now, left),
            Input::KeeperGone => {
                self.broken = true;
                self.begin_to_kill(now, News::KeeperGone);
            }
            Input::Counted(took) => self.reserve = self.policy.reserve(took),
            Input::CannotSuspend | Input::Timer => {}
        }
        self.look_at_the_time(now, left);
        std::mem::take(&mut self.actions)
    }

    /// Whether somebody has asked us to stop.
    pub(crate) const fn is_asked_to_stop(&self) -> bool {
        self.requests.is_any()
    }

    /// How long until time alone may change something.
    pub(crate) fn next_look(&self, now: Moment, left: Duration) -> Duration {
        let usable = self.usable(now, left);
        let until = |threshold: Duration| usable.saturating_sub(threshold);
        let next = match self.phase {
            Phase::Running => until(self.stop_below()).min(until(self.kill_below())),
            Phase::Stopping { kill_at } => kill_at.since(now),
            Phase::Killing { since } => (now.since(since) / 25).max(KILL_EVERY),
        };
        next.clamp(Duration::from_millis(1), LOOK_EVERY)
    }

    /// The moment at which the keeper kills everything if we have not. This is a little later than
    /// our own moment to kill. `None` while we kill everything ourselves.
    pub(crate) fn kill_at(&mut self, now: Moment, left: Duration) -> Option<Moment> {
        self.keeper_kills_at = match self.phase {
            Phase::Stopping { kill_at } if self.lost.is_some() => {
                // After a loss, the command never gets longer than its lease would have lasted.
                (kill_at + self.policy.margin() / 2).min(self.keeper_kills_at)
            }
            _ if self.lost.is_some() || left.is_zero() => return None,
            _ => self.policy.keeper_kills_at(now, left, self.reserve),
        };
        Some(self.keeper_kills_at)
    }

    fn usable(&self, now: Moment, left: Duration) -> Duration {
        self.policy.usable(now, left)
    }

    /// The bound that ends first. An earlier reason stays.
    fn stop_for_the_nearest(&mut self, now: Moment, left: Duration) {
        let is_limit = self.usable(now, left) < left;
        let bound = if is_limit { Bound::MaxHold } else { Bound::Lease };
        self.stopped_for.get_or_insert(bound);
    }

    fn stop_below(&self) -> Duration {
        self.policy.notice() + self.reserve
    }

    fn kill_below(&self) -> Duration {
        self.policy.margin() + self.reserve
    }

    fn on_signal(&mut self, now: Moment, left: Duration, came: Received) {
        let signal = came.signal;
        // A HUP from the kernel says that the terminal is gone. A HUP from a process may only ask a
        // daemon to read its settings.
        self.asked_at_terminal |= (signal, came.sender) == (Signal::HUP, Sender::Kernel);
        if FATAL.contains(&signal) && self.requests.is_echo(now, came) {
            return;
        }
        // The terminal signals our whole process group, and so a command that is still in it.
        let is_of_our_terminal = self.terminal.is_shared() && came.sender == Sender::Kernel;
        let is_hung_up = signal == Signal::HUP && self.terminal == Terminal::Shared;
        if is_of_our_terminal && (is_hung_up || KEYS.contains(&signal)) {
            // The command may choose to live on.
            self.asked_at_terminal = true;
            self.actions.push(Action::ForwardOutside(signal));
        } else if FATAL.contains(&signal) {
            self.on_asked_to_stop(now, signal);
        } else if signal == Signal::TSTP {
            self.say(News::Suspending { left });
            let stop = if is_of_our_terminal { Action::ForwardOutside } else { Action::Forward };
            self.actions.extend([stop(Signal::STOP), Action::Suspend]);
        } else if signal != Signal::CHILD && self.lost.is_none() {
            self.actions.push(Action::Forward(signal));
            if self.terminal.is_shared() && signal == Signal::CONT {
                // Ctrl-Z also stopped a command in a process group of its own.
                self.actions.push(Action::ForwardOutside(signal));
            }
        }
    }

    fn on_asked_to_stop(&mut self, now: Moment, signal: Signal) {
        match self.requests.count(now, signal) {
            _ if signal == Signal::HUP => self.actions.push(Action::Forward(signal)),
            1 => self.actions.push(Action::Forward(signal)),
            2 => {
                self.begin_to_kill(now, News::KillingAsAsked);
            }
            // Without a keeper, only we can kill the remaining processes.
            _ if self.broken => self.actions.push(Action::Kill),
            _ => {
                self.say(News::Leaving);
                self.finish(Verdict {
                    exit: Exit::Signal(signal.as_raw()),
                    lease: if self.lost.is_some() { Lease::Lost } else { Lease::LeaveToExpire },
                    cause: self.cause(),
                    by_itself: self.ended_by_itself,
                    hung_up: self.ended_after_hup,
                });
            }
        }
    }

    fn lose(&mut self, now: Moment, lost: Lost) {
        if self.lost.is_none() {
            self.say(News::Lost(lost));
        }
        self.lost.get_or_insert(lost);
        self.stopped_for = Some(Bound::Lease);
        match (lost, self.phase) {
            (_, Phase::Killing { .. }) => {}
            (Lost::NotOurs, Phase::Running) => {
                let kill_at = now + self.policy.grace.min(LOST_GRACE_MAX);
                self.phase = Phase::Stopping { kill_at };
                self.actions.push(Action::SignalAll(self.policy.stop));
            }
            (Lost::NotOurs, Phase::Stopping { kill_at }) => {
                let sooner = now + self.policy.grace.min(LOST_GRACE_MAX);
                self.phase = Phase::Stopping { kill_at: kill_at.min(sooner) };
            }
            _ => self.begin_to_kill(now, News::Killing),
        }
    }

    fn on_revoked(&mut self) {
        let is_stopping = self.phase != Phase::Running || self.requests.is_any();
        if !is_stopping && !self.revoked {
            self.revoked = true;
            self.actions.push(Action::SignalAll(self.policy.stop));
        }
    }

    fn on_killed_in_time(&mut self, now: Moment, left: Duration) {
        if !self.is_killing() {
            self.stop_for_the_nearest(now, left);
            self.begin_to_kill(now, self.killing());
        }
    }

    fn on_all_gone(&mut self) {
        let exit = match self.ended {
            _ if self.stopped_for == Some(Bound::Lease) => Exit::LOST,
            _ if self.is_time_over() => Exit::TIME_OVER,
            Some((exit, _)) => exit,
            // Only the keeper knew how the command ended.
            None if self.broken => Exit::INTERNAL,
            None => return,
        };
        let lease = if self.lost.is_some() { Lease::Lost } else { Lease::Release };
        self.finish(Verdict {
            exit,
            lease,
            cause: self.cause(),
            by_itself: self.ended_by_itself,
            hung_up: self.ended_after_hup,
        });
    }

    /// Whether the command was stopped by `--max-hold`. If only processes that it left behind were,
    /// it ended as it wanted.
    fn is_time_over(&self) -> bool {
        self.stopped_for == Some(Bound::MaxHold) && !self.ended_by_itself
    }

    fn cause(&self) -> Cause {
        let was_hung_up = self.ended.is_some_and(|(exit, at)| self.requests.ended_by_hup(exit, at));
        if self.requests.is_any() || self.asked_at_terminal || was_hung_up {
            Cause::Request
        } else if self.stopped_for == Some(Bound::Lease) || self.is_time_over() {
            Cause::Lease
        } else if self.revoked {
            Cause::Revoked
        } else if self.was_ended_by_a_key() {
            Cause::Request
        } else {
            Cause::Command
        }
    }

    /// Whether Ctrl-C or Ctrl-\ ended the command. The terminal sends the signal to the command and
    /// to us, and ours may arrive later.
    fn was_ended_by_a_key(&self) -> bool {
        let by_key = |exit| KEYS.iter().any(|key| exit == Exit::Signal(key.as_raw()));
        self.terminal.is_shared() && self.ended.is_some_and(|(exit, _)| by_key(exit))
    }

    fn look_at_the_time(&mut self, now: Moment, left: Duration) {
        if self.finished {
            return;
        }
        self.look_at_renewals(left);
        let usable = self.usable(now, left);
        match self.phase {
            Phase::Running if usable <= self.kill_below() => {
                self.stop_for_the_nearest(now, left);
                self.begin_to_kill(now, self.killing());
            }
            Phase::Running if usable <= self.stop_below() => {
                self.stop_for_the_nearest(now, left);
                self.say(match self.stopped_for {
                    Some(Bound::MaxHold) => News::TimeOver { left: usable },
                    _ => News::Stopping { left },
                });
                self.actions.push(Action::SignalAll(self.policy.stop));
                let kill_at = (now + usable).minus(self.kill_below());
                self.phase = Phase::Stopping { kill_at };
            }
            Phase::Stopping { kill_at } if now >= kill_at => {
                self.begin_to_kill(now, self.killing());
            }
            Phase::Killing { since } if !self.actions.contains(&Action::Kill) => {
                self.actions.push(Action::Kill);
                if !self.unkilled_said && now.since(since) >= UNKILLED_QUIETLY {
                    self.unkilled_said = true;
                    self.say(News::Unkilled);
                }
            }
            _ => {}
        }
        if let Some((_, since)) = self.ended
            && !self.lingering_said
            && now.since(since) >= LINGER_QUIETLY
        {
            self.lingering_said = true;
            self.say(News::Lingering);
        }
    }

    fn look_at_renewals(&mut self, left: Duration) {
        let overdue = left < self.policy.overdue_below();
        if self.lost.is_some() || self.stopped_for.is_some() || overdue == self.overdue {
            return;
        }
        self.overdue = overdue;
        self.say(if overdue { News::Overdue { left } } else { News::Renewed });
    }

    const fn killing(&self) -> News {
        match self.stopped_for {
            Some(Bound::MaxHold) => News::KillingInTime,
            _ => News::Killing,
        }
    }

    const fn is_killing(&self) -> bool {
        matches!(self.phase, Phase::Killing { .. })
    }

    fn begin_to_kill(&mut self, now: Moment, why: News) {
        self.say(why);
        if !self.is_killing() {
            self.phase = Phase::Killing { since: now };
        }
        self.actions.push(Action::Kill);
    }

    fn finish(&mut self, verdict: Verdict) {
        self.finished = true;
        self.actions.push(Action::Finish(verdict));
    }

    fn say(&mut self, news: News) {
        self.actions.push(Action::Say(news));
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "killing_tests.rs"]
mod killing_tests;

#[cfg(test)]
#[path = "model_tests.rs"]
mod model_tests;

#[cfg(test)]
#[path = "world_tests.rs"]
mod world_tests;
