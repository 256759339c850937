//! Events of a history: what happened, and when on a clock that all processes share.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use serde::{Deserialize, Serialize};

pub use super::standing::{Share, Standing};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When it happened, on an exact clock that is the same for all processes. No process of a
    /// simulation reads this clock. On one machine it is CLOCK_BOOTTIME.
    #[serde(with = "nanos")]
    pub at: Moment,
    /// The event itself.
    pub what: What,
}

/// A process, numbered by the recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// A call of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u32);

/// A validity window, which belongs to one guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WindowId(pub u32);

/// A key, an owner token, or the name of a fault.
pub type Name = Arc<str>;

/// Consecutive fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// The first token.
    pub first: u64,
    /// The number of tokens.
    pub count: u64,
}

impl Block {
    /// Whether the block contains a fencing token.
    #[must_use]
    pub const fn has(self, fence: u64) -> bool {
        fence >= self.first && fence - self.first < self.count
    }
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A process called the library.
    Called {
        /// The call.
        call: CallId,
        /// The process that called.
        process: ProcessId,
        /// The key.
        key: Name,
        /// The function that it called.
        kind: CallKind,
        /// How long the call may take while its process runs; `None` if it may wait for ever.
        limit: Option<Duration>,
    },
    /// A call ended, or its future was dropped.
    Returned {
        /// The call.
        call: CallId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A call returned a guard, so a validity window begins.
    Granted {
        /// The window.
        window: WindowId,
        /// The call.
        call: CallId,
        /// The owner token.
        token: Name,
        /// The fencing token, if there is one.
        fence: Option<u64>,
        /// Until when the process believes that it may rely on the window, on the common clock.
        #[serde(with = "nanos")]
        until: Moment,
    },
    /// When the holder gives the window up, its client may keep the lease without a guard for this
    /// long. If the client may not keep the lease, this is not logged.
    Keeps {
        /// The window.
        window: WindowId,
        /// How long.
        span: Duration,
    },
    /// The holder leaves the key taken. It wants the lease to last, but no guard watches it any
    /// more.
    LeavesTaken {
        /// The window.
        window: WindowId,
    },
    /// A message told a process that another client waits for a key that it holds.
    Hinted {
        /// The process.
        process: ProcessId,
        /// The key.
        key: Name,
    },
    /// The recorder saw until when a process may rely on its window. Logged when the recorder looks
    /// at the guard, such as after a renewal, and before a process stops.
    Extended {
        /// The window.
        window: WindowId,
        /// Until when.
        #[serde(with = "nanos")]
        until: Moment,
    },
    /// The holder was told that its lease is lost.
    ToldLost {
        /// The window.
        window: WindowId,
    },
    /// The holder gives the lease up. Logged just before it releases or drops the guard.
    GaveUp {
        /// The window.
        window: WindowId,
    },
    /// A process stands still from now on: stopped, suspended or starved. Its clock goes on.
    Stopped {
        /// The process.
        process: ProcessId,
    },
    /// A process goes on.
    Resumed {
        /// The process.
        process: ProcessId,
    },
    /// A process died. A process that replaces it has another number.
    Crashed {
        /// The process.
        process: ProcessId,
    },
    /// A process sent a request. The server may not have received it yet. If the store repeats a
    /// request because the server forgot a script, only the first one is logged.
    Sent {
        /// The process.
        process: ProcessId,
        /// The call; `None` if the request belongs to no call, or if the call is unknown.
        call: Option<CallId>,
        /// The request.
        request: Request,
        /// The key.
        key: Name,
        /// The owner token.
        token: Name,
    },
    /// A process sent a request to one node of a quorum.
    SentTo {
        /// The node.
        node: u32,
        /// The process.
        process: ProcessId,
        /// The call; `None` if the request belongs to no call, or if the call is unknown.
        call: Option<CallId>,
        /// The request.
        request: Request,
        /// The key.
        key: Name,
        /// The owner token.
        token: Name,
    },
    /// The server carried a request out. Refused requests are not logged, for example those that
    /// found the memory full.
    Served {
        /// The request.
        request: Request,
        /// The key.
        key: Name,
        /// The owner token; for an eviction, the evicted token.
        token: Name,
        /// The owner of the key just before, without expired leases.
        before: Option<Name>,
        /// The owner of the key now.
        after: Option<Name>,
        /// How long the new owner's lease has left on the server.
        left: Duration,
        /// The fencing tokens that the server reserved for the new owner and told it, if any.
        block: Option<Block>,
        /// How long the request was on its way; `None` if it is a copy of one that arrived before.
        travelled: Option<Duration>,
    },
    /// Like [`Served`](Self::Served), in worlds in which holders share keys: who holds the key and
    /// waits for it, before and after the request.
    Stood {
        /// The request.
        request: Request,
        /// The key.
        key: Name,
        /// The owner token; empty if the request names none.
        token: Name,
        /// The state just before, without expired leases and places.
        before: Standing,
        /// The state just after.
        after: Standing,
        /// How long the request was on its way; `None` if it is a copy of one that arrived before.
        #[serde(default)]
        travelled: Option<Duration>,
    },
    /// A process is about to change how many permits a key has. Logged directly after `Called`.
    Resizes {
        /// The key.
        key: Name,
        /// How many there are to be.
        of: u32,
        /// The call that does it.
        call: CallId,
    },
    /// A call wants this share of its key. Logged directly after `Called`.
    Wants {
        /// The call.
        call: CallId,
        /// The share.
        share: Share,
    },
    /// The permits of a key are starts: at most this many in each period.
    Limits {
        /// The key.
        key: Name,
        /// How many starts.
        of: u32,
        /// The period.
        per: Duration,
    },
    /// The permits of a key are the counts of a latch.
    Latches {
        /// The key.
        key: Name,
        /// How many counts open it.
        of: u32,
    },
    /// A call is about to return, and saw how many counts of its latch were missing. The number is
    /// zero if it saw the latch open.
    Remains {
        /// The call.
        call: CallId,
        /// How many.
        left: u32,
    },
    /// The holders of a key are the leaders of an election.
    Elects {
        /// The key.
        key: Name,
        /// The ttl with which a client leads.
        ttl: Duration,
    },
    /// A call of an observer is about to return, and saw that somebody leads. Without this event,
    /// it saw that nobody leads.
    Leads {
        /// The call.
        call: CallId,
        /// The number of the observer.
        observer: u32,
        /// The term of the leader, if the store knows it.
        term: Option<u64>,
    },
    /// Declares that a key is a barrier: each permit is one party that has arrived.
    Meets {
        /// The key.
        key: Name,
        /// How many parties there are.
        of: u32,
    },
    /// A window shares its key with others. Logged directly after `Granted`. Without it, the window
    /// has the key alone.
    Shares {
        /// The window.
        window: WindowId,
        /// The share of the key that it has.
        share: Share,
    },
    /// The hold of a window ends at this moment at the latest, even if its lease could still be
    /// renewed. Logged directly after `Granted`.
    HoldsUntil {
        /// The window.
        window: WindowId,
        /// When, on the common clock.
        #[serde(with = "nanos")]
        until: Moment,
    },
    /// One node of a quorum granted a key. That alone makes no lease. If the client gets no lease,
    /// it must release the key at this node.
    GrantedAt {
        /// The node.
        node: u32,
        /// The key.
        key: Name,
        /// The owner token.
        token: Name,
        /// How long the node keeps it.
        left: Duration,
    },
    /// The server's view of a window, at a moment at which its process relies on it.
    Compared {
        /// The window.
        window: WindowId,
        /// How long its process still relies on it.
        remaining: Duration,
        /// The owner of the key on the server. In a quorum: the window's token, if a majority has
        /// it.
        owner: Option<Name>,
        /// How long that lease has left on the server, or on a majority of the nodes. This is the
        /// most that it can be on the common clock.
        left: Duration,
    },
    /// A key was seen on the server.
    Key {
        /// Its name. It may be a companion key.
        name: Name,
        /// How long until it expires; `None` if never.
        left: Option<Duration>,
    },
    /// All clients are gone, and the longest lease and place would have expired. Keys that are
    /// logged from now on were left behind.
    Over,
    /// A fault begins.
    FaultBegan {
        /// A number that is repeated when the fault ends.
        fault: u32,
        /// The kind: a row of the table of faults in GUARANTEES.md.
        kind: Name,
    },
    /// A fault ended, and can cause nothing new by itself.
    FaultEnded {
        /// The number of the fault.
        fault: u32,
    },
    /// The server forgot some or all grants.
    Forgot,
}

/// The function of the library that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// `try_lock`.
    TryLock,
    /// `lock`, `lock_timeout` or `Election::campaign`, which wait in the line.
    Lock,
    /// One lock of several that are taken together. Each has its own call, and all of them are
    /// taken, or none.
    LockAll,
    /// `Guard::renew`.
    Renew,
    /// `Guard::release` or `Leadership::resign`.
    Release,
    /// A start of a rate limit.
    Start,
    /// `Latch::count_down`.
    CountDown,
    /// `Latch::remaining`.
    Look,
    /// `Latch::wait`.
    AwaitLatch,
    /// `Latch::arrive_and_wait`.
    Arrive,
    /// `Observer::next`.
    Observe,
    /// `Client::inspect`, and then `Client::evict` or `Client::revoke`.
    Operate,
    /// `Semaphore::resize`.
    Resize,
}

impl CallKind {
    /// Whether this call may take a place in the line.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Lock | Self::LockAll)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It returned a guard.
    Granted,
    /// It did its work, and there is no guard.
    Done,
    /// Another client has the key. Nothing more may start, or the latch is open already, or all
    /// parties have arrived already.
    Taken,
    /// The wait elapsed.
    WaitElapsed,
    /// The lease was renewed.
    Renewed,
    /// The lease was released; it was ours until then.
    Released,
    /// The lease was not ours any more.
    NotHeld,
    /// The lease was lost.
    Lost,
    /// The store surely did nothing (`Unavailable`).
    Unavailable,
    /// The store may have carried the request out (`Unknown`).
    Unknown,
    /// Another error, which no fault explains.
    Failed,
    /// The future was dropped.
    Dropped,
}

/// A request for a lock, sent to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Acquires the key.
    Ask {
        /// The life of the place that the client takes if the key is taken; `None` if it takes no
        /// place.
        place: Option<Duration>,
    },
    /// Restarts the ttl.
    Renew,
    /// Ends the lease and the place.
    Release,
    /// Ends the place. Ends the lease too if another client waits, and otherwise restarts its ttl.
    Keep,
    /// Ends the lease of another client.
    Evict,
    /// Makes a writer a reader, with another token.
    Downgrade,
    /// Changes how many permits there are.
    Resize,
}

/// Stores a moment as nanoseconds on its clock.
mod nanos {
    use leasehold::core::Moment;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(moment: &Moment, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(moment.as_nanos())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Moment, D::Error> {
        u64::deserialize(from).map(Moment::from_nanos)
    }
}
