//! Servers read a certificate and its key while somebody renews both. No server gets a mixed pair.
//!
//! The readers share the lock, so they do not wait for one another. The writer has it alone.
//!
//! ```sh
//! cargo run -p leasehold --example certificate
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use leasehold::{Client, Error, RwLock};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Two files that belong together. Each has the number of its version.
#[derive(Default)]
struct Files {
    certificate: AtomicU64,
    key: AtomicU64,
}

impl Files {
    /// Writes both, one after the other.
    async fn write(&self, version: u64) {
        self.certificate.store(version, Ordering::SeqCst);
        slow_disk().await;
        self.key.store(version, Ordering::SeqCst);
    }

    /// Reads both, one after the other. Returns whether they belong together.
    async fn fit(&self) -> bool {
        let certificate = self.certificate.load(Ordering::SeqCst);
        slow_disk().await;
        certificate == self.key.load(Ordering::SeqCst)
    }
}

/// Takes as long as a slow disk. Other tasks run meanwhile.
async fn slow_disk() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Reads until the last renewal is done. Returns how many of the pairs did not fit.
async fn serve(
    lock: RwLock,
    files: Arc<Files>,
    all_read: Arc<Barrier>,
    done: Arc<AtomicBool>,
) -> Result<usize, Error> {
    let guard = lock.read().await?;
    all_read.wait().await; // Every server is here at the same time: readers share the lock.
    let _released = guard.release().await?;
    let mut mixed = 0;
    while !done.load(Ordering::SeqCst) {
        let guard = lock.read().await?;
        mixed += usize::from(!files.fit().await);
        let _released = guard.release().await?;
    }
    Ok(mixed)
}

/// Lets some servers read while the pair is renewed some times. Returns how many mixed pairs they
/// got.
pub async fn renew_with_lock(url: &str, servers: usize, renewals: u64) -> Result<usize, Error> {
    let (files, done) = (Arc::<Files>::default(), Arc::<AtomicBool>::default());
    let all_read = Arc::new(Barrier::new(servers + 1));
    let mut serving = JoinSet::new();
    for _ in 0..servers {
        let lock = Client::connect(url).await?.rwlock("certificate");
        serving.spawn(serve(lock, files.clone(), all_read.clone(), done.clone()));
    }
    all_read.wait().await;
    let lock = Client::connect(url).await?.rwlock("certificate").why("renewal");
    for version in 1..=renewals {
        let guard = lock.write().await?;
        files.write(version).await;
        let _released = guard.release().await?;
    }
    done.store(true, Ordering::SeqCst);
    let mut mixed = 0;
    while let Some(server) = serving.join_next().await {
        mixed += server.expect("no server panics")?;
    }
    Ok(mixed)
}

/// Does the same without the lock: a server reads between the two steps of a renewal. Returns
/// whether its pair fits.
pub async fn renew_without_lock() -> bool {
    let files = Files::default();
    files.certificate.store(1, Ordering::SeqCst);
    let fits = files.fit().await;
    files.key.store(1, Ordering::SeqCst);
    fits
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    println!("with the lock:    {} mixed pairs", renew_with_lock(&url, 4, 20).await?);
    let fits = renew_without_lock().await;
    println!("without the lock: {}", if fits { "a pair that fits" } else { "a mixed pair" });
    Ok(())
}
