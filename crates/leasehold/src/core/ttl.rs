//! How long a store keeps a lease that nobody renews.

use std::fmt;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};

/// How long the store keeps a lease that nobody renews: 10 ms to 24 h. It is always relative, so no
/// client's clock time is sent.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use leasehold::Ttl;
///
/// assert_eq!(Ttl::DEFAULT.get(), Duration::from_secs(10));
/// assert!(Ttl::new(Duration::from_millis(1)).is_err(), "below the shortest");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// The shortest ttl. A shorter one would be as short as the scheduling noise of an ordinary
    /// machine.
    pub const MIN: Self = Self(Duration::from_millis(10));
    /// The longest ttl. Renewals hold a lease for longer.
    pub const MAX: Self = Self(Duration::from_hours(24));
    /// The longest time for which a store keeps a lease: the longest ttl with the longest lock
    /// delay.
    pub const LONGEST_KEPT: Self = Self(Duration::from_hours(48));
    /// The ttl unless another is set.
    pub const DEFAULT: Self = Self(Duration::from_secs(10));

    /// Checks the bounds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] outside [`MIN`](Self::MIN)..=[`MAX`](Self::MAX).
    pub fn new(ttl: Duration) -> Result<Self, Error> {
        if ttl < Self::MIN.0 || ttl > Self::MAX.0 {
            return Err(Error::new(
                ErrorKind::Config,
                format!("a ttl must be between 10 ms and 24 h, not {ttl:?}; no request was sent"),
            ));
        }
        Ok(Self(ttl))
    }

    /// The ttl nearest to a span.
    pub(crate) fn nearest(span: Duration) -> Self {
        Self(span.clamp(Self::MIN.0, Self::MAX.0))
    }

    /// Returns the ttl as a duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Returns the ttl as whole milliseconds, rounded up. So a store that counts milliseconds keeps
    /// each lease at least as long as its holder expects.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_nanos().div_ceil(1_000_000)).expect("a ttl is at most 48 h")
    }

    /// The ttl plus a margin. The store keeps the lease this long, but the holder does not rely on
    /// the margin.
    #[must_use]
    pub fn with_delay(self, lock_delay: Duration) -> Self {
        Self(self.0 + lock_delay.min(Self::MAX.0))
    }

    /// How long a place in the line lives without a refresh: this ttl, at most 3 s.
    #[must_use]
    pub fn waiter_ttl(self) -> Self {
        Self(self.0.min(Duration::from_secs(3)))
    }

    /// How often a lease of this ttl is renewed: after each third of it.
    #[must_use]
    pub fn renew_every(self) -> Duration {
        self.0 / 3
    }

    /// The least validity of a usable grant: half of the ttl, at most 1 s.
    #[must_use]
    pub fn min_validity(self) -> Duration {
        (self.0 / 2).min(Duration::from_secs(1))
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ttls_between_10_ms_and_24_h_pass() {
        let day = Duration::from_hours(24);
        let table = [
            (Duration::ZERO, false),
            (Duration::from_micros(9_999), false),
            (Duration::from_millis(10), true),
            (day, true),
            (day + Duration::from_nanos(1), false),
            (Duration::MAX, false),
        ];
        for (ttl, passes) in table {
            let checked = Ttl::new(ttl);
            assert_eq!(checked.is_ok(), passes, "{ttl:?}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains("between 10 ms and 24 h"), "{error}");
            }
        }
    }

    #[test]
    fn everything_else_derives_from_the_ttl() {
        // ttl, waiter_ttl, renew_every, min_validity, all in ms
        for (ttl, waiter, renew, least) in [
            (10, 10, 3, 5),
            (1_000, 1_000, 333, 500),
            (3_000, 3_000, 1_000, 1_000),
            (60_000, 3_000, 20_000, 1_000),
        ] {
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
            assert_eq!(ttl.waiter_ttl().as_millis(), waiter);
            assert_eq!(ttl.renew_every().as_millis(), renew);
            assert_eq!(ttl.min_validity().as_millis(), least);
        }
        assert_eq!(Ttl::MAX.with_delay(Duration::MAX), Ttl::LONGEST_KEPT);
        let uneven = Ttl::new(Duration::from_micros(20_001)).expect("within bounds");
        assert_eq!(uneven.as_millis(), 21, "never less than the holder expects");
    }
}
