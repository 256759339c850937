//! Readers without end. Measures what a reader costs, and how long a writer waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Mutex, RwLock};
use tokio::task::JoinSet;

use crate::cycles::{Cycle, Until, rate};
use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many tasks read, each under a name of its own or all under one.
const READERS: usize = 1_000;

/// How many tasks read while another one wants to write.
const READERS_BESIDE: usize = 100;

/// How long each of these reads.
const READS_FOR: Duration = Duration::from_millis(20);

/// How often the writer writes in a round.
const WRITES: usize = 20;

impl Cycle for RwLock {
    async fn run(&mut self, _time: usize) -> Result<(), Error> {
        self.read().await?.release().await.map(|_| ())
    }
}

/// The yardstick: the same keys, each locked alone.
struct Alone(Mutex);

impl Cycle for Alone {
    async fn run(&mut self, _time: usize) -> Result<(), Error> {
        self.0.lock().await?.release().await.map(|_| ())
    }
}

pub(crate) async fn measure(url: &str, rounds: usize, ms: u64) -> Result<Report, Error> {
    let client = Client::connect(url).await?;
    let mut report = Report::new("rwlock");
    throughput(&mut report, &client, rounds, Duration::from_millis(ms)).await?;
    writer(&mut report, url, &client, rounds).await?;
    Ok(report)
}

async fn throughput(
    report: &mut Report,
    client: &Client,
    rounds: usize,
    span: Duration,
) -> Result<(), Error> {
    let name = |task| format!("bench:rwlock:{task:04}");
    let (mut apart, mut together, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let tasks = (0..READERS).map(|task| Alone(client.mutex(name(task)).fencing(false)));
        let of_alone = rate(tasks.collect(), Until::Elapsed(span)).await?;
        let tasks = (0..READERS).map(|task| client.rwlock(name(task))).collect();
        let of_apart = rate(tasks, Until::Elapsed(span)).await?;
        let tasks = (0..READERS).map(|_| client.rwlock("bench:rwlock:one")).collect();
        let of_together = rate(tasks, Until::Elapsed(span)).await?;
        // The first round warms up.
        if round > 0 {
            apart.push(of_apart);
            together.push(of_together);
            alone.push(of_alone);
        }
    }
    let to = "unfenced mutex, same keys";
    let compared = Compared { ours: &apart, theirs: &alone, unit: "/s", to };
    report.ratio(&format!("{READERS} readers, each of a key"), "cycles", compared).at_least(0.5);
    let compared = Compared { ours: &together, theirs: &alone, unit: "/s", to };
    report.ratio(&format!("{READERS} readers of one key"), "cycles", compared);
    Ok(())
}

/// A writer comes again and again while others read without end.
async fn writer(
    report: &mut Report,
    url: &str,
    client: &Client,
    rounds: usize,
) -> Result<(), Error> {
    let reading = client.rwlock("bench:rwlock:shared");
    let writing = Client::connect(url).await?.rwlock("bench:rwlock:shared");
    let (mut waits, mut longest, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let mut readers = JoinSet::new();
        for _ in 0..READERS_BESIDE {
            readers.spawn(read_until(Arc::clone(&stop), reading.clone()));
        }
        tokio::time::sleep(2 * READS_FOR).await;
        let mut waited = Samples::default();
        for _ in 0..WRITES {
            let asked = Instant::now();
            let guard = writing.write().await?;
            waited.push(asked.elapsed());
            let _released = guard.release().await?;
            tokio::time::sleep(2 * READS_FOR).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut read = Samples::default();
        while let Some(ended) = readers.join_next().await {
            ended.expect("no task panics")?.into_iter().for_each(|took| read.push(took));
        }
        longest.push(waited.quantile_us(1.0));
        waits.push(waited);
        reads.push(read);
    }
    let subject = format!("a writer beside {READERS_BESIDE} readers");
    let reads = quantiles_us(&mut reads, 0.5);
    let to = "one reader, from grant to release";
    let middle = quantiles_us(&mut waits, 0.5);
    let compared = Compared { ours: &middle, theirs: &reads, unit: "us", to };
    report.ratio(&subject, "waits: p50", compared).at_most(1.25);
    let compared = Compared { ours: &longest, theirs: &reads, unit: "us", to };
    report.ratio(&subject, "waits: longest", compared);
    Ok(())
}

/// Reads again and again. Returns how long each guard was there.
async fn read_until(stop: Arc<AtomicBool>, lock: RwLock) -> Result<Vec<Duration>, Error> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let guard = lock.read().await?;
        let granted = Instant::now();
        tokio::time::sleep(READS_FOR).await;
        let _released = guard.release().await?;
        took.push(granted.elapsed());
    }
    Ok(took)
}
