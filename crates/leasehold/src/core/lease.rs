//! The life of one lease, as its holder sees it.
//!
//! | state | answer *renewed* | answer *lost* | no answer | deadline passes | released by us |
//! |---|---|---|---|---|---|
//! | held | held, deadline moved forward | lost | held, renewed again soon | lost | released |
//! | lost | lost | lost | lost | lost | lost |
//! | released | released | released | released | released | released |
//!
//! A renewal that failed is *unknown*, not *lost*: the old deadline still stands, and decides.
//! Nothing leads back to *held*: a late good answer must not revive a lease that its holder was
//! told to be lost.

use std::fmt;
use std::time::Duration;

use crate::core::backoff::{Backoff, Delays};
use crate::core::moment::Moment;
use crate::core::token::FencingBlock;
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;

/// How long before its deadline a holder is told that the lease is lost: timers of a runtime count
/// whole milliseconds and are late by up to one of them, and the holder must not learn of it after
/// the deadline.
const TOLD_AHEAD: Duration = Duration::from_millis(1);

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
    /// Ours until the deadline.
    Held,
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
    /// It was lost just now: tell the holder, and release the token.
    TellLost(Lost),
    /// It is over: forget it.
    Forget,
}

/// One lease, from its grant to its end.
#[derive(Clone, Debug)]
pub(crate) struct LeaseLife {
    ttl: Ttl,
    state: LeaseState,
    deadline: Moment,
    renew_at: Moment,
    renewing: bool,
    fencing: Option<FencingBlock>,
    delays: Delays,
}

impl LeaseLife {
    /// A lease of `ttl`, granted in answer to a request that left at `sent`.
    #[must_use]
    pub(crate) fn granted(sent: Moment, ttl: Ttl, fencing: Option<FencingBlock>) -> Self {
        Self {
            ttl,
            state: LeaseState::Held,
            deadline: valid_until(sent, ttl),
            renew_at: renewal_due(sent, ttl),
            renewing: false,
            fencing,
            delays: Backoff { first: ttl.get() / 20, longest: ttl.get() / 10 }.delays(),
        }
    }

    /// In which state it is. A passed deadline shows only once [`duty`](Self::duty) was asked.
    #[must_use]
    pub(crate) const fn state(&self) -> LeaseState {
        self.state
    }

    /// How long the holder counts on it.
    #[must_use]
    pub(crate) const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Whoever waited for the answer to a renewal waits no more: one that was sent counts as
    /// unanswered.
    pub(crate) fn abandon_renewal(&mut self, now: Moment) {
        if self.renewing {
            self.on_unanswered(now, 0);
        }
    }

    /// The fencing tokens granted with it.
    #[must_use]
    pub(crate) const fn fencing(&self) -> Option<FencingBlock> {
        self.fencing
    }

    /// Whether the holder may act at `now`.
    #[must_use]
    pub(crate) fn is_held(&self, now: Moment) -> bool {
        self.state == LeaseState::Held && now < self.deadline
    }

    /// For how long the holder may still act at `now`.
    #[must_use]
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        if self.state == LeaseState::Held { self.deadline.since(now) } else { Duration::ZERO }
    }

    /// What to do at `now`. [`Duty::Renew`] is given once per renewal: an answer or a failure must
    /// follow.
    pub(crate) fn duty(&mut self, now: Moment) -> Duty {
        match self.state {
            LeaseState::Lost(_) | LeaseState::Released => Duty::Forget,
            LeaseState::Held if now >= self.told_at() => {
                self.state = LeaseState::Lost(Lost::Deadline);
                Duty::TellLost(Lost::Deadline)
            }
            LeaseState::Held if !self.renewing && now >= self.renew_at => {
                self.renewing = true;
                Duty::Renew
            }
            LeaseState::Held => Duty::WaitUntil(self.due()),
        }
    }

    /// When [`duty`](Self::duty) is to be asked next, as things stand.
    #[must_use]
    pub(crate) fn due(&self) -> Moment {
        if self.renewing { self.told_at() } else { self.renew_at.min(self.told_at()) }
    }

    fn told_at(&self) -> Moment {
        self.deadline.minus(TOLD_AHEAD)
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
    ) -> bool {
        if !self.is_held(now) || fencing != self.fencing {
            // About another grant, or too late: as good as no answer, and no reason to hurry.
            self.on_unanswered(now, u32::MAX);
            return false;
        }
        self.renewing = false;
        self.deadline = self.deadline.max(valid_until(sent, self.ttl));
        self.renew_at = renewal_due(sent, self.ttl);
        self.delays.reset();
        true
    }

    /// The answer *lost*. Returns whether that is news.
    pub(crate) fn on_lost(&mut self) -> bool {
        self.renewing = false;
        let news = self.state == LeaseState::Held;
        if news {
            self.state = LeaseState::Lost(Lost::NotOurs);
        }
        news
    }

    /// No answer, or one that says nothing about the lease: try again soon, the old deadline
    /// stands.
    pub(crate) fn on_unanswered(&mut self, now: Moment, random: u32) {
        self.renewing = false;
        let quarter_left = self.deadline.since(now) / 4;
        self.renew_at = now + self.delays.next(random).min(quarter_left).max(self.ttl.get() / 100);
    }

    /// We give it up. Returns whether it was held, so that the caller knows if there is something
    /// to release.
    pub(crate) fn release(&mut self, now: Moment) -> Result<(), Lost> {
        match self.state {
            LeaseState::Held if now < self.deadline => {
                self.state = LeaseState::Released;
                Ok(())
            }
            LeaseState::Held => {
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
mod tests {
    use super::*;
    use crate::core::token::FencingToken;

    const TTL_MS: u64 = 3_000;
    /// 3 s less 1 % and 2 ms.
    const VALID_MS: u64 = 2_968;
    /// One millisecond before.
    const TOLD_MS: u64 = VALID_MS - 1;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn block(first: u64) -> Option<FencingBlock> {
        Some(FencingBlock { first: FencingToken::new(first).expect("not zero"), count: 1 })
    }

    fn lease() -> LeaseLife {
        LeaseLife::granted(
            at(0),
            Ttl::new(Duration::from_millis(TTL_MS)).expect("within bounds"),
            block(7),
        )
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_its_ttl() {
        let mut lease = lease();
        assert_eq!(lease.duty(at(0)), Duty::WaitUntil(at(1_000)));
        assert_eq!(lease.duty(at(999)), Duty::WaitUntil(at(1_000)));
        assert_eq!(lease.duty(at(1_000)), Duty::Renew);
        assert_eq!(lease.duty(at(1_001)), Duty::WaitUntil(at(TOLD_MS)), "one renewal at a time");
        assert!(lease.on_renewed(at(1_300), at(1_000), block(7)));
        assert_eq!(lease.deadline, at(1_000 + VALID_MS), "counted from when it was sent");
        assert_eq!(lease.duty(at(1_300)), Duty::WaitUntil(at(2_000)));
    }

    #[test]
    fn renewals_of_many_leases_fall_on_the_same_ticks() {
        // ttl and the moment of the grant, in ms; when the renewal is due, in ms
        for (ttl, sent, due) in [
            (3_000, 0, 1_000),
            (3_000, 1, 1_100),
            (3_000, 99, 1_100),
            (60_000, 50, 20_500),
            (300, 7, 110),
        ] {
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
            assert_eq!(renewal_due(at(sent), ttl), at(due));
        }
    }

    #[test]
    fn failed_renewal_is_unknown_until_validity_ends() {
        let mut lease = lease();
        let mut now = 1_000;
        let mut tries = 0;
        loop {
            match lease.duty(at(now)) {
                Duty::Renew => {
                    tries += 1;
                    now += 5;
                    lease.on_unanswered(at(now), u32::MAX);
                    assert_eq!(lease.state(), LeaseState::Held);
                }
                Duty::WaitUntil(next) => now = (next.as_nanos() / 1_000_000).max(now + 1),
                Duty::TellLost(lost) => {
                    assert_eq!(lost, Lost::Deadline);
                    break;
                }
                Duty::Forget => unreachable!("not before it was told"),
            }
        }
        assert!((TOLD_MS..TOLD_MS + 6).contains(&now), "told at the deadline, not later: {now}");
        assert!((5..100).contains(&tries), "{tries} tries");
        assert_eq!(lease.duty(at(now)), Duty::Forget);
    }

    #[test]
    fn nothing_revives_a_lease_that_is_over() {
        for end in ["deadline", "answer", "released"] {
            let mut lease = lease();
            assert_eq!(lease.duty(at(1_000)), Duty::Renew);
            match end {
                "deadline" => assert_eq!(lease.duty(at(TOLD_MS)), Duty::TellLost(Lost::Deadline)),
                "answer" => assert!(lease.on_lost()),
                _ => assert_eq!(lease.release(at(1_500)), Ok(())),
            }
            let over = lease.state();
            assert!(!lease.on_renewed(at(1_500), at(1_000), block(7)), "{end}");
            assert!(!lease.on_lost(), "{end}: told once");
            assert_eq!(lease.state(), over, "{end}");
            assert!(!lease.is_held(at(1)), "{end}");
            assert_eq!(lease.remaining(at(1)), Duration::ZERO, "{end}");
            assert_eq!(lease.duty(at(1_501)), Duty::Forget, "{end}");
        }
    }

    #[test]
    fn a_deadline_that_passed_unnoticed_still_counts() {
        let mut late = lease();
        assert!(
            !late.on_renewed(at(VALID_MS), at(1_000), block(7)),
            "the answer came after the deadline"
        );
        assert_eq!(late.release(at(VALID_MS)), Err(Lost::Deadline));
        assert!(!lease().is_held(at(VALID_MS)));
    }

    #[test]
    fn an_answer_about_another_grant_moves_nothing() {
        for other in [None, block(8)] {
            let mut lease = lease();
            assert_eq!(lease.duty(at(1_000)), Duty::Renew);
            assert!(!lease.on_renewed(at(1_100), at(1_000), other));
            assert_eq!(lease.deadline, at(VALID_MS));
            assert!(lease.due() > at(1_120), "a strange answer is no reason to hurry");
        }
    }

    #[test]
    fn a_deadline_moves_only_forward() {
        let mut lease = lease();
        assert_eq!(lease.duty(at(1_000)), Duty::Renew);
        assert!(lease.on_renewed(at(1_001), at(1_000), block(7)));
        assert!(lease.on_renewed(at(1_002), at(500), block(7)), "an older answer that was late");
        assert_eq!(lease.deadline, at(1_000 + VALID_MS));
    }
}
