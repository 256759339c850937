//! Everybody wants one key. Measures how often it changes hands, how many requests that takes, and
//! how evenly the processes share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, Mutex};
use tokio::task::JoinSet;

use crate::clock::{between, now_ns, sleep_until};
use crate::cycles::{Cycle, Until, rate};
use crate::figure::{Compared, Report};
use crate::peer::{Orders, Peer, say};
use crate::requests::RequestMeter;
use crate::samples::measure as as_measure;
use crate::yardstick::is_redis;

const NAME: &str = "bench:hot";

/// How many tasks want the key in the run with one process.
const TASKS_ALONE: usize = 1_000;

const PROCESSES: usize = 8;

/// How many tasks of each process want it.
const TASKS_EACH: usize = 100;

/// The time from the order to the start. Every process has the order by then.
const BARRIER_NS: u64 = 200_000_000;

/// The yardstick: a mutex within the process.
struct Bare(Arc<tokio::sync::Mutex<()>>);

impl Cycle for Bare {
    async fn run(&mut self, _time: usize) -> Result<(), Error> {
        drop(self.0.lock().await);
        Ok(())
    }
}

/// A Leasehold mutex.
struct Ours(Mutex);

impl Cycle for Ours {
    async fn run(&mut self, _time: usize) -> Result<(), Error> {
        drop(self.0.lock().await?);
        Ok(())
    }
}

pub(crate) async fn measure(url: &str, rounds: usize, ms: u64) -> Result<Report, Error> {
    let mut report = Report::new("hot");
    one_process(&mut report, url, rounds, Duration::from_millis(ms)).await?;
    // A memory store exists in one process only.
    if !url.starts_with("memory:") {
        processes(&mut report, url, rounds, ms).await?;
    }
    Ok(report)
}

async fn one_process(
    report: &mut Report,
    url: &str,
    rounds: usize,
    span: Duration,
) -> Result<(), Error> {
    let mutex = Client::connect(url).await?.mutex(NAME);
    let bare = Arc::new(tokio::sync::Mutex::new(()));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let tasks = (0..TASKS_ALONE).map(|_| Ours(mutex.clone())).collect();
        let of_ours = rate(tasks, Until::Elapsed(span)).await?;
        let tasks = (0..TASKS_ALONE).map(|_| Bare(Arc::clone(&bare))).collect();
        let of_bare = rate(tasks, Until::Elapsed(span)).await?;
        // The first round warms up.
        if round > 0 {
            ours.push(of_ours);
            theirs.push(of_bare);
        }
    }
    let subject = format!("1 process, {TASKS_ALONE} tasks");
    report.add(&subject, "cycles", &ours, "/s").at_least(500_000.0);
    let to = "tokio::sync::Mutex, same tasks";
    let compared = Compared { ours: &ours, theirs: &theirs, unit: "/s", to };
    report.ratio(&subject, "cycles", compared).at_least(0.25);
    Ok(())
}

/// One of several processes. Each line that it receives has a start and an end; its tasks lock and
/// drop in between. It reports the number of cycles and the longest wait of a task in ns.
pub(crate) async fn peer(url: &str, tasks: usize) -> Result<(), Error> {
    let client = Client::connect(url).await?;
    let name = format!("bench:hot:warm:{}", std::process::id());
    let _released = client.mutex(name).lock().await?.release().await?;
    let (mutex, mut orders) = (client.mutex(NAME), Orders::take());
    say("ready");
    loop {
        let [start, end] = orders.numbers().await?;
        sleep_until(start).await;
        let tally = Arc::<Tally>::default();
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            running.spawn(cycle_until(end, mutex.clone(), Arc::clone(&tally)));
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("no task panics")?;
        }
        let Tally { cycles, longest_wait_ns } = &*tally;
        let (cycles, longest) = (cycles.load(Ordering::Relaxed), longest_wait_ns);
        say(format!("{cycles} {}", longest.load(Ordering::Relaxed)));
    }
}

/// The results of the tasks of one process.
#[derive(Default)]
struct Tally {
    cycles: AtomicU64,
    longest_wait_ns: AtomicU64,
}

async fn cycle_until(end: u64, mutex: Mutex, tally: Arc<Tally>) -> Result<(), Error> {
    loop {
        let asked = now_ns();
        if asked >= end {
            return Ok(());
        }
        let guard = mutex.lock().await?;
        let granted = now_ns();
        drop(guard);
        // Tasks that still wait at the end count with their wait so far.
        tally.longest_wait_ns.fetch_max(granted.min(end) - asked, Ordering::Relaxed);
        tally.cycles.fetch_add(u64::from(granted < end), Ordering::Relaxed);
    }
}

/// The results of all processes in one round.
struct Round {
    /// Cycles of each process.
    cycles: Vec<u64>,
    longest_wait_ns: u64,
    /// How many requests the server received in this round, if that is known.
    requests: Option<u64>,
}

async fn round(
    peers: &mut [Peer],
    meter: &mut Option<RequestMeter>,
    ms: u64,
) -> Result<Round, Error> {
    let start = now_ns() + BARRIER_NS;
    let end = start + ms * 1_000_000;
    for peer in &mut *peers {
        peer.say(format!("{start} {end}"))?;
    }
    let mut requests = None;
    if let Some(meter) = meter {
        sleep_until(start).await;
        let before = meter.look().await?;
        sleep_until(end).await;
        requests = Some(meter.look().await?.requests_since(&before));
    }
    let mut round = Round { cycles: Vec::new(), longest_wait_ns: 0, requests };
    for peer in peers {
        let [cycles, longest_wait_ns] = peer.hear_numbers().await?;
        round.cycles.push(cycles);
        round.longest_wait_ns = round.longest_wait_ns.max(longest_wait_ns);
    }
    Ok(round)
}

async fn processes(report: &mut Report, url: &str, rounds: usize, ms: u64) -> Result<(), Error> {
    let tasks = TASKS_EACH.to_string();
    let started = (0..PROCESSES)
        .map(|_| Peer::start(&["peer", "hot", "--url", url, "--tasks", &tasks]))
        .collect::<Result<Vec<_>, _>>();
    let mut peers = started?;
    for peer in &mut peers {
        peer.hear_that("ready").await?;
    }
    let mut meter = if is_redis(url) { Some(RequestMeter::connect(url).await?) } else { None };
    let mut measured = Vec::new();
    for number in 0..=rounds {
        let round = round(&mut peers, &mut meter, ms * 2).await?;
        // The first round warms up.
        if number > 0 {
            measured.push(round);
        }
    }
    let of = |figure: &dyn Fn(&Round) -> f64| measured.iter().map(figure).collect::<Vec<_>>();
    let subject = format!("{PROCESSES} processes, {TASKS_EACH} tasks each");
    let seconds = between(0, ms * 2_000_000).as_secs_f64();
    let cycles = of(&|round| as_measure(round.cycles.iter().sum()) / seconds);
    report.add(&subject, "cycles", &cycles, "/s");
    if meter.is_some() {
        let requests = of(&|round| {
            let cycles: u64 = round.cycles.iter().sum();
            as_measure(round.requests.unwrap_or_default()) / as_measure(cycles.max(1))
        });
        report.add(&subject, "requests per cycle", &requests, "").at_most(0.05);
    }
    let shares = of(&|round| largest_to_smallest(&round.cycles));
    report.add(&subject, "largest to smallest share", &shares, "x").at_most(1.3);
    let waits = of(&|round| as_measure(round.longest_wait_ns) / 1e6);
    report.add(&subject, "longest wait of a task", &waits, "ms");
    Ok(())
}

/// The largest share divided by the smallest. A share of zero counts as one, so that the result is
/// a number.
fn largest_to_smallest(shares: &[u64]) -> f64 {
    let (largest, smallest) = (shares.iter().max(), shares.iter().min());
    let bound = |share: Option<&u64>| as_measure(share.copied().unwrap_or(0).max(1));
    bound(largest) / bound(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_share_is_compared_with_the_smallest() {
        let table: [(&[u64], f64); 4] =
            [(&[130, 100, 110], 1.3), (&[5, 5], 1.0), (&[7, 0], 7.0), (&[0, 0], 1.0)];
        for (shares, expected) in table {
            let found = largest_to_smallest(shares);
            assert!((found - expected).abs() < 1e-9, "{shares:?}: {found}");
        }
    }
}
