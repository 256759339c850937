//! go-zero's `RedisLock` (`core/stores/redis`).
//!
//! | there | here |
//! |---|---|
//! | `NewRedisLock(store, key)` | [`RedisLock::new`]`(store, key)` |
//! | `SetExpire(seconds)` | [`set_expire`](RedisLock::set_expire)`(seconds)` |
//! | `Acquire()`, `AcquireCtx(ctx)` | [`acquire`](RedisLock::acquire), [`acquire_within`](RedisLock::acquire_within) |
//! | `Release()`, `ReleaseCtx(ctx)` | [`release`](RedisLock::release), [`release_within`](RedisLock::release_within) |
//!
//! | | free | held by this object | held by another |
//! |---|---|---|---|
//! | acquire | `true`, it is ours | `true`, its ttl starts anew | `false` |
//! | release | `false` | `true`, it is free | `false`, it stays theirs |
//!
//! # Use [`leasehold::Mutex`] instead
//!
//! As there, nothing is renewed: work that takes longer than the ttl goes on unprotected, and
//! acquiring again after the ttl takes the key anew without a word about the gap. An object that
//! two tasks share tells both of them `true`. There is no count: one release ends what was acquired
//! twice. Without [`set_expire`](RedisLock::set_expire) the lock lasts for half a second. `Mutex`
//! renews, waits, says when the lock is lost and gives every task an owner of its own. Move a key
//! by locking it with `client.mutex(key).coexist()`, process by process: both contend on it.
//!
//! # What differs
//!
//! Beside [what differs from all](crate#what-differs-from-all-namesakes): the value is drawn from
//! the system's random source and not from a clock; there is no circuit breaker, so that no release
//! is refused for the failures of others; nothing is sent again by itself, but repeating a call is
//! harmless; and a timeout takes the place of a context, which ends the wait for an answer also
//! where the connection hangs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::Store;
use leasehold::{Error, OwnerToken, Ttl};

use crate::lock::Lock;
use crate::value::letters_and_digits;

/// What is added to the seconds.
const TOLERANCE: Duration = Duration::from_millis(500);

/// How many characters the value has.
const ID_CHARS: usize = 16;

/// A lock on one key, tried without waiting.
///
/// Its value is drawn once: the object is the owner, for as long as it lives.
///
/// ```no_run
/// # async fn run() -> Result<(), leasehold::Error> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::RedisStore;
/// use leasehold_compat::gozero::RedisLock;
///
/// let store = RedisStore::connect("redis://localhost", SystemHost::shared()).await?;
/// let lock = RedisLock::new(store.clone(), "report:daily");
/// lock.set_expire(60);
/// if lock.acquire().await? {
///     // The report is made here, in less than a minute.
///     lock.release().await?;
/// }
/// # Ok(()) }
/// ```
pub struct RedisLock<S> {
    lock: Lock<S>,
    id: OwnerToken,
    seconds: AtomicU32,
}

impl<S: Store> RedisLock<S> {
    /// A lock on `key`, which is written to the store as it is. Nothing is asked yet.
    pub fn new(store: S, key: impl AsRef<str>) -> Self {
        Self::of(Lock::new(store, key.as_ref()))
    }

    /// As [`new`](Self::new), with time and randomness of that host, for instance a virtual one in
    /// tests.
    pub fn new_on(store: S, key: impl AsRef<str>, host: Arc<dyn Host>) -> Self {
        Self::of(Lock::new(store, key.as_ref()).on(host))
    }

    fn of(lock: Lock<S>) -> Self {
        let id = letters_and_digits(lock.host(), ID_CHARS);
        Self { lock, id, seconds: AtomicU32::new(0) }
    }

    /// Sets how long the key lasts from the next [`acquire`](Self::acquire) on: so many seconds and
    /// half a second more. Default: 0, which leaves half a second. More than 86 399 are refused by
    /// the next `acquire`.
    pub fn set_expire(&self, seconds: u32) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    /// Takes the key if it is free; if it is this object's already, its ttl starts anew. `false`:
    /// another has it.
    ///
    /// # Errors
    ///
    /// [`Config`](leasehold::ErrorKind::Config) for a bad key or ttl, or a quorum; whatever the
    /// store says if it could not be asked, and
    /// [`Unavailable`](leasehold::ErrorKind::Unavailable) also if it may have forgotten who has the
    /// key. After [`Unknown`](leasehold::ErrorKind::Unknown) the key may be ours: acquire again, or
    /// release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer: as after `Unknown`.
    pub async fn acquire(&self) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        self.lock.acquire(&self.id, ttl).await
    }

    /// As [`acquire`](Self::acquire), and waits for the answer for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there; [`Unavailable`](leasehold::ErrorKind::Unavailable) for a timeout of zero, which
    /// has elapsed: nothing was asked then. [`Unknown`](leasehold::ErrorKind::Unknown) if it
    /// elapses before the answer.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn acquire_within(&self, timeout: Duration) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        self.lock.within(timeout, || self.lock.acquire(&self.id, ttl)).await
    }

    /// Frees the key if it is this object's. `false`: it was not, and is as it was.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire). After [`Unknown`](leasehold::ErrorKind::Unknown) it may be
    /// free; releasing again is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer; the key is freed all the same if the server can be
    /// reached.
    pub async fn release(&self) -> Result<bool, Error> {
        self.lock.release(&self.id).await
    }

    /// As [`release`](Self::release), and waits for the answer for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there, and as [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn release_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.lock.within(timeout, || self.lock.release(&self.id)).await
    }

    fn ttl(&self) -> Result<Ttl, Error> {
        let seconds = self.seconds.load(Ordering::Relaxed);
        Ttl::new(Duration::from_secs(seconds.into()) + TOLERANCE)
    }
}

impl<S> fmt::Debug for RedisLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLock")
            .field("key", &self.lock)
            .field("id", &self.id)
            .field("seconds", &self.seconds)
            .finish()
    }
}
