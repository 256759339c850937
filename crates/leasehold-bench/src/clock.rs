//! The clock that all processes of a scenario share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment, in ns of CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// Sleeps until a moment of that clock.
pub(crate) async fn sleep_until(at_ns: u64) {
    tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await;
}

/// The time from one moment to another; zero if the second is not later.
pub(crate) fn between(from_ns: u64, until_ns: u64) -> Duration {
    Duration::from_nanos(until_ns.saturating_sub(from_ns))
}
