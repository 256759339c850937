//! Ends the lease of another client, or asks its holder to let go.

use super::Client;
use crate::core::error::{Error, ErrorKind};
use crate::store::{ClientRecord, Evicted, Revocation, Revoked, Store as _, unsupported_revoke};

impl Client {
    /// Ends the lease of another client if its owner token is still `seen`, for example from
    /// [`inspect`](Self::inspect). `reason` goes to the log, truncated to 1 KiB.
    ///
    /// The holder learns of it at its next renewal, and *may act until then*. Use fencing tokens,
    /// or make sure that the holder is dead.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the store cannot do this.
    /// [`Config`](ErrorKind::Config) for a bad name or an empty reason. Otherwise the error of the
    /// store if it gives no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The request may still take effect.
    pub async fn evict(&self, name: &str, seen: &[u8], reason: &str) -> Result<Evicted, Error> {
        let key = self.key(name)?;
        self.check_here().map_err(|error| error.about(name))?;
        let complaint = "the reason is empty; nothing was changed; say why the lease is to end";
        let reason = checked(reason, complaint).map_err(|error| error.about(name))?;
        let browse = self.browse().map_err(|error| error.about(name))?;
        let answer = browse.evict(key, seen.to_vec(), reason);
        answer.await.map_err(|error| error.about(name))
    }

    /// Asks a holder to let go of its lease, if its token is still `seen`, see [`inspect`]. Nothing
    /// else changes: the holder keeps the lock until it releases it.
    ///
    /// At its next renewal, so within ttl/3 + ttl/30, the holder learns who asks and why. Then
    /// [`Guard::revoked`] resolves, and `leasehold run` stops its command. Holders of older
    /// versions and of other libraries learn nothing. The request is kept beside the lease and ends
    /// with it. While it lasts, a second request changes nothing. No later lease sees it. If the
    /// client passes this lease on to another task before it learns of the request, that task is
    /// asked.
    ///
    /// `reason` is truncated to 1 KiB. To end the lease of a holder that is dead, see
    /// [`evict`](Self::evict).
    ///
    /// # Errors
    ///
    /// [`Unsupported`](ErrorKind::Unsupported) if the store cannot do this. Also if the holder uses
    /// another library on etcd or ZooKeeper, because its lock cannot store a request.
    /// [`Config`](ErrorKind::Config) for a bad name or an empty reason. Otherwise the error of the
    /// store if it gives no answer. Asking again is safe.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The request may still take effect.
    ///
    /// [`inspect`]: Self::inspect
    /// [`Guard::revoked`]: crate::Guard::revoked
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// use leasehold::store::Revoked;
    ///
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.mutex("import").lock().await?;
    /// for holder in client.inspect("import").await?.holders {
    ///     let answer = client.revoke("import", &holder.token, "deploy at noon").await?;
    ///     assert_eq!(answer, Revoked::Asked);
    /// }
    /// guard.renew().await?;
    /// assert_eq!(guard.revoked().await.reason, "deploy at noon");
    /// # Ok(()) }
    /// ```
    pub async fn revoke(&self, name: &str, seen: &[u8], reason: &str) -> Result<Revoked, Error> {
        let key = self.key(name)?;
        self.check_here().map_err(|error| error.about(name))?;
        let complaint = "the reason is empty; nobody was asked; say why the holder is to let go";
        let reason = checked(reason, complaint).map_err(|error| error.about(name))?;
        let session = self.user.session();
        let browse = session.store.browse().filter(|_| session.store.capabilities().revoke);
        let Some(browse) = browse else { return Err(unsupported_revoke().about(name)) };
        let answer = browse.revoke(key, seen.to_vec(), signature(session.record()), reason);
        answer.await.map_err(|error| error.about(name))
    }
}

/// The name of the user who asks, as `user@host`.
fn signature(record: Option<&ClientRecord>) -> String {
    record.map_or_else(|| "anonymous".to_owned(), |it| format!("{}@{}", it.user, it.host))
}

/// The reason of an operator, which must not be empty and is truncated.
fn checked(reason: &str, complaint: &str) -> Result<String, Error> {
    if reason.trim().is_empty() {
        return Err(Error::new(ErrorKind::Config, complaint));
    }
    Ok(reason[..reason.floor_char_boundary(Revocation::REASON_BYTES_MAX)].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::ClientId;

    #[test]
    fn a_request_is_signed_with_the_user_and_the_machine() {
        let record = ClientRecord {
            id: ClientId::from_random([7; ClientId::CHARS]),
            host: "web-3".to_owned(),
            pid: 4_711,
            user: "ci".to_owned(),
            command: "report".to_owned(),
            ttl: None,
        };
        assert_eq!(signature(Some(&record)), "ci@web-3");
        assert_eq!(signature(None), "anonymous");
    }

    #[test]
    fn a_reason_is_cut_between_two_characters_and_is_never_empty() {
        let longest = Revocation::REASON_BYTES_MAX;
        for (reason, kept) in [
            ("noon".to_owned(), "noon".to_owned()),
            ("x".repeat(longest), "x".repeat(longest)),
            ("x".repeat(longest + 1), "x".repeat(longest)),
            ("x".repeat(longest - 1) + "\u{fc}", "x".repeat(longest - 1)),
        ] {
            assert_eq!(checked(&reason, "it is empty").expect("a reason"), kept);
        }
        for empty in ["", " \n"] {
            let error = checked(empty, "it is empty").expect_err("empty");
            assert_eq!((error.kind(), error.message()), (ErrorKind::Config, "it is empty"));
        }
    }
}
