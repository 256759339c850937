//! Many jobs need one of a few licences. Never more are in use than were paid for.
//!
//! A mutex would let one job run at a time. A semaphore lets as many run as there are licences, on
//! all hosts together.
//!
//! ```sh
//! cargo run -p leasehold --example licences
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Client, Error};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// The vendor's view: how many licences are in use, and the most at a time.
#[derive(Default)]
struct Vendor {
    in_use: AtomicUsize,
    most: AtomicUsize,
}

impl Vendor {
    /// Uses a licence until as many jobs use licences as the barrier `together` waits for.
    async fn simulate(&self, together: &Barrier) {
        let in_use = self.in_use.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(in_use, Ordering::SeqCst);
        together.wait().await;
        for _ in 0..1_000 {
            tokio::task::yield_now().await; // Other jobs run meanwhile.
        }
        self.in_use.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

/// Runs `rounds` jobs for each licence, each on a host of its own. Returns how many licences were
/// in use at most.
pub async fn run_with_permits(url: &str, licences: u32, rounds: u32) -> Result<usize, Error> {
    let vendor = Arc::<Vendor>::default();
    let together = Arc::new(Barrier::new(licences as usize));
    let mut jobs = JoinSet::new();
    for job in 0..licences * rounds {
        let client = Client::connect(url).await?;
        let permits = client.semaphore("licences:solver", licences).why(format!("job {job}"));
        let (vendor, together) = (Arc::clone(&vendor), Arc::clone(&together));
        jobs.spawn(async move {
            let guard = permits.acquire().await?;
            vendor.simulate(&together).await;
            // If this host died here, its licence would be free after the ttl.
            guard.release().await
        });
    }
    while let Some(job) = jobs.join_next().await {
        let _released = job.expect("no job panics")?;
    }
    Ok(vendor.most())
}

/// Runs jobs without permits. Returns how many licences were in use at most.
pub async fn run_without_permits(jobs: usize) -> usize {
    let vendor = Arc::<Vendor>::default();
    let together = Arc::new(Barrier::new(jobs));
    let mut running = JoinSet::new();
    for _ in 0..jobs {
        let (vendor, together) = (Arc::clone(&vendor), Arc::clone(&together));
        running.spawn(async move { vendor.simulate(&together).await });
    }
    running.join_all().await;
    vendor.most()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    let most = run_with_permits(&url, 3, 4).await?;
    println!("with permits:    12 jobs used {most} of 3 licences at a time");
    println!("without permits: 12 jobs used {} at a time", run_without_permits(12).await);
    Ok(())
}
