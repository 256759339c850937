//! The life of one lease, from the side of the client that has it.
//!
//! | state | *renewed* | *lost* | no answer | deadline passes | guard ends | task asks |
//! |---|---|---|---|---|---|---|
//! | held | deadline moves on | lost | renew soon | lost | held (passed), idle or released | |
//! | idle | deadline moves on | lost | renew soon | lost | | held or released |
//! | lost | | | | | | |
//! | released | | | | | | |
//!
//! A failed renewal is *unknown*, not *lost*: the old deadline still decides. *Lost* and *released*
//! are final. A late answer must not revive a lease after its holder was told of the loss.
//!
//! No guard uses an *idle* lease. Guards use a lease one after another. Each has a *turn*, and only
//! the latest turn counts.

mod turns;

use std::time::Duration;

pub(crate) use self::turns::{Parting, Taking, Turn};

use crate::core::backoff::{Backoff, Delays};
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::passing::{ASKS_EVERY, Passing};
use crate::core::token::FencingBlock;
use crate::core::ttl::Ttl;
use crate::core::validity::{drift, valid_until};

/// How long before its deadline a holder is told of a loss. Runtime timers count whole milliseconds
/// and may fire one late. The holder must not learn of the loss after the deadline.
const TOLD_AHEAD: Duration = Duration::from_millis(1);

/// How soon the client raises the short ttl of a hand-over to the full ttl. A turn that ends
/// earlier costs no renewal.
const LIFTED_WITHIN: Duration = Duration::from_millis(100);

/// How long the client waits before it tells the store that a lease became idle. A client that
/// locks and releases all the time sends no such request.
const SHOWN_AFTER: Duration = Duration::from_millis(100);

/// The state of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Ours until the deadline, with a guard.
    Held,
    /// Ours until the deadline, without a guard. The client keeps it idle from `since` to `until`.
    Idle { since: Moment, until: Moment },
    /// Ended before we released it. Final.
    Lost(Lost),
    /// Released by us. Final.
    Released,
}

/// The driver's next task for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Nothing before this moment.
    WaitUntil(Moment),
    /// Send a renewal now.
    Renew,
    /// Release the lease, since it was idle for as long as allowed.
    GiveUp,
    /// Tell the holder of the loss, and release the token.
    TellLost(Lost),
    /// Forget the lease, since it is over.
    Forget,
}

/// One lease, from its grant to its end.
#[derive(Clone, Debug)]
pub(crate) struct LeaseLife {
    ttl: Ttl,
    state: LeaseState,
    /// When the lease ends without a renewal. Never after `limit`.
    deadline: Moment,
    /// When this hold ends, even if the lease could still be renewed: its `max_hold`.
    limit: Option<Moment>,
    renew_at: Moment,
    renewing: bool,
    /// Whether another renewal must follow at once.
    renew_again: bool,
    fencing: Option<FencingBlock>,
    /// How many fencing tokens of the block were used.
    used: u32,
    /// The number of the latest turn. It also rises when a turn ends.
    turn: u64,
    passing: Passing,
    /// Whether the holder was asked to let go. Then the lease is not passed on or kept idle.
    revoked: bool,
    /// Whether a guard uses it. Stays true if the lease is lost before its guard ends.
    in_use: bool,
    /// Whether the store keeps it for a whole ttl, and not only for the time of a hand-over.
    is_lifted: bool,
    /// Whether the store was last told that the lease is idle.
    shown_idle: bool,
    delays: Delays,
}

impl LeaseLife {
    /// A new lease of `ttl`, and its first turn. The request for it was sent at `sent`.
    #[must_use]
    pub(crate) fn granted(sent: Moment, ttl: Ttl, fencing: Option<FencingBlock>) -> (Self, Turn) {
        let life = Self {
            ttl,
            state: LeaseState::Held,
            deadline: valid_until(sent, ttl),
            limit: None,
            renew_at: renewal_due(sent, ttl),
            renewing: false,
            renew_again: false,
            fencing,
            used: 1,
            turn: 0,
            passing: Passing::default(),
            revoked: false,
            in_use: true,
            is_lifted: true,
            shown_idle: false,
            delays: Backoff { first: ttl.get() / 20, longest: ttl.get() / 10 }.delays(),
        };
        (life, Turn { number: 0, fencing: fencing.map(|block| block.first) })
    }

    /// A lease of `ttl` that was handed over for `handed_ttl`. The last ask that the store had
    /// processed left at `sent`. The client soon raises the short ttl to the full one.
    #[must_use]
    pub(crate) fn handed_over(
        now: Moment,
        sent: Moment,
        ttl: Ttl,
        handed_ttl: Ttl,
        fencing: Option<FencingBlock>,
    ) -> (Self, Turn) {
        let (mut life, turn) = Self::granted(sent, ttl, fencing);
        // Others probably wait behind us. If nobody does, the store says so.
        life.passing.want(now);
        let deadline = valid_until(sent, handed_ttl);
        let renew_at = now + LIFTED_WITHIN.min(deadline.since(now) / 4);
        (Self { deadline, renew_at, is_lifted: handed_ttl >= ttl, ..life }, turn)
    }

    /// Ends passing soon, since the client must ask the store whether it opens the key.
    pub(crate) fn end_passing(&mut self, now: Moment) {
        self.passing.end_at(now + ASKS_EVERY);
    }

    /// Ends the hold at this moment. The answer of the store does not matter.
    pub(crate) fn hold_until(&mut self, limit: Moment) {
        self.limit = Some(limit);
        self.deadline = self.deadline.min(limit);
    }

    /// The ttl of a renewal that leaves at `sent`. It is no longer than the limit needs, since
    /// nobody may be there to release the lease then.
    #[must_use]
    pub(crate) fn ttl_at(&self, sent: Moment) -> Ttl {
        match self.limit {
            Some(limit) => self.ttl.min(Ttl::nearest(limit.since(sent) + drift(self.ttl))),
            None => self.ttl,
        }
    }

    /// Why the lease is lost when its deadline passes.
    #[must_use]
    pub(crate) fn why_over(&self) -> Lost {
        if self.limit == Some(self.deadline) { Lost::MaxHold } else { Lost::Deadline }
    }

    /// The state. A passed deadline shows only after a call of [`duty`](Self::duty).
    #[must_use]
    pub(crate) const fn state(&self) -> LeaseState {
        self.state
    }

    /// Whether this turn is the latest and still goes on.
    #[must_use]
    pub(crate) const fn is_turn(&self, turn: u64) -> bool {
        self.turn == turn
    }

    /// Whether no guard uses it.
    #[must_use]
    pub(crate) const fn is_idle(&self) -> bool {
        matches!(self.state, LeaseState::Idle { .. })
    }

    /// Whether a guard uses it, or has not ended since the lease was lost.
    #[must_use]
    pub(crate) const fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Whether the store keeps it for a whole ttl.
    #[must_use]
    pub(crate) const fn is_lifted(&self) -> bool {
        self.is_lifted
    }

    /// Until when the lease is ours without a renewal.
    #[must_use]
    pub(crate) const fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether the lease is ours and a renewal from [`duty`](Self::duty) has no answer yet.
    #[must_use]
    pub(crate) const fn is_renewing(&self) -> bool {
        self.renewing && self.is_ours()
    }

    /// Notes that a renewal leaves. Returns whether it must tell the store that the lease is idle.
    pub(crate) const fn show(&mut self) -> bool {
        self.shown_idle = self.is_idle();
        self.shown_idle
    }

    /// Counts a renewal that was sent as unanswered, since the driver no longer waits for the
    /// answer.
    pub(crate) fn abandon_renewal(&mut self, now: Moment) {
        if self.renewing {
            self.on_unanswered(now, 0);
        }
    }

    pub(crate) const fn is_ours(&self) -> bool {
        matches!(self.state, LeaseState::Held | LeaseState::Idle { .. })
    }

    /// Whether the holder may act at `now`.
    #[must_use]
    pub(crate) fn is_held(&self, turn: u64, now: Moment) -> bool {
        self.state == LeaseState::Held && self.turn == turn && now < self.deadline
    }

    /// How long the holder may still act at `now`.
    #[must_use]
    pub(crate) fn remaining(&self, turn: u64, now: Moment) -> Duration {
        if self.is_held(turn, now) { self.deadline.since(now) } else { Duration::ZERO }
    }

    /// How long the lease is still ours at `now`, with or without a guard.
    #[must_use]
    pub(crate) fn left(&self, now: Moment) -> Duration {
        if self.is_ours() { self.deadline.since(now) } else { Duration::ZERO }
    }

    /// The duty at `now`. [`Duty::Renew`] comes once per renewal. The caller must then report an
    /// answer or a failure.
    pub(crate) fn duty(&mut self, now: Moment) -> Duty {
        match self.state {
            // The driver gets this duty again if an earlier driver ended before it told the holder.
            LeaseState::Lost(lost) => return Duty::TellLost(lost),
            LeaseState::Released => return Duty::Forget,
            LeaseState::Held | LeaseState::Idle { .. } => {}
        }
        if now >= self.told_at() {
            let lost = self.why_over();
            self.state = LeaseState::Lost(lost);
            return Duty::TellLost(lost);
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

    /// When [`duty`](Self::duty) must be called next, as things stand.
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
            LeaseState::Idle { since, .. } if self.must_leave() => Some(since),
            LeaseState::Idle { until, .. } => Some(until),
            _ => None,
        }
    }

    /// When a renewal is due: to restart the ttl, or to tell the store that the lease became idle
    /// or is in use again.
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

    /// Makes the next renewal ask soon whether others wait, since hints may have been missed. A
    /// renewal under way does not count. The store may have processed it before that.
    pub(crate) fn renew_soon(&mut self, now: Moment) {
        self.renew_at = self.renew_at.min(now);
        self.renew_again = self.renewing;
    }

    /// Notes that another client waits.
    pub(crate) fn want(&mut self, now: Moment) {
        self.passing.want(now);
    }

    /// Notes that the holder was asked to let go. Its turn goes on, but no other turn follows.
    pub(crate) const fn revoke(&mut self) {
        self.revoked = true;
    }

    /// Whether the lease must leave this client when no guard uses it.
    fn must_leave(&self) -> bool {
        self.revoked || self.passing.is_wanted()
    }

    /// The store answered *renewed* to a renewal that left at `sent`. Returns whether the answer
    /// counts.
    ///
    /// It counts only if the lease is still ours at `now` and the fencing tokens are the same. An
    /// answer about another grant must not move this deadline. The deadline only moves forward.
    pub(crate) fn on_renewed(
        &mut self,
        now: Moment,
        sent: Moment,
        fencing: Option<FencingBlock>,
        wanted: bool,
    ) -> bool {
        if !self.is_ours() || now >= self.deadline || fencing != self.fencing {
            // The answer is about another grant, or too late. It counts as no answer, and is no
            // reason to hurry.
            self.on_unanswered(now, u32::MAX);
            return false;
        }
        self.renewing = false;
        self.is_lifted = true;
        let until = self.deadline.max(valid_until(sent, self.ttl_at(sent)));
        self.deadline = self.limit.map_or(until, |limit| until.min(limit));
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

    /// The store answered *lost*. Returns whether this is news.
    pub(crate) fn on_lost(&mut self) -> bool {
        self.renewing = false;
        match self.state {
            LeaseState::Held | LeaseState::Idle { .. } => {
                self.state = LeaseState::Lost(Lost::NotOurs);
                true
            }
            LeaseState::Lost(_) | LeaseState::Released => false,
        }
    }

    /// The store gave no answer, or said nothing about the lease. The client retries soon, and the
    /// old deadline stands.
    pub(crate) fn on_unanswered(&mut self, now: Moment, random: u32) {
        self.renewing = false;
        let quarter_left = self.deadline.since(now) / 4;
        let shortest = Duration::from_millis(20).min(self.ttl.get() / 100);
        self.renew_at = now + self.delays.next(random).min(quarter_left).max(shortest);
    }

    /// The guard of `turn` ends. `waiting` tells whether a task of this client wants such a lease.
    /// `keep_idle` is how long the lease may be kept without a guard.
    pub(crate) fn part(
        &mut self,
        now: Moment,
        turn: u64,
        waiting: bool,
        keep_idle: Duration,
    ) -> Parting {
        match self.state {
            LeaseState::Lost(lost) => {
                self.in_use = false;
                return Parting::Lost(lost);
            }
            LeaseState::Held if self.turn == turn => {}
            _ => return Parting::Over,
        }
        self.in_use = false;
        if now >= self.deadline {
            let lost = self.why_over();
            self.state = LeaseState::Lost(lost);
            return Parting::Lost(lost);
        }
        self.turn += 1;
        let has_time = self.deadline.since(now) >= self.ttl.min_validity();
        if waiting {
            if has_time && !self.revoked && self.has_fencing() && self.passing.may_pass(now) {
                self.passing.count();
                return Parting::Pass(self.next_turn());
            }
            self.state = LeaseState::Released;
            return Parting::Leave;
        }
        if keep_idle.is_zero() || self.must_leave() || !has_time {
            self.state = LeaseState::Released;
            return Parting::Free;
        }
        self.state = LeaseState::Idle { since: now, until: now + keep_idle };
        Parting::Idle
    }

    /// Gives the lease to a task that asks for it, if it can.
    pub(crate) fn take(&mut self, now: Moment) -> Taking {
        match self.state {
            LeaseState::Held if now < self.deadline => Taking::InUse,
            LeaseState::Idle { .. } if now < self.deadline => {
                let has_time = self.deadline.since(now) >= self.ttl.min_validity();
                if !has_time || !self.has_fencing() || self.must_leave() {
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
        self.in_use = true;
        let fencing = self.fencing.and_then(|block| block.nth(self.used));
        // Only a lease with fencing tokens reads it, and its block has fewer than 2^32.
        self.used = self.used.saturating_add(1);
        Turn { number: self.turn, fencing }
    }

    /// Gives up the lease, whether a guard uses it or not. `Ok` also if it was released before. If
    /// it was lost, `Err` tells why.
    pub(crate) fn release(&mut self, now: Moment) -> Result<(), Lost> {
        match self.state {
            LeaseState::Held | LeaseState::Idle { .. } if now < self.deadline => {
                self.state = LeaseState::Released;
                self.in_use = false;
                Ok(())
            }
            LeaseState::Held | LeaseState::Idle { .. } => {
                let lost = self.why_over();
                self.state = LeaseState::Lost(lost);
                Err(lost)
            }
            LeaseState::Lost(lost) => Err(lost),
            LeaseState::Released => Ok(()),
        }
    }
}

/// When to renew a lease that was last confirmed at `sent`: after a third of its ttl, rounded up to
/// a tick. All leases of a ttl share their ticks, so that their renewals travel together. A tick is
/// a thirtieth of the ttl, at most half a second.
fn renewal_due(sent: Moment, ttl: Ttl) -> Moment {
    let tick = u64::try_from((ttl.get() / 30).min(Duration::from_millis(500)).as_nanos())
        .expect("at most 500 ms");
    let due = (sent + ttl.renew_every()).as_nanos();
    Moment::from_nanos(due.div_ceil(tick).saturating_mul(tick))
}

#[cfg(test)]
mod tests;
