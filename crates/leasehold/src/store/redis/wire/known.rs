//! The state of the server, as far as it is known on one connection. Every connection starts
//! without any: it may lead to another server, or to one that forgot its data.

use std::collections::HashSet;
use std::sync::Arc;

use crate::core::key::Key;
use crate::store::redis::scripts::Script;
use crate::store::redis::scripts::native::{CompareAndDelete, Found};
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
    plain: PlainAsk,
    /// Whether a command releases a lock without companion keys. `None` before the server said so.
    native: Option<Found>,
    /// Whether the server was asked that.
    is_probed: bool,
    /// Whether the server has no scripts, or the user may not run them.
    refuses_scripts: bool,
}

/// How to ask for a lock without companion keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum PlainAsk {
    /// The first time, with a script. Where scripts are forbidden, a command could take a lock that
    /// nobody can release, unless there is a command for that too.
    #[default]
    Untried,
    /// With a command, because scripts are allowed.
    Command,
    /// With a script, because the server is too old for the command.
    Script,
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

    /// The script was sent in full, so later calls on this connection can use its hash.
    pub(in crate::store::redis) fn sent_script(&mut self, script: &Script) {
        self.scripts |= script.bit();
    }

    /// The server said that it does not have the script.
    pub(in crate::store::redis) fn lacks_script(&mut self, script: &Script) {
        self.scripts &= !script.bit();
    }

    /// How to ask for a lock without companion keys.
    pub(in crate::store::redis) fn plain_ask(&self) -> PlainAsk {
        self.plain
    }

    /// The server ran a script, so it allows scripts.
    pub(in crate::store::redis) fn allows_scripts(&mut self) {
        if self.plain == PlainAsk::Untried {
            self.plain = PlainAsk::Command;
        }
    }

    /// The server does not know `SET` with both `NX` and `GET`, which came with Redis 7.0.
    pub(in crate::store::redis) fn lacks_plain_ask(&mut self) {
        self.plain = PlainAsk::Script;
    }

    /// The command that releases a lock without companion keys; `None` if a script must do it.
    pub(in crate::store::redis) fn native(&self) -> Option<CompareAndDelete> {
        match self.native {
            Some(Found::Command(native)) => Some(native),
            Some(Found::Nothing | Found::Unknown) | None => None,
        }
    }

    /// Whether the server said that it has no such command.
    pub(in crate::store::redis) fn has_no_native(&self) -> bool {
        self.native == Some(Found::Nothing)
    }

    /// Whether to ask the server for such a command. Says yes once.
    pub(in crate::store::redis) fn is_to_be_probed(&mut self) -> bool {
        !std::mem::replace(&mut self.is_probed, true)
    }

    /// The server said whether it has such a command.
    pub(in crate::store::redis) fn was_probed(&mut self, found: Found) {
        match found {
            Found::Command(_) | Found::Nothing => self.native = Some(found),
            Found::Unknown => self.is_probed = false,
        }
    }

    /// The server does not know that command any more.
    pub(in crate::store::redis) fn lacks_native(&mut self) {
        (self.native, self.is_probed) = (None, false);
    }

    /// The server refuses scripts, at least from this user.
    pub(in crate::store::redis) fn denies_scripts(&mut self) {
        self.refuses_scripts = true;
        if self.plain == PlainAsk::Command {
            self.plain = PlainAsk::Untried;
        }
    }

    /// Whether renewals must do without scripts too.
    pub(in crate::store::redis) fn refuses_scripts(&self) -> bool {
        self.refuses_scripts
    }

    /// Whether the fencing counter of a key was raised to the server's clock on this connection.
    /// Before that, the server may have come back with an old counter.
    pub(in crate::store::redis) fn is_warm(&self, key: &Key) -> bool {
        self.warm.contains(key)
    }

    /// The server may keep other keys than before.
    pub(in crate::store::redis) fn forget_counters(&mut self) {
        self.warm.clear();
    }

    /// The fencing counter of a key was raised.
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
