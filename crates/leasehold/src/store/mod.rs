//! The contract between leases and the places that grant them.
//!
//! A store makes no policy. Each method is one atomic step, tried once: a store never renews,
//! retries or emulates. What it cannot promise is absent from its [`Capabilities`] and refused with
//! [`ErrorKind::Unsupported`].
//!
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported

mod any;
mod from_url;
#[cfg(feature = "sqlite")]
mod limit;
pub mod memory;
mod pattern;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use any::AnyStore;
pub use from_url::{from_url, redact_url};
pub use memory::MemoryStore;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken};
use crate::core::ttl::Ttl;
use pattern::matches_pattern;

/// A place that grants leases.
///
/// # Order
///
/// A request is on its way when the method returns, before its future is polled: what one caller
/// asks first reaches the store first. The future only waits for the answer, and dropping it takes
/// nothing back. So a guard can submit its release inside `Drop`, and the same client's next ask
/// comes after it.
///
/// # Outcomes
///
/// Whatever the store could answer is `Ok`, also *taken* and *lost*. `Err` means that there is no
/// answer, and its kind says whether the request may have taken effect:
/// [`Unknown`](crate::ErrorKind::Unknown) if it may, [`Unavailable`](crate::ErrorKind::Unavailable)
/// or another kind if surely not. Every future ends within the command limit of its ttl
/// ([`command_limit`](crate::core::validity::command_limit)), or twice that where one step needs
/// two.
///
/// # Same owner, same answer
///
/// While its lease lives, an owner that asks again is granted again, with the same fencing tokens:
/// a lost reply is repaired by repeating the request. Neither a repeated ask nor a renewal ever
/// shortens a lease: the new time left is the larger of the time left and the ttl, decided in the
/// same step.
pub trait Store: Send + Sync + 'static {
    /// Grants the key, or puts the asker in line, see [`core::line`](crate::core::line) for the
    /// table of decisions.
    ///
    /// # Errors
    ///
    /// `Unavailable` also if the line is full ([`PLACES_MAX`](crate::core::line::PLACES_MAX)).
    fn acquire(&self, ask: Ask) -> impl Future<Output = Result<Acquired, Error>> + Send + 'static;

    /// Restarts the ttl if the owner still holds the key. Never re-creates a lease that ended.
    fn renew(
        &self,
        renewal: Renewal,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static;

    /// Ends the lease *and* the place in line of its owner, and hands the key to the head of the
    /// line if somebody waits. Anybody else's lease stays untouched.
    fn release(
        &self,
        lease: LeaseId,
        otherwise: Otherwise,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static;

    /// Reports what is known of a key now. For people and tools, never a basis for acting on the
    /// lock.
    fn inspect(&self, key: Key) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static;

    /// Delivers the hints for `inbox` to `sink` for as long as the sink lives. Every other sink of
    /// that inbox is replaced.
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>);

    /// What this store promises.
    fn capabilities(&self) -> Capabilities;

    /// The tools' view of this store, if it has one.
    fn browse(&self) -> Option<&dyn Browse>;

    /// Which store this is, for messages and logs: the URL without a password.
    fn label(&self) -> String;
}

/// What people and tools may do beside holding locks.
pub trait Browse: Send + Sync {
    /// Lists the keys that have a living lease or place and match `pattern` (`*` any run, `?` any
    /// one character), in order, after `cursor`. At most [`PAGE_KEYS_MAX`] a page.
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page>;

    /// Ends another's lease if its owner is still the one that was `seen`; raises the fencing
    /// counter, tells the line. Every such step is an event in the log with its `reason`.
    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted>;
}

/// A boxed answer of a store.
pub type BoxAnswer<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// How many keys one page of [`Browse::list`] has at most.
pub const PAGE_KEYS_MAX: usize = 1_000;

/// How long the counter of an idle key, and the record of a silent client, are kept.
pub const FENCE_IDLE: Duration = Duration::from_mins(10);

/// One acquire request.
#[derive(Clone, Debug)]
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
    /// How many fencing tokens the grant reserves: usually 1; 0 for a lock without fencing.
    pub reserve: u32,
}

/// In which way a key is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Claim {
    /// By one owner alone.
    Exclusive,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// since nodes that each hand over to a head of their own would split the vote.
    Watch {
        /// How long the place lives.
        waiter_ttl: Ttl,
        /// Where hints for this place go.
        inbox: ClientId,
    },
}

/// What a client says of itself, for `inspect`, messages and logs.
#[derive(Clone, Debug)]
pub struct Note {
    /// Who asks: one record per client, written when new or due for a refresh, not with each grant.
    pub client: Option<Arc<ClientRecord>>,
    /// What the user says of this acquisition; at most [`WHY_BYTES_MAX`](Self::WHY_BYTES_MAX).
    pub why: Option<Arc<str>>,
}

impl Note {
    /// The longest text of a note, in bytes.
    pub const WHY_BYTES_MAX: usize = 1024;
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl std::hash::Hash for Claim {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

/// One renew request.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// Which lease.
    pub lease: LeaseId,
    /// How long the store keeps it from now, lock delay included.
    pub ttl: Ttl,
    /// If the counter is lower, it is raised to this, and the lease then carries this token: what a
    /// quorum writes back.
    pub at_least: Option<FencingToken>,
    /// How many further fencing tokens to reserve: usually 0.
    pub reserve: u32,
}

/// What happens to a released lease if nobody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It ends.
    Free,
    /// It is kept: renewed, with a fresh block of fencing tokens.
    Keep {
        /// For how long, lock delay included.
        ttl: Ttl,
        /// How many tokens to reserve.
        reserve: u32,
    },
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// It is the asker's.
    Granted {
        /// The fencing tokens of this grant; `None` if none were reserved.
        fencing: Option<FencingBlock>,
    },
    /// It is another's.
    Taken {
        /// When asking again may help: the time left of the holder's lease, zero for at once,
        /// `None` if it has no end.
        retry_in: Option<Duration>,
        /// How many places are ahead of the asker's, or in the line if the asker has none.
        ahead: u32,
    },
}

/// The answer to a [`Renewal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The ttl was restarted.
    Renewed {
        /// The fencing tokens of this lease, or the block that this renewal reserved.
        fencing: Option<FencingBlock>,
        /// Whether somebody waits in line.
        wanted: bool,
    },
    /// The lease is not the owner's, and will not be again.
    Lost,
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The key is free.
    Freed,
    /// The key is the next waiter's.
    HandedOver,
    /// Nobody waits, and the lease was kept as asked.
    Kept {
        /// The fresh block of fencing tokens.
        fencing: Option<FencingBlock>,
    },
    /// The owner did not hold it; its place in line, if any, is gone.
    NotHeld,
}

/// The answer to [`Browse::evict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The lease was ended.
    Evicted,
    /// The owner is not the one that was seen; nothing was done.
    Changed,
}

/// A message that waiting or handing on may be worthwhile now. It may be lost, late, doubled or
/// forged: it proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The key was handed to this owner.
    Granted {
        /// What.
        key: Key,
        /// To whom.
        owner: OwnerToken,
        /// The fencing tokens of the grant.
        fencing: Option<FencingBlock>,
        /// The number of the last ask of that owner that the store had processed.
        ask_no: u32,
    },
    /// Another client waits for a key that we hold. Best effort: where it does not reach the holder,
    /// `wanted` of the next renewal says the same.
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

/// What a store promises. What is missing is refused, not emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Grants [`Claim::Shared`].
    pub shared: bool,
    /// Grants [`Claim::Permits`].
    pub permits: bool,
    /// Fencing tokens that rise with every grant.
    pub fencing: bool,
    /// [`Line::Join`]: first come first served, hand-over in one step.
    pub line: bool,
    /// [`Line::Watch`].
    pub watching: bool,
    /// How far hints reach.
    pub hints: Reach,
    /// How far the locks themselves reach.
    pub reach: Reach,
    /// [`Store::browse`] is there.
    pub browse: bool,
    /// Leases and counters survive the end of every process that uses the store.
    pub durable: bool,
}

impl Capabilities {
    /// A store that promises nothing but exclusive leases within one process.
    pub const NONE: Self = Self {
        shared: false,
        permits: false,
        fencing: false,
        line: false,
        watching: false,
        hints: Reach::Nobody,
        reach: Reach::Process,
        browse: false,
        durable: false,
    };
}

/// How far something reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Nobody.
    Nobody,
    /// The tasks and clients of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Every machine that reaches the store.
    Network,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Who holds it: nobody, one, or several who share.
    pub holders: Vec<Holder>,
    /// Who waits, in order; the first [`WAITERS_SHOWN_MAX`](Self::WAITERS_SHOWN_MAX) of them.
    pub waiters: Vec<Waiter>,
    /// How many wait in all.
    pub waiting: u32,
    /// The highest fencing token given so far, if the store still knows.
    pub fencing: Option<FencingToken>,
}

impl Snapshot {
    /// How many waiters a snapshot lists at most.
    pub const WAITERS_SHOWN_MAX: usize = 100;
}

/// One holder in a [`Snapshot`].
#[derive(Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its owner token, whatever bytes a foreign client may have written. Shown in part only by
    /// `Debug`.
    pub token: Vec<u8>,
    /// Who it is, where the client left its record.
    pub client: Option<ClientRecord>,
    /// Why, in the user's words.
    pub why: Option<String>,
    /// Since when, where the store knows.
    pub since: Option<WallTime>,
    /// How long its lease still lives unrenewed; `None` if it has no end.
    pub ttl_left: Option<Duration>,
    /// The fencing tokens of this grant.
    pub fencing: Option<FencingBlock>,
    /// Whether the client keeps the lease with no guard in use.
    pub idle: bool,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("token", &String::from_utf8_lossy(&self.token[..self.token.len().min(4)]))
            .field("client", &self.client)
            .field("why", &self.why)
            .field("since", &self.since)
            .field("ttl_left", &self.ttl_left)
            .field("fencing", &self.fencing)
            .field("idle", &self.idle)
            .finish()
    }
}

/// One waiter in a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// The id of the client whose place it is.
    pub id: Option<ClientId>,
    /// Who it is, where the client left its record.
    pub client: Option<ClientRecord>,
    /// Since when it waits, where the store knows.
    pub since: Option<WallTime>,
}

/// One page of keys.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// The keys, in order.
    pub keys: Vec<Key>,
    /// Where the next page begins; `None` if this was the last.
    pub next: Option<Key>,
}

/// What an ask in a way that a store does not promise is answered.
pub(crate) fn unsupported_claim(claim: Claim, key: &Key) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this store does not grant {claim:?}; nothing was asked, use a store that promises it"
        ),
    )
    .with_name(key.as_str())
}

/// What an ask that would take one place too many is answered.
pub(crate) fn line_is_full(key: &Key) -> Error {
    let places = crate::core::line::PLACES_MAX;
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{places} clients wait in line already, which is the limit; nothing was taken, \
             come back later"
        ),
    )
    .with_name(key.as_str())
}
