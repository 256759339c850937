//! The types of `leasehold-compat`, each used as its original is.

use std::time::Duration;

use leasehold::store::RedisStore;
use leasehold_compat::{gozero, jedis, redsync};

use super::orders::Library;
use super::was_held;

/// The pause between two tries, where the type has none of its own.
const TRIES_EVERY: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(super) struct GoZero {
    pub(super) store: RedisStore,
    pub(super) ttl: Duration,
}

impl Library for GoZero {
    type Held = gozero::RedisLock<RedisStore>;

    async fn take(&self, key: &str) -> Result<Self::Held, String> {
        let lock = gozero::RedisLock::new(self.store.clone(), key);
        lock.set_expire(u32::try_from(self.ttl.as_secs()).unwrap_or(u32::MAX));
        while !lock.acquire().await.map_err(|error| error.to_string())? {
            tokio::time::sleep(TRIES_EVERY).await;
        }
        Ok(lock)
    }

    async fn release(held: Self::Held) -> Result<(), String> {
        was_held(held.release().await.map_err(|error| error.to_string())?)
    }
}

/// Its ttl is always five seconds.
#[derive(Clone)]
pub(super) struct Jedis {
    pub(super) store: RedisStore,
}

impl Library for Jedis {
    type Held = (jedis::RedisDistributedLock<RedisStore>, String);

    async fn take(&self, key: &str) -> Result<Self::Held, String> {
        let lock = jedis::RedisDistributedLock::new(self.store.clone(), key);
        loop {
            // It gives up after a second.
            if let Some(value) = lock.lock().await.map_err(|error| error.to_string())? {
                return Ok((lock, value));
            }
        }
    }

    async fn release((lock, value): Self::Held) -> Result<(), String> {
        was_held(lock.release(&value).await.map_err(|error| error.to_string())?)
    }
}

#[derive(Clone)]
pub(super) struct Redsync {
    pub(super) store: RedisStore,
    pub(super) ttl: Duration,
}

impl Library for Redsync {
    type Held = redsync::Mutex<RedisStore>;

    async fn take(&self, key: &str) -> Result<Self::Held, String> {
        let locks = redsync::Redsync::new([self.store.clone()]);
        // By default it gives up after 32 tries.
        let mutex = locks.new_mutex(key).with_expiry(self.ttl).with_tries(u32::MAX);
        mutex.lock().await.map_err(|error| error.to_string())?;
        Ok(mutex)
    }

    async fn release(held: Self::Held) -> Result<(), String> {
        was_held(held.unlock().await.map_err(|error| error.to_string())?)
    }
}
