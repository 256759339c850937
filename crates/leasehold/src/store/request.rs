//! What a store is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::core::key::Key;
use crate::core::line::{Stance, Wish};
use crate::core::token::{ClientId, FencingToken, OwnerToken};
use crate::core::ttl::Ttl;

/// One acquire request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// What is wanted.
    pub key: Key,
    /// By whom.
    pub owner: OwnerToken,
    /// In which way.
    pub claim: Claim,
    /// How long the store keeps the lease, lock delay included.
    pub ttl: Ttl,
    /// What happens if it is taken.
    pub line: Line,
    /// What the asker says of itself. Without it, nothing is written but the lock and its counter.
    pub note: Option<Note>,
    /// How many fencing tokens the grant reserves at most: usually 1; 0 for a lock without fencing.
    /// A store may reserve fewer, but at least one: a block must not run ahead of what the store
    /// counts by.
    pub reserve: u32,
}

impl Ask {
    /// An ask that takes no place in line, says nothing of the asker, and reserves no fencing
    /// tokens. Set what is wanted beside.
    #[must_use]
    pub const fn new(key: Key, owner: OwnerToken, claim: Claim, ttl: Ttl) -> Self {
        Self { key, owner, claim, ttl, line: Line::Stand, note: None, reserve: 0 }
    }
}

/// In which way a key is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Claim {
    /// By one owner alone.
    Exclusive,
    /// By one owner alone, with nothing beside the lock: no line, no note, no fencing tokens. It
    /// goes with [`Line::Stand`] and with nothing reserved, so that a store may keep it as simply
    /// as it can. Whether somebody waits in line, with another claim, need not be looked at.
    Plain,
    /// By many owners who exclude only an exclusive one.
    Shared,
    /// As `want` of the `of` permits that the key has.
    Permits {
        /// How many.
        want: u32,
        /// How many there are in all.
        of: u32,
    },
}

/// What happens to an ask that finds the key taken.
///
/// A store refuses a way that it does not know, as it does a [`Claim`]
/// ([`Unsupported`](crate::ErrorKind::Unsupported)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// It is answered; no place is taken.
    Stand,
    /// It takes or refreshes a place, and may be made the owner while it waits.
    Join {
        /// How long the place lives.
        waiter_ttl: Ttl,
        /// How long a lease lives that is handed to this place: min(ttl, waiter_ttl) and the lock
        /// delay.
        handed_ttl: Ttl,
        /// Which ask of this acquisition this is. A hand-over repeats the number of the last one
        /// processed.
        ask_no: u32,
        /// Where hints for this place go.
        inbox: ClientId,
    },
    /// It takes or refreshes a place that is woken and never made the owner: what a quorum uses,
    /// since nodes that each hand over to a head of their own would split the vote. For 20 ms
    /// after a release has woken it, the key is not granted to an ask that takes a place only then:
    /// that is to ask again. Otherwise it holds nobody up.
    Watch {
        /// How long the place lives.
        waiter_ttl: Ttl,
        /// Where hints for this place go.
        inbox: ClientId,
    },
}

/// What a client says of itself, for `inspect`, messages and logs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Note {
    /// Who asks: one record per client, written when new or due for a refresh, not with each grant.
    pub client: Option<Arc<ClientRecord>>,
    /// What the user says of this acquisition; at most [`WHY_BYTES_MAX`](Self::WHY_BYTES_MAX).
    pub why: Option<Arc<str>>,
}

impl Note {
    /// Who asks, and why.
    #[must_use]
    pub const fn new(client: Option<Arc<ClientRecord>>, why: Option<Arc<str>>) -> Self {
        Self { client, why }
    }

    /// The longest text of a note, in bytes.
    pub const WHY_BYTES_MAX: usize = 1024;
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRecord {
    /// Its id, as it stands in its owner tokens.
    pub id: ClientId,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The user.
    pub user: String,
    /// What it runs.
    pub command: String,
    /// The ttl of its leases, where it says so: a store that does not know the ttl of a lease
    /// shows this one as [`Holder::ttl`](super::Holder::ttl). In whole milliseconds.
    pub ttl: Option<Duration>,
}

impl ClientRecord {
    /// A client that says no more of itself than its id: its texts are empty, and its process is 0.
    /// Set what else is known.
    #[must_use]
    pub const fn new(id: ClientId) -> Self {
        Self {
            id,
            host: String::new(),
            pid: 0,
            user: String::new(),
            command: String::new(),
            ttl: None,
        }
    }
}

/// One lease of one owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId {
    /// Of what.
    pub key: Key,
    /// Whose.
    pub owner: OwnerToken,
    /// In which way.
    pub claim: Claim,
}

/// One renew request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// Which lease.
    pub lease: LeaseId,
    /// How long the store keeps it from now, lock delay included.
    pub ttl: Ttl,
    /// If the counter is lower, it is raised to this, and the lease then carries this token: what a
    /// quorum writes back.
    pub at_least: Option<FencingToken>,
    /// How many further fencing tokens to reserve at most: usually 0. If any are asked for, a store
    /// may reserve fewer, but at least one.
    pub reserve: u32,
    /// Whether the client keeps the lease with no guard in use: what [`Holder::idle`] shows from
    /// then on.
    ///
    /// [`Holder::idle`]: super::Holder::idle
    pub idle: bool,
}

impl Renewal {
    /// A renewal of a lease in use, which restarts its ttl and does nothing else.
    #[must_use]
    pub const fn new(lease: LeaseId, ttl: Ttl) -> Self {
        Self { lease, ttl, at_least: None, reserve: 0, idle: false }
    }
}

/// What happens to a released lease where nobody waits for it in line; [`Wake`](Self::Wake) says it
/// also of where somebody does.
///
/// A store refuses what it does not know ([`Unsupported`](crate::ErrorKind::Unsupported)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Otherwise {
    /// It ends.
    Free,
    /// The client has it again, by another owner token and with a fresh block of fencing tokens: a
    /// hand-over to itself. The released token is spent, as always, so a copy of this request that
    /// comes late ends nothing.
    Keep {
        /// By which token: a fresh one.
        owner: OwnerToken,
        /// For how long, lock delay included.
        ttl: Ttl,
        /// How many tokens to reserve at most. If any are asked for, a store may reserve fewer,
        /// but at least one.
        reserve: u32,
    },
    /// It ends, also where it could be handed over: the key is free for whoever asks first, in line
    /// or not, and the head of the line is told so ([`Hint::MaybeFree`](super::Hint::MaybeFree))
    /// and keeps its place. For keys that are locked by others too, who poll and stand in no line:
    /// while keys are handed over, a line that never empties starves them.
    Wake,
}

impl Otherwise {
    /// As `core` decides about it.
    pub(crate) fn wish(&self) -> Wish<Keep<'_>> {
        match self {
            Self::Free => Wish::Free,
            Self::Keep { owner, ttl, reserve } => {
                Wish::Keep(Keep { owner, ttl: *ttl, reserve: *reserve })
            }
            Self::Wake => Wish::Wake,
        }
    }
}

/// How a lease is to be kept.
#[derive(Clone, Copy)]
pub(crate) struct Keep<'a> {
    pub(crate) owner: &'a OwnerToken,
    pub(crate) ttl: Ttl,
    pub(crate) reserve: u32,
}

/// What an ask says of the place that it takes.
pub(crate) struct PlaceTerms<'a> {
    pub(crate) waiter_ttl: Ttl,
    pub(crate) handed_ttl: Ttl,
    pub(crate) ask_no: u32,
    pub(crate) inbox: &'a ClientId,
    pub(crate) stance: Stance,
}

impl Line {
    /// The terms of the place that is taken; none if none is.
    pub(crate) fn place(&self) -> Option<PlaceTerms<'_>> {
        let (waiter_ttl, handed_ttl, ask_no, inbox, stance) = match self {
            Self::Stand => return None,
            Self::Join { waiter_ttl, handed_ttl, ask_no, inbox } => {
                (*waiter_ttl, *handed_ttl, *ask_no, inbox, Stance::Joined)
            }
            // It is never handed anything, so what it would be handed for does not matter.
            Self::Watch { waiter_ttl, inbox } => {
                (*waiter_ttl, *waiter_ttl, 0, inbox, Stance::Watching)
            }
        };
        Some(PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance })
    }
}
