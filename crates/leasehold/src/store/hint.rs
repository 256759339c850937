//! Messages that a store sends without a request.

use crate::core::key::Key;
use crate::core::token::{FencingBlock, OwnerToken};

/// A message that it may be time to ask again, or to hand the key on. It may be lost, late, doubled
/// or forged. It proves nothing, and a client may ignore an unknown hint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// The key was handed to this owner.
    Granted {
        /// The key.
        key: Key,
        /// The token of the new owner.
        owner: OwnerToken,
        /// The fencing tokens of the grant.
        fencing: Option<FencingBlock>,
        /// The number of the owner's last ask that the store processed. 0 if the store cannot tell.
        /// Then the owner must ask before it acts.
        ask_no: u32,
    },
    /// Another client waits for a key that we hold. Best effort: if it gets lost, `wanted` of the
    /// next renewal says the same.
    Wanted {
        /// The key.
        key: Key,
    },
    /// The key may be free.
    MaybeFree {
        /// The key.
        key: Key,
    },
    /// The place of this owner has come near the front of a long line, so the owner should ask
    /// ([`Capabilities::calls_up`](super::Capabilities::calls_up)).
    CalledUp {
        /// The key.
        key: Key,
        /// The token of the waiter.
        owner: OwnerToken,
    },
    /// Hints may have been missed. Ask again for every awaited key.
    Missed,
}

/// Receives hints. Stores call it from anywhere, even while they hold their own locks. So it must
/// not block and must not call the store.
pub trait HintSink: Send + Sync {
    /// Receives one hint.
    fn hint(&self, hint: Hint);
}
