//! Owner tokens, client ids and fencing tokens.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;

use crate::core::error::{Error, ErrorKind};

/// The secret of one acquisition. A client that knows the token can renew and release the lease.
///
/// Every acquisition at a store has a fresh token: 132 random bits as 22 characters, a dot, and the
/// public id of the client. The id tells tools who holds a lock, without another write per grant.
/// Tokens of other libraries are kept as they are: 1 to 128 printable ASCII characters.
///
/// `Debug` shows only the first four characters. [`as_str`](Self::as_str) has all of them: print
/// them only to hand the token over.
///
/// # Examples
///
/// A process hands its lease over to another one, as text:
///
/// ```
/// use leasehold::{Client, OwnerToken, Release};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # let client = Client::connect("memory:").await?;
/// let token = client.mutex("upload").lock().await?.detach();
/// let text = token.as_str().to_owned();
///
/// // In the other process:
/// let lease = client.lease("upload", OwnerToken::new(text)?);
/// assert_eq!(lease.release().await?, Release::Released);
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerToken(Arc<str>);

impl OwnerToken {
    /// How many random bytes a fresh token is made of.
    pub const RANDOM_BYTES: usize = 22;
    /// The beginning of texts that a store writes in place of an owner token.
    const MARK: &str = ":lh:";
    /// The longest token, in bytes.
    pub const MAX_BYTES: usize = 128;
    /// The shortest token of which a part may be shown, in bytes.
    pub const HINTED_BYTES_MIN: usize = 16;

    /// Makes the token of a new acquisition by `client`. Uses six bits of each random byte.
    #[must_use]
    pub fn from_random(random: [u8; Self::RANDOM_BYTES], client: &ClientId) -> Self {
        let mut text = String::with_capacity(Self::RANDOM_BYTES + 1 + ClientId::CHARS);
        push_base64url(&mut text, &random);
        text.push('.');
        text.push_str(client.as_str());
        Self(text.into())
    }

    /// Checks a token that was handed over, for example in `LEASEHOLD_TOKEN`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] unless it is 1 to 128 printable ASCII characters without spaces, and
    /// does not begin with `:lh:`. Stores mark keys with such texts, and they are no secrets.
    pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
        let text = text.as_ref();
        if text.is_empty()
            || text.len() > Self::MAX_BYTES
            || !text.bytes().all(|byte| byte.is_ascii_graphic())
        {
            // The message leaves out the text, since it may be a secret with a typing error.
            return Err(Error::new(
                ErrorKind::Config,
                "an owner token must be 1 to 128 printable ASCII characters without spaces; no \
                 request was sent",
            ));
        }
        if text.starts_with(Self::MARK) {
            return Err(Error::new(
                ErrorKind::Config,
                "an owner token must not begin with `:lh:`, which marks keys with several owners; \
                 no request was sent; use the token that `acquire` or `Guard::token` gave",
            ));
        }
        Ok(Self(text.into()))
    }

    /// The token in full. Treat it as a password.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first four characters: enough to compare two tokens, too few to use one. Empty for a
    /// token so short that four characters would reveal much of it.
    #[must_use]
    pub fn hint(&self) -> &str {
        if self.0.len() < Self::HINTED_BYTES_MIN { "" } else { &self.0[..4] }
    }

    /// The id of the client that made this token, if a Leasehold client did.
    #[must_use]
    pub fn client(&self) -> Option<ClientId> {
        client_of(self.0.as_bytes())
    }
}

/// The client id in a token that the store returned, if a Leasehold client made the token.
#[must_use]
pub fn client_of(token: &[u8]) -> Option<ClientId> {
    let (secret, client) = token.split_at_checked(OwnerToken::RANDOM_BYTES)?;
    let client = client.strip_prefix(b".")?;
    if !secret.iter().all(|byte| BASE64URL.contains(byte)) {
        return None;
    }
    ClientId::new(std::str::from_utf8(client).ok()?)
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({}…)", self.hint())
    }
}

impl FromStr for OwnerToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::new(text)
    }
}

/// The public id of a client. It is the second half of its owner tokens, and names the inbox for
/// its hints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Arc<str>);

impl ClientId {
    /// How many random bytes an id is made of, and how many characters it has.
    pub const CHARS: usize = 12;

    /// Makes an id from random bytes. Uses six bits of each.
    #[must_use]
    pub fn from_random(random: [u8; Self::CHARS]) -> Self {
        let mut text = String::with_capacity(Self::CHARS);
        push_base64url(&mut text, &random);
        Self(text.into())
    }

    /// Checks an id that a store returned. `None` if it does not have our form.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (text.len() == Self::CHARS && text.bytes().all(|byte| BASE64URL.contains(&byte)))
            .then(|| Self(text.into()))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn push_base64url(text: &mut String, random: &[u8]) {
    text.extend(random.iter().map(|byte| char::from(BASE64URL[usize::from(byte & 63)])));
}

/// A number that rises with every exclusive grant of a key. Pass it to the protected resource. The
/// resource must refuse a number lower than the highest it has seen. This stops a holder that was
/// paused past its lease.
///
/// # Examples
///
/// A resource that keeps the highest token, and refuses a late write:
///
/// ```
/// use leasehold::FencingToken;
///
/// #[derive(Default)]
/// struct Stock {
///     pieces: u32,
///     highest: Option<FencingToken>,
/// }
///
/// impl Stock {
///     fn write(&mut self, pieces: u32, token: FencingToken) -> bool {
///         if Some(token) < self.highest {
///             return false;
///         }
///         (self.pieces, self.highest) = (pieces, Some(token));
///         true
///     }
/// }
///
/// let (earlier, later): (FencingToken, FencingToken) = ("41".parse()?, "42".parse()?);
/// let mut stock = Stock::default();
/// assert!(stock.write(7, later));
/// assert!(!stock.write(8, earlier), "its holder was paused past its lease");
/// assert_eq!(i64::from(later), 42, "for a column of a database");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The highest number, 2^53 - 1, which Lua, JSON and JavaScript represent exactly.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Checks a number. `None` outside 1..=[`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if number > Self::MAX {
            return None;
        }
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| {
            Error::new(ErrorKind::Config, "a fencing token must be a whole number, 1 to 2^53 - 1")
        })
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    /// For SQL, whose integers are signed.
    fn from(token: FencingToken) -> Self {
        Self::try_from(token.get()).expect("a fencing token is below 2^53")
    }
}

/// Consecutive fencing tokens reserved in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencingBlock {
    /// The lowest token of the block.
    pub first: FencingToken,
    /// How many tokens the block has, at least one.
    pub count: u32,
}

impl FencingBlock {
    /// The last token. An empty block, which no store may answer, counts as a block of one.
    #[must_use]
    pub(crate) fn last(self) -> u64 {
        self.first.get() + u64::from(self.count.max(1)) - 1
    }

    /// The block from the higher first to the higher last token.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "for a quorum"))]
    pub(crate) fn join(self, other: Self) -> Self {
        let first = self.first.max(other.first);
        // At most as long as the longer block.
        let length = self.last().max(other.last()) - first.get() + 1;
        Self { first, count: u32::try_from(length).unwrap_or(u32::MAX) }
    }

    /// The token at index `before` of the block. `None` past its end.
    pub(crate) fn nth(self, before: u32) -> Option<FencingToken> {
        let is_there = before < self.count;
        is_there.then(|| FencingToken::new(self.first.get() + u64::from(before))).flatten()
    }

    /// The block of `reserve` tokens after `counter`, and the new counter. `None` if `reserve` is
    /// zero or the counter would exceed [`FencingToken::MAX`].
    #[must_use]
    pub fn after(counter: u64, reserve: u32) -> Option<(Self, u64)> {
        if reserve == 0 {
            return None;
        }
        let last =
            counter.checked_add(u64::from(reserve)).filter(|last| *last <= FencingToken::MAX)?;
        Some((Self { first: FencingToken::new(counter + 1)?, count: reserve }, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_token_is_printable_and_names_its_client() {
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let token = OwnerToken::from_random(std::array::from_fn(|i| i as u8), &client);
        assert_eq!(token.as_str(), "ABCDEFGHIJKLMNOPQRSTUV.HHHHHHHHHHHH");
        assert_eq!(token.client(), Some(client));
        assert_eq!(format!("{token:?}"), "OwnerToken(ABCD…)");
    }

    #[test]
    fn tokens_of_others_name_no_client() {
        for foreign in [
            "ABCDEFGHIJKLMNOP",
            "ABCDEFGHIJKLMNOPQRSTUV.short",
            "x",
            "ABCDEFGHIJKLMNOPQRSTU!.HHHHHHHHHHHH",
            // Stores put the id between separators, and into the names of inboxes.
            "ABCDEFGHIJKLMNOPQRSTUV.HHHHHHHHHHH!",
            "ABCDEFGHIJKLMNOPQRSTUV.HHHHHHHHHHH|",
            "ABCDEFGHIJKLMNOPQRSTUV.HHHHHHHHHHH:",
        ] {
            assert_eq!(OwnerToken::new(foreign).expect("printable").client(), None, "{foreign}");
        }
        assert_eq!(client_of(&[0xff; 35]), None);
        assert_eq!(ClientId::new("HHHHHHHHHHH|"), None);
    }

    #[test]
    fn only_printable_tokens_pass() {
        let long = "x".repeat(129);
        for bad in ["", "a b", "é", "a\n", &long, ":lh:shared", ":lh:permits"] {
            assert_eq!(OwnerToken::new(bad).expect_err(bad).kind(), ErrorKind::Config);
        }
        for good in ["x", &long[..128]] {
            assert_eq!(OwnerToken::new(good).expect(good).as_str(), good);
        }
    }

    #[test]
    fn a_short_token_shows_no_part_of_itself() {
        for (text, hint) in [("x", ""), ("123456789012345", ""), ("1234567890123456", "1234")] {
            assert_eq!(OwnerToken::new(text).expect("printable").hint(), hint, "{text}");
        }
    }

    #[test]
    fn fencing_tokens_stay_exact_in_a_double() {
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new(1 << 53), None);
        assert_eq!(FencingToken::new(FencingToken::MAX).map(i64::from), Some((1 << 53) - 1));
        for bad in ["", "0", "-1", "9007199254740992", "1.5"] {
            assert!(bad.parse::<FencingToken>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_block_follows_the_counter() {
        let block = |counter, reserve| {
            FencingBlock::after(counter, reserve).map(|(b, last)| (b.first.get(), b.count, last))
        };
        assert_eq!(block(0, 1), Some((1, 1, 1)));
        assert_eq!(block(41, 8), Some((42, 8, 49)));
        assert_eq!(block(41, 0), None);
        assert_eq!(block(FencingToken::MAX - 1, 1).map(|b| b.0), Some(FencingToken::MAX));
        assert_eq!(block(FencingToken::MAX, 1), None);
    }

    #[test]
    fn nodes_that_disagree_about_a_block_agree_on_what_is_above_all_of_them() {
        let block = |first, count| FencingBlock {
            first: FencingToken::new(first).expect("not zero"),
            count,
        };
        // one block, another block, both together
        let table = [
            ((7, 3), (7, 3), (7, 3)),
            ((7, 3), (8, 3), (8, 3)),
            ((7, 9), (8, 1), (8, 8)),
            ((7, 1), (20, 1), (20, 1)),
        ];
        for ((first, count), (other, length), (joined, all)) in table {
            let (one, two) = (block(first, count), block(other, length));
            assert_eq!(one.join(two), block(joined, all), "{one:?} {two:?}");
            assert_eq!(two.join(one), block(joined, all), "{two:?} {one:?}");
        }
        let tokens = [0, 2, 3].map(|before| block(7, 3).nth(before).map(FencingToken::get));
        assert_eq!(tokens, [Some(7), Some(9), None]);
        assert_eq!(block(FencingToken::MAX, 3).nth(1), None, "no token is higher");
    }
}
