//! The life of one lease, as the client sees it that has it.
//!
//! | state | answer *renewed* | answer *lost* | no answer | deadline passes | its guard ends | a task asks for it |
//! |---|---|---|---|---|---|---|
//! | held | deadline moved forward | lost | renewed again soon | lost | held (passed), idle or released | |
//! | idle | deadline moved forward | lost | renewed again soon | lost | | held or released |
//! | lost | | | | | | |
//! | released | | | | | | |
//!
//! A renewal that failed is *unknown*, not *lost*: the old deadline still stands, and decides.
//! Nothing leads back from *lost* and *released*: a late good answer must not revive a lease that
//! its holder was told to be lost.
//!
//! *Idle* is a lease that no guard uses. A lease has a guard after the other; each has a *turn*,
//! and only the latest turn counts.

use std::fmt;
use std::time::Duration;

use crate::core::backoff::{Backoff, Delays};
use crate::core::moment::Moment;
use crate::core::passing::Passing;
use crate::core::token::{FencingBlock, FencingToken};
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;

/// How long before its deadline a holder is told that the lease is lost: timers of a runtime count
/// whole milliseconds and are late by up to one of them, and the holder must not learn of it after
/// the deadline.
const TOLD_AHEAD: Duration = Duration::from_millis(1);

/// How soon the ttl of a lease is lifted to the full one that was handed over for a short while. A
/// turn that is over by then costs no renewal.
const LIFTED_WITHIN: Duration = Duration::from_millis(100);

/// After how long the store is told that a lease is idle, or is not any more. Who locks and
/// releases all the time costs no request.
const SHOWN_AFTER: Duration = Duration::from_millis(100);

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The validity ended before a renewal was confirmed: the store did not answer, or this process
    /// did not run.
    Deadline,
    /// The store answered that the lease is not ours: it ended, was deleted, or was taken from us
    /// by an operator.
    NotOurs,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "its validity ended before a renewal was confirmed",
            Self::NotOurs => "the store says that it is no longer ours",
        })
    }
}

/// In which state a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Ours until the deadline, and in use.
    Held,
    /// Ours until the deadline, and in nobody's use.
    Idle {
        /// Since when.
        since: Moment,
        /// Until when it is kept so.
        until: Moment,
    },
    /// Ended without us. For good.
    Lost(Lost),
    /// Given up by us. For good.
    Released,
}

/// What the driver has to do for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing before this moment.
    WaitUntil(Moment),
    /// Send a renewal now.
    Renew,
    /// It was idle for as long as it may be: release it.
    GiveUp,
    /// It was lost just now: tell the holder, and release the token.
    TellLost(Lost),
    /// It is over: forget it.
    Forget,
}

/// One guard's time with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Its number among the turns of the lease.
    pub(crate) number: u64,
    /// The fencing token of this turn.
    pub(crate) fencing: Option<FencingToken>,
}

/// What becomes of a lease when its guard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// The next task of this client has it.
    Pass(Turn),
    /// It is kept with no guard.
    Idle,
    /// It is released, and one step of the store decides: it is handed over, or this client has it
    /// again by another token.
    Leave,
    /// It is released.
    Free,
    /// It had been lost before.
    Lost(Lost),
    /// This guard had ended before.
    Over,
}

/// What becomes of an idle lease that a task asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// The task has it.
    Take(Turn),
    /// It is released, and one step of the store decides: it is handed over, or this client has it
    /// again by another token.
    Leave,
    /// It is in use.
    InUse,
    /// It is there no more.
    Gone,
}

/// One lease, from its grant to its end.
#[derive(Clone, Debug)]
pub(crate) struct LeaseLife {
    ttl: Ttl,
    state: LeaseState,
    deadline: Moment,
    renew_at: Moment,
    renewing: bool,
    /// Whether another renewal is to follow at once.
    renew_again: bool,
    fencing: Option<FencingBlock>,
    /// How many turns had a fencing token of the block.
    used: u32,
    /// The number of the latest turn; it rises when one ends, too.
    turn: u64,
    passing: Passing,
    /// Whether the store was told last that it is idle.
    shown_idle: bool,
    delays: Delays,
}

impl LeaseLife {
    /// A lease of `ttl`, granted in answer to a request that left at `sent`, and its first turn.
    #[must_use]
    pub(crate) fn granted(sent: Moment, ttl: Ttl, fencing: Option<FencingBlock>) -> (Self, Turn) {
        let life = Self {
            ttl,
            state: LeaseState::Held,
            deadline: valid_until(sent, ttl),
            renew_at: renewal_due(sent, ttl),
            renewing: false,
            renew_again: false,
            fencing,
            used: 1,
            turn: 0,
            passing: Passing::default(),
            shown_idle: false,
            delays: Backoff { first: ttl.get() / 20, longest: ttl.get() / 10 }.delays(),
        };
        (life, Turn { number: 0, fencing: fencing.map(|block| block.first) })
    }

    /// A lease of `ttl` that was handed over for `handed_ttl`, after the store had processed an ask
    /// that left at `sent`. Its ttl is lifted to the full one soon.
    #[must_use]
    pub(crate) fn handed_over(
        now: Moment,
        sent: Moment,
        ttl: Ttl,
        handed_ttl: Ttl,
        fencing: Option<FencingBlock>,
    ) -> (Self, Turn) {
        let (mut life, turn) = Self::granted(sent, ttl, fencing);
        // Most likely somebody stood behind us. The store says so if nobody did.
        life.passing.want(now);
        let deadline = valid_until(sent, handed_ttl);
        let renew_at = now + LIFTED_WITHIN.min(deadline.since(now) / 4);
        (Self { deadline, renew_at, ..life }, turn)
    }

    /// In which state it is. A passed deadline shows only once [`duty`](Self::duty) was asked.
    #[must_use]
    pub(crate) const fn state(&self) -> LeaseState {
        self.state
    }

    /// Whether this turn is the latest, and has not ended.
    #[must_use]
    pub(crate) const fn is_turn(&self, turn: u64) -> bool {
        self.turn == turn
    }

    /// Whether nobody uses it.
    #[must_use]
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, LeaseState::Idle { .. })
    }

    /// Until when the lease is ours unless it is renewed.
    #[must_use]
    pub(crate) const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether it is ours, and a renewal that [`duty`](Self::duty) gave has no answer yet.
    #[must_use]
    pub(crate) const fn is_renewing(&self) -> bool {
        self.renewing && self.is_ours()
    }

    /// A renewal leaves. Returns whether it is to tell the store that the lease is idle.
    pub(crate) const fn show(&mut self) -> bool {
        self.shown_idle = self.is_idle();
        self.shown_idle
    }

    /// Whoever waited for the answer to a renewal waits no more: one that was sent counts as
    /// unanswered.
    pub(crate) fn abandon_renewal(&mut self, now: Moment) {
        if self.renewing {
            self.on_unanswered(now, 0);
        }
    }

    const fn is_ours(&self) -> bool {
        matches!(self.state, LeaseState::Held | LeaseState::Idle { .. })
    }

    /// Whether the holder may act at `now`.
    #[must_use]
    pub(crate) fn is_held(&self, turn: u64, now: Moment) -> bool {
        self.state == LeaseState::Held && self.turn == turn && now < self.deadline
    }

    /// For how long the holder may still act at `now`.
    #[must_use]
    pub(crate) fn remaining(&self, turn: u64, now: Moment) -> Duration {
        if self.is_held(turn, now) { self.deadline.since(now) } else { Duration::ZERO }
    }

    /// How long the lease is ours still at `now`, whoever of us uses it.
    #[must_use]
    pub(crate) fn left(&self, now: Moment) -> Duration {
        if self.is_ours() { self.deadline.since(now) } else { Duration::ZERO }
    }

    /// What to do at `now`. [`Duty::Renew`] is given once per renewal: an answer or a failure must
    /// follow.
    pub(crate) fn duty(&mut self, now: Moment) -> Duty {
        if !self.is_ours() {
            return Duty::Forget;
        }
        if now >= self.told_at() {
            return self.lose(Lost::Deadline);
        }
        if self.given_up_at().is_some_and(|at| now >= at) {
            return Duty::GiveUp;
        }
        if self.renewed_at().is_some_and(|at| now >= at) {
            (self.renewing, self.renew_again) = (true, false);
            return Duty::Renew;
        }
        Duty::WaitUntil(self.due())
    }

    fn lose(&mut self, lost: Lost) -> Duty {
        self.state = LeaseState::Lost(lost);
        Duty::TellLost(lost)
    }

    /// When [`duty`](Self::duty) is to be asked next, as things stand.
    #[must_use]
    pub(crate) fn due(&self) -> Moment {
        let all = [Some(self.told_at()), self.given_up_at(), self.renewed_at()];
        all.into_iter().flatten().min().expect("the first is always there")
    }

    fn told_at(&self) -> Moment {
        self.deadline.minus(TOLD_AHEAD)
    }

    fn given_up_at(&self) -> Option<Moment> {
        match self.state {
            LeaseState::Idle { since, .. } if self.passing.is_wanted() => Some(since),
            LeaseState::Idle { until, .. } => Some(until),
            _ => None,
        }
    }

    /// When a renewal is due: the ttl has to be restarted, or the store be told that the lease is
    /// idle now, or is not any more.
    fn renewed_at(&self) -> Option<Moment> {
        if self.renewing {
            return None;
        }
        match self.state {
            LeaseState::Idle { since, .. } if !self.shown_idle => {
                Some(self.renew_at.min(since + SHOWN_AFTER))
            }
            LeaseState::Held | LeaseState::Idle { .. } => Some(self.renew_at),
            _ => None,
        }
    }

    /// Has the store asked soon whether others wait: hints may have been missed. A renewal that is
    /// under way may have been carried out before.
    pub(crate) fn renew_soon(&mut self, now: Moment) {
        self.renew_at = self.renew_at.min(now);
        self.renew_again = self.renewing;
    }

    /// Another client waits.
    pub(crate) fn want(&mut self, now: Moment) {
        self.passing.want(now);
    }

    /// The answer *renewed*, to a renewal that left at `sent`. Returns whether it counted.
    ///
    /// It counts only for a lease that is still held at `now` and only if it carries the same
    /// fencing tokens: an answer about another grant must not move this deadline. The deadline
    /// moves forward only.
    pub(crate) fn on_renewed(
        &mut self,
        now: Moment,
        sent: Moment,
        fencing: Option<FencingBlock>,
        wanted: bool,
    ) -> bool {
        if !self.is_ours() || now >= self.deadline || fencing != self.fencing {
            // About another grant, or too late: as good as no answer, and no reason to hurry.
            self.on_unanswered(now, u32::MAX);
            return false;
        }
        self.renewing = false;
        self.deadline = self.deadline.max(valid_until(sent, self.ttl));
        self.renew_at = renewal_due(sent, self.ttl);
        self.delays.reset();
        if std::mem::take(&mut self.renew_again) {
            self.renew_at = now;
        }
        if wanted {
            self.passing.want(now);
        } else {
            self.passing.not_wanted(sent);
        }
        true
    }

    /// The answer *lost*. Returns whether that is news to anybody.
    pub(crate) fn on_lost(&mut self) -> bool {
        self.renewing = false;
        match self.state {
            LeaseState::Held | LeaseState::Idle { .. } => {
                self.lose(Lost::NotOurs);
                true
            }
            LeaseState::Lost(_) | LeaseState::Released => false,
        }
    }

    /// No answer, or one that says nothing about the lease: try again soon, the old deadline
    /// stands.
    pub(crate) fn on_unanswered(&mut self, now: Moment, random: u32) {
        self.renewing = false;
        let quarter_left = self.deadline.since(now) / 4;
        self.renew_at = now + self.delays.next(random).min(quarter_left).max(self.ttl.get() / 100);
    }

    /// The guard of that turn ends. `waiting`: whether a task of this client waits for just such a
    /// lease; `keep_idle`: for how long it may be kept with no guard.
    pub(crate) fn part(
        &mut self,
        now: Moment,
        turn: u64,
        waiting: bool,
        keep_idle: Duration,
    ) -> Parting {
        match self.state {
            LeaseState::Lost(lost) => return Parting::Lost(lost),
            LeaseState::Held if self.turn == turn => {}
            _ => return Parting::Over,
        }
        if now >= self.deadline {
            self.state = LeaseState::Lost(Lost::Deadline);
            return Parting::Lost(Lost::Deadline);
        }
        self.turn += 1;
        let has_time = self.deadline.since(now) >= self.ttl.min_validity();
        if waiting {
            if has_time && self.has_fencing() && self.passing.may_pass(now) {
                self.passing.count();
                return Parting::Pass(self.next_turn());
            }
            self.state = LeaseState::Released;
            return Parting::Leave;
        }
        if keep_idle.is_zero() || self.passing.is_wanted() || !has_time {
            self.state = LeaseState::Released;
            return Parting::Free;
        }
        self.state = LeaseState::Idle { since: now, until: now + keep_idle };
        Parting::Idle
    }

    /// A task asks for it.
    pub(crate) fn take(&mut self, now: Moment) -> Taking {
        match self.state {
            LeaseState::Held if now < self.deadline => Taking::InUse,
            LeaseState::Idle { .. } if now < self.deadline => {
                let has_time = self.deadline.since(now) >= self.ttl.min_validity();
                if !has_time || !self.has_fencing() || self.passing.is_wanted() {
                    self.state = LeaseState::Released;
                    return Taking::Leave;
                }
                if self.shown_idle {
                    self.renew_soon(now);
                }
                Taking::Take(self.next_turn())
            }
            _ => Taking::Gone,
        }
    }

    fn has_fencing(&self) -> bool {
        self.fencing.is_none_or(|block| self.used < block.count)
    }

    fn next_turn(&mut self) -> Turn {
        self.state = LeaseState::Held;
        let fencing = self.fencing.and_then(|block| block.nth(self.used));
        self.used += 1;
        Turn { number: self.turn, fencing }
    }

    /// We give it up, whoever of us uses it. Whether it was ours is returned, so that the caller
    /// knows if there is something to release.
    pub(crate) fn release(&mut self, now: Moment) -> Result<(), Lost> {
        match self.state {
            LeaseState::Held | LeaseState::Idle { .. } if now < self.deadline => {
                self.state = LeaseState::Released;
                Ok(())
            }
            LeaseState::Held | LeaseState::Idle { .. } => {
                self.state = LeaseState::Lost(Lost::Deadline);
                Err(Lost::Deadline)
            }
            LeaseState::Lost(lost) => Err(lost),
            LeaseState::Released => Ok(()),
        }
    }
}

/// When a lease is due for renewal that was last confirmed at `sent`: after a third of its ttl,
/// rounded up to a tick that all leases of that ttl share, so that the renewals of many leases
/// travel together. A tick is a thirtieth of the ttl, half a second at
/// most.
fn renewal_due(sent: Moment, ttl: Ttl) -> Moment {
    let tick = u64::try_from((ttl.get() / 30).min(Duration::from_millis(500)).as_nanos())
        .expect("at most 500 ms");
    let due = (sent + ttl.renew_every()).as_nanos();
    Moment::from_nanos(due.div_ceil(tick).saturating_mul(tick))
}

#[cfg(test)]
mod tests;
