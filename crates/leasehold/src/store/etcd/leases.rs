//! Leases of etcd. Each lock and each place has one of its own, so each ends alone.
//!
//! A lease that a lock gave back is kept for a while, and renewed when it is used again. That costs
//! the cluster no entry in its log, so a lock and its release are two entries, like a bare write
//! and its removal. All other leases are revoked. If they were left to end, the leader would be
//! late to end the leases of crashed holders, because it ends only about a thousand in a second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use super::channel::Failure;
use super::error::explain;
use super::wire::Wire;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::net::Effect;
use crate::unpoisoned::Unpoisoned;

/// The most leases that are kept for later.
const SPARES_MAX: usize = 256;

/// Longer leases are not kept, because they would outlive a process that ends.
const KEPT_SECONDS_MAX: i64 = 60;

/// How many leases are revoked at the same time.
const REVOKED_AT_ONCE_MAX: usize = 64;

/// The most leases that wait to be revoked. Further ones end by themselves.
const SURPLUS_MAX: usize = 16_384;

/// A lease of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// How long the lease lasts without a renewal.
    pub(super) seconds: i64,
}

/// A lease for a new key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) lease: Lease,
    /// Whether the lease was made just now, or certainly renewed. Otherwise it is to be renewed.
    pub(super) is_new: bool,
    /// The last moment at which the lease certainly had its whole time left.
    pub(super) since: Moment,
}

impl Lease {
    pub(super) const fn is_kept(self) -> bool {
        self.seconds <= KEPT_SECONDS_MAX
    }
}

/// The leases that no key uses.
#[derive(Debug, Default)]
pub(super) struct Leases {
    unused: Unpoisoned<Unused>,
    /// The shortest lease that the server makes, in seconds, as far as we know.
    shortest: AtomicI64,
}

#[derive(Debug, Default)]
struct Unused {
    /// The leases that are kept, the youngest last.
    spares: VecDeque<Spare>,
    /// The leases that are to be revoked.
    surplus: Vec<i64>,
    is_revoking: bool,
}

#[derive(Debug)]
struct Spare {
    lease: Lease,
    /// The last moment at which the lease certainly had its whole time left.
    since: Moment,
}

impl Spare {
    /// Whether the lease may be used again, because half of its time is left.
    fn is_fit(&self, now: Moment) -> bool {
        let span = Duration::from_secs(self.lease.seconds.unsigned_abs());
        self.since + span / 2 > now
    }
}

/// The seconds of a lease of etcd that covers a ttl.
pub(super) fn seconds(ttl: Ttl) -> i64 {
    let span = ttl.get();
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl Leases {
    /// Whether a lease of this many seconds is kept.
    pub(super) fn has(&self, now: Moment, asked: i64) -> bool {
        self.place_of(&self.unused.lock(), now, asked).is_some()
    }

    /// Takes a lease of this many seconds, or makes one.
    pub(super) async fn take(&self, wire: &Wire, asked: i64) -> Result<Taken, Error> {
        match self.spare(wire.host.now(), asked) {
            Some(Spare { lease, since }) => Ok(Taken { lease, is_new: false, since }),
            None => self.make(wire, asked).await,
        }
    }

    /// A kept lease of this many seconds: the youngest, which ends last.
    fn spare(&self, now: Moment, asked: i64) -> Option<Spare> {
        let mut unused = self.unused.lock();
        let at = self.place_of(&unused, now, asked)?;
        unused.spares.remove(at)
    }

    fn place_of(&self, unused: &Unused, now: Moment, asked: i64) -> Option<usize> {
        let seconds = asked.max(self.shortest.load(Ordering::Relaxed));
        let is_fit = |spare: &Spare| spare.is_fit(now) && spare.lease.seconds == seconds;
        unused.spares.iter().rposition(is_fit)
    }

    /// Makes a lease of this many seconds.
    pub(super) async fn make(&self, wire: &Wire, asked: i64) -> Result<Taken, Error> {
        let (id, since) = (fresh_id(&*wire.host), wire.host.now());
        let granted = wire.grant(id, asked).await?;
        if granted < asked {
            // The lock would end before its holder expects.
            return Err(explain(&Failure::Malformed, Effect::Nothing));
        }
        if granted > asked {
            self.shortest.store(granted, Ordering::Relaxed);
        }
        let lease = Lease { id, seconds: granted };
        Ok(Taken { lease, is_new: true, since })
    }

    /// Keeps a lease for the next lock of the same ttl. No key may have it any more. The lease had
    /// its whole time left at `since`. If `since` is long ago or `None`, the lease is not kept.
    ///
    /// Returns `true` if there are leases to revoke, and no task revokes them yet. The caller must
    /// then call [`revoke_surplus`](Self::revoke_surplus).
    pub(super) fn give_back(&self, now: Moment, lease: Lease, since: Option<Moment>) -> bool {
        let mut unused = self.unused.lock();
        let Unused { spares, surplus, is_revoking } = &mut *unused;
        let mut end = |lease: Lease| {
            if surplus.len() < SURPLUS_MAX {
                surplus.push(lease.id);
            }
        };
        spares.retain(|spare| {
            let stays = spare.is_fit(now);
            if !stays {
                end(spare.lease);
            }
            stays
        });
        // No two locks may get one lease, because each would keep the other one alive.
        let is_there = spares.iter().any(|spare| spare.lease.id == lease.id);
        let spare = since.map(|since| Spare { lease, since }).filter(|spare| spare.is_fit(now));
        match spare.filter(|spare| spare.lease.is_kept()) {
            _ if is_there => {}
            Some(spare) => spares.push_back(spare),
            None => end(lease),
        }
        if spares.len() > SPARES_MAX {
            spares.pop_front().into_iter().for_each(|oldest| end(oldest.lease));
        }
        !surplus.is_empty() && !std::mem::replace(is_revoking, true)
    }

    /// Adds leases to those to revoke. Returns whether the caller must call
    /// [`revoke_surplus`](Self::revoke_surplus).
    pub(super) fn end(&self, leases: Vec<i64>) -> bool {
        let mut unused = self.unused.lock();
        let room = SURPLUS_MAX.saturating_sub(unused.surplus.len());
        unused.surplus.extend(leases.into_iter().take(room));
        !unused.surplus.is_empty() && !std::mem::replace(&mut unused.is_revoking, true)
    }

    /// Revokes the leases that are not kept. If that fails, they end by themselves.
    pub(super) async fn revoke_surplus(&self, wire: &Wire) {
        loop {
            let some = {
                let mut unused = self.unused.lock();
                let count = unused.surplus.len().min(REVOKED_AT_ONCE_MAX);
                unused.is_revoking = count > 0;
                unused.surplus.drain(..count).collect::<Vec<_>>()
            };
            if some.is_empty() {
                return;
            }
            let _revoked = join_all(some.into_iter().map(|id| wire.revoke(id))).await;
        }
    }

    /// Keeps no lease any more. Returns whether there are leases to revoke, and nobody does it.
    pub(super) fn close(&self) -> bool {
        let mut unused = self.unused.lock();
        let Unused { spares, surplus, is_revoking } = &mut *unused;
        surplus.extend(spares.drain(..).map(|spare| spare.lease.id));
        !surplus.is_empty() && !std::mem::replace(is_revoking, true)
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
        let spare = |ms, seconds| leases.spare(at(ms), seconds).map(|spare| spare.lease);
        for (id, ms) in [(1, 0), (2, 100), (3, 200), (3, 300)] {
            assert!(!leases.give_back(at(ms), lease(id), Some(at(ms))), "it is kept");
        }
        assert_eq!(spare(400, 3), None, "it lasts longer");
        assert_eq!(spare(400, 4), Some(lease(3)));
        assert_eq!(spare(2_050, 4), Some(lease(2)));
        assert!(leases.give_back(at(2_050), lease(2), Some(at(100))), "the first one is too old");
        assert_eq!(spare(2_099, 4), Some(lease(2)));
        assert_eq!(leases.unused.lock().surplus, [1]);
    }

    /// A lease that was detached, or whose client stood still, may be about to end.
    #[test]
    fn a_lease_is_kept_for_half_of_its_time_after_it_was_surely_renewed() {
        let at = |ms: u64| Moment::from_nanos(1) + Duration::from_millis(ms);
        let leases = Leases::default();
        let give_back = |id, since| leases.give_back(at(9_000), Lease { id, seconds: 4 }, since);
        assert!(give_back(1, None), "nobody knows when");
        give_back(2, Some(at(7_000)));
        give_back(3, Some(at(7_001)));
        assert_eq!(leases.unused.lock().surplus, [1, 2]);
        assert_eq!(leases.spare(at(9_000), 4).map(|spare| spare.lease.id), Some(3));
    }

    #[test]
    fn leases_that_are_not_kept_are_to_be_revoked_by_one_task() {
        let (leases, now) = (Leases::default(), Moment::from_nanos(1));
        let give_back = |id, seconds| leases.give_back(now, Lease { id, seconds }, Some(now));
        let kept = i64::try_from(SPARES_MAX).expect("not many");
        for id in 0..kept {
            assert!(!give_back(id, KEPT_SECONDS_MAX), "{id} is kept");
        }
        assert!(give_back(kept, 4), "the first one is one too many");
        assert!(!give_back(kept + 1, KEPT_SECONDS_MAX + 1), "a task revokes them");
        assert_eq!(leases.unused.lock().surplus, [0, kept + 1]);
        assert!(!leases.end(vec![9, 8]) && !leases.close(), "a task revokes them");
        assert_eq!(leases.unused.lock().surplus.len(), SPARES_MAX + 4);
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
