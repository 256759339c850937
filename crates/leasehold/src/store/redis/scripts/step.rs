//! The steps at a lock, and the scripts that do them.

use crate::core::key::Key;
use crate::core::ttl::Ttl;
use crate::store::{Ask, LeaseId, OnRelease, Renewal};

/// One step at one lock, kept until it is answered.
pub(in crate::store::redis) enum Step {
    Acquire(Ask),
    Renew(Renewal),
    Release(LeaseId, OnRelease),
    Evict { key: Key, seen: Vec<u8> },
    Revoke { key: Key, seen: Vec<u8>, request: String },
    Resize { key: Key, of: u32 },
    Inspect(Key),
    Living(Key),
}

impl Step {
    /// The key of the lock.
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Acquire(ask) => &ask.key,
            Self::Renew(renewal) => &renewal.lease.key,
            Self::Release(lease, _) => &lease.key,
            Self::Evict { key, .. }
            | Self::Revoke { key, .. }
            | Self::Resize { key, .. }
            | Self::Inspect(key)
            | Self::Living(key) => key,
        }
    }

    /// The ttl of the lease that the step may grant.
    pub(super) fn grants(&self) -> Option<Ttl> {
        match self {
            Self::Acquire(ask) => Some(ask.ttl),
            Self::Renew(renewal) => Some(renewal.ttl),
            Self::Release(
                _,
                OnRelease::KeepIfAlone { ttl, .. } | OnRelease::Downgrade { ttl, .. },
            ) => Some(*ttl),
            Self::Release(_, OnRelease::Free | OnRelease::Open | OnRelease::FreeAndWake)
            | Self::Evict { .. }
            | Self::Revoke { .. }
            | Self::Resize { .. }
            | Self::Inspect(_)
            | Self::Living(_) => None,
        }
    }

    /// The key, if the step reserves fencing tokens for this client. Evictions and hand-overs raise
    /// the counter to the clock in any case.
    pub(super) fn counted(&self) -> Option<&Key> {
        match self {
            Self::Acquire(ask) => (ask.reserve > 0).then_some(&ask.key),
            Self::Renew(renewal) => (renewal.reserve > 0).then_some(&renewal.lease.key),
            Self::Release(lease, OnRelease::KeepIfAlone { reserve, .. }) => {
                (*reserve > 0).then_some(&lease.key)
            }
            Self::Release(
                _,
                OnRelease::Free
                | OnRelease::Open
                | OnRelease::FreeAndWake
                | OnRelease::Downgrade { .. },
            )
            | Self::Evict { .. }
            | Self::Revoke { .. }
            | Self::Resize { .. }
            | Self::Inspect(_)
            | Self::Living(_) => None,
        }
    }
}
