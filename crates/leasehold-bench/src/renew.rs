//! One client holds many leases. Measures the cost of keeping them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold::{Client, Error, Guard};
use tokio::task::JoinSet;

use crate::bare_redis::{connect, same, unavailable};
use crate::figure::{Compared, Report};
use crate::recording::{Recording, RecordingConnector};
use crate::samples::measure as as_measure;
use crate::usage::{CpuMeter, bytes_in_use};
use crate::yardstick::is_redis;

const TTL: Duration = Duration::from_secs(10);

/// How many tasks acquire and release the leases.
const TASKS: usize = 100;

/// How often a lease is renewed in a ttl.
const RENEWALS_A_TTL: u32 = 3;

/// In how many batches the yardstick renews all leases once, as the library does.
const BATCHES: u32 = 10;

pub(crate) async fn measure(url: &str, leases: usize, rounds: u32) -> Result<Report, Error> {
    let (client, recording) = open(url).await?;
    // Allocations that happen once, such as the driver's, come before the count.
    let _released = client.mutex("bench:renew:warm").lock().await?.release().await?;
    let before = bytes_in_use();
    let guards = take(&client, leases).await?;
    let grown = before.zip(bytes_in_use()).map(|(before, after)| after.saturating_sub(before));

    // Two windows. In the first, only the driver and the store run. In the second, every guard is
    // checked.
    tokio::time::sleep(TTL).await;
    let mut cpu = Vec::new();
    // In one round, every lease is renewed once.
    let round = TTL / RENEWALS_A_TTL;
    for _ in 0..rounds {
        let meter = CpuMeter::start();
        tokio::time::sleep(round).await;
        cpu.push(meter.percent_of_a_core());
    }
    let (mut least, started) = (Duration::MAX, Instant::now());
    while started.elapsed() < round * rounds {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = guards.iter().map(Guard::remaining).min().unwrap_or_default();
        least = least.min(now);
    }
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    let renewal = recording.map(|recording| recording.latest());
    give_back(guards).await?;

    let subject = format!("{leases} leases, ttl 10 s");
    let mut report = Report::new("renew");
    let figure = report.add(&subject, "client cpu", &cpu, "% core");
    figure.at_most(20.0);
    if let Some(renewal) = renewal.as_deref().and_then(<[_]>::last) {
        let bare = bare_renewals(url, &same(renewal), leases, rounds).await?;
        let to = "as many renewals by the bare client";
        let compared = Compared { ours: &cpu, theirs: &bare, unit: "% core", to };
        report.ratio(&subject, "client cpu", compared);
    }
    let least = least.as_secs_f64();
    let figure = report.add(&subject, "least validity left", &[least], "s");
    figure.at_least(TTL.as_secs_f64() / 3.0);
    if let Some(grown) = grown {
        let [grown, leases] =
            [grown, leases].map(|number| as_measure(u64::try_from(number).unwrap_or(u64::MAX)));
        report.add(&subject, "client memory per lease", &[grown / leases], "bytes");
    }
    let lost = as_measure(u64::try_from(lost).unwrap_or(u64::MAX));
    report.add(&subject, "leases lost", &[lost], "").at_most(0.0);
    Ok(report)
}

/// Opens a client, and a recording of its commands if it uses Redis.
async fn open(url: &str) -> Result<(Client, Option<Arc<Recording>>), Error> {
    if !is_redis(url) {
        return Ok((Client::builder(url).ttl(TTL).connect().await?, None));
    }
    let (connector, recording) = RecordingConnector::new(url)?;
    let store = RedisStore::connect_with(connector, SystemHost::shared()).await?;
    Ok((Client::with_store(store).ttl(TTL).connect().await?, Some(recording)))
}

/// Acquires all leases, many at the same time, with names by [`name`]. One after another would take
/// so long that the first would be renewed before the last exists.
pub(crate) async fn take(client: &Client, leases: usize) -> Result<Vec<Guard>, Error> {
    let mut taking = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        taking.spawn(async move {
            let mut guards = Vec::new();
            for number in (task..leases).step_by(TASKS) {
                guards.push(client.mutex(name(number)).lock().await?);
            }
            Ok::<_, Error>(guards)
        });
    }
    let mut all = Vec::with_capacity(leases);
    while let Some(taken) = taking.join_next().await {
        all.extend(taken.expect("no task panics")?);
    }
    Ok(all)
}

/// The name of a lease.
pub(crate) fn name(number: usize) -> String {
    format!("bench:renew:{number}")
}

async fn give_back(mut guards: Vec<Guard>) -> Result<(), Error> {
    let mut giving = JoinSet::new();
    while !guards.is_empty() {
        let some = guards.split_off(guards.len() - guards.len().div_ceil(TASKS).min(guards.len()));
        giving.spawn(async move {
            for guard in some {
                let _released = guard.release().await?;
            }
            Ok::<_, Error>(())
        });
    }
    while let Some(given) = giving.join_next().await {
        given.expect("no task panics")?;
    }
    Ok(())
}

/// The CPU use of the bare client, in percent of a core, when it sends as many renewals as the
/// leases need. One value per round.
async fn bare_renewals(
    url: &str,
    renewal: &redis::Cmd,
    leases: usize,
    rounds: u32,
) -> Result<Vec<f64>, Error> {
    let mut connection = connect(url).await?;
    let mut batch = redis::pipe();
    for _ in (0..leases).step_by(BATCHES as usize) {
        batch.add_command(renewal.clone()).ignore();
    }
    let mut cpu = Vec::new();
    let mut ticks = tokio::time::interval(TTL / RENEWALS_A_TTL / BATCHES);
    ticks.tick().await;
    for _ in 0..rounds {
        let meter = CpuMeter::start();
        for _ in 0..BATCHES {
            let sent = batch.exec_async(&mut connection).await;
            sent.map_err(|error| unavailable(&error))?;
            ticks.tick().await;
        }
        cpu.push(meter.percent_of_a_core());
    }
    Ok(cpu)
}
