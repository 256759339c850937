//! A number of permits that owners take and give back.

use std::time::Duration;

use crate::core::error::Error;
use crate::guard::Guard;
use crate::locking::Locking;
use crate::store::Store as _;

/// A number of permits across processes and machines. Never more of them are taken than there are.
///
/// Like a [`Mutex`](crate::Mutex), it only describes permits. Each owner has a lease of its own. A
/// crash frees only the permits of that owner, after its ttl. An owner has the same [`Guard`] as
/// the holder of a mutex, with a fencing token that rises with each grant.
///
/// # Number of permits
///
/// The first user of a name sets how many permits there are. The store remembers the number for 10
/// minutes after the last use. If a lock takes the name meanwhile, a store may forget it at once.
/// Another number is refused with [`Config`](crate::ErrorKind::Config), and the message shows both.
/// [`resize`](Self::resize) changes it. A name is a semaphore or a lock, and not both at a time. A
/// [`Latch`](crate::Latch) and a [`RateLimit`](crate::RateLimit) take permits too, so give each of
/// them a name of its own.
///
/// # Fairness
///
/// First come, first served. A task that wants many permits waits until that many are free, and
/// nobody passes it meanwhile. So tasks that want few permits do not starve it.
///
/// # Stores
///
/// Needs a store that promises [`permits`](crate::store::Capabilities::permits): `memory:`,
/// `sqlite:`, PostgreSQL, MySQL, and Redis or Valkey, also behind sentinels and in a cluster.
/// Others answer [`Unsupported`](crate::ErrorKind::Unsupported), as for
/// [`RwLock`](crate::RwLock).
///
/// # Examples
///
/// Of all hosts together, at most two send mail at a time:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let senders = client.semaphore("mail", 2);
/// let (one, other) = (senders.acquire().await?, senders.acquire().await?);
/// assert!(senders.try_acquire().await?.is_none());
/// assert!(one.release().await? == leasehold::Release::Released);
/// assert!(senders.try_acquire().await?.is_some());
/// # drop(other);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a semaphore does nothing until a permit is acquired"]
pub struct Semaphore {
    locking: Locking,
    want: u32,
    of: u32,
}

impl Semaphore {
    pub(crate) fn new(locking: Locking, of: u32) -> Self {
        Self { locking, want: 1, of }.claiming()
    }

    fn claiming(self) -> Self {
        let (want, of) = (self.want, self.of);
        Self { locking: self.locking.permits(want, of), ..self }
    }

    /// Sets how many permits a guard takes. Default: 1. The first call reports zero, and more than
    /// there are ([`Config`](crate::ErrorKind::Config)).
    pub fn weight(self, permits: u32) -> Self {
        Self { want: permits, ..self }.claiming()
    }

    /// Sets how long the store keeps the permits if this process dies. See
    /// [`Mutex::ttl`](crate::Mutex::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { locking: self.locking.ttl(ttl), ..self }
    }

    /// Adds a reason for people. See [`Mutex::why`](crate::Mutex::why).
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text), ..self }
    }

    /// Sets whether grants carry fencing tokens. Default: on.
    pub fn fencing(self, on: bool) -> Self {
        Self { locking: self.locking.changed(|spec| spec.fencing = on), ..self }
    }

    /// Waits for the permits.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock`](crate::Mutex::lock). Also
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a store without permits, and
    /// [`Config`](crate::ErrorKind::Config) if others use the name with another number of permits,
    /// or as a lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases a grant that is under way.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        self.locking.lock().await
    }

    /// Takes the permits if they are free and nobody waits. Otherwise returns `None` without
    /// waiting.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::try_lock`](crate::Mutex::try_lock) and [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is under way.
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.locking.try_lock().await
    }

    /// Waits for the permits for at most `wait`.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock_timeout`](crate::Mutex::lock_timeout) and [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// Same as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.locking.lock_timeout(wait).await
    }

    /// Changes how many permits there are, for all clients. Returns how many there were, if anybody
    /// has used the name as a semaphore lately. Owners keep what they have, even if that is more
    /// than there are now. Those who wait in line go on with the new number, unless they want more
    /// than that. New calls with the old number are refused, so change it in all users.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) for zero permits, more than
    /// [`PERMITS_MAX`](crate::store::PERMITS_MAX), or a name in use as a lock.
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a store without permits.
    /// [`Closed`](crate::ErrorKind::Closed) after a shut-down. Otherwise the error of the store if
    /// it gives no answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The change may still take effect.
    pub async fn resize(&self, permits: u32) -> Result<Option<u32>, Error> {
        let session = self.locking.session();
        self.locking.named(session.check_here().and_then(|()| session.check_open()))?;
        let resized = session.store.resize(self.locking.key()?.clone(), permits).await;
        self.locking.named(resized)
    }
}
