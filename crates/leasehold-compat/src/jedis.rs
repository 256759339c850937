//! The lock recipe that many Java programs have around Jedis, often as `RedisDistributedLock`.
//!
//! | there | here |
//! |---|---|
//! | `new RedisDistributedLock(jedis, key)` | [`RedisDistributedLock::new`]`(store, key)` |
//! | `String value = lock.lock()`, `null` if it is taken | [`lock`](RedisDistributedLock::lock), `None` |
//! | `lock.release(value)` | [`release`](RedisDistributedLock::release)`(&value)` |
//!
//! On the server: `SET key value NX PX 5000` with a random UUID as the value, and a script that
//! compares before it deletes.
//!
//! # Use [`leasehold::Mutex`] instead
//!
//! As there, nothing is renewed: after five seconds the key is free, however long the work takes,
//! and nobody is told. Who waits asks every 10 ms, up to a hundred times, and is served in no
//! order. `Mutex` renews, is told when the key is free, says when the lock is lost and gives a
//! number for what must refuse a late write. Move a key by locking it with
//! `client.mutex(key).coexist()`, process by process: both contend on it.
//!
//! # What differs
//!
//! Beside [what differs from all](crate#what-differs-from-all-namesakes): an answer that was lost
//! leaves no key behind that nobody knows the value of, since the call gives back what it may have
//! got, also when its future is dropped.

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

/// For how long a lock is tried.
const WAIT: Duration = Duration::from_secs(1);

/// How long one waits between two tries.
const TRIES_EVERY: Duration = Duration::from_millis(10);

/// A lock on one key, for five seconds.
///
/// It has no state: every [`lock`](Self::lock) is an owner of its own.
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
    /// A lock on `key`, which is written to the store as it is. Nothing is asked yet.
    pub fn new(store: S, key: impl AsRef<str>) -> Self {
        Self { lock: Lock::new(store, key.as_ref()) }
    }

    /// As [`new`](Self::new), with time and randomness of that host, for instance a virtual one in
    /// tests.
    pub fn new_on(store: S, key: impl AsRef<str>, host: Arc<dyn Host>) -> Self {
        Self { lock: Lock::new(store, key.as_ref()).on(host) }
    }

    /// Takes the key for five seconds. While another has it, tries again every 10 ms, for a second
    /// in all. Returns the value that [`release`](Self::release) takes, or `None` if another had it
    /// all the while.
    ///
    /// # Errors
    ///
    /// [`Config`](leasehold::ErrorKind::Config) for a bad key or a quorum; whatever the store says
    /// if it could not be asked, and [`Unavailable`](leasehold::ErrorKind::Unavailable), at once,
    /// also if it may have forgotten who has the key. What may have been taken is given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what it may have taken.
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

    /// Frees the key if it holds that value. `false`: it does not, and is as it was.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock). After [`Unknown`](leasehold::ErrorKind::Unknown) it may be free;
    /// releasing again is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer; the key is freed all the same if the server can be
    /// reached.
    pub async fn release(&self, value: &str) -> Result<bool, Error> {
        // What can be no value of ours is not compared.
        let Ok(owner) = OwnerToken::new(value) else { return Ok(false) };
        self.lock.release(&owner).await
    }
}

/// A value by which the store was asked. Dropped, it gives back what it may have got.
struct Tried<'a, S: Store> {
    lock: &'a Lock<S>,
    value: OwnerToken,
    may_hold: bool,
}

impl<S: Store> Drop for Tried<'_, S> {
    fn drop(&mut self) {
        if self.may_hold {
            // On its way behind the ask when this returns. If it is lost too, the key ends by
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
