//! Points in time, as numbers that the caller passes in.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point on the host's steady clock, which counts suspend and never steps.
///
/// In production this is CLOCK_BOOTTIME, in simulation virtual time. Moments of two machines or two
/// boots cannot be compared. They never leave the process, except into an embedded store that
/// shares the clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment less `span`, but not before the clock's zero.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// The time of day, in microseconds since the Unix epoch. It is used for display and to seed
/// counters. No lease depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime(u64);

impl WallTime {
    /// The time `micros` microseconds after the epoch.
    #[must_use]
    pub const fn from_unix_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_unix_micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_unix_millis(self) -> u64 {
        self.0 / 1000
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let end = Moment::from_nanos(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(7)), Duration::ZERO);
        assert_eq!(Moment::from_nanos(5).minus(Duration::from_secs(1)), Moment::from_nanos(0));
        assert_eq!(Moment::from_nanos(1) + Duration::MAX, end);
    }
}
