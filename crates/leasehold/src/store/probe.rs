//! Tries a lease, to find out whether a store keeps leases at all.

use std::time::Duration;

use super::{Acquired, Ask, Claim, LeaseId, OnRelease, Released, Renewal, Renewed, Store};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::host::Host;

/// The ttl of the lease that is tried.
pub(crate) fn probe_ttl() -> Ttl {
    Ttl::nearest(Duration::from_secs(5))
}

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
    try_out_for(store, host, canary, probe_ttl()).await
}

/// Same as [`try_out`], with a lease of this ttl.
pub(crate) async fn try_out_for(
    store: &impl Store,
    host: &dyn Host,
    canary: &str,
    ttl: Ttl,
) -> (Result<bool, Error>, Vec<Duration>) {
    let random = canary.rsplit(':').next().unwrap_or_default();
    let key = Key::probe(random);
    let lease = try_lease(store, key.clone(), random, ttl).await;
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
pub(crate) async fn try_lease(
    store: &impl Store,
    key: Key,
    random: &str,
    ttl: Ttl,
) -> Result<bool, Error> {
    let token = |text: &str| OwnerToken::new(format!("{text}-{random}"));
    let (ours, wrong, claim) = (token("ours")?, token("wrong")?, Claim::Exclusive);
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

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Weak;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::core::error::ErrorKind;
    use crate::core::token::ClientId;
    use crate::host::SystemHost;
    use crate::store::{BoxAnswer, Browse, Capabilities, HintSink, MemoryStore, Refusal, Snapshot};

    /// The mistake of a store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wrong {
        Nothing,
        GrantsNothing,
        LosesEachLease,
        FailsToRenew,
        ReleasesByAnyToken,
        ReleasesNothing,
    }

    /// A store in memory that does something wrong.
    struct Faulty(MemoryStore, Wrong);

    impl Store for Faulty {
        fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
            match self.1 {
                Wrong::GrantsNothing => Box::pin(ready(Ok(Refusal::taken(None, 0).into()))),
                _ => self.0.acquire(ask),
            }
        }
        fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
            match self.1 {
                Wrong::LosesEachLease => Box::pin(ready(Ok(Renewed::Lost))),
                Wrong::FailsToRenew => {
                    let error = Error::new(ErrorKind::Unavailable, "it fails");
                    Box::pin(ready(Err(error)))
                }
                _ => self.0.renew(renewal),
            }
        }
        fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
            match self.1 {
                Wrong::ReleasesByAnyToken => Box::pin(ready(Ok(Released::Freed))),
                Wrong::ReleasesNothing => Box::pin(ready(Ok(Released::NotHeld))),
                _ => self.0.release(lease, on_release),
            }
        }
        fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
            self.0.inspect(key)
        }
        fn watch(&self, _: &ClientId, _: Weak<dyn HintSink>) {}
        fn listen(&self, _: &ClientId) {}
        fn capabilities(&self) -> Capabilities {
            self.0.capabilities()
        }
        fn browse(&self) -> Option<&dyn Browse> {
            None
        }
        fn label(&self) -> String {
            self.0.label()
        }
    }

    #[test]
    fn a_lease_is_tried_with_everything_that_a_lock_relies_on() {
        for (wrong, works) in [
            (Wrong::Nothing, Some(true)),
            (Wrong::GrantsNothing, Some(false)),
            (Wrong::LosesEachLease, Some(false)),
            (Wrong::FailsToRenew, None),
            (Wrong::ReleasesByAnyToken, Some(false)),
            (Wrong::ReleasesNothing, Some(false)),
        ] {
            let store = Faulty(MemoryStore::new(SystemHost::shared()), wrong);
            let (lease, looks) = try_out(&store, &SystemHost, "a:b")
                .now_or_never()
                .expect("a store in memory answers at once");
            assert_eq!(lease.ok(), works, "{wrong:?}");
            assert_eq!(looks.len(), LOOKS);
        }
    }

    #[test]
    fn a_trial_that_fails_leaves_no_lease() {
        let store = Faulty(MemoryStore::new(SystemHost::shared()), Wrong::FailsToRenew);
        let tried = try_out(&store, &SystemHost, "a:b").now_or_never().expect("at once");
        assert_eq!(tried.0.expect_err("it fails").kind(), ErrorKind::Unavailable);
        let seen = store.inspect(Key::probe("b")).now_or_never().expect("at once");
        assert!(seen.expect("an answer").holders.is_empty());
    }
}
