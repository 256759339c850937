//! Tries a lease, to find out whether a store keeps leases at all.

use std::time::Duration;

use super::{Acquired, Ask, Claim, LeaseId, OnRelease, Released, Renewal, Renewed, Store};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::host::Host;

/// How many inspections are measured.
const LOOKS: usize = 20;

/// Tries a lease, and measures how long inspections take. The last part of `canary` is random.
/// Returns whether the lease was granted and renewed, and released by no other token than its own.
///
/// # Cancel safety
///
/// A dropped future leaves the lease to its ttl, which is 5 s.
pub async fn try_out(
    store: &impl Store,
    host: &dyn Host,
    canary: &str,
) -> (Result<bool, Error>, Vec<Duration>) {
    let random = canary.rsplit(':').next().unwrap_or_default();
    let key = Key::probe(random);
    let lease = try_lease(store, key.clone(), random).await;
    let mut round_trips = Vec::new();
    for _ in 0..LOOKS {
        let sent = host.now();
        if store.inspect(key.clone()).await.is_err() {
            break;
        }
        round_trips.push(host.now().since(sent));
    }
    (lease, round_trips)
}

/// Takes a lease, renews it, and releases it with a wrong token and with its own. Returns whether
/// it was granted and renewed, and released by no other token than its own. `random` makes its
/// tokens differ from all others.
pub(crate) async fn try_lease(store: &impl Store, key: Key, random: &str) -> Result<bool, Error> {
    let token = |text: &str| OwnerToken::new(format!("{text}-{random}"));
    let (ours, wrong, claim) = (token("ours")?, token("wrong")?, Claim::Exclusive);
    let ttl = Ttl::new(Duration::from_secs(5))?;
    let granted = store.acquire(Ask::new(key.clone(), ours.clone(), claim, ttl)).await?;
    let by = |owner| LeaseId { key: key.clone(), owner, claim };
    let renewed = store.renew(Renewal::new(by(ours.clone()), ttl)).await;
    let by_wrong = store.release(by(wrong), OnRelease::Free).await?;
    let by_right = store.release(by(ours), OnRelease::Free).await?;
    // Look at the renewal only now, so that an error leaves no lease.
    let is_renewed = matches!(renewed?, Renewed::Renewed { .. });
    let is_granted = matches!(granted, Acquired::Granted { .. });
    Ok(is_granted && is_renewed && by_wrong == Released::NotHeld && by_right == Released::Freed)
}
