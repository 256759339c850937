//! The same cron job starts on every host. One of them runs it.
//!
//! The name of the lock contains the minute. The winner does not release the lock but lets its ttl
//! end. So a host with a late clock still finds it taken after the work is done.

use std::time::Duration;

use leasehold::{Client, Error};
use tokio::task::JoinSet;

/// How far the clocks of the hosts may be apart.
const SPREAD: Duration = Duration::from_secs(60);

/// Runs the job on one host. Returns whether this host did it.
async fn run_job(client: &Client, minute: &str) -> Result<bool, Error> {
    let mutex = client.mutex(format!("cron:report:{minute}")).ttl(SPREAD).why("nightly report");
    let Some(guard) = mutex.try_lock().await? else { return Ok(false) };
    tokio::task::yield_now().await; // The report is made here.
    let _token = guard.detach();
    Ok(true)
}

/// Starts the job on `hosts` hosts, and once more on a late one. Returns how many ran it.
pub async fn start_everywhere(url: &str, hosts: usize) -> Result<usize, Error> {
    let mut jobs = JoinSet::new();
    for _ in 0..hosts {
        let client = Client::connect(url).await?;
        jobs.spawn(async move { run_job(&client, "2026-11-20T03:00").await });
    }
    let mut ran = 0;
    while let Some(job) = jobs.join_next().await {
        ran += usize::from(job.expect("no job panics")?);
    }
    let late = Client::connect(url).await?;
    ran += usize::from(run_job(&late, "2026-11-20T03:00").await?);
    Ok(ran)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = tempfile::tempdir()?;
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()));
    println!(
        "started on 5 hosts and late on a sixth, the job ran {} time",
        start_everywhere(&url, 5).await?
    );
    Ok(())
}
