//! The kinds of worlds.
//!
//! A seed decides about each kind independently, so a new kind leaves most worlds as they were. The
//! user can also ask for a kind (`simulate --world NAME`). Then every seed whose other kinds allow
//! it gets that kind.

use std::fmt;
use std::str::FromStr;

use super::fault::Fault;
use super::plan::{KeptIn, Plan, Sharing};
use crate::virtual_host::SeededRandom;

/// A special property of a world. A world can have several of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Several nodes; a majority grants a lease.
    Quorum,
    /// Releases hand nothing over.
    Coexist,
    /// Strict servers.
    Strict,
    /// Replicas must confirm grants.
    Copies,
    /// Leases that last minutes and hours.
    Long,
    /// One client with a thousand leases.
    Crowd,
    /// Leases that go on by their token, without a guard.
    Detached,
    /// One server that evicts keys.
    Evicting,
    /// Clients with namespaces.
    Namespaced,
    /// No line, and most locks are a single key.
    Bare,
    /// Clients of another library poll for the same keys.
    Foreign,
    /// Grants must be on the server's disk.
    Fsync,
    /// The locks are in the memory of one program.
    Memory,
    /// The locks are in a file that the processes of one machine share.
    Sqlite,
    /// Readers share locks, and writers have them exclusively.
    Shared,
    /// Keys have a number of permits.
    Permits,
    /// Guards leave their key taken when they end.
    Keeping,
    /// Locks are taken together.
    Several,
    /// There is a limit on how often work starts.
    Limited,
    /// Latches are counted down and waited for.
    Latched,
    /// Parties meet at barriers.
    Meeting,
    /// Work is done once per period.
    Once,
    /// Operators end the leases of clients, or ask the holders to let go.
    Operated,
    /// The clients elect leaders.
    Elected,
    /// Holds are limited, and some holders would go on.
    Bounded,
    /// A server refuses scripts for a while.
    Refusing,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 26] = [
        Self::Quorum,
        Self::Coexist,
        Self::Strict,
        Self::Copies,
        Self::Long,
        Self::Crowd,
        Self::Detached,
        Self::Evicting,
        Self::Namespaced,
        Self::Bare,
        Self::Foreign,
        Self::Fsync,
        Self::Memory,
        Self::Sqlite,
        Self::Shared,
        Self::Permits,
        Self::Keeping,
        Self::Several,
        Self::Limited,
        Self::Latched,
        Self::Meeting,
        Self::Once,
        Self::Operated,
        Self::Elected,
        Self::Bounded,
        Self::Refusing,
    ];

    /// Its name on the command line, and its description.
    #[must_use]
    pub const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Quorum => ("quorum", "a lock over 3, 4 or 5 independent nodes"),
            Self::Coexist => ("coexist", "locks that expect others who poll: no hand-over"),
            Self::Strict => ("strict", "strict servers: they are quarantined after they forgot"),
            Self::Copies => ("copies", "a server with replicas, whose grants need copies"),
            Self::Long => ("long", "ttls of minutes and hours, and leases held for that long"),
            Self::Crowd => ("crowd", "a client with a thousand leases or more"),
            Self::Detached => ("detached", "leases renewed and released by token, without guard"),
            Self::Evicting => ("evicting", "one server that evicts keys of all kinds"),
            Self::Namespaced => ("namespaced", "clients with different namespaces, or none"),
            Self::Bare => ("bare", "unqueued locks, most of them without companion keys"),
            Self::Foreign => ("foreign", "clients of another library that poll for the same keys"),
            Self::Fsync => ("fsync", "a server whose grants have to be on its disk"),
            Self::Memory => ("memory", "the memory store, in one program with several clients"),
            Self::Sqlite => ("sqlite", "the SQLite store, in a file that processes share"),
            Self::Shared => ("shared", "readers that share locks, and writers"),
            Self::Permits => ("permits", "semaphores, whose number of permits is changed"),
            Self::Keeping => ("keeping", "guards that leave their key taken for a while"),
            Self::Several => ("several", "locks of several names, taken together"),
            Self::Limited => ("limited", "starts of work, at most so many in each period"),
            Self::Latched => ("latched", "latches that all clients count down and wait for"),
            Self::Meeting => ("meeting", "barriers at which clients arrive and wait for others"),
            Self::Once => ("once", "work that is done once per period"),
            Self::Operated => ("operated", "operators who end leases, or ask holders to let go"),
            Self::Elected => ("elected", "an election: candidates, leaders and observers"),
            Self::Bounded => ("bounded", "locks with a `max_hold`, and holders that would go on"),
            Self::Refusing => ("refusing", "a server that refuses scripts for a while"),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.about().0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("`{name}` is not a kind of world"))
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
