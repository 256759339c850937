//! The clocks of a virtual machine.

use std::time::Duration;

use leasehold::core::{Moment, WallTime};

/// How long the machine has been up when the test begins. Not zero, so that a moment used as a span
/// shows up as a bug.
pub const UP_AT_START: Duration = Duration::from_secs(1_000);

/// The time of day when the test begins, 2030-01-01T00:00:00Z.
const WALL_AT_START_US: u64 = 1_893_456_000_000_000;

/// The time of day at a moment, if nobody stepped the clock.
#[must_use]
pub fn unstepped_wall(now: Moment) -> WallTime {
    let since_start = now.since(Moment::from_nanos(0) + UP_AT_START);
    WallTime::from_unix_micros(WALL_AT_START_US) + since_start
}

/// Three clocks: one that stands still during suspend, one that counts it, and one for people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    awake: Moment,
    suspended: Duration,
    wall_stepped_us: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            awake: Moment::from_nanos(0) + UP_AT_START,
            suspended: Duration::ZERO,
            wall_stepped_us: 0,
        }
    }

    /// The clock of timers, which stands still during suspend.
    pub(super) const fn awake(&self) -> Moment {
        self.awake
    }

    /// The clock of leases, which counts suspended time.
    pub(super) fn now(&self) -> Moment {
        self.awake + self.suspended
    }

    /// When a timer for `at` ends, on the clock of timers.
    pub(super) fn timer_for(&self, at: Moment) -> Moment {
        self.awake + at.since(self.now())
    }

    pub(super) fn wall(&self) -> WallTime {
        let unstepped = unstepped_wall(self.now()).as_unix_micros();
        WallTime::from_unix_micros(unstepped.saturating_add_signed(self.wall_stepped_us))
    }

    pub(super) fn advance_to(&mut self, awake: Moment) {
        debug_assert!(awake >= self.awake, "time goes forward");
        self.awake = awake;
    }

    pub(super) fn suspend(&mut self, span: Duration) {
        self.suspended += span;
    }

    pub(super) fn step_wall(&mut self, by_us: i64) {
        self.wall_stepped_us = self.wall_stepped_us.saturating_add(by_us);
    }
}
