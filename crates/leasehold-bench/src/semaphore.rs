//! Many tasks want permits. Measures what a step costs the server as the number of waiters grows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::figure::{Compared, Report};
use crate::requests::RequestMeter;
use crate::samples::measure as as_measure;

const PERMITS: u32 = 1_000;

/// How many tasks wait while all permits are taken.
const WAITERS: [usize; 4] = [10, 100, 1_000, 10_000];

/// How long a round may take until its tasks have had two permits each.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn measure(url: &str, rounds: usize, ms: u64) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mut meter = RequestMeter::connect(url).await?;
    let mut costs = vec![Vec::new(); WAITERS.len()];
    for _ in 0..rounds {
        for (waiters, costs) in WAITERS.iter().zip(&mut costs) {
            let semaphore = client.semaphore("bench:semaphore", PERMITS);
            let tasks = PERMITS as usize + waiters;
            costs.push(cost_us(&semaphore, &mut meter, tasks, Duration::from_millis(ms)).await?);
        }
    }
    let mut report = Report::new("semaphore");
    let subject = |waiters| format!("{PERMITS} permits, waiters: {waiters}");
    report.add(&subject(WAITERS[0]), "server, per permit", &costs[0], "us");
    for (waiters, ours) in WAITERS.iter().zip(&costs).skip(1) {
        let to = "10 waiters";
        let compared = Compared { ours, theirs: &costs[0], unit: "us", to };
        report.ratio(&subject(*waiters), "server, per permit", compared).at_most(2.0);
    }
    Ok(report)
}

/// The processor time of the server for each permit that is acquired and released, in µs.
async fn cost_us(
    semaphore: &Semaphore,
    meter: &mut RequestMeter,
    tasks: usize,
    span: Duration,
) -> Result<f64, Error> {
    let (stop, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (stop, cycles) = (Arc::clone(&stop), Arc::clone(&cycles));
        let semaphore = semaphore.clone();
        running.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let _released = semaphore.acquire().await?.release().await?;
                cycles.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, Error>(())
        });
    }
    // After two cycles of each task, the line is as long as it gets.
    let limit = Instant::now() + PATIENCE;
    while cycles.load(Ordering::Relaxed) < 2 * tasks as u64 {
        if Instant::now() >= limit {
            return Err(Error::new(ErrorKind::WaitElapsed, "the tasks got too few permits"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let before = (meter.cpu_us().await?, cycles.load(Ordering::Relaxed));
    tokio::time::sleep(span).await;
    let after = (meter.cpu_us().await?, cycles.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics")?;
    }
    Ok((after.0 - before.0) / as_measure(after.1 - before.1))
}
