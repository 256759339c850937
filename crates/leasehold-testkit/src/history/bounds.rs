//! What whoever records knows of the world of a history.

use std::time::Duration;

/// How long things take at most in the world of a history. A bound that is too narrow accuses a
/// correct world; one that is too wide lets bugs pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest ttl in use.
    pub ttl_max: Duration,
    /// The longest lock delay in use.
    pub lock_delay: Duration,
    /// By how much at least the store keeps every lease longer than its holder relies on it.
    pub margin: Duration,
    /// The longest life of a place in line.
    pub waiter_ttl: Duration,
    /// The longest time between two asks of a waiter.
    pub poll: Duration,
    /// How long a request and its answer, and what they wake, take when nothing is wrong: from the
    /// end of one window to the beginning of the next, where nobody slept through it.
    pub slack: Duration,
    /// How long after a fault everybody is connected again and asks again, if nobody hears of its
    /// end: the longest back-off, and a connection.
    pub reconnect: Duration,
    /// How long a request may wait for its connection before it is sent. Zero where `Sent` is told
    /// when the request is submitted.
    pub queued: Duration,
    /// How long a client that keeps a lease with no guard may take to hear that another waits,
    /// where no hint tells it.
    pub wanted: Duration,
    /// How late a process that runs may notice that a moment has come: what its timers are late.
    pub wake: Duration,
    /// How late one that stood still may notice, once it goes on: one look at the clock more.
    pub notice: Duration,
}

impl Bounds {
    /// Those of clients with production's defaults on virtual time, in a network whose round trips
    /// take a tenth of a second at most.
    #[must_use]
    pub fn of_ttl(ttl_max: Duration) -> Self {
        let waiter_ttl = ttl_max.min(Duration::from_secs(3));
        Self {
            ttl_max,
            lock_delay: Duration::ZERO,
            margin: Duration::ZERO,
            waiter_ttl,
            // A place is refreshed three times in its life, and not more often than this.
            poll: (waiter_ttl / 3).max(Duration::from_millis(50)),
            slack: Duration::from_millis(400),
            reconnect: Duration::from_secs(5),
            queued: Duration::from_secs(1),
            wanted: Duration::ZERO,
            wake: Duration::from_millis(1),
            notice: Duration::from_millis(150),
        }
    }

    /// What clocks that run at different speeds may cost over `span`: 1 % of it and 2 ms.
    #[must_use]
    pub fn drift(span: Duration) -> Duration {
        span / 100 + Duration::from_millis(2)
    }

    /// For how long a place surely lives that was taken for `life`: less what clocks may cost, and
    /// a millisecond of rounding.
    #[must_use]
    pub fn surely(life: Duration) -> Duration {
        life.saturating_sub(Self::drift(life) + Duration::from_millis(1))
    }

    /// How long a lease lives at the server that was granted or renewed for the last time.
    pub(super) fn lease(&self) -> Duration {
        let kept = self.ttl_max + self.lock_delay;
        kept + Self::drift(kept)
    }

    /// How long after a fault ended the world may still be out of order because of it: a lease for
    /// nobody and a dead place behind it run out, and everybody connects again.
    #[must_use]
    pub fn aftermath(&self) -> Duration {
        self.lease() + self.waiter_ttl + Self::drift(self.waiter_ttl) + self.reconnect
    }
}
