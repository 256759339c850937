//! A primary with replicas fails over, again and again. Measures how soon a client gets a lock
//! after the new primary is named, and whether a lock that is held meanwhile survives.
//!
//! Half of the failovers are a `kill -9` of the primary, the others a command. In a third, the
//! replicas lack the held lock: they are cut off before it is granted.

mod deployment;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};
use leasehold_testkit::servers::{Cluster, RedisServer, Reply, Sentinels};
use tokio::task::spawn_blocking;

use self::deployment::{By, Deployment, Named};
use crate::figure::Report;

/// The ttl of the lock that is held.
const TTL: Duration = Duration::from_secs(6);

/// How often the holder's deadline is read while the holder waits for news.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How long a grant is waited for. It is a failure far earlier.
const ENOUGH: Duration = Duration::from_secs(30);

/// The fate of a lock that was held during a failover.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The new primary has it, and the holder still holds it.
    Kept,
    /// The new primary does not have it, and the holder was told before its deadline.
    Told,
    /// Anything else.
    Wrong(&'static str),
}

/// One failover.
#[derive(Clone, Copy)]
struct Round {
    number: usize,
    by: By,
    lagging: bool,
}

impl Round {
    const fn new(number: usize) -> Self {
        let by = if number % 2 == 1 { By::Kill } else { By::Command };
        Self { number, by, lagging: number % 3 == 2 }
    }

    /// The name of the lock that is held.
    fn held(self) -> String {
        format!("bench:{{{}}}:held", self.number)
    }
}

pub(crate) async fn measure(rounds: usize) -> Result<Report, Error> {
    let mut report = Report::new("failover");
    fail_over::<Sentinels>(&mut report, rounds).await?;
    fail_over::<Cluster>(&mut report, rounds).await?;
    Ok(report)
}

async fn fail_over<D: Deployment>(report: &mut Report, rounds: usize) -> Result<(), Error> {
    let all = Arc::new(blocking(D::start).await);
    let (holder, other) = (Client::connect(&all.url()).await?, Client::connect(&all.url()).await?);
    let (mut until_granted_ms, mut fates) = (Vec::new(), Vec::new());
    let plan: Vec<_> = (0..rounds).map(Round::new).collect();
    for &round in &plan {
        let held = grant(&*all, &holder, round).await?;
        let mut named = {
            let all = Arc::clone(&all);
            blocking(move || all.fail_over(&round.held(), round.by, round.lagging)).await
        };
        until_granted_ms.push(first_grant(&all, &other, round, &mut named).await);
        let fate = fate(all.server(named.port), held, round).await;
        eprintln!(
            "{} {}: {} lagging: {}, {:.1} ms, {fate:?}",
            D::NAME,
            round.number,
            if round.by == By::Kill { "kill" } else { "command" },
            round.lagging,
            until_granted_ms.last().copied().unwrap_or_default(),
        );
        fates.push(fate);
        let all = Arc::clone(&all);
        blocking(move || all.repair()).await;
    }
    let lagging = plan.iter().filter(|round| round.lagging).count();
    add(report, D::NAME, &until_granted_ms, &fates, lagging);
    Ok(())
}

/// Adds the figures. Only lagging replicas lose a lock, and they always do: otherwise the run shows
/// nothing.
fn add(report: &mut Report, name: &str, until_granted_ms: &[f64], fates: &[Fate], lagging: usize) {
    let count = |is_so: fn(&Fate) -> bool| {
        fates.iter().map(|fate| f64::from(u8::from(is_so(fate)))).sum::<f64>()
    };
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let slowest = until_granted_ms.iter().copied().fold(0.0, f64::max);
    let subject = format!("{name}, {} failovers", fates.len());
    let first = "first grant once the new primary is named";
    report.add(&subject, first, until_granted_ms, "ms");
    let figure = report.add(&subject, &format!("{first}, slowest"), &[slowest], "ms");
    figure.at_most(1_000.0);
    let kept = count(|fate| *fate == Fate::Kept);
    let figure = report.add(&subject, "held locks kept, as their data was", &[kept], "");
    figure.at_least(number(fates.len() - lagging));
    let told = count(|fate| *fate == Fate::Told);
    let figure = report.add(&subject, "holders told in time, as the data was lost", &[told], "");
    figure.at_least(number(lagging));
    let wrong = count(|fate| matches!(fate, Fate::Wrong(_)));
    report.add(&subject, "anything else", &[wrong], "").at_most(0.0);
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("no panic")
}

/// A lock that all replicas have, or none.
async fn grant<D: Deployment>(all: &D, holder: &Client, round: Round) -> Result<Guard, Error> {
    let primary = all.primary(&round.held());
    if round.lagging {
        primary.cut_replicas_off();
    }
    let held = holder.mutex(round.held()).ttl(TTL).lock().await?;
    if !round.lagging {
        primary.command(&["WAIT", D::REPLICAS, "0"]);
    }
    Ok(held)
}

/// How long after the announcement a lock was granted that the new primary has, in ms. If yet
/// another primary takes over meanwhile, as on a machine that is busy, it is waited for, and the
/// time counts from when that one is named.
async fn first_grant<D: Deployment>(
    all: &Arc<D>,
    client: &Client,
    round: Round,
    named: &mut Named,
) -> f64 {
    let began = Instant::now();
    for number in 0.. {
        // In a cluster, it lies on the same node as the held lock.
        let name = format!("bench:{{{}}}:first:{number}", round.number);
        let mutex = client.mutex(&name);
        let granted = mutex.try_lock().await.ok().flatten();
        let took = named.at.elapsed();
        let new = all.server(named.port);
        if granted.is_some() && exists(new, &name) || began.elapsed() > ENOUGH {
            return took.as_secs_f64() * 1e3;
        }
        if !is_primary(new) {
            let (all, port) = (Arc::clone(all), named.port);
            *named = blocking(move || all.until_named(&round.held(), all.server(port))).await;
            eprintln!("{} {}: yet another primary", D::NAME, round.number);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    unreachable!("tried for ever")
}

fn is_primary(server: &RedisServer) -> bool {
    server.look(&["ROLE"]).is_some_and(|role| role.array()[0].text() == "master")
}

fn exists(server: &RedisServer, name: &str) -> bool {
    matches!(server.look(&["EXISTS", name]), Some(Reply::Int(1)))
}

async fn fate(new: &RedisServer, held: Guard, round: Round) -> Fate {
    match (exists(new, &round.held()), round.lagging) {
        (true, false) => kept(held).await,
        (false, true) => told(&held).await,
        (true, true) => Fate::Wrong("the replicas did not lag"),
        (false, false) => Fate::Wrong("the new primary lacks what all replicas had"),
    }
}

async fn kept(held: Guard) -> Fate {
    while held.is_held() {
        if held.renew().await.is_ok() {
            drop(held);
            return Fate::Kept;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Fate::Wrong("its data survived, and it was lost")
}

/// Whether the holder is told not later than its deadline. The old primary may have renewed it just
/// before, so the deadline is read again and again.
async fn told(held: &Guard) -> Fate {
    let mut lost = pin!(held.lost());
    let mut deadline = Instant::now() + held.remaining();
    loop {
        let told = tokio::time::timeout(LOOK_EVERY, &mut lost).await.is_ok();
        let now = Instant::now();
        if told && now <= deadline {
            return Fate::Told;
        }
        if told || !held.is_held() && now > deadline {
            return Fate::Wrong("its data was lost, and the holder was told too late");
        }
        deadline = deadline.max(now + held.remaining());
    }
}
