//! go-zero's `RedisLock` (`core/stores/redis`).
//!
//! | go-zero | here |
//! |---|---|
//! | `NewRedisLock(store, key)` | [`RedisLock::new`]`(store, key)` |
//! | `SetExpire(seconds)` | [`set_expire`](RedisLock::set_expire)`(seconds)` |
//! | `Acquire()` | [`acquire`](RedisLock::acquire) |
//! | `AcquireCtx(ctx)` | [`acquire_within`](RedisLock::acquire_within) |
//! | `Release()` | [`release`](RedisLock::release) |
//! | `ReleaseCtx(ctx)` | [`release_within`](RedisLock::release_within) |
//!
//! | | free | held by this object | held by another |
//! |---|---|---|---|
//! | acquire | `true`, it is ours | `true`, its ttl restarts | `false` |
//! | release | `false` | `true`, it is free | `false`, it stays theirs |
//!
//! # Use [`leasehold::Mutex`] instead
//!
//! Like go-zero, this type renews nothing. Work that takes longer than the ttl continues
//! unprotected. Acquiring again after the ttl takes the key again and does not report the gap. If
//! two tasks share an object, both get `true`. Nothing is counted, so one release ends what was
//! acquired twice. Without [`set_expire`](RedisLock::set_expire) the lock lasts for half a second.
//!
//! `Mutex` renews, waits, tells when the lock is lost, and gives every task its own owner. To move,
//! lock the key with `client.mutex(key)`, process by process: both kinds contend for the same key.
//!
//! # What differs
//!
//! Besides [what differs from all](crate#what-differs-from-all-namesakes):
//!
//! - The value comes from the system's random source and not from a clock.
//! - There is no circuit breaker, so no release is refused because of other failures.
//! - Nothing is sent again automatically, but repeating a call is harmless.
//! - A timeout replaces the context. It ends the wait for an answer even if the connection hangs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::Store;
use leasehold::{Error, OwnerToken, Ttl};

use crate::lock::Lock;
use crate::value::letters_and_digits;

/// Added to the seconds.
const TOLERANCE: Duration = Duration::from_millis(500);

/// The length of the value in characters.
const ID_CHARS: usize = 16;

/// A lock on one key, acquired without waiting.
///
/// Its value is drawn once, so the object is the owner as long as it lives.
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
    /// Makes a lock on `key`, which is the exact key in the store. Sends no request.
    pub fn new(store: S, key: impl AsRef<str>) -> Self {
        Self::of(Lock::new(store, key.as_ref()))
    }

    /// Like [`new`](Self::new), with the time and randomness of `host`, for example a virtual one
    /// in tests.
    pub fn new_on(store: S, key: impl AsRef<str>, host: Arc<dyn Host>) -> Self {
        Self::of(Lock::new(store, key.as_ref()).on(host))
    }

    fn of(lock: Lock<S>) -> Self {
        let id = letters_and_digits(lock.host(), ID_CHARS);
        Self { lock, id, seconds: AtomicU32::new(0) }
    }

    /// Sets how long the key lasts after the next [`acquire`](Self::acquire): this many seconds
    /// plus half a second. Default: 0, so half a second. The next `acquire` refuses more than
    /// 86 399.
    pub fn set_expire(&self, seconds: u32) {
        self.seconds.store(seconds, Ordering::Relaxed);
    }

    /// Acquires the key if it is free. If this object already holds it, restarts its ttl. Returns
    /// `false` if another client holds it.
    ///
    /// # Errors
    ///
    /// - [`Config`](leasehold::ErrorKind::Config) for a bad key or ttl, or for a quorum.
    /// - [`Unavailable`](leasehold::ErrorKind::Unavailable) also if the store may have forgotten
    ///   who holds the key.
    /// - Otherwise the error of the store if it gives no answer. After
    ///   [`Unknown`](leasehold::ErrorKind::Unknown) the key may be ours. Acquire again, or release.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer, as after `Unknown`.
    pub async fn acquire(&self) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        self.lock.acquire(&self.id, ttl).await
    }

    /// Like [`acquire`](Self::acquire), but waits at most `timeout` for the answer.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire). Also [`Unavailable`](leasehold::ErrorKind::Unavailable)
    /// for a timeout of zero, without a request, and [`Unknown`](leasehold::ErrorKind::Unknown) if
    /// the timeout ends before the answer.
    ///
    /// # Cancel safety
    ///
    /// Same as [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<bool, Error> {
        let ttl = self.ttl()?;
        self.lock.within(timeout, || self.lock.acquire(&self.id, ttl)).await
    }

    /// Frees the key if this object holds it. Otherwise returns `false` and changes nothing.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire). After [`Unknown`](leasehold::ErrorKind::Unknown) the key
    /// may be free. Releasing again is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The key is still freed if the server can be reached.
    pub async fn release(&self) -> Result<bool, Error> {
        self.lock.release(&self.id).await
    }

    /// Like [`release`](Self::release), but waits at most `timeout` for the answer.
    ///
    /// # Errors
    ///
    /// Same as [`release`](Self::release) and [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    ///
    /// Same as [`release`](Self::release).
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
