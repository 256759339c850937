//! How long the client may rely on a lease.

use std::time::Duration;

use crate::core::moment::Moment;
use crate::core::ttl::Ttl;

/// The allowance for clocks that run at different speeds: 1 % of the ttl plus 2 ms, as in Redlock.
#[must_use]
pub fn drift(ttl: Ttl) -> Duration {
    ttl.get() / 100 + Duration::from_millis(2)
}

/// The moment until which the holder may act: `sent + ttl − drift`, where its request left at
/// `sent`.
///
/// The validity counts from before the request left, never from the reply. The store may have
/// started its ttl at any time in between. See
/// <https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>.
#[must_use]
pub fn valid_until(sent: Moment, ttl: Ttl) -> Moment {
    sent + ttl.get().saturating_sub(drift(ttl))
}

/// How long one command may take before its outcome counts as unknown: a quarter of the ttl, 25 ms
/// to 1 s.
#[must_use]
pub fn command_limit(ttl: Ttl) -> Duration {
    (ttl.get() / 4).clamp(Duration::from_millis(25), Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validity_is_counted_from_the_moment_the_request_left() {
        let sent = Moment::from_nanos(5_000_000_000);
        // ttl in ms, validity in µs
        for (ttl, validity) in [(10, 7_900), (100, 97_000), (1_000, 988_000), (10_000, 9_898_000)] {
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
            assert_eq!(valid_until(sent, ttl), sent + Duration::from_micros(validity));
        }
    }

    #[test]
    fn a_command_limit_is_a_quarter_of_the_ttl_within_bounds() {
        for (ttl, limit) in [(10, 25), (100, 25), (400, 100), (4_000, 1_000), (60_000, 1_000)] {
            let ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
            assert_eq!(command_limit(ttl), Duration::from_millis(limit));
        }
    }
}
