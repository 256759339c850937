//! Data that only a guard reaches.

use std::fmt;
use std::time::Duration;

use tokio::sync::{Mutex as LocalMutex, MutexGuard};

use crate::core::error::{Error, ErrorKind};
use crate::guard::{Guard, Release};
use crate::mutex::Mutex;
use crate::session::{Wait, closed_meanwhile, lost_error};

/// Data of this process behind a lock that works across processes. Only the holder reaches it. It
/// may be a file handle, an account at a partner or a connection.
///
/// The compiler refuses to touch the data without the lock, as with [`std::sync::Mutex`]. But this
/// lock can be lost. So a reference from [`lock`](Self::lock) gives no permanent access to the
/// data. Each [`get`](GuardedRef::get) and [`get_mut`](GuardedRef::get_mut) checks first whether
/// the lock is held, and fails if it is not. The check costs no request.
///
/// This does not protect the data of other processes, since each process has its own. Also, a
/// process may be paused between the check and the use. Where a late write does harm, pass
/// [`fencing_token`](Guard::fencing_token) along, see [`fence`](crate::fence).
///
/// In this process, one task at a time has the data. The next task waits until the reference is
/// dropped, even if its lock was lost. Each task asks the store again. To save these requests, keep
/// the lock [idle](Mutex::keep_idle).
///
/// # Examples
///
/// ```
/// use leasehold::{Client, Error, Guarded, Release};
///
/// struct Ledger(Vec<u32>);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = Client::connect("memory:").await?;
/// let ledger = Guarded::new(client.mutex("ledger"), Ledger(Vec::new()));
/// let mut held = ledger.lock().await?;
/// held.get_mut()?.0.push(100);
/// assert_eq!(held.get()?.0, [100]);
/// assert_eq!(held.release().await?, Release::Released);
/// # Ok(()) }
/// ```
///
/// Without `async`:
///
/// ```
/// use leasehold::blocking::block_on;
/// use leasehold::{Client, Guarded};
///
/// # fn main() -> Result<(), leasehold::Error> {
/// let client = block_on(Client::connect("memory:"))?;
/// let stock = Guarded::new(client.mutex("stock"), 3);
/// *block_on(stock.lock())?.get_mut()? -= 1;
/// assert_eq!(stock.into_inner(), 2);
/// # Ok(()) }
/// ```
pub struct Guarded<T> {
    mutex: Mutex,
    value: LocalMutex<T>,
}

impl<T> Guarded<T> {
    /// Puts `value` behind the lock. Sends no request.
    pub fn new(mutex: Mutex, value: T) -> Self {
        Self { mutex, value: LocalMutex::new(value) }
    }

    /// Waits for the data and for the lock.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Mutex::lock`]: dropping the future leaves the line, and releases a grant that is
    /// under way.
    pub async fn lock(&self) -> Result<GuardedRef<'_, T>, Error> {
        self.lock_until(Wait::ForEver).await
    }

    /// Returns `None` if another task of this process has the data, or if another client has the
    /// lock. Never waits.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::try_lock`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is under way.
    pub async fn try_lock(&self) -> Result<Option<GuardedRef<'_, T>>, Error> {
        self.mutex.locking().check()?;
        let Ok(value) = self.value.try_lock() else { return Ok(None) };
        let guard = self.mutex.try_lock().await?;
        Ok(guard.map(|guard| GuardedRef { guard, value }))
    }

    /// Waits for the data and for the lock, for at most `wait` together.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock_timeout`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<GuardedRef<'_, T>, Error> {
        self.lock_until(Wait::Until(self.mutex.locking().session().now() + wait)).await
    }

    async fn lock_until(&self, wait: Wait) -> Result<GuardedRef<'_, T>, Error> {
        let locking = self.mutex.locking();
        locking.check()?;
        let (session, key) = (locking.session(), locking.key()?);
        let value = tokio::select! {
            biased;
            value = self.value.lock() => Ok(value),
            // The task that has the data may wait for a store that does not answer.
            () = session.sleep(wait) => Err(session.outage(key).unwrap_or_else(data_stayed_taken)),
            // The task that has the data may never give it back.
            () = session.until_closed() => Err(closed_meanwhile()),
        };
        let value = locking.named(value)?;
        let guard = locking.wait(wait).await?;
        Ok(GuardedRef { guard, value })
    }

    /// The data, without the lock. Nobody else in this process can reach it any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

fn data_stayed_taken() -> Error {
    Error::new(
        ErrorKind::WaitElapsed,
        "another task of this process had the data until the wait ended; nothing was acquired; \
         wait longer or try again later",
    )
}

impl<T> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Leave the data out, since it may be in use.
        f.debug_struct("Guarded").field("mutex", &self.mutex).finish_non_exhaustive()
    }
}

/// The data of a [`Guarded`], while its lock is held. Dropping it releases the lock.
#[must_use = "dropping it releases the lock"]
#[clippy::has_significant_drop]
pub struct GuardedRef<'a, T> {
    /// Dropped first, so that its release goes out before the next task of this process asks.
    guard: Guard,
    value: MutexGuard<'a, T>,
}

impl<T> GuardedRef<'_, T> {
    /// The data, if the lock is held now.
    ///
    /// # Errors
    ///
    /// [`Lost`](ErrorKind::Lost) if the lock is not held any more. Stop the work, and do not trust
    /// what it read before.
    pub fn get(&self) -> Result<&T, Error> {
        self.check()?;
        Ok(&self.value)
    }

    /// Like [`get`](Self::get), to change the data.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn get_mut(&mut self) -> Result<&mut T, Error> {
        self.check()?;
        Ok(&mut self.value)
    }

    /// The guard of the lock.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Releases the lock, and waits until the store confirms it.
    ///
    /// # Errors
    ///
    /// Same as [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::release`].
    pub async fn release(self) -> Result<Release, Error> {
        let Self { guard, value } = self;
        let released = guard.release().await;
        drop(value);
        released
    }

    fn check(&self) -> Result<(), Error> {
        if self.guard.is_held() {
            return Ok(());
        }
        Err(lost_error(self.guard.why_lost()).about(self.guard.name()))
    }
}

impl<T> fmt::Debug for GuardedRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedRef").field("guard", &self.guard).finish_non_exhaustive()
    }
}
