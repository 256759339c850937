//! Leases of etcd. Each lock and each place has one of its own, so each ends alone.
//!
//! A lease that a lock gave back is kept for a while, and renewed when it is used again. That
//! costs the cluster no entry in its log, so a lock and its release are two entries, as a bare
//! write and its removal are.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::channel::Failure;
use super::error::{Effect, explain};
use super::wire::Wire;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::host::Host;

/// The most leases that are kept for later.
const SPARES_MAX: usize = 64;

/// A lease of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// How long it lasts unrenewed.
    pub(super) seconds: i64,
}

/// A lease for a new key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) lease: Lease,
    /// Whether it was made just now, or surely renewed. Otherwise it is to be renewed.
    pub(super) is_new: bool,
}

/// The leases that no key uses.
#[derive(Debug, Default)]
pub(super) struct Leases {
    spares: Mutex<Vec<Spare>>,
    /// The shortest lease that the server makes, in seconds, as far as we know.
    shortest: AtomicI64,
}

#[derive(Debug)]
struct Spare {
    lease: Lease,
    /// Until when it is used again.
    until: Moment,
}

/// How many seconds a lease of etcd lasts that covers a ttl.
pub(super) fn seconds(ttl: Ttl) -> i64 {
    let span = ttl.get();
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl Leases {
    fn spares(&self) -> MutexGuard<'_, Vec<Spare>> {
        // Whole at every moment: single steps change it.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lease of so many seconds, or makes one.
    pub(super) async fn take(&self, wire: &Wire, asked: i64) -> Result<Taken, Error> {
        match self.spare(wire.host.now(), asked) {
            Some(lease) => Ok(Taken { lease, is_new: false }),
            None => self.make(wire, asked).await,
        }
    }

    /// A kept lease of so many seconds: the youngest, which ends last.
    fn spare(&self, now: Moment, asked: i64) -> Option<Lease> {
        let mut spares = self.spares();
        spares.retain(|spare| spare.until > now);
        let seconds = asked.max(self.shortest.load(Ordering::Relaxed));
        let at = spares.iter().rposition(|spare| spare.lease.seconds == seconds)?;
        Some(spares.remove(at).lease)
    }

    /// Makes a lease of so many seconds.
    pub(super) async fn make(&self, wire: &Wire, asked: i64) -> Result<Taken, Error> {
        let id = fresh_id(&*wire.host);
        let granted = wire.grant(id, asked).await?;
        if granted < asked {
            // The lock would end before its holder expects.
            return Err(explain(&Failure::Malformed, Effect::Nothing));
        }
        if granted > asked {
            self.shortest.store(granted, Ordering::Relaxed);
        }
        let lease = Lease { id, seconds: granted };
        Ok(Taken { lease, is_new: true })
    }

    /// Keeps a lease that surely no key has any more, for the next lock of the same ttl.
    pub(super) fn give_back(&self, now: Moment, lease: Lease) {
        let mut spares = self.spares();
        spares.retain(|spare| spare.until > now);
        // No two locks may get one lease: each would keep the other one alive.
        let is_there = spares.iter().any(|spare| spare.lease.id == lease.id);
        if spares.len() < SPARES_MAX && !is_there {
            // Its last renewal was up to a third of its time ago. So it has not ended by then.
            let span = Duration::from_secs(lease.seconds.unsigned_abs()) / 2;
            spares.push(Spare { lease, until: now + span });
        }
    }
}

/// A number that no other lease has.
fn fresh_id(host: &dyn Host) -> i64 {
    let mut random = [0; 8];
    host.random(&mut random);
    // Zero would let the server choose, and the sign has no meaning.
    (i64::from_le_bytes(random) & i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_lease_is_used_while_it_surely_lasts_and_the_youngest_first() {
        let at = |ms: u64| Moment::from_nanos(1) + Duration::from_millis(ms);
        let lease = |id| Lease { id, seconds: 4 };
        let leases = Leases::default();
        for (id, ms) in [(1, 0), (2, 100), (3, 200), (3, 300)] {
            leases.give_back(at(ms), lease(id));
        }
        assert_eq!(leases.spare(at(400), 3), None, "it lasts longer");
        assert_eq!(leases.spare(at(400), 4), Some(lease(3)));
        assert_eq!(leases.spare(at(2_050), 4), Some(lease(2)));
        leases.give_back(at(2_050), lease(2));
        assert_eq!(leases.spare(at(4_050), 4), None, "half of its time is over");
    }

    #[test]
    fn a_lease_of_etcd_covers_the_ttl() {
        for (micros, expected) in [
            (10_000, 1),
            (999_999, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (1_000_999, 2),
            (2_500_000, 3),
            (86_400_000_000, 86_400),
        ] {
            let ttl = Ttl::new(Duration::from_micros(micros)).expect("within bounds");
            assert_eq!(seconds(ttl), expected, "{micros} µs");
        }
    }
}
