//! How long a connection waits for other processes that have the file locked.
//!
//! SQLite's own handler sleeps for up to 100 ms at a time. A short lease could end in that time
//! although the file is mostly free. Here the first in the queue at the `gate` tries every 100 µs.
//! So nobody waits for long while all processes run normally.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::gate::Gate;
use crate::core::moment::Moment;
use crate::host::{Host, SystemHost, pause};

/// How many tries come soon, because others lock the file for a few µs at a time.
const SOON_TRIES: i32 = 20;
const SOON: Duration = Duration::from_micros(50);
const LATER: Duration = Duration::from_micros(100);

/// How long a queued process waits before it tries anyway, because the owner of the gate may be
/// stopped.
const QUEUES_FOR: Duration = Duration::from_millis(100);

/// Until when a connection waits. Zero at first, so it does not wait.
///
/// Counts real time, since another process ends the wait. If the host must not block, it does not
/// wait at all.
pub(super) struct BusyLimit(Arc<Waiting>);

struct Waiting {
    until: AtomicU64,
    gate: Gate,
}

impl BusyLimit {
    /// Makes `conn` wait as long as the limit allows, from now on.
    pub(super) fn install(conn: &mut Connection, gate: Gate) -> rusqlite::Result<Self> {
        let waiting = Arc::new(Waiting { until: AtomicU64::new(0), gate });
        let shared = Arc::clone(&waiting);
        conn.busy_handler(Some(move |tries| shared.wait(tries)))?;
        Ok(Self(waiting))
    }

    /// Sets the limit of all following tries together. With zero they do not even sleep.
    pub(super) fn set(&self, limit: Duration) {
        self.set_until(until(limit));
    }

    pub(super) fn set_until(&self, until: Moment) {
        self.0.until.store(until.as_nanos(), Ordering::Relaxed);
    }

    /// Lets the next process try, because the tries ended.
    pub(super) fn is_over(&self) {
        self.0.gate.leave();
    }
}

impl Waiting {
    /// Waits for a moment, or in the queue. Returns whether to try again.
    fn wait(&self, tries: i32) -> bool {
        let until = Moment::from_nanos(self.until.load(Ordering::Relaxed));
        if !self.gate.may_wait() {
            return false;
        }
        let left = until.since(SystemHost.now());
        if until.as_nanos() == 0 || left.is_zero() {
            return false;
        }
        match self.gate.enter(left.min(QUEUES_FOR)) {
            // Nobody else in the queue tries now.
            Some(true) | None => wait(tries, until),
            Some(false) => true,
        }
    }
}

/// When a wait of `limit` ends that begins now.
pub(super) fn until(limit: Duration) -> Moment {
    if limit.is_zero() { Moment::from_nanos(0) } else { SystemHost.now() + limit }
}

/// Waits for a moment after `tries` tries. Returns whether to try again.
pub(super) fn wait(tries: i32, until: Moment) -> bool {
    if until.as_nanos() == 0 {
        return false;
    }
    let left = until.since(SystemHost.now());
    if left.is_zero() {
        return false;
    }
    pause(left.min(if tries < SOON_TRIES { SOON } else { LATER }));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_zero_or_one_that_is_over_does_not_wait() {
        assert!(!wait(0, until(Duration::ZERO)));
        assert!(!wait(0, Moment::from_nanos(1)));
    }

    #[test]
    fn a_wait_ends_with_its_limit_and_tries_often_until_then() {
        let until = until(Duration::from_millis(30));
        let tries = (0..).take_while(|tries| wait(*tries, until)).count();
        assert!(SystemHost.now() >= until);
        assert!(tries > 1, "one long sleep would outlast a short lease");
    }
}
