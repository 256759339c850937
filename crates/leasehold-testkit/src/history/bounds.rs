//! Facts about the world of a history, which the recorder knows.

use std::time::Duration;

/// How long things take at most in the world of a history. A bound that is too narrow accuses a
/// correct world. A bound that is too wide lets bugs pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest ttl in use.
    pub ttl_max: Duration,
    /// The longest lock delay in use.
    pub lock_delay: Duration,
    /// The least time for which the store keeps a lease after its holder has stopped relying on it.
    pub margin: Duration,
    /// The longest life of a place in the line.
    pub waiter_ttl: Duration,
    /// The longest time between two acquires of a waiter.
    pub poll: Duration,
    /// How long a request, its answer and its wake-up take without trouble: from the end of one
    /// window to the start of the next, if every process was running.
    pub slack: Duration,
    /// How long it takes until the next waiter has a key whose lease ended, if no message is lost
    /// and every process was running.
    pub handed: Duration,
    /// How long after a fault all clients are connected and ask again, without any hint: the
    /// longest back-off and the time to connect.
    pub reconnect: Duration,
    /// How long a request may wait for its connection before it is sent. Zero if `Sent` is logged
    /// when the request is submitted.
    pub queued: Duration,
    /// How long a client may take to learn, without a hint, that another client waits for a lease
    /// that it keeps without a guard.
    pub wanted: Duration,
    /// How long a line may stand aside for clients of other libraries, plus the time until its head
    /// notices the end. Zero if the line never stands aside.
    pub opened: Duration,
    /// A process that stood still for less than this does not cause an error. Zero if every stop
    /// can cause an error.
    pub hiccup: Duration,
    /// How late a running process may notice a moment: the delay of its timers.
    pub wake: Duration,
    /// How late a process that stood still may notice it, after it goes on: one more reading of the
    /// clock.
    pub notice: Duration,
}

impl Bounds {
    /// Bounds for clients with the defaults of production on virtual time. A round trip takes at
    /// most a tenth of a second.
    #[must_use]
    pub fn of_ttl(ttl_max: Duration) -> Self {
        let waiter_ttl = ttl_max.min(Duration::from_secs(3));
        Self {
            ttl_max,
            lock_delay: Duration::ZERO,
            margin: Duration::ZERO,
            waiter_ttl,
            // A place is refreshed three times in its life, but not more often than every 50 ms.
            poll: (waiter_ttl / 3).max(Duration::from_millis(50)),
            slack: Duration::from_millis(400),
            handed: Duration::from_millis(400),
            reconnect: Duration::from_secs(5),
            queued: Duration::from_secs(1),
            wanted: Duration::ZERO,
            opened: Duration::ZERO,
            hiccup: Duration::ZERO,
            wake: Duration::from_millis(1),
            notice: Duration::from_millis(150),
        }
    }

    /// The longest [`opened`](Self::opened) of the scripts: an opening, and the pause between two
    /// checks of it.
    pub const OPENED: Duration = Duration::from_millis(300 + 50);

    /// The largest error between two clocks over `span`: 1 % of it and 2 ms.
    #[must_use]
    pub fn drift(span: Duration) -> Duration {
        span / 100 + Duration::from_millis(2)
    }

    /// The shortest real life of a place that was taken for `life`: the error of clocks and a
    /// millisecond of rounding are subtracted.
    #[must_use]
    pub fn surely(life: Duration) -> Duration {
        life.saturating_sub(Self::drift(life) + Duration::from_millis(1))
    }

    /// How long the server keeps a lease after its last grant or renewal.
    pub(super) fn lease(&self) -> Duration {
        let kept = self.ttl_max + self.lock_delay;
        kept + Self::drift(kept)
    }

    /// How long a fault may have effects after its end: a lease that nobody uses and a dead place
    /// behind it expire, and all clients connect again.
    #[must_use]
    pub fn aftermath(&self) -> Duration {
        self.lease() + self.waiter_ttl + Self::drift(self.waiter_ttl) + self.reconnect
    }
}
