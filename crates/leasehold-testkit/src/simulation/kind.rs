//! The kinds of worlds.
//!
//! A seed decides about each kind independently, so a new kind leaves most worlds as they were. The
//! user can also ask for a kind (`simulate --world NAME`). Then every seed whose other kinds allow
//! it gets that kind.

use super::fault::Fault;
use super::plan::{KeptIn, Plan, Sharing};
use crate::virtual_host::SeededRandom;

/// A special property of a world. A world can have several of them.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Kind {
    /// A lock over 3, 4 or 5 independent nodes.
    Quorum,
    /// Locks that expect others who poll: no hand-over.
    Coexist,
    /// Strict servers: they are quarantined after they forgot.
    Strict,
    /// A server with replicas, whose grants need copies.
    Copies,
    /// Ttls of minutes and hours, and leases held for that long.
    Long,
    /// A client with a thousand leases or more.
    Crowd,
    /// Leases renewed and released by token, without guard.
    Detached,
    /// One server that evicts keys of all kinds.
    Evicting,
    /// Clients with different namespaces, or none.
    Namespaced,
    /// Unqueued locks, most of them without companion keys.
    Bare,
    /// Clients of another library that poll for the same keys.
    Foreign,
    /// A server whose grants have to be on its disk.
    Fsync,
    /// The memory store, in one program with several clients.
    Memory,
    /// The SQLite store, in a file that processes share.
    Sqlite,
    /// Readers that share locks, and writers.
    Shared,
    /// Semaphores, whose number of permits is changed.
    Permits,
    /// Guards that leave their key taken for a while.
    Keeping,
    /// Locks of several names, taken together.
    Several,
    /// Starts of work, at most so many in each period.
    Limited,
    /// Latches that all clients count down and wait for.
    Latched,
    /// Barriers at which clients arrive and wait for others.
    Meeting,
    /// Work that is done once per period.
    Once,
    /// Operators who end leases, or ask holders to let go.
    Operated,
    /// An election: candidates, leaders and observers.
    Elected,
    /// Locks with a `max_hold`, and holders that would go on.
    Bounded,
    /// A server that refuses scripts for a while.
    Refusing,
}

impl Kind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Plan {
    /// Whether its world is of this kind.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        match kind {
            Kind::Quorum => self.is_quorum(),
            Kind::Coexist => self.coexists,
            Kind::Strict => self.strict.is_some(),
            Kind::Copies => self.copies.is_some(),
            Kind::Long => self.pace > 1,
            Kind::Crowd => self.crowd > 0,
            Kind::Detached => self.detaches,
            Kind::Evicting => {
                !self.is_quorum() && self.faults.iter().any(|one| one.fault == Fault::Eviction)
            }
            Kind::Namespaced => self.clients.iter().any(|client| client.namespace.is_some()),
            Kind::Bare => self.is_unqueued,
            Kind::Foreign => self.foreigners > 0,
            Kind::Fsync => self.copies.is_some_and(|copied| copied.disk_us.is_some()),
            Kind::Memory => self.kept_in == KeptIn::Memory,
            Kind::Sqlite => self.kept_in == KeptIn::File,
            Kind::Shared => self.sharing == Some(Sharing::Readers),
            Kind::Permits => matches!(self.sharing, Some(Sharing::Permits { .. })),
            Kind::Keeping => self.keeps,
            Kind::Several => self.takes_several,
            Kind::Limited => self.limit.is_some(),
            Kind::Latched => self.latch.is_some(),
            Kind::Meeting => self.barrier.is_some(),
            Kind::Once => self.runs_once,
            Kind::Operated => self.is_operated,
            Kind::Elected => self.election.is_some(),
            Kind::Bounded => self.limits_holds,
            Kind::Refusing => self.faults.iter().any(|one| Fault::OF_SCRIPTS.contains(&one.fault)),
        }
    }
}

/// Decides which kinds the world of a seed has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw<'a> {
    pub(super) seed: u64,
    /// The kinds that a seed may have.
    pub(super) known: &'a [Kind],
    /// The kinds that the user asked for.
    pub(super) wanted: &'a [Kind],
}

impl Draw<'_> {
    /// The random numbers for a kind. `None` if the kind is neither asked for nor drawn (one world
    /// in `one_in`). `salt` makes the numbers of each kind independent.
    pub(super) fn of(&self, kind: Kind, salt: u64, one_in: usize) -> Option<SeededRandom> {
        let mut random = SeededRandom::new(SeededRandom::new(self.seed).next_u64() ^ salt);
        let is_drawn = random.below(one_in) == one_in / 2 && self.known.contains(&kind);
        (is_drawn || self.wanted.contains(&kind)).then_some(random)
    }
}
