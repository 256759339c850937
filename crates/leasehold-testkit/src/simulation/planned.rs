//! The planned faults of a world.

use std::time::Duration;

use super::fault::Fault;
use crate::virtual_host::SeededRandom;

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    /// The kind of fault.
    pub fault: Fault,
    /// When it begins.
    pub at: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// The client that it concerns; `None` for all clients.
    pub client: Option<usize>,
    /// The size of the fault. Its meaning depends on the kind.
    pub much: u64,
    /// The nodes that it concerns, if it concerns any.
    pub nodes: Nodes,
}

/// How long a client is gone whose leader crashed.
const GONE_FOR: Duration = Duration::from_millis(300);

impl PlannedFault {
    /// The crash of a client, now.
    pub(super) const fn crash_of(client: usize) -> Self {
        Self {
            fault: Fault::ClientCrash,
            at: Duration::ZERO,
            lasts: GONE_FOR,
            client: Some(client),
            much: 0,
            nodes: Nodes::FIRST,
        }
    }
}

/// Some of the nodes of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes(u16);

impl Nodes {
    /// The first node, which is the only one in most worlds.
    pub const FIRST: Self = Self(1);

    /// Whether this node is among them.
    #[must_use]
    pub const fn has(self, node: usize) -> bool {
        self.0 >> node & 1 == 1
    }

    /// Chooses `number` of `all` nodes.
    pub(super) fn some(random: &mut SeededRandom, number: usize, all: usize) -> Self {
        let mut nodes = Self(0);
        while (nodes.0.count_ones() as usize) < number {
            nodes.0 |= 1 << random.below(all);
        }
        nodes
    }
}
