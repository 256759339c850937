//! The state of the server, as far as it is known on one connection. Nothing is known on a new
//! connection, because it may lead to another server, or to a server that forgot its data.

use std::collections::HashSet;
use std::sync::Arc;

use crate::core::key::Key;
use crate::store::redis::scripts::Script;
use crate::store::redis::scripts::abilities::Abilities;
use crate::store::redis::terms::Strict;

/// How many warm keys are remembered. Beyond that, all are forgotten. The next grant of each key
/// then reads the server's clock once.
const WARM_KEYS_MAX: usize = 16_384;

/// Identifies a server process and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct ServerProcess {
    /// The run id changes with every start.
    pub(in crate::store::redis) run_id: Arc<str>,
    /// The replication id changes with every start, and when a replica becomes a primary again.
    pub(in crate::store::redis) replid: Arc<str>,
}

/// How a strict request finds out whether the server has forgotten its leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Strictly {
    /// The server process at the other end of the connection.
    pub(in crate::store::redis) process: ServerProcess,
    /// The terms that apply if it is another process than before.
    pub(in crate::store::redis) strict: Strict,
}

#[derive(Default)]
pub(in crate::store::redis) struct Known {
    /// `None` if the connection is not strict.
    strictly: Option<Strictly>,
    /// How many replicas the server had when the connection was made, if the terms need it.
    replicas: Option<u32>,
    /// The scripts that the server has, one bit each.
    scripts: u32,
    warm: HashSet<Key>,
    /// Whether the server may come back with an old counter on this very connection.
    is_unsteady: bool,
    /// The abilities of the server for locks without companion keys.
    pub(in crate::store::redis) bare: Abilities,
}

impl Known {
    /// The state of a new connection.
    pub(in crate::store::redis) fn new(strictly: Option<Strictly>, replicas: Option<u32>) -> Self {
        Self { strictly, replicas, ..Self::default() }
    }

    /// Does not trust the server to remember what it counted on this connection.
    pub(in crate::store::redis) fn unsteady(self) -> Self {
        Self { is_unsteady: true, ..self }
    }

    /// How requests are strict; `None` if the connection is not strict.
    pub(in crate::store::redis) fn strictly(&self) -> Option<&Strictly> {
        self.strictly.as_ref()
    }

    /// How many replicas the server had at first; `None` if the terms do not need it.
    pub(in crate::store::redis) fn replicas(&self) -> Option<u32> {
        self.replicas
    }

    /// Whether the server has the script, so that its hash is enough.
    pub(in crate::store::redis) fn has_script(&self, script: &Script) -> bool {
        self.scripts & script.bit() != 0
    }

    /// Notes that the script was sent in full, so later calls on this connection can use its hash.
    pub(in crate::store::redis) fn sent_script(&mut self, script: &Script) {
        self.scripts |= script.bit();
    }

    /// The scripts that the server has, one bit each.
    pub(in crate::store::redis) const fn scripts(&self) -> u32 {
        self.scripts
    }

    /// Notes that the server may lack every script.
    pub(in crate::store::redis) const fn forget_scripts(&mut self) {
        self.scripts = 0;
    }

    /// Notes that the server does not have the script.
    pub(in crate::store::redis) fn lacks_script(&mut self, script: &Script) {
        self.scripts &= !script.bit();
    }

    /// Whether the fencing counter of a key was raised to the server's clock on this connection.
    /// Before that, the server may have come back with an old counter.
    pub(in crate::store::redis) fn is_warm(&self, key: &Key) -> bool {
        self.warm.contains(key)
    }

    /// Notes that the server may keep other keys than before.
    pub(in crate::store::redis) fn forget_counters(&mut self) {
        self.warm.clear();
    }

    /// Notes that the fencing counter of a key was raised.
    pub(in crate::store::redis) fn warmed(&mut self, key: &Key) {
        if self.is_unsteady {
            return;
        }
        if self.warm.len() == WARM_KEYS_MAX {
            self.warm.clear();
        }
        self.warm.insert(key.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(format!("k{number}")).expect("a good name")
    }

    #[test]
    fn as_many_counters_are_remembered_as_there_is_room_for() {
        let mut known = Known::default();
        for number in 0..WARM_KEYS_MAX {
            known.warmed(&key(number));
        }
        assert!(known.is_warm(&key(0)) && known.is_warm(&key(WARM_KEYS_MAX - 1)));
        known.warmed(&key(WARM_KEYS_MAX));
        assert!(known.is_warm(&key(WARM_KEYS_MAX)));
        assert_eq!(known.warm.len(), 1, "the others are forgotten");
        let mut unsteady = Known::default().unsteady();
        unsteady.warmed(&key(0));
        assert!(!unsteady.is_warm(&key(0)), "it may come back with an old counter");
    }
}
