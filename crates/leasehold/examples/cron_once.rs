//! The same cron job starts on every host. One of them runs it, once per period.
//!
//! The lock stays taken after the work is done. So a host with a late clock does not do it again.

use std::time::Duration;

use leasehold::{Client, Error};
use tokio::task::JoinSet;

/// A little less than the hour between two starts.
const PERIOD: Duration = Duration::from_mins(55);

/// Runs the job on one host. Returns whether this host did it.
async fn run_job(client: &Client) -> Result<bool, Error> {
    let report = client.once("cron:report", PERIOD).why("hourly report");
    let Some(run) = report.start().await? else { return Ok(false) };
    tokio::task::yield_now().await; // The report is made here.
    run.done().await?;
    Ok(true)
}

/// Starts the job on `hosts` hosts, and once more on a late host. Returns how many ran it.
pub async fn start_everywhere(url: &str, hosts: usize) -> Result<usize, Error> {
    let mut jobs = JoinSet::new();
    for _ in 0..hosts {
        let client = Client::connect(url).await?;
        jobs.spawn(async move { run_job(&client).await });
    }
    let mut ran = 0;
    while let Some(job) = jobs.join_next().await {
        ran += usize::from(job.expect("no job panics")?);
    }
    let late = Client::connect(url).await?;
    ran += usize::from(run_job(&late).await?);
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
