//! What a client knows of the server at the other end of one connection. It starts over with every
//! connection: behind it may be another server, or one that forgot.

use std::collections::HashSet;

use super::scripts::Script;
use crate::core::key::Key;

/// How many warm keys are remembered. Beyond, all are forgotten, which costs one look at the
/// server's clock with the next grant of each.
const WARM_KEYS_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct Known {
    /// One bit per script.
    scripts: u32,
    warm: HashSet<Key>,
}

impl Known {
    /// Whether the server has the script, so that its hash is enough.
    pub(super) fn has_script(&self, script: &Script) -> bool {
        self.scripts & script.bit() != 0
    }

    /// The script was sent in full: whatever comes after it on this connection finds it there.
    pub(super) fn sent_script(&mut self, script: &Script) {
        self.scripts |= script.bit();
    }

    /// The server said that it does not have the script after all.
    pub(super) fn lacks_script(&mut self, script: &Script) {
        self.scripts &= !script.bit();
    }

    /// Whether the fencing counter of a key was lifted to the server's clock on this connection.
    /// Until then the server may have come back with an old one.
    pub(super) fn is_warm(&self, key: &Key) -> bool {
        self.warm.contains(key)
    }

    /// The counter of a key was lifted.
    pub(super) fn warmed(&mut self, key: &Key) {
        if self.warm.len() == WARM_KEYS_MAX {
            self.warm.clear();
        }
        self.warm.insert(key.clone());
    }
}
