//! What a store says unasked.

use crate::core::key::Key;
use crate::core::token::{FencingBlock, OwnerToken};

/// A message that waiting or handing on may be worthwhile now. It may be lost, late, doubled or
/// forged: it proves nothing, and one that is not known may be passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// The key was handed to this owner.
    Granted {
        /// What.
        key: Key,
        /// To whom.
        owner: OwnerToken,
        /// The fencing tokens of the grant.
        fencing: Option<FencingBlock>,
        /// The number of the last ask of that owner that the store had processed. 0 if the store
        /// does not vouch for it: the owner asks before it acts.
        ask_no: u32,
    },
    /// Another client waits for a key that we hold. Best effort: where it does not reach the
    /// holder, `wanted` of the next renewal says the same.
    Wanted {
        /// Which.
        key: Key,
    },
    /// The key may be free.
    MaybeFree {
        /// Which.
        key: Key,
    },
    /// Hints may have been missed: ask again for every key that you wait for.
    Missed,
}

/// Takes hints. Called from anywhere, also inside a store's own locks: it must not block and must
/// not call the store.
pub trait HintSink: Send + Sync {
    /// Takes one hint.
    fn hint(&self, hint: Hint);
}
