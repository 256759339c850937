//! Requests to a store.

use std::sync::Arc;
use std::time::Duration;

use crate::core::claim::Claim;
use crate::core::key::Key;
use crate::core::line::{Stance, Wish};
use crate::core::token::{ClientId, FencingToken, OwnerToken};
use crate::core::ttl::Ttl;

/// One acquire request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ask {
    /// The key to acquire.
    pub key: Key,
    /// The token of the new owner.
    pub owner: OwnerToken,
    /// How the key is claimed.
    pub claim: Claim,
    /// How long the store keeps the lease, lock delay included.
    pub ttl: Ttl,
    /// The action if the key is taken.
    pub line: Line,
    /// How the client describes itself. Without a note, the store writes only the lock and its
    /// counter.
    pub note: Option<Note>,
    /// The most fencing tokens that the grant reserves: usually 1, or 0 for a lock without fencing.
    /// A store may reserve fewer, but at least one. A block must not run ahead of the store's
    /// source of numbers.
    pub reserve: u32,
}

impl Ask {
    /// An ask without a place in line, without a note and without fencing tokens. Set other fields
    /// as needed.
    #[must_use]
    pub const fn new(key: Key, owner: OwnerToken, claim: Claim, ttl: Ttl) -> Self {
        Self { key, owner, claim, ttl, line: Line::None, note: None, reserve: 0 }
    }

    /// The lease that this request asks for.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        LeaseId { key: self.key.clone(), owner: self.owner.clone(), claim: self.claim }
    }
}

/// The action of the store if the key is taken.
///
/// A store refuses a variant that it does not know with
/// [`Unsupported`](crate::ErrorKind::Unsupported), as it does for a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// The store only answers. The asker takes no place.
    None,
    /// The asker takes or refreshes a place, and may become the owner while it waits.
    Join {
        /// How long the place lives.
        waiter_ttl: Ttl,
        /// How long a lease lives that is handed to this place: the smaller of `ttl` and
        /// `waiter_ttl`, plus the lock delay.
        handed_ttl: Ttl,
        /// The number of this ask in its acquisition. A hand-over reports the number of the last
        /// ask that the store processed.
        ask_no: u32,
        /// The inbox for hints about this place.
        inbox: ClientId,
    },
    /// The asker takes or refreshes a place. The store only wakes the client of this place, and
    /// never makes it the owner. Quorums use this, because the vote would split if each node handed
    /// over to its own head. For 20 ms after a release wakes the place, newcomers are told to
    /// retry. Otherwise the place delays nobody.
    Watch {
        /// How long the place lives.
        waiter_ttl: Ttl,
        /// The number of this ask in its acquisition.
        ask_no: u32,
        /// The inbox for hints about this place.
        inbox: ClientId,
    },
}

/// How a client describes itself and its acquisition, for `inspect`, messages and logs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Note {
    /// The client. Stores keep one record per client, and write it when it is new or due, not with
    /// each grant.
    pub client: Option<Arc<ClientRecord>>,
    /// The user's reason for this acquisition; at most [`WHY_BYTES_MAX`](Self::WHY_BYTES_MAX).
    pub why: Option<Arc<str>>,
}

impl Note {
    /// A note of a client and a reason.
    #[must_use]
    pub const fn new(client: Option<Arc<ClientRecord>>, why: Option<Arc<str>>) -> Self {
        Self { client, why }
    }

    /// The longest text of a note, in bytes.
    pub const WHY_BYTES_MAX: usize = 1024;
}

/// The description of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientRecord {
    /// The id in its owner tokens.
    pub id: ClientId,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The user.
    pub user: String,
    /// The command that the client runs.
    pub command: String,
    /// The ttl of its leases, if the client states one. A store that does not know the ttl of a
    /// lease shows this one as [`Holder::ttl`](super::Holder::ttl). In whole milliseconds.
    pub ttl: Option<Duration>,
}

impl ClientRecord {
    /// A client with nothing but an id: its texts are empty, and its process id is 0. Set other
    /// fields as needed.
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
    /// The key.
    pub key: Key,
    /// The token of the owner.
    pub owner: OwnerToken,
    /// How the key is claimed.
    pub claim: Claim,
}

/// One renew request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// The lease to renew.
    pub lease: LeaseId,
    /// How long the store keeps it from now, lock delay included.
    pub ttl: Ttl,
    /// If the counter is lower, the store raises it to this value, and the lease then carries this
    /// token. A quorum uses it to bring nodes up to date. A store that cannot be a node of a quorum
    /// may refuse it with [`Unsupported`](crate::ErrorKind::Unsupported).
    pub at_least: Option<FencingToken>,
    /// The most further fencing tokens to reserve: usually 0. If it is not 0, the store may reserve
    /// fewer, but at least one.
    pub reserve: u32,
    /// Whether the client keeps the lease without a guard. [`Holder::idle`] shows it from then on.
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

/// The effect of a release if nobody waits in line. [`FreeAndWake`](Self::FreeAndWake) applies even
/// when somebody waits, and so does an opening of [`Open`](Self::Open).
///
/// A store refuses a variant that it does not know
/// ([`Unsupported`](crate::ErrorKind::Unsupported)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRelease {
    /// The lease ends.
    Free,
    /// The client gets the lease again, with another owner token and fresh fencing tokens: a
    /// hand-over to itself. The released token ends for good, so a late copy of this request has no
    /// effect.
    KeepIfAlone {
        /// The token of the new lease: a fresh one.
        owner: OwnerToken,
        /// The ttl of the new lease, lock delay included.
        ttl: Ttl,
        /// The most tokens to reserve. If it is not 0, the store may reserve fewer, but at least
        /// one.
        reserve: u32,
        /// Whether the store may open the key instead, as with [`Open`](Self::Open).
        opens: bool,
    },
    /// Like [`Free`](Self::Free), but now and then the store *opens* the key, even if it could be
    /// handed over. For a short while the key is free for clients that take no place in line, and
    /// an ask that takes a place waits. Only stores with
    /// [`Capabilities::opens`](super::Capabilities::opens) know this.
    Open,
    /// An exclusive lease becomes a shared one in the same step, so nobody else can have the key in
    /// between. The client shares the key with another owner token, without fencing tokens. Waiters
    /// at the front of the line that want to share the key get it too. Only stores that grant
    /// [`Claim::Shared`] know this.
    Downgrade {
        /// The token of the shared lease: a fresh one.
        owner: OwnerToken,
        /// The ttl of the shared lease, lock delay included.
        ttl: Ttl,
    },
    /// The lease ends, even if it could be handed over. The first client to ask gets the key, in
    /// line or not. The head of the line is told ([`Hint::MaybeFree`](super::Hint::MaybeFree)) and
    /// keeps its place. This is for keys that polling clients lock too. With hand-overs, a line
    /// that never empties would starve them.
    FreeAndWake,
}

impl OnRelease {
    /// The same choice in the terms of [`decide_release`](crate::core::line::decide_release).
    #[must_use]
    pub fn wish(&self) -> Wish<Keep<'_>> {
        match self {
            // The store decides whether to open a key before it asks for this decision.
            Self::Free | Self::Open => Wish::Free,
            Self::KeepIfAlone { owner, ttl, reserve, .. } => {
                Wish::Keep(Keep { owner, ttl: *ttl, reserve: *reserve })
            }
            Self::FreeAndWake => Wish::Wake,
            // A downgrade does not end a lease, so there is nothing to decide.
            Self::Downgrade { .. } => Wish::Free,
        }
    }
}

/// The terms of a lease that its client keeps, as in [`OnRelease::KeepIfAlone`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Keep<'a> {
    /// The token of the new lease.
    pub owner: &'a OwnerToken,
    /// The ttl of the new lease.
    pub ttl: Ttl,
    /// The most tokens to reserve.
    pub reserve: u32,
}

/// The terms of a place in line, for a waiter that joins or only watches, see [`Line`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PlaceTerms<'a> {
    /// How long the place lives.
    pub waiter_ttl: Ttl,
    /// The ttl of a lease that is handed over to it.
    pub handed_ttl: Ttl,
    /// The number of the ask.
    pub ask_no: u32,
    /// The client that is told.
    pub inbox: &'a ClientId,
    /// The purpose of the place.
    pub stance: Stance,
}

impl Line {
    /// The terms of the place that the ask takes, if it takes one.
    #[must_use]
    pub fn place(&self) -> Option<PlaceTerms<'_>> {
        let (waiter_ttl, handed_ttl, ask_no, inbox, stance) = match self {
            Self::None => return None,
            Self::Join { waiter_ttl, handed_ttl, ask_no, inbox } => {
                (*waiter_ttl, *handed_ttl, *ask_no, inbox, Stance::Joined)
            }
            // A watching place never gets a hand-over, so this ttl does not matter.
            Self::Watch { waiter_ttl, ask_no, inbox } => {
                (*waiter_ttl, *waiter_ttl, *ask_no, inbox, Stance::Watching)
            }
        };
        Some(PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance })
    }
}
