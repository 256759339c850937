//! The answers of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Revocation;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::FencingBlock;

/// The answer to an [`Ask`](super::Ask).
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The owner has the key.
    Granted {
        /// The fencing tokens of this grant; `None` if none were reserved.
        fencing: Option<FencingBlock>,
    },
    /// The owner does not have the key.
    Refused(Refusal),
}

/// Why the key was not granted, when to ask again, and by which token.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// Why.
    pub why: Why,
    /// When asking again may help; zero means at once. `None`: the store cannot tell, so the client
    /// asks again after its usual pause.
    pub retry_in: Option<Duration>,
    /// How many places are ahead of the owner's place, or are in the line if the owner has none.
    pub ahead: u32,
    /// How the client goes on with its owner token.
    pub token: Afterwards,
}

/// Why a key was not granted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Why {
    /// Another owner has it. [`retry_in`](Refusal::retry_in) is the time left of its lease.
    Taken,
    /// Some nodes of a quorum granted the key and others did not, so no client has a majority.
    /// [`retry_in`](Refusal::retry_in) is how long one round of asking takes. Clients that split
    /// the votes come apart by random pauses of about that length.
    Split,
    /// The store may have forgotten who has the key. [`retry_in`](Refusal::retry_in) is the time
    /// left of the quarantine. In a quorum, too few nodes can vote until then.
    Quarantined(Quarantine),
    /// The key was granted with too few copies, so the store released it. If
    /// [`retry_in`](Refusal::retry_in) is zero, this happened to an earlier request with this
    /// token, and the store sent no request this time. A quorum also answers this if too few nodes
    /// answered, but one of them has a place of the token.
    TooFewCopies(Error),
}

/// How a client goes on with the owner token of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Afterwards {
    /// The client asks again with the same token, and keeps its place in the line if it has one.
    Keep,
    /// The client goes on with a fresh token. The store may still have a place from an earlier
    /// request with the old token, so the client releases the old token if there was such a
    /// request. After [`TooFewCopies`](Why::TooFewCopies), the client releases it in any case.
    Leave,
    /// The client goes on with a fresh token. The store releases everything that it granted, or may
    /// still grant, to the old token.
    Spent,
}

impl Acquired {
    /// Whether another owner has the key.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_taken())
    }
}

impl From<Refusal> for Acquired {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Refusal {
    /// Another owner has the key, and its lease ends in `retry_in` unless it is renewed. The client
    /// keeps its token.
    #[must_use]
    pub const fn taken(retry_in: Option<Duration>, ahead: u32) -> Self {
        Self { why: Why::Taken, retry_in, ahead, token: Afterwards::Keep }
    }

    /// The votes of a quorum were split. The token is [spent](Afterwards::Spent).
    #[must_use]
    pub const fn split(round_trip: Duration) -> Self {
        let (why, token) = (Why::Split, Afterwards::Spent);
        Self { why, retry_in: Some(round_trip), ahead: 0, token }
    }

    /// The store is quarantined. It may still have a place of the token.
    #[must_use]
    pub const fn quarantined(quarantine: Quarantine) -> Self {
        let (why, token) = (Why::Quarantined(quarantine), Afterwards::Leave);
        Self { why, retry_in: Some(quarantine.left), ahead: 0, token }
    }

    /// There were too few copies of the grant, as `cause` says, and the store released it.
    #[must_use]
    pub const fn too_few_copies(cause: Error) -> Self {
        Self { why: Why::TooFewCopies(cause), retry_in: None, ahead: 0, token: Afterwards::Spent }
    }

    /// Whether another owner has the key.
    #[must_use]
    pub const fn is_taken(&self) -> bool {
        matches!(self.why, Why::Taken)
    }

    /// The same refusal, with another use of the token afterwards.
    #[must_use]
    pub fn with_token(self, token: Afterwards) -> Self {
        Self { token, ..self }
    }

    /// The same refusal, after which the client asks again at once.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { retry_in: Some(Duration::ZERO), ..self }
    }
}

/// A store has restarted, has lost its data, or has replaced another store. It may have forgotten
/// grants, so it grants nothing new until the last of them has ended. Leases that are held go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantine {
    /// How long ago the first ask noticed it. `None` if that is not known. Also `None` if no ask
    /// has noticed it so far, but a call such as `inspect` has: the quarantine then begins with the
    /// next ask.
    pub since: Option<Duration>,
    /// For how long nothing new is granted. This is longer than a whole quarantine if the clock of
    /// the store was set back since it began.
    pub left: Duration,
}

impl Quarantine {
    /// A quarantine that lasts for `left` from now, and was noticed `since` ago.
    #[must_use]
    pub const fn new(since: Option<Duration>, left: Duration) -> Self {
        Self { since, left }
    }
}

impl fmt::Display for Quarantine {
    /// As in "the store is new, was restarted, or forgot its data (noticed 12 s ago); no new locks
    /// for 53 s more".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store is new, was restarted, or forgot its data")?;
        if let Some(since) = self.since {
            write!(f, " (noticed {} s ago)", since.as_secs())?;
        }
        let seconds = self.left.as_secs() + u64::from(self.left.subsec_nanos() > 0);
        write!(f, "; no new locks for {seconds} s more")
    }
}

/// The answer to a [`Renewal`](super::Renewal).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The ttl was restarted.
    Renewed {
        /// The fencing tokens of this lease, or the block that this renewal reserved.
        fencing: Option<FencingBlock>,
        /// The fencing tokens that the lease had before, if [`at_least`](super::Renewal::at_least)
        /// was above the counter and this renewal raised it; else `None`. By them, a quorum
        /// distinguishes a grant that it knows from a later grant to the same owner. A store may
        /// safely answer `None` instead. Then the grant loses its reserved tokens, except the last.
        raised_from: Option<FencingBlock>,
        /// Whether somebody waits in line.
        wanted: bool,
        /// The request to let go that was made to this owner, if any, see
        /// [`Browse::revoke`](super::Browse::revoke).
        revoked: Option<Arc<Revocation>>,
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
    /// Nobody waits, and the client has it again, with the token that it named.
    Kept {
        /// The fencing tokens of this grant.
        fencing: Option<FencingBlock>,
    },
    /// The owner did not hold it; its place in line, if any, is gone.
    NotHeld,
}

/// The answer to [`Browse::evict`](super::Browse::evict).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`Changed` means that no lease was ended"]
#[non_exhaustive]
pub enum Evicted {
    /// The lease was ended.
    Evicted,
    /// The owner is not the one that was seen. Nothing was done; at a quorum, a minority that still
    /// showed that owner has ended its lease there.
    Changed,
}

/// The answer to [`Browse::revoke`](super::Browse::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "`Changed` means that nobody was asked"]
#[non_exhaustive]
pub enum Revoked {
    /// The holder is asked to let go, by this request or by an earlier one.
    Asked,
    /// The owner is not the one that was seen. Nobody was asked; at a quorum, a minority that still
    /// showed that owner keeps the request until its lease there ends.
    Changed,
}

/// One page of keys.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Page {
    /// The keys, in order.
    pub keys: Vec<Key>,
    /// Pass it as the cursor of the next page; `None` if this was the last. A page may be empty and
    /// not be the last.
    pub next: Option<Key>,
    /// Why keys may be missing, if the store stopped looking before it had seen all of them.
    pub stopped: Option<Stopped>,
}

impl Page {
    /// These keys, and where the next page begins.
    #[must_use]
    pub const fn new(keys: Vec<Key>, next: Option<Key>) -> Self {
        Self { keys, next, stopped: None }
    }
}

/// Why a listing stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// The listing has this many names, and there are more.
    Names(usize),
    /// The store examined about this many keys, and has more.
    Keys(u64),
    /// The store searched for this long, and has more keys.
    Time(Duration),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(names) => {
                write!(f, "the list stopped at {names} names, and there are more")
            }
            Self::Keys(keys) => write!(
                f,
                "the list stopped after about {keys} keys of the database, so locks may be \
                 missing; keep locks in a database of their own"
            ),
            Self::Time(time) => write!(
                f,
                "the list stopped after {time:?}, so locks may be missing; keep locks in a \
                 database of their own"
            ),
        }
    }
}
