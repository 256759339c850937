//! A lock that readers share, and that a writer has alone.

use std::convert::Infallible;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::locking::Locking;

/// A lock across processes and machines that many readers hold at a time, or one writer alone.
///
/// Like a [`Mutex`](crate::Mutex), it only describes a lock. Each reader and each writer has a
/// lease of its own, which is renewed, released and lost alone. Its [`Guard`] is that of a mutex.
///
/// # Fairness
///
/// Clients are served first come, first served, readers and writers in one line. A reader that
/// comes behind a waiting writer waits, even if other readers hold the lock. So a writer waits for
/// the readers that came before it, and for no others. Readers that wait in a row get the lock
/// together.
///
/// # Upgrades
///
/// A reader cannot become a writer, see [`upgrade`](Self::upgrade). Two readers that both wanted
/// this would wait for each other for ever. Release the read guard, call [`write`](Self::write),
/// and check again what you have read. The other way works without a gap, see
/// [`downgrade`](Self::downgrade). A task that holds a read guard and calls `write` waits for
/// itself. A task that calls `read` a second time does so too, if a writer waits in between.
///
/// # Names
///
/// A writer is the exclusive owner of the name, as a [`Mutex`](crate::Mutex) of that name is. So
/// both exclude each other, and all readers. On Redis, libraries that lock the plain key with
/// `SET NX` respect readers and writers too.
///
/// # Stores
///
/// Needs a store that promises [`shared`](crate::store::Capabilities::shared): `memory:`,
/// `sqlite:`, PostgreSQL, MySQL, and Redis or Valkey, also behind sentinels and in a cluster.
/// Others refuse readers ([`Unsupported`](ErrorKind::Unsupported)), as do strict servers, servers
/// that must confirm copies, and several servers as one store. They grant a writer as a mutex.
///
/// # Examples
///
/// A cache that many programs read, and that one of them rebuilds:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let cache = client.rwlock("cache");
///
/// let (one, other) = (cache.read().await?, cache.read().await?);
/// assert!(cache.try_write().await?.is_none(), "readers keep a writer out");
/// let _released = (one.release().await?, other.release().await?);
///
/// let writer = cache.write().await?;
/// // The cache is built again here. From now on, others may read it too.
/// let reader = cache.downgrade(writer).await?;
/// assert!(reader.is_held());
/// assert!(cache.try_read().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is locked"]
pub struct RwLock {
    reading: Locking,
    writing: Locking,
}

impl RwLock {
    pub(crate) fn new(writing: Locking) -> Self {
        // If tasks of one client passed the lease on, they would overtake readers that came before.
        let writing = writing.changed(|spec| spec.strict_fifo = true);
        let reading = writing.clone().changed(|spec| *spec = spec.shared());
        Self { reading, writing }
    }

    fn changed(self, change: impl Fn(Locking) -> Locking) -> Self {
        Self { reading: change(self.reading), writing: change(self.writing) }
    }

    /// Sets how long the store keeps the lock if this process dies. See
    /// [`Mutex::ttl`](crate::Mutex::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.changed(|locking| locking.ttl(ttl))
    }

    /// Adds a reason for people. See [`Mutex::why`](crate::Mutex::why).
    pub fn why(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.changed(|locking| locking.why(text.clone()))
    }

    /// Sets whether grants to writers carry fencing tokens. Default: on. Readers have none.
    pub fn fencing(self, on: bool) -> Self {
        let writing = self.writing.changed(|spec| spec.fencing = on);
        Self { writing, ..self }
    }

    /// Waits for the lock, to share it with other readers.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock`](crate::Mutex::lock). Also [`Unsupported`](ErrorKind::Unsupported) on
    /// a store that cannot share a lock, and [`Config`](ErrorKind::Config) if the name is in use as
    /// a semaphore.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases a grant that is under way.
    pub async fn read(&self) -> Result<Guard, Error> {
        self.reading.lock().await
    }

    /// Like [`read`](Self::read), if no writer holds the lock or waits for it. Otherwise returns
    /// `None` without waiting.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::try_lock`](crate::Mutex::try_lock) and [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is under way.
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.reading.try_lock().await
    }

    /// Like [`read`](Self::read), for at most `wait`.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock_timeout`](crate::Mutex::lock_timeout) and [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// Same as [`read`](Self::read).
    pub async fn read_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.reading.lock_timeout(wait).await
    }

    /// Waits for the lock, to have it alone.
    ///
    /// # Errors
    ///
    /// Same as [`read`](Self::read).
    ///
    /// # Cancel safety
    ///
    /// Same as [`read`](Self::read).
    pub async fn write(&self) -> Result<Guard, Error> {
        self.writing.lock().await
    }

    /// Like [`write`](Self::write), if nobody holds the lock or waits for it. Otherwise returns
    /// `None` without waiting.
    ///
    /// # Errors
    ///
    /// Same as [`try_read`](Self::try_read).
    ///
    /// # Cancel safety
    ///
    /// Same as [`try_read`](Self::try_read).
    pub async fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.writing.try_lock().await
    }

    /// Like [`write`](Self::write), for at most `wait`.
    ///
    /// # Errors
    ///
    /// Same as [`read_timeout`](Self::read_timeout).
    ///
    /// # Cancel safety
    ///
    /// Same as [`read`](Self::read).
    pub async fn write_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.writing.lock_timeout(wait).await
    }

    /// Refuses to make a reader a writer, and says why. Never waits. The guard stays as it is.
    ///
    /// Two readers that wait for each other to leave would wait for ever. Also, a writer in between
    /// may have changed the data that the reader has read. So release the reader, call
    /// [`write`](Self::write), and read again.
    ///
    /// # Errors
    ///
    /// Always [`Config`](ErrorKind::Config).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let cache = leasehold::Client::connect("memory:").await?.rwlock("cache");
    /// let reader = cache.read().await?;
    /// let error = cache.upgrade(&reader).unwrap_err();
    /// assert!(error.to_string().contains("would wait for each other"));
    /// assert!(reader.is_held());
    /// # Ok(()) }
    /// ```
    pub fn upgrade(&self, reader: &Guard) -> Result<Infallible, Error> {
        let now = if reader.is_held() {
            "the guard still has the lock as before"
        } else {
            "the guard has lost the lock"
        };
        let message = format!(
            "a reader cannot become a writer, since two readers that both want that would wait for \
             each other for ever; {now}; release it, call `write`, and read again"
        );
        self.writing.refused(ErrorKind::Config, message)
    }

    /// Makes a writer a reader, in one step, so that no other writer can come in between. Readers
    /// at the front of the line get the lock too. The new guard has a token of its own and no
    /// fencing token. If `writer` is the guard of a [`Mutex`](crate::Mutex) with bounds, such as
    /// [`min_hold`](crate::Mutex::min_hold), these count anew from now on.
    ///
    /// # Errors
    ///
    /// - [`Config`](ErrorKind::Config) for a guard of another name or another client, or of a
    ///   reader. It is released.
    /// - [`Lost`](ErrorKind::Lost) if the guard no longer holds the lock.
    /// - [`Unsupported`](ErrorKind::Unsupported) on a store that has no readers. The guard ends, as
    ///   if it were dropped.
    /// - Otherwise the error of the store if it gives no answer. Nothing is held then: the client
    ///   releases the lock in the background, also before the time of
    ///   [`min_hold`](crate::Mutex::min_hold) is over.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the lock, also before the time of `min_hold` is over.
    pub async fn downgrade(&self, writer: Guard) -> Result<Guard, Error> {
        let key = self.writing.key()?;
        if let Some(why) = writer.not_a_writer_of(self.writing.session(), key) {
            let message = format!(
                "the guard of `{}` {why}; it was released; pass a guard that the same client got \
                 from `write` for this lock",
                writer.name()
            );
            return self.writing.refused(ErrorKind::Config, message);
        }
        writer.downgrade().await
    }
}
