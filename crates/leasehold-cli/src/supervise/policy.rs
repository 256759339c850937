//! The settings of one supervision, and the times that follow from them.

use std::time::Duration;

use leasehold::core::Moment;
use rustix::process::Signal;

/// The bounds of the margin, the time in which everything is killed. Killing takes no longer if the
/// ttl is longer.
const MARGIN_MIN: Duration = Duration::from_millis(20);
const MARGIN_MAX: Duration = Duration::from_secs(1);

/// Killing a process takes at most this many times as long as looking at it.
pub(super) const TIMES_A_LOOK: u32 = 4;

/// The settings of one supervision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The ttl of the lease.
    pub(crate) ttl: Duration,
    /// How long before the deadline the command is told to stop.
    pub(crate) grace: Duration,
    /// The signal that tells the command to stop.
    pub(crate) stop: Signal,
    /// When the command must be dead even if the lease can be renewed.
    pub(crate) limit: Option<Moment>,
}

impl Policy {
    /// How long before the deadline the command is killed: time enough to see it dead.
    pub(super) fn margin(&self) -> Duration {
        (self.ttl / 50).clamp(MARGIN_MIN, MARGIN_MAX).min(self.ttl / 8)
    }

    /// How long before the deadline the command is told to stop. A grace that is shorter than the
    /// time for killing would leave the command no time at all. Only a grace of zero asks for that.
    pub(super) fn notice(&self) -> Duration {
        let least = if self.grace.is_zero() { Duration::ZERO } else { self.margin() * 2 };
        self.grace.max(least)
    }

    /// How long the command may still run at `now`, with `left` of the lease: until the lease or
    /// `--max-hold` ends.
    pub(super) fn usable(&self, now: Moment, left: Duration) -> Duration {
        self.limit.map_or(left, |limit| left.min(limit.since(now)))
    }

    /// The moment at which the keeper kills everything if we have not. It is a little later than
    /// our own moment to kill.
    pub(crate) fn keeper_kills_at(&self, now: Moment, left: Duration, reserve: Duration) -> Moment {
        (now + self.usable(now, left)).minus(self.margin() / 2 + reserve)
    }

    /// How much earlier to begin when looking at all processes takes `took`. Signalling each
    /// process and seeing it end takes a few times as long. The limit keeps a lease that is renewed
    /// in time from looking endangered.
    pub(super) fn reserve(&self, took: Duration) -> Duration {
        let most = (self.ttl * 55 / 100).saturating_sub(self.notice());
        (took * TIMES_A_LOOK).min(most)
    }

    /// A renewal must have failed if less than this much time is left. Renewals are sent with two
    /// thirds left, and a small delay is normal. A busy store answers so within a second or a
    /// quarter of the ttl, so we know the reason by then.
    pub(super) fn overdue_below(&self) -> Duration {
        let answered = (self.ttl / 4).min(Duration::from_secs(1));
        (self.ttl * 62 / 100).saturating_sub(answered).min(self.ttl * 57 / 100)
    }
}
