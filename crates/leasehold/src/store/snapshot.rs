//! The state of a key, for people and tools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientRecord, Quarantine, Revocation};
use crate::core::claim::Claim;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken};

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
    /// How many clients wait in all.
    pub waiting: u32,
    /// The highest fencing token given so far, if the store still knows.
    pub fencing: Option<FencingToken>,
    /// The view of each node of a quorum, in the order of the URLs. Empty for a single store.
    pub votes: Vec<Vote>,
    /// The reason why the store grants no new key at all. `None` if it grants keys.
    pub quarantine: Option<Quarantine>,
    /// The permits of a semaphore. `None` if the key is a lock, or if the store has forgotten that
    /// it is a semaphore.
    pub permits: Option<PermitsTaken>,
}

/// How many permits a semaphore has, and how many of them are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitsTaken {
    /// How many there are in all.
    pub of: u32,
    /// How many are taken. More than [`of`](Self::of) if their number was lowered while holders had
    /// them.
    pub taken: u32,
}

impl PermitsTaken {
    /// `taken` of `of` permits are taken.
    #[must_use]
    pub const fn new(taken: u32, of: u32) -> Self {
        Self { of, taken }
    }
}

/// The view that one node of a quorum has of a key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vote {
    /// Which node: its URL without a password.
    pub node: String,
    /// The owner token that has the key at this node, if any; or why the node shows nothing.
    /// `Debug` shows only a part of the token.
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

/// The beginning of an owner token: its first four characters, or fewer if it is short, so that no
/// more than about a quarter of it is shown. If it is not printable ASCII, its first four bytes are
/// shown in hexadecimal, as `0xff1b6162`.
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
    /// The owner token. A foreign client may have written any bytes. `Debug` shows only a part of
    /// it.
    pub token: Vec<u8>,
    /// The client, if it left its record.
    pub client: Option<ClientRecord>,
    /// The reason, in the user's words.
    pub why: Option<String>,
    /// Since when, where the store knows.
    pub since: Option<WallTime>,
    /// How long each renewal makes the lease last, where that is known.
    pub ttl: Option<Duration>,
    /// How long the lease still lasts without a renewal; `None` if it has no end.
    pub ttl_left: Option<Duration>,
    /// The fencing tokens of this grant. For a Redis lock without fencing, they may be those of an
    /// earlier grant.
    pub fencing: Option<FencingBlock>,
    /// Whether the client keeps the lease with no guard in use.
    pub idle: bool,
    /// How the holder has the key: alone, shared with others, or a number of its permits.
    pub claim: Claim,
    /// The request to let go that the holder got, if any, see
    /// [`Client::revoke`](crate::Client::revoke).
    pub revoked: Option<Arc<Revocation>>,
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
            claim: Claim::Exclusive,
            revoked: None,
        }
    }

    /// How long ago its lease was granted or renewed, where that is known. A living holder renews
    /// it every third of its [`ttl`](Self::ttl).
    #[must_use]
    pub fn renewed_ago(&self) -> Option<Duration> {
        self.ttl?.checked_sub(self.ttl_left?)
    }

    /// The last of its fencing tokens.
    pub(crate) fn fencing_last(&self) -> Option<u64> {
        self.fencing.map(FencingBlock::last)
    }

    /// The beginning of the owner token. For a token of Leasehold,
    /// [`OwnerToken::hint`](crate::OwnerToken::hint) gives the same. A foreign token may be any
    /// bytes. If it is short, fewer characters are shown, and if it is not text, it is shown in
    /// hexadecimal, as `0xff1b6162`.
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
            .field("claim", &self.claim)
            .field("revoked", &self.revoked)
            .finish()
    }
}

/// One waiter in a [`Snapshot`]. The default is a waiter of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Waiter {
    /// The id of the client whose place it is.
    pub id: Option<ClientId>,
    /// The client, if it left its record.
    pub client: Option<ClientRecord>,
    /// Since when it waits, where the store knows.
    pub since: Option<WallTime>,
    /// Its claim: the key alone, a share of it, or a number of permits.
    pub claim: Claim,
}

impl Waiter {
    /// A waiter of that client, of which nothing else is known.
    #[must_use]
    pub fn new(id: Option<ClientId>) -> Self {
        Self { id, ..Self::default() }
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

    #[test]
    fn a_lease_was_renewed_as_long_ago_as_its_ttl_has_lost() {
        let seconds = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        // the ttl, the time left, how long ago it was renewed
        for (ttl, left, ago) in [
            (Some(10), Some(7), Some(3)),
            (Some(10), Some(10), Some(0)),
            // A lock delay makes a lease last longer than its ttl.
            (Some(10), Some(11), None),
            (Some(10), None, None),
            (None, Some(7), None),
        ] {
            let (ttl, ttl_left) = (seconds(ttl), seconds(left));
            let holder = Holder { ttl, ttl_left, ..Holder::new("a") };
            assert_eq!(holder.renewed_ago(), seconds(ago), "{ttl:?} {left:?}");
        }
    }
}
