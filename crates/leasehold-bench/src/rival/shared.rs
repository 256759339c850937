//! Locks that several clients may have at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Guard};

use super::orders::Library;
use super::release;

/// One of this many locks is a writer's, as in the programs of other libraries.
const ONE_WRITER_IN: u64 = 10;

/// How many permits each key has, as in the programs of other libraries.
const PERMITS: u32 = 10;

/// Read-write locks.
#[derive(Clone)]
pub(super) struct Readers {
    client: Client,
    ttl: Duration,
    taken: Arc<AtomicU64>,
}

impl Readers {
    pub(super) fn of(client: Client, ttl: Duration) -> Self {
        Self { client, ttl, taken: Arc::default() }
    }
}

impl Library for Readers {
    type Held = Guard;

    async fn take(&self, key: &str) -> Result<Guard, String> {
        let lock = self.client.rwlock(key).ttl(self.ttl);
        let number = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        let taken = if number.is_multiple_of(ONE_WRITER_IN) {
            lock.write().await
        } else {
            lock.read().await
        };
        taken.map_err(|error| error.to_string())
    }

    async fn release(held: Guard) -> Result<(), String> {
        release(held).await
    }
}

/// Semaphores.
#[derive(Clone)]
pub(super) struct Permits {
    pub(super) client: Client,
    pub(super) ttl: Duration,
}

impl Library for Permits {
    type Held = Guard;

    async fn take(&self, key: &str) -> Result<Guard, String> {
        let semaphore = self.client.semaphore(key, PERMITS).ttl(self.ttl);
        semaphore.acquire().await.map_err(|error| error.to_string())
    }

    async fn release(held: Guard) -> Result<(), String> {
        release(held).await
    }
}
