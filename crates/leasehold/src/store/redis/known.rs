//! What a client knows of the server at the other end of one connection. It starts over with every
//! connection: behind it may be another server, or one that forgot.

use std::collections::HashSet;
use std::sync::Arc;

use super::scripts::Script;
use crate::core::key::Key;

/// How many warm keys are remembered. Beyond, all are forgotten, which costs one look at the
/// server's clock with the next grant of each.
const WARM_KEYS_MAX: usize = 16_384;

/// Which process answers, and whose data it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerProcess {
    /// It changes with every start.
    pub(super) run_id: Arc<str>,
    /// It changes with every start too, and when the server was a replica and is a primary again.
    pub(super) replid: Arc<str>,
}

#[derive(Default)]
pub(super) struct Known {
    /// Which process answers, where that was asked.
    process: Option<ServerProcess>,
    /// How many replicas it had when the connection was made, where that was asked.
    replicas: Option<u32>,
    /// One bit per script.
    scripts: u32,
    warm: HashSet<Key>,
    plain: PlainAsk,
}

/// How a lock is asked for that has nothing beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PlainAsk {
    /// By a script at first: where scripts are not allowed, nobody could release what a command
    /// has taken.
    #[default]
    Untried,
    /// By a command: scripts are allowed.
    Command,
    /// By a script: the server is older than the command.
    Script,
}

impl Known {
    /// What is known of a connection that has just been made.
    pub(super) fn new(process: Option<ServerProcess>, replicas: Option<u32>) -> Self {
        Self { process, replicas, ..Self::default() }
    }

    /// The server at the other end; `None` where it was not asked.
    pub(super) fn process(&self) -> Option<&ServerProcess> {
        self.process.as_ref()
    }

    /// How many replicas the server had at first; `None` where it was not asked.
    pub(super) fn replicas(&self) -> Option<u32> {
        self.replicas
    }

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

    /// How a lock is asked for that has nothing beside it.
    pub(super) fn plain_ask(&self) -> PlainAsk {
        self.plain
    }

    /// The server carried a script out, so it does others.
    pub(super) fn allows_scripts(&mut self) {
        if self.plain == PlainAsk::Untried {
            self.plain = PlainAsk::Command;
        }
    }

    /// The server does not know `SET` with `NX` and `GET`, which is of Redis 7.0.
    pub(super) fn lacks_plain_ask(&mut self) {
        self.plain = PlainAsk::Script;
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
