//! The lock recipe of many Java programs that use Jedis, often named `RedisDistributedLock`.
//!
//! | Java | here |
//! |---|---|
//! | `new RedisDistributedLock(jedis, key)` | [`RedisDistributedLock::new`]`(store, key)` |
//! | `String value = lock.lock()` | [`lock`](RedisDistributedLock::lock) |
//! | `null` if it is taken | `None` |
//! | `lock.release(value)` | [`release`](RedisDistributedLock::release)`(&value)` |
//!
//! On the server: `SET key value NX PX 5000` with a random UUID as the value, and a script that
//! compares before it deletes.
//!
//! # Use [`leasehold::Mutex`] instead
//!
//! Like the recipe, this type renews nothing. The key is free after five seconds, however long the
//! work takes, and nobody is told. A waiter polls every 10 ms, up to a hundred times, and there is
//! no order among waiters.
//!
//! `Mutex` renews, wakes waiters when the key is free, tells when the lock is lost, and provides a
//! fencing token against late writes. To move, lock the key with `client.mutex(key)`, process by
//! process: both kinds contend for the same key.
//!
//! # What differs
//!
//! Besides [what differs from all](crate#what-differs-from-all-namesakes): a lost answer leaves no
//! key with an unknown value behind. The call releases a possible grant, even if its future is
//! dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::Store;
use leasehold::{Error, OwnerToken, Ttl};

use crate::lock::Lock;
use crate::value::uuid_v4;

/// How long the key lasts.
const TTL: Duration = Duration::from_secs(5);

/// How long to try.
const WAIT: Duration = Duration::from_secs(1);

/// The pause between two tries.
const TRIES_EVERY: Duration = Duration::from_millis(10);

/// A lock on one key, for five seconds.
///
/// It has no state, since every [`lock`](Self::lock) has its own owner.
///
/// ```no_run
/// # async fn run() -> Result<(), leasehold::Error> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::RedisStore;
/// use leasehold_compat::jedis::RedisDistributedLock;
///
/// let store = RedisStore::connect("redis://localhost", SystemHost::shared()).await?;
/// let lock = RedisDistributedLock::new(store.clone(), "stock:42");
/// if let Some(value) = lock.lock().await? {
///     // The stock is counted here, in less than five seconds.
///     lock.release(&value).await?;
/// }
/// # Ok(()) }
/// ```
pub struct RedisDistributedLock<S> {
    lock: Lock<S>,
}

impl<S: Store> RedisDistributedLock<S> {
    /// Makes a lock on `key`, which is the exact key in the store. Sends no request.
    pub fn new(store: S, key: impl AsRef<str>) -> Self {
        Self { lock: Lock::new(store, key.as_ref()) }
    }

    /// Like [`new`](Self::new), with the time and randomness of `host`, for example a virtual one
    /// in tests.
    pub fn new_on(store: S, key: impl AsRef<str>, host: Arc<dyn Host>) -> Self {
        Self { lock: Lock::new(store, key.as_ref()).on(host) }
    }

    /// Acquires the key for five seconds. While another client holds it, tries again every 10 ms,
    /// for a second in all. Returns the value for [`release`](Self::release), or `None` if another
    /// client held the key all the time.
    ///
    /// # Errors
    ///
    /// - [`Config`](leasehold::ErrorKind::Config) for a bad key or a quorum.
    /// - [`Unavailable`](leasehold::ErrorKind::Unavailable), at once, also if the store may have
    ///   forgotten who holds the key.
    /// - Otherwise the error of the store if it gives no answer. The call releases a possible
    ///   grant.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a possible grant.
    pub async fn lock(&self) -> Result<Option<String>, Error> {
        let host = self.lock.host();
        let ttl = Ttl::new(TTL)?;
        let until = host.now() + WAIT;
        let mut tried = Tried { lock: &self.lock, value: uuid_v4(host), may_hold: false };
        while host.now() < until {
            tried.may_hold = true;
            let has_it = self.lock.acquire(&tried.value, ttl).await?;
            tried.may_hold = false;
            if has_it {
                return Ok(Some(tried.value.as_str().to_owned()));
            }
            host.sleep_until(host.now() + TRIES_EVERY).await;
        }
        Ok(None)
    }

    /// Frees the key if it holds that value. Otherwise returns `false` and changes nothing.
    ///
    /// # Errors
    ///
    /// Same as [`lock`](Self::lock). After [`Unknown`](leasehold::ErrorKind::Unknown) the key may
    /// be free. Releasing again is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The key is still freed if the server can be reached.
    pub async fn release(&self, value: &str) -> Result<bool, Error> {
        // A text that is not a token is none of our values.
        let Ok(owner) = OwnerToken::new(value) else { return Ok(false) };
        self.lock.release(&owner).await
    }
}

/// A value with which the store was asked. Dropping it releases a possible grant.
struct Tried<'a, S: Store> {
    lock: &'a Lock<S>,
    value: OwnerToken,
    may_hold: bool,
}

impl<S: Store> Drop for Tried<'_, S> {
    fn drop(&mut self) {
        if self.may_hold {
            // The release is sent after the ask. If the release gets lost too, the key ends by
            // itself.
            drop(self.lock.release(&self.value));
        }
    }
}

impl<S> fmt::Debug for RedisDistributedLock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisDistributedLock").field("key", &self.lock).finish()
    }
}
