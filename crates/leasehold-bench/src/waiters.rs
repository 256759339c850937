//! Many tasks of several processes wait while nothing happens. Measures the cost of waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Guard};
use tokio::task::JoinHandle;

use crate::figure::{Compared, Report};
use crate::peer::{Orders, Peer, say};
use crate::requests::RequestMeter;
use crate::samples::measure as as_measure;
use crate::usage::{CpuMeter, bytes_in_use, resident_bytes};
use crate::yardstick::is_redis;

const PROCESSES: usize = 4;

/// The number of keys in each run: all tasks on one, and spread.
const KEYS: [usize; 2] = [1, 1_000];

/// How long to wait until every task waits in its place.
const SETTLE: Duration = Duration::from_secs(2);

/// The name of a key. Each run has its own keys, so earlier waiters do not disturb it.
fn name(key: usize, keys: usize) -> String {
    format!("bench:waiters:{keys:04}:{key:04}")
}

/// Names the way in which memory is measured.
const fn meter_of_memory() -> &'static str {
    if cfg!(feature = "memory") { "allocated" } else { "resident" }
}

fn memory() -> u64 {
    bytes_in_use().map_or_else(resident_bytes, |bytes| u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Runs one of the waiting processes. Once its tasks wait, the process reports the bytes per task,
/// and the bytes per task that waits for a mutex of the process. It starts the CPU meter at the
/// next order and reads the meter at the one after. Then it reports its CPU use, and how many tasks
/// got a lock although no task should.
pub(crate) async fn peer(url: &str, tasks: usize, keys: usize) -> Result<(), Error> {
    let client = Client::connect(url).await?;
    let granted = Arc::new(AtomicU64::new(0));
    let wait = |task: usize| -> JoinHandle<Result<(), Error>> {
        let (mutex, granted) = (client.mutex(name(task % keys, keys)), Arc::clone(&granted));
        tokio::spawn(async move {
            let _guard: Guard = mutex.lock().await?;
            granted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    };
    let mut orders = Orders::take();
    // Allocations that happen once, such as the wake-up connection, come before the count.
    let (mut waiting, mut beside) = (Vec::with_capacity(tasks), Vec::with_capacity(tasks));
    waiting.push(wait(0));
    tokio::time::sleep(SETTLE / 4).await;
    let before = memory();
    waiting.extend((1..tasks).map(wait));
    tokio::time::sleep(SETTLE).await;
    let ours = memory().saturating_sub(before);

    let bare = Arc::new(tokio::sync::Mutex::new(()));
    let held = Arc::clone(&bare).lock_owned().await;
    let before = memory();
    beside.extend((1..tasks).map(|_| {
        let bare = Arc::clone(&bare);
        tokio::spawn(async move { drop(bare.lock().await) })
    }));
    tokio::time::sleep(SETTLE / 4).await;
    let theirs = memory().saturating_sub(before).max(1);
    drop(held);
    for task in beside {
        task.await.expect("no task panics");
    }
    let each = as_measure(u64::try_from(tasks - 1).unwrap_or(u64::MAX));
    say(format!("{} {}", as_measure(ours) / each, as_measure(theirs) / each));

    orders.next().await?;
    let meter = CpuMeter::start();
    orders.next().await?;
    let cpu = meter.percent_of_a_core();
    say(format!("{cpu} {}", granted.load(Ordering::Relaxed)));
    // The errors of tasks that stopped waiting.
    for task in waiting.into_iter().filter(JoinHandle::is_finished) {
        task.await.expect("no task panics")?;
    }
    // Keep the client until the starter ends.
    orders.next().await.map(drop)
}

pub(crate) async fn measure(url: &str, tasks: usize, seconds: u64) -> Result<Report, Error> {
    let mut report = Report::new("waiters");
    let client = Client::connect(url).await?;
    let mut meter = if is_redis(url) { Some(RequestMeter::connect(url).await?) } else { None };
    for keys in KEYS {
        let mut guards = Vec::with_capacity(keys);
        for key in 0..keys {
            guards.push(client.mutex(name(key, keys)).lock().await?);
        }
        wait_and_count(&mut report, &mut meter, url, [tasks, keys], seconds).await?;
        if guards.iter().any(|guard| !guard.is_held()) {
            return Err(Error::new(ErrorKind::Lost, "a lock was lost while others waited for it"));
        }
        for guard in guards {
            let _released = guard.release().await?;
        }
    }
    Ok(report)
}

/// Lets the processes wait, and reports the cost.
async fn wait_and_count(
    report: &mut Report,
    meter: &mut Option<RequestMeter>,
    url: &str,
    [tasks, keys]: [usize; 2],
    seconds: u64,
) -> Result<(), Error> {
    let [each, of_keys] = [tasks / PROCESSES, keys].map(|number| number.to_string());
    let arguments = ["peer", "waiters", "--url", url, "--tasks", &each, "--keys", &of_keys];
    let started: Result<Vec<_>, _> = (0..PROCESSES).map(|_| Peer::start(&arguments)).collect();
    let mut peers = started?;
    let (mut ours, mut theirs, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for peer in &mut peers {
        let [of_ours, of_theirs]: [f64; 2] = peer.hear_numbers().await?;
        ours.push(of_ours);
        theirs.push(of_theirs);
    }
    for peer in &mut peers {
        peer.say("begin")?;
    }
    let mut requests = None;
    if let Some(meter) = meter {
        let before = meter.look().await?;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        requests = Some(meter.look().await?.requests_since(&before));
    } else {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    for peer in &mut peers {
        peer.say("end")?;
        let [of_cpu, granted]: [f64; 2] = peer.hear_numbers().await?;
        cpu.push(of_cpu);
        if granted > 0.0 {
            let message = "the store granted a lock that another client still held";
            return Err(Error::new(ErrorKind::Lost, message));
        }
    }

    let on = if keys == 1 { "1 key".to_owned() } else { format!("{keys} keys") };
    let subject = format!("{tasks} tasks, {PROCESSES} processes, {on}");
    let memory = format!("memory per task, {}", meter_of_memory());
    let figure = report.add(&subject, &memory, &ours, "bytes");
    if keys == 1 {
        figure.at_most(1_024.0);
    }
    if cfg!(feature = "memory") {
        // The size of a process does not show reused pages, so the comparison needs allocation
        // counts. Other figures are left out then, since counting costs time.
        let to = "tokio::sync::Mutex";
        let compared = Compared { ours: &ours, theirs: &theirs, unit: "bytes", to };
        report.ratio(&subject, &memory, compared);
        return Ok(());
    }
    if let Some(requests) = requests {
        // Includes the requests of the holder.
        let processes = as_measure(u64::try_from(PROCESSES).unwrap_or(1));
        let rate = as_measure(requests) / as_measure(seconds) / processes;
        let figure = report.add(&subject, "requests, each process", &[rate], "/s");
        if keys == 1 {
            figure.at_most(2.0);
        }
    }
    report.add(&subject, "client cpu, each process", &cpu, "% core");
    Ok(())
}
