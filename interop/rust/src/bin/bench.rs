//! rslock and rlock in the bench. See `interop/README.md`.

use std::time::Duration;

use rlock::async_lock::{RLock, RLockGuard};
use rlock::{AcquireOptions, RenewalMode};
use rslock::{LockGuard, LockManager};

use self::orders::{Library, obey};

#[path = "../orders.rs"]
mod orders;

#[derive(Clone)]
struct Rslock {
    locks: LockManager,
    ttl: Duration,
}

impl Library for Rslock {
    type Held = LockGuard;

    async fn take(&self, key: &str) -> Result<LockGuard, String> {
        self.locks.acquire(key.as_bytes(), self.ttl).await.map_err(|error| error.to_string())
    }

    async fn release(held: LockGuard) -> Result<(), String> {
        held.release().await;
        Ok(())
    }
}

#[derive(Clone)]
struct Rlock {
    locks: RLock,
    options: AcquireOptions,
}

impl Library for Rlock {
    type Held = RLockGuard;

    async fn take(&self, key: &str) -> Result<RLockGuard, String> {
        let taken = self.locks.acquire_mutex_with_options(key, self.options.clone()).await;
        taken.map_err(|error| error.to_string())
    }

    async fn release(mut held: RLockGuard) -> Result<(), String> {
        held.release().await.map_err(|error| error.to_string())
    }
}

#[tokio::main]
async fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let usage = || "usage: bench LIBRARY ADDRESS TTL_MS POLL_MS".to_owned();
    let [library, address, ttl_ms, poll_ms] = args.as_slice() else { return Err(usage()) };
    let ms = |text: &String| text.parse().map(Duration::from_millis).map_err(|_| usage());
    // A poll of zero is the library's own pause.
    let (ttl, poll) = (ms(ttl_ms)?, ms(poll_ms)?);
    let urls: Vec<_> = address.split(',').map(|address| format!("redis://{address}")).collect();
    match library.as_str() {
        "rslock" => {
            let mut locks = LockManager::new(urls);
            if !poll.is_zero() {
                locks.set_retry(3, poll);
            }
            obey(Rslock { locks, ttl }).await
        }
        "rlock" => {
            let [url] = urls.as_slice() else { return Err("rlock has one server".to_owned()) };
            let locks = RLock::new(&**url).await.map_err(|error| error.to_string())?;
            let mut options = AcquireOptions::builder().ttl(ttl).renewal_mode(RenewalMode::Auto);
            if !poll.is_zero() {
                options = options.retry_interval(poll);
            }
            let options = options.build().map_err(|error| error.to_string())?;
            obey(Rlock { locks, options }).await
        }
        _ => Err(usage()),
    }
}
