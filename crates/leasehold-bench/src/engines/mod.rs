//! Locks on each engine, compared with the bare steps that a lock needs at least.

mod bare_etcd;
mod bare_mysql;
mod etcd;
mod mysql;
mod postgres;
mod redis;
mod sqlite;
mod zookeeper;

use std::time::{Duration, Instant};

use leasehold::{Client, Error, ErrorKind, Guard};
use tokio::task::JoinSet;

use crate::figure::{Compared, Figure, Report};
use crate::samples::{Samples, measure as as_measure, quantiles_us};
use crate::usage::CpuMeter;

/// How many pairs of one kind are measured in a row.
const TURN: usize = 20;

/// Each figure is measured this often.
const ROUNDS: usize = 7;

/// How many clients have waiters.
const CLIENTS: u32 = 10;

/// How many tasks wait, all together.
const WAITERS: u32 = 1_000;

/// How long tasks have waited when their requests are counted. A client of MySQL looks for hints in
/// pauses of a twentieth of that time, up to a second.
const WAITED: Duration = Duration::from_secs(20);

/// How much to measure.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Pairs of lock and release, and hand-overs, of all rounds together.
    pub(crate) pairs: usize,
    pub(crate) leases: usize,
    /// For how long waiters and leases are watched.
    pub(crate) watched: Duration,
}

/// One engine after the other, since each server wants the machine for itself.
pub(crate) async fn measure(extent: Extent) -> Result<Report, Error> {
    let mut report = Report::new("engines");
    sqlite::measure(extent, &mut report).await?;
    redis::measure(extent, &mut report).await?;
    postgres::measure(extent, &mut report).await?;
    mysql::measure(extent, &mut report).await?;
    etcd::measure(extent, &mut report).await?;
    zookeeper::measure(extent, &mut report).await?;
    Ok(report)
}

/// Our times and those of a yardstick, by rounds.
type Times = (Vec<Samples>, Vec<Samples>);

/// A server on which locks are measured.
struct Engine<'a> {
    name: &'static str,
    url: &'a str,
}

impl Engine<'_> {
    /// A lock and its release, compared with the pair of bare steps that `bare` does, named `to`.
    async fn round_trips(
        &self,
        (pairs, to): (usize, &str),
        bare: impl AsyncFnMut() -> Result<(), Error>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let times = self.times_of_round_trips(pairs, bare).await?;
        self.compare(("lock + release", to), times, report).at_most(1.2);
        Ok(())
    }

    /// A lock and its release, without a comparison.
    async fn round_trips_alone(&self, pairs: usize, report: &mut Report) -> Result<(), Error> {
        let (ours, _) = self.times_of_round_trips(pairs, async || Ok(())).await?;
        self.show("lock + release", ours, report);
        Ok(())
    }

    /// From a release until another client has the lock, compared with a message of the engine from
    /// one connection to another. `hop` sends one, and returns how long it took.
    async fn hand_overs(
        &self,
        (count, to): (usize, &str),
        hop: impl AsyncFnMut() -> Result<Duration, Error>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let times = self.times_of_hand_overs(count, hop).await?;
        self.compare(("hand-over", to), times, report).at_most(2.0);
        Ok(())
    }

    /// Measures the time from a release until another client has the lock. Compares it with
    /// nothing.
    async fn hand_overs_alone(&self, count: usize, report: &mut Report) -> Result<(), Error> {
        let (ours, _) = self.times_of_hand_overs(count, async || Ok(Duration::ZERO)).await?;
        self.show("hand-over", ours, report);
        Ok(())
    }

    /// The times of locks with their releases, and of the bare steps in between, by rounds.
    async fn times_of_round_trips(
        &self,
        pairs: usize,
        mut bare: impl AsyncFnMut() -> Result<(), Error>,
    ) -> Result<Times, Error> {
        let client = Client::connect(self.url).await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=ROUNDS {
            let (mut our_round, mut their_round) = (Samples::default(), Samples::default());
            for _ in 0..pairs.div_ceil(TURN * ROUNDS) {
                for _ in 0..TURN {
                    let started = Instant::now();
                    let _released = client.mutex("a").lock().await?.release().await?;
                    our_round.push(started.elapsed());
                }
                for _ in 0..TURN {
                    let started = Instant::now();
                    bare().await?;
                    their_round.push(started.elapsed());
                }
            }
            if round > 0 {
                ours.push(our_round);
                theirs.push(their_round);
            }
        }
        Ok((ours, theirs))
    }

    /// The times of hand-overs, and of the hops in between, by rounds.
    async fn times_of_hand_overs(
        &self,
        count: usize,
        mut hop: impl AsyncFnMut() -> Result<Duration, Error>,
    ) -> Result<Times, Error> {
        let clients = [Client::connect(self.url).await?, Client::connect(self.url).await?];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut guard = clients[0].mutex("b").lock().await?;
        let mut next = 1;
        for round in 0..=ROUNDS {
            let (mut our_round, mut their_round) = (Samples::default(), Samples::default());
            for _ in 0..count.div_ceil(ROUNDS) {
                let mutex = clients[next].mutex("b");
                let waiting = tokio::spawn(async move {
                    let guard = mutex.lock().await?;
                    Ok::<_, Error>((guard, Instant::now()))
                });
                while clients[1 - next].inspect("b").await?.waiting == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let called = Instant::now();
                let _released = guard.release().await?;
                let woken;
                (guard, woken) = waiting.await.expect("waiting does not panic")?;
                our_round.push(woken.saturating_duration_since(called));
                next = 1 - next;
                their_round.push(hop().await?);
            }
            if round > 0 {
                ours.push(our_round);
                theirs.push(their_round);
            }
        }
        Ok((ours, theirs))
    }

    /// Reports the medians of the rounds, and their ratio to those of the yardstick `to`.
    fn compare<'a>(
        &self,
        (what, to): (&str, &str),
        (mut ours, mut theirs): Times,
        report: &'a mut Report,
    ) -> &'a mut Figure {
        let (ours, theirs) = (quantiles_us(&mut ours, 0.5), quantiles_us(&mut theirs, 0.5));
        let compared = Compared { ours: &ours, theirs: &theirs, unit: "us", to };
        report.ratio(&format!("{}, {what}", self.name), "p50", compared)
    }

    /// Reports the medians of the rounds.
    fn show(&self, what: &str, mut ours: Vec<Samples>, report: &mut Report) {
        let ours = quantiles_us(&mut ours, 0.5);
        report.add(&format!("{}, {what}", self.name), "p50", &ours, "us");
    }

    /// The `requests` that the server counts while many tasks wait for a lock that stays taken. Not
    /// those with which they begin.
    async fn waiters(
        &self,
        (watched, unit): (Duration, &str),
        mut requests: impl AsyncFnMut() -> Result<u64, Error>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let holder = Client::connect(self.url).await?;
        let guard = holder.mutex("c").lock().await?;
        let mut waiting = JoinSet::new();
        for _ in 0..CLIENTS {
            let client = Client::connect(self.url).await?;
            for _ in 0..WAITERS / CLIENTS {
                let mutex = client.mutex("c");
                waiting.spawn(async move { mutex.lock().await.map(drop) });
            }
        }
        while holder.inspect("c").await?.waiting < CLIENTS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(WAITED).await;
        let (before, began) = (requests().await?, Instant::now());
        tokio::time::sleep(watched).await;
        let (after, took) = (requests().await?, began.elapsed());
        let rate = as_measure(after.saturating_sub(before)) / took.as_secs_f64();
        let subject = format!("{}, {WAITERS} tasks of {CLIENTS} clients wait", self.name);
        report.add(&subject, unit, &[rate], "/s").at_most(10.0);
        let _released = guard.release().await?;
        while let Some(ended) = waiting.join_next().await {
            ended.expect("waiting does not panic")?;
        }
        Ok(())
    }

    /// The processor time that the client needs to keep many leases.
    async fn leases(&self, extent: Extent, report: &mut Report) -> Result<(), Error> {
        let client = Client::connect(self.url).await?;
        let guards = crate::renew::take(&client, extent.leases).await?;
        let mut cpu = Vec::new();
        for _ in 0..ROUNDS {
            let meter = CpuMeter::start();
            tokio::time::sleep(extent.watched / 3).await;
            cpu.push(meter.percent_of_a_core());
        }
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        let subject = format!("{}, {} leases, ttl 10 s", self.name, extent.leases);
        report.add(&subject, "client cpu", &cpu, "% core").at_most(10.0);
        let least = guards.iter().map(Guard::remaining).min().unwrap_or_default().as_secs_f64();
        report.add(&subject, "least validity left", &[least], "s").at_least(10.0 / 3.0);
        let lost = as_measure(u64::try_from(lost).unwrap_or(u64::MAX));
        report.add(&subject, "leases lost", &[lost], "").at_most(0.0);
        drop(guards);
        let _left = client.shutdown(Duration::from_secs(60)).await;
        Ok(())
    }
}

/// The failure of a bare step.
fn refused(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the server refused a bare step: {why}"))
}
