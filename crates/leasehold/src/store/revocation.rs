//! A request to a holder to let go of its lease.

use crate::core::moment::WallTime;
use crate::store::Note;

/// A request to a holder to let go of its lease: who asked, why and when.
/// [`Guard::revoked`](crate::Guard::revoked) resolves to it.
///
/// It is a request and takes nothing away. The lease goes on until its holder releases it.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.mutex("deploy").lock().await?;
/// let token = guard.token().as_str().as_bytes();
/// client.revoke("deploy", token, "maintenance at noon").await?;
/// let seen = client.inspect("deploy").await?;
/// let revoked = seen.holders[0].revoked.as_deref().expect("it was asked");
/// assert_eq!(revoked.reason, "maintenance at noon");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Revocation {
    /// The asker, as `user@host`, or `anonymous`. The client gives this text, and the store does
    /// not check it.
    pub by: String,
    /// The reason, in the words of the asker.
    pub reason: String,
    /// When, by the clock of the store.
    pub at: WallTime,
}

/// The longest text that is read as a request, in bytes. Clients write shorter ones.
const TEXT_BYTES_MAX: usize = 4_096;

/// The longest [`Revocation::by`], in bytes.
const BY_BYTES_MAX: usize = 513;

impl Revocation {
    /// The longest reason, in bytes. Longer ones are truncated.
    pub const REASON_BYTES_MAX: usize = Note::WHY_BYTES_MAX;

    /// A request of `by`, made at `at` for `reason`. Longer texts are truncated: `by` to 513 bytes,
    /// and `reason` to [`REASON_BYTES_MAX`](Self::REASON_BYTES_MAX).
    #[must_use]
    pub fn new(by: impl Into<String>, reason: impl Into<String>, at: WallTime) -> Self {
        let (mut by, mut reason) = (by.into(), reason.into());
        by.truncate(by.floor_char_boundary(BY_BYTES_MAX));
        reason.truncate(reason.floor_char_boundary(Self::REASON_BYTES_MAX));
        Self { by, reason, at }
    }

    /// The asker and the reason, as one text without the time, for a store that keeps requests as
    /// texts.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{}|{}", self.by.replace('|', "/"), self.reason)
    }

    /// Reads the time in microseconds, a `|` and [`words`](Self::words). `None` if the text has
    /// another form, or is longer than 4 KiB.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = Some(text).filter(|text| text.len() <= TEXT_BYTES_MAX)?.splitn(3, '|');
        let at = WallTime::from_unix_micros(parts.next()?.parse().ok()?);
        Some(Self::new(parts.next()?, parts.next()?, at))
    }
}

#[cfg(test)]
mod tests {
    use super::{Revocation, WallTime};

    #[test]
    fn a_request_reads_back_and_other_texts_do_not() {
        let at = WallTime::from_unix_micros(7);
        let asked = Revocation::new("anna@web|1", "a | b", at);
        let read = Revocation::read(&format!("7|{}", asked.words())).expect("it reads back");
        assert_eq!(read, Revocation::new("anna@web/1", "a | b", at));
        for text in ["", "7", "7|anna", "x|anna|b", &format!("7|a|{}", "x".repeat(5_000))] {
            assert_eq!(Revocation::read(text), None, "{text}");
        }
        let long = Revocation::new("ü".repeat(600), "ü".repeat(600), at);
        assert_eq!((long.by.len(), long.reason.len()), (512, 1_024));
    }
}
