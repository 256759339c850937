//! What can happen, as a history tells it: who saw it, and when on the one clock that all share.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use serde::{Deserialize, Serialize};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Event {
    /// When, on a clock that is exact and the same for everybody. No process of a simulation reads
    /// it; on one machine it is CLOCK_BOOTTIME.
    #[serde(with = "nanos")]
    pub at: Moment,
    /// What.
    pub what: What,
}

/// Which process, as numbered by whoever records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// Which call of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u32);

/// Which validity window: one guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WindowId(pub u32);

/// A key, or an owner token, or the name of a fault.
pub type Name = Arc<str>;

/// Fencing tokens that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Block {
    /// Whether a fencing token is one of them.
    #[must_use]
    pub const fn has(self, fence: u64) -> bool {
        fence >= self.first && fence - self.first < self.count
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A process called the library.
    Called {
        /// Which call.
        call: CallId,
        /// Who.
        process: ProcessId,
        /// On which key.
        key: Name,
        /// What it called.
        kind: CallKind,
        /// How long the call may take while its process runs; `None` if it may wait for ever.
        limit: Option<Duration>,
    },
    /// That call ended, or its future was dropped.
    Returned {
        /// Which call.
        call: CallId,
        /// How.
        outcome: Outcome,
    },
    /// A call returned a guard: a validity window begins.
    Granted {
        /// Which window.
        window: WindowId,
        /// By which call.
        call: CallId,
        /// The owner token.
        token: Name,
        /// The fencing token, if it has one.
        fence: Option<u64>,
        /// Until when its process may rely on it, as its process sees it, told on the common clock.
        #[serde(with = "nanos")]
        until: Moment,
    },
    /// When its holder gives a window up, its client may keep the lease with no guard for that
    /// long. Not told where it may not.
    Keeps {
        /// Which window.
        window: WindowId,
        /// For how long.
        span: Duration,
    },
    /// A message has reached a process: another waits for a key that it has.
    Hinted {
        /// Which process.
        process: ProcessId,
        /// Which key.
        key: Name,
    },
    /// Its process relies on a window until then, as was seen just now. Seen after each renewal
    /// that a history can tell apart, and before a process stops.
    Extended {
        /// Which window.
        window: WindowId,
        /// Until when.
        #[serde(with = "nanos")]
        until: Moment,
    },
    /// The holder was told that its lease is lost.
    ToldLost {
        /// Which window.
        window: WindowId,
    },
    /// The holder gives the lease up: the moment before it releases or drops the guard.
    GaveUp {
        /// Which window.
        window: WindowId,
    },
    /// A process stands still from now on: stopped, suspended or starved. Its clock goes on.
    Stopped {
        /// Which.
        process: ProcessId,
    },
    /// It goes on.
    Resumed {
        /// Which.
        process: ProcessId,
    },
    /// A process is dead: nothing of it goes on. One that is started in its place has a number of
    /// its own.
    Crashed {
        /// Which.
        process: ProcessId,
    },
    /// A process has sent a request (and not: the server has received it). What its store sends
    /// once more by itself, because the server forgot a script, is not told again.
    Sent {
        /// Who.
        process: ProcessId,
        /// In which call; `None` if outside of all of them, or if that is not known.
        call: Option<CallId>,
        /// What was asked.
        request: Request,
        /// On which key.
        key: Name,
        /// By which owner token.
        token: Name,
    },
    /// A process has sent a request to one node of a quorum.
    SentTo {
        /// To which.
        node: u32,
        /// Who.
        process: ProcessId,
        /// In which call; `None` if outside of all of them, or if that is not known.
        call: Option<CallId>,
        /// What was asked.
        request: Request,
        /// On which key.
        key: Name,
        /// By which owner token.
        token: Name,
    },
    /// The server carried a request out. One that it refused, be it for want of memory, is not
    /// told.
    Served {
        /// What was asked.
        request: Request,
        /// On which key.
        key: Name,
        /// By which owner token; for an eviction, that of the evicted.
        token: Name,
        /// Who owned the key just before, expired leases left out.
        before: Option<Name>,
        /// Who owns it now.
        after: Option<Name>,
        /// How long the new owner's lease has left on the server.
        left: Duration,
        /// The fencing tokens that the new owner is told are reserved for it, if it is told any.
        block: Option<Block>,
    },
    /// One node of a quorum gave an asker the key, which says nothing of a lease: it has to be
    /// given back there if no lease comes of it.
    GrantedAt {
        /// Which.
        node: u32,
        /// Which key.
        key: Name,
        /// Who asked, by its owner token.
        token: Name,
        /// For how long the node keeps it.
        left: Duration,
    },
    /// What the server has of a window that its process relies on at this very moment.
    Compared {
        /// Which window.
        window: WindowId,
        /// For how long its process relies on it still.
        remaining: Duration,
        /// Who owns the key on the server; of several nodes, on a majority, if that is the one.
        owner: Option<Name>,
        /// How long that lease has left on the server, or on a majority of the nodes at least.
        left: Duration,
    },
    /// A key was seen on the server.
    Key {
        /// Which, companions included.
        name: Name,
        /// When it ends by itself; `None` if never.
        left: Option<Duration>,
    },
    /// Everybody is gone, and the longest lease and place would have ended: what is seen from now
    /// on was left behind.
    Over,
    /// A fault begins.
    FaultBegan {
        /// Which one: told again when it ends.
        fault: u32,
        /// What kind: a row of the table of faults in GUARANTEES.md.
        kind: Name,
    },
    /// It ended, and all that it can still cause by itself is over.
    FaultEnded {
        /// Which one.
        fault: u32,
    },
    /// The server forgot grants, or some of them.
    Forgot,
}

/// A call of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// `try_lock`.
    TryLock,
    /// `lock` or `lock_timeout`: waits in line.
    Lock,
    /// `Guard::renew`.
    Renew,
    /// `Guard::release`.
    Release,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// With a guard.
    Granted,
    /// Another has it.
    Taken,
    /// The wait elapsed.
    WaitElapsed,
    /// Renewed.
    Renewed,
    /// Released; it was ours until then.
    Released,
    /// It was not ours any more.
    NotHeld,
    /// The lease was lost.
    Lost,
    /// The store surely did nothing: `Unavailable`.
    Unavailable,
    /// The store may have done it: `Unknown`.
    Unknown,
    /// Another error, which no fault explains.
    Failed,
    /// Its future was dropped.
    Dropped,
}

/// A request of a lock at its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Asks for the key.
    Ask {
        /// How long the place lives that the asker takes if it is taken; `None` if it takes none.
        place: Option<Duration>,
    },
    /// Restarts the ttl.
    Renew,
    /// Ends lease and place.
    Release,
    /// Ends place, and the lease if another waits; else restarts its ttl.
    Keep,
    /// Ends the lease of another.
    Evict,
}

/// A moment as nanoseconds on its clock.
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
