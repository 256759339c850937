//! The answers of a store.

use std::fmt;
use std::time::Duration;

use super::ClientRecord;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken};

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
    /// asks again when it usually does.
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
    /// Some nodes of a quorum granted it and others did not, so no client has a majority.
    /// [`retry_in`](Refusal::retry_in) is how long one round of asking takes: clients that split
    /// the votes come apart by random pauses of that order.
    Split,
    /// The store may have forgotten who has it. [`retry_in`](Refusal::retry_in) is the time left of
    /// the quarantine. In a quorum, too few nodes can vote until then.
    Quarantined(Quarantine),
    /// It was granted with too few copies, so the store released it. If
    /// [`retry_in`](Refusal::retry_in) is zero, an earlier request by this token was, and nothing
    /// was asked this time.
    TooFewCopies(Error),
}

/// How a client goes on with the owner token of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Afterwards {
    /// The client asks again by the same token, and keeps its place in the line if it has one.
    Keep,
    /// The client goes on by a fresh token. The store may still have a place from an earlier
    /// request by this one, so the client releases it if there was one. After
    /// [`TooFewCopies`](Why::TooFewCopies), it releases it in any case.
    Leave,
    /// The client goes on by a fresh token. The store releases whatever it granted, or may still
    /// grant, to this one.
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

    /// The votes of a quorum were split. The token is spent.
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

    /// The same refusal, with another future for the token.
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

/// A store has restarted, has lost its data, or has taken another one's place. It grants nothing
/// new for as long as anything may last that it granted before and knows nothing of any more.
/// Leases that are held go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quarantine {
    /// How long ago that was noticed, by the first ask after it; `None` if that is not known, or if
    /// only a look has noticed it so far: the quarantine begins with the next ask then.
    pub since: Option<Duration>,
    /// For how long nothing new is granted: more than a quarantine lasts, if the clock of the store
    /// was set back since it began.
    pub left: Duration,
}

impl Quarantine {
    /// One that lasts for so long from now, noticed that long ago.
    #[must_use]
    pub const fn new(since: Option<Duration>, left: Duration) -> Self {
        Self { since, left }
    }
}

impl fmt::Display for Quarantine {
    /// As in "the store is new, restarted or forgot its data (noticed 12 s ago); no new locks for
    /// 53 s more".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store is new, restarted or forgot its data")?;
        if let Some(since) = self.since {
            write!(f, " (noticed {} s ago)", since.as_secs())?;
        }
        let seconds = self.left.as_secs() + u64::from(self.left.subsec_nanos() > 0);
        write!(f, "; no new locks for {seconds} s more")
    }
}

/// The answer to a [`Renewal`](super::Renewal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The ttl was restarted.
    Renewed {
        /// The fencing tokens of this lease, or the block that this renewal reserved.
        fencing: Option<FencingBlock>,
        /// The fencing tokens that the lease had before, where
        /// [`at_least`](super::Renewal::at_least) was above the counter and this renewal raised
        /// it; else `None`. A quorum tells by them a grant that it knows from a later one to the
        /// same owner. A store that answers `None` in place of a block is safe: that costs the
        /// reserved tokens of the grant but the last.
        raised_from: Option<FencingBlock>,
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
    /// Nobody waits, and the client has it again, by the token that it named.
    Kept {
        /// The fencing tokens of this grant.
        fencing: Option<FencingBlock>,
    },
    /// The owner did not hold it; its place in line, if any, is gone.
    NotHeld,
}

/// The answer to [`Browse::evict`](super::Browse::evict).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The lease was ended.
    Evicted,
    /// The owner is not the one that was seen. Nothing was done; at a quorum, a minority that still
    /// showed that owner has ended its lease there.
    Changed,
}

/// The state of a key, as far as the store knows it. A store begins with the default, which is
/// empty, and sets the fields that it knows.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let _guard = client.mutex("deploy").why("release 2.4").lock().await?;
/// let seen = client.inspect("deploy").await?;
/// assert_eq!(seen.holders[0].why.as_deref(), Some("release 2.4"));
/// assert_eq!(seen.waiting, 0);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// The first [`HOLDERS_SHOWN_MAX`](Self::HOLDERS_SHOWN_MAX) holders: none, one, or several that
    /// share the key.
    pub holders: Vec<Holder>,
    /// The first [`WAITERS_SHOWN_MAX`](Self::WAITERS_SHOWN_MAX) waiters, in order.
    pub waiters: Vec<Waiter>,
    /// How many wait in all.
    pub waiting: u32,
    /// The highest fencing token given so far, if the store still knows.
    pub fencing: Option<FencingToken>,
    /// The view of each node of a quorum, in the order of the URLs. Empty for a single store.
    pub votes: Vec<Vote>,
    /// The reason why the store grants no new key at all. `None` if it does.
    pub quarantine: Option<Quarantine>,
}

/// The view that one node of a quorum has of a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vote {
    /// Which node: its URL without a password.
    pub node: String,
    /// The owner token that it has there, if any; or why it shows nothing. The token is shown in
    /// part only by `Debug`.
    pub holder: Result<Option<Vec<u8>>, String>,
}

impl Vote {
    /// The view of `node`.
    #[must_use]
    pub fn new(node: impl Into<String>, holder: Result<Option<Vec<u8>>, String>) -> Self {
        Self { node: node.into(), holder }
    }

    /// The beginning of the owner token there, as [`Holder::token_hint`] gives it; `None` if nobody
    /// has the key there, or nothing is shown.
    #[must_use]
    pub fn holder_hint(&self) -> Option<String> {
        self.holder.as_ref().ok()?.as_deref().map(hint)
    }
}

impl fmt::Debug for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holder = self.holder.as_ref().map(|holder| holder.as_deref().map(hint));
        f.debug_struct("Vote").field("node", &self.node).field("holder", &holder).finish()
    }
}

/// The beginning of an owner token: its first four characters, fewer of a short one, so that no
/// more than about a quarter of it is shown. Other tokens than printable ASCII are shown by their
/// first four bytes in hexadecimal, as `0xff1b6162`.
fn hint(token: &[u8]) -> String {
    if token.iter().all(|byte| (0x20..=0x7e).contains(byte)) {
        let shown = token.len().div_ceil(4).min(4);
        return token[..shown].iter().copied().map(char::from).collect();
    }
    let bytes = token.iter().take(4).map(|byte| format!("{byte:02x}"));
    std::iter::once("0x".to_owned()).chain(bytes).collect()
}

impl Snapshot {
    /// How many holders a snapshot lists at most.
    pub const HOLDERS_SHOWN_MAX: usize = 100;
    /// How many waiters a snapshot lists at most.
    pub const WAITERS_SHOWN_MAX: usize = 100;
}

/// One holder in a [`Snapshot`].
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its owner token, whatever bytes a foreign client may have written. Shown in part only by
    /// `Debug`.
    pub token: Vec<u8>,
    /// The client, if it left its record.
    pub client: Option<ClientRecord>,
    /// Why, in the user's words.
    pub why: Option<String>,
    /// Since when, where the store knows.
    pub since: Option<WallTime>,
    /// How long each renewal makes its lease last, where that is known.
    pub ttl: Option<Duration>,
    /// How long its lease still lives unrenewed; `None` if it has no end.
    pub ttl_left: Option<Duration>,
    /// The fencing tokens of this grant.
    pub fencing: Option<FencingBlock>,
    /// Whether the client keeps the lease with no guard in use.
    pub idle: bool,
}

impl Holder {
    /// A holder of which only the owner token is known, with a lease without an end. Set the other
    /// fields if more is known.
    #[must_use]
    pub fn new(token: impl Into<Vec<u8>>) -> Self {
        Self {
            token: token.into(),
            client: None,
            why: None,
            since: None,
            ttl: None,
            ttl_left: None,
            fencing: None,
            idle: false,
        }
    }

    /// How long ago its lease was granted or renewed, where that is known: a holder that lives
    /// renews it every third of its [`ttl`](Self::ttl).
    #[must_use]
    pub fn renewed_ago(&self) -> Option<Duration> {
        self.ttl?.checked_sub(self.ttl_left?)
    }

    /// The last of its fencing tokens.
    pub(crate) fn fencing_last(&self) -> Option<u64> {
        self.fencing.map(|block| block.first.get() + u64::from(block.count) - 1)
    }

    /// The beginning of the owner token: of one of ours as
    /// [`OwnerToken::hint`](crate::OwnerToken::hint) gives it. A foreign one may be any bytes: of a
    /// short one fewer characters are shown, and what is not text is shown in hexadecimal, as
    /// `0xff1b6162`.
    #[must_use]
    pub fn token_hint(&self) -> String {
        hint(&self.token)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("token", &self.token_hint())
            .field("client", &self.client)
            .field("why", &self.why)
            .field("since", &self.since)
            .field("ttl", &self.ttl)
            .field("ttl_left", &self.ttl_left)
            .field("fencing", &self.fencing)
            .field("idle", &self.idle)
            .finish()
    }
}

/// One waiter in a [`Snapshot`]. The default is one of whom nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Waiter {
    /// The id of the client whose place it is.
    pub id: Option<ClientId>,
    /// The client, if it left its record.
    pub client: Option<ClientRecord>,
    /// Since when it waits, where the store knows.
    pub since: Option<WallTime>,
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
    /// It has so many names, and there are more.
    Names(usize),
    /// The store looked at about so many keys, and has more.
    Keys(u64),
    /// The store looked for so long, and has more keys.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_a_token_is_shown_at_most_and_of_other_bytes_their_numbers() {
        let table: [(&[u8], &str); 9] = [
            (b"", ""),
            (b"1", "1"),
            (b"secret", "se"),
            (b"abcdefghijkl", "abc"),
            (b"abcdefghijklmnop", "abcd"),
            (b"two words of text", "two "),
            (&[0xff; 20], "0xffffffff"),
            (b"\x00", "0x00"),
            ("ünï".as_bytes(), "0xc3bc6ec3"),
        ];
        for (token, hint) in table {
            let holder = Holder::new(token);
            assert_eq!(holder.token_hint(), hint);
            assert!(!format!("{holder:?}").contains("secret"));
        }
    }

    #[test]
    fn a_vote_shows_no_more_of_a_token_than_its_holder_does() {
        let vote = |holder| Vote::new("a", holder);
        for (holder, hint, shown) in [
            (Ok(Some(b"abcdefghijklmnop".to_vec())), Some("abcd"), r#"Ok(Some("abcd"))"#),
            (Ok(Some(b"secret".to_vec())), Some("se"), r#"Ok(Some("se"))"#),
            (Ok(None), None, "Ok(None)"),
            (Err("down".to_owned()), None, r#"Err("down")"#),
        ] {
            let vote = vote(holder);
            assert_eq!(vote.holder_hint().as_deref(), hint);
            assert_eq!(format!("{vote:?}"), format!("Vote {{ node: \"a\", holder: {shown} }}"));
        }
    }
}
