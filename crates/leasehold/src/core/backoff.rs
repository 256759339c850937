//! How long to wait before trying again.

use std::time::Duration;

/// A back-off policy. Every caller has its own [`Delays`], so callers share no counter.
///
/// The n-th delay is random in the upper half of `first × 2ⁿ`, capped at `longest`. The lower half
/// is never used, so a retry is never immediate. The random half keeps clients from retrying in
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The cap of the first delay.
    pub(crate) first: Duration,
    /// The cap of every delay.
    pub(crate) longest: Duration,
}

impl Backoff {
    /// 10 ms doubling up to 1 s.
    pub(crate) const DEFAULT: Self =
        Self { first: Duration::from_millis(10), longest: Duration::from_secs(1) };

    /// The delays of one caller.
    #[must_use]
    pub(crate) const fn delays(self) -> Delays {
        Delays { policy: self, tried: 0 }
    }
}

/// The delays of one caller. Each is longer than the last, up to the cap.
#[derive(Clone, Debug)]
pub(crate) struct Delays {
    policy: Backoff,
    tried: u32,
}

impl Delays {
    /// The next delay. `random` picks a point in its upper half.
    pub(crate) fn next(&mut self, random: u32) -> Duration {
        let cap = self
            .policy
            .first
            .saturating_mul(1_u32.checked_shl(self.tried).unwrap_or(u32::MAX))
            .min(self.policy.longest);
        self.tried = self.tried.saturating_add(1);
        cap / 2 + (cap / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Starts over after a try that succeeded.
    pub(crate) fn reset(&mut self) {
        self.tried = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_keep_half() {
        let mut low = Backoff::DEFAULT.delays();
        let mut high = Backoff::DEFAULT.delays();
        for cap in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert_eq!(low.next(0), Duration::from_millis(cap) / 2);
            assert_eq!(high.next(u32::MAX), Duration::from_millis(cap));
        }
        for _ in 0..100 {
            assert!(low.next(0) <= Duration::from_secs(1), "a long outage must not overflow");
        }
        low.reset();
        assert_eq!(low.next(u32::MAX), Duration::from_millis(10));
    }
}
