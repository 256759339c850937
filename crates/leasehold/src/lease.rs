//! A lease that another process acquired, by its owner token.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;
use crate::guard::Release;
use crate::session::Session;
use crate::store::{Claim, LeaseId, Released, Renewal, Renewed, Revocation, Store};

/// A handle for a lease that another process acquired and detached. It can renew and release the
/// lease.
///
/// It does not renew in the background, and dropping it does nothing. See
/// [`Client::lease`](crate::Client::lease).
///
/// # Examples
///
/// One process takes a lock, and another one ends it:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let token = client.mutex("upload").lock().await?.detach();
///
/// // Elsewhere, with the name and the token:
/// let lease = client.lease("upload", token);
/// assert_eq!(lease.release().await?, leasehold::Release::Released);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a lease handle does nothing by itself"]
pub struct Lease {
    session: Arc<Session>,
    name: Arc<str>,
    key: Result<Key, Error>,
    owner: OwnerToken,
    lock_delay: Duration,
    revoked: OnceLock<Arc<Revocation>>,
}

impl Lease {
    pub(crate) fn new(
        session: Arc<Session>,
        name: Arc<str>,
        key: Result<Key, Error>,
        owner: OwnerToken,
        lock_delay: Duration,
    ) -> Self {
        Self { session, name, key, owner, lock_delay, revoked: OnceLock::new() }
    }

    /// Restarts the ttl of the lease, from 10 ms to 24 h. Never shortens it. The ttl counts from
    /// before the request, so measure the time of your work from before this call.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) if the token does not hold the lock. [`Config`](ErrorKind::Config)
    /// for a bad name or ttl. [`Unknown`](ErrorKind::Unknown) if the answer came after the ttl had
    /// ended. Otherwise the error of the store if it gives no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The request may still take effect.
    pub async fn renew(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = Ttl::new(ttl).map_err(|error| error.about(&self.name))?;
        self.check_here()?;
        let renewal = Renewal::new(self.id()?, ttl.with_delay(self.lock_delay));
        let ends = valid_until(self.session.now(), ttl);
        match self.session.store.renew(renewal).await {
            Ok(Renewed::Renewed { revoked, .. }) => {
                if let Some(revoked) = revoked {
                    self.revoked.get_or_init(|| revoked);
                }
                if self.session.now() < ends { Ok(()) } else { Err(self.too_late()) }
            }
            Ok(Renewed::Lost) => Err(self.not_ours()),
            Err(error) => Err(error.about(&self.name)),
        }
    }

    /// The request to let go that a [`renew`](Self::renew) of this handle reported, if any: see
    /// [`Client::revoke`](crate::Client::revoke). The lease is still held. Sends no request.
    #[must_use]
    pub fn revoked(&self) -> Option<&Revocation> {
        self.revoked.get().map(|revoked| &**revoked)
    }

    /// Releases the lease.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for a bad name, or the error of the store if it gives no
    /// answer. The client does not repeat the release in the background. Call again, or let the ttl
    /// end. After such an error, [`NotHeld`](Release::NotHeld) may also mean that the first call
    /// released the lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The request may still take effect.
    pub async fn release(&self) -> Result<Release, Error> {
        self.check_here()?;
        let id = self.id()?;
        let on_release = self.session.usual_release(id.claim);
        match self.session.store.release(id, on_release).await {
            Ok(Released::NotHeld) => Ok(Release::NotHeld),
            Ok(_) => Ok(Release::Released),
            Err(error) => Err(error.about(&self.name)),
        }
    }

    fn check_here(&self) -> Result<(), Error> {
        self.session.check_here().map_err(|error| error.about(&self.name))
    }

    fn id(&self) -> Result<LeaseId, Error> {
        Ok(LeaseId { key: self.key.clone()?, owner: self.owner.clone(), claim: Claim::Exclusive })
    }

    fn too_late(&self) -> Error {
        Error::new(
            ErrorKind::Unknown,
            "the store renewed the lease, but its answer took longer than the ttl; another client \
             may hold the lock by now; stop the protected work, or renew again",
        )
        .about(&self.name)
    }

    fn not_ours(&self) -> Error {
        Error::new(
            ErrorKind::Lost,
            "the token does not hold this lock: it was released, ran out, or was taken away; stop \
             the protected work",
        )
        .about(&self.name)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.session.is_here() {
            self.session.leave_copy();
        }
    }
}
