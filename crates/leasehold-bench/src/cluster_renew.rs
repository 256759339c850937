//! One client holds many leases in a cluster of three nodes. One of them stops, or dies. Measures
//! whether the leases at the other two are renewed in time.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Guard};
use leasehold_testkit::servers::{Cluster, RedisServer};
use tokio::task::spawn_blocking;

use crate::figure::Report;
use crate::renew;
use crate::samples::measure as as_measure;

const TTL: Duration = Duration::from_secs(10);

/// The least validity that a lease may have, as in `renew`. On an idle machine it has 6.2 s:
/// a renewal follows at most ttl/3 + ttl/30 after the last one, and 102 ms are for drift.
const LEFT_AT_LEAST: Duration = TTL.checked_div(3).expect("three is not zero");

/// How often all guards are checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a node ends.
#[derive(Clone, Copy)]
enum End {
    Stops,
    Dies,
}

/// The least validity and the losses in one round.
struct Seen {
    /// The least validity of any lease before the node ended, in seconds.
    before: f64,
    /// The least validity of a lease at the other nodes afterwards, in seconds.
    others: f64,
    /// How many leases of the other nodes were lost.
    others_lost: f64,
    /// How many leases of the node were lost.
    its_own_lost: f64,
}

pub(crate) async fn measure(leases: usize, rounds: usize) -> Result<Report, Error> {
    let mut report = Report::new("cluster-renew");
    for (end, name) in [(End::Stops, "stops"), (End::Dies, "dies")] {
        let mut all = Vec::new();
        for _ in 0..rounds {
            all.push(round(end, leases).await?);
        }
        let subject = format!("{leases} leases, one of three nodes {name}");
        let of = |value: fn(&Seen) -> f64| all.iter().map(value).collect::<Vec<_>>();
        report.add(&subject, "least validity left before", &of(|seen| seen.before), "s");
        // The worst round counts.
        let least = all.iter().map(|seen| seen.others).fold(f64::MAX, f64::min);
        let figure = report.add(&subject, "least validity left at the others", &[least], "s");
        figure.at_least(LEFT_AT_LEAST.as_secs_f64());
        let lost = all.iter().map(|seen| seen.others_lost).sum();
        report.add(&subject, "leases lost at the others", &[lost], "").at_most(0.0);
        let own = of(|seen| seen.its_own_lost);
        report.add(&subject, "leases lost at the node itself", &own, "");
    }
    Ok(report)
}

async fn round(end: End, leases: usize) -> Result<Seen, Error> {
    // Otherwise all nodes would refuse everything once one of them is down.
    let cluster = Cluster::builder().config("cluster-require-full-coverage", "no");
    let cluster = blocking(move || cluster.without_replicas().start()).await;
    let client = Client::builder(&cluster.url()).ttl(TTL).connect().await?;
    let guards = renew::take(&client, leases).await?;
    let (cluster, its_own) = blocking(move || {
        let victim = cluster.nodes()[0].port();
        let names = (0..leases).map(renew::name);
        let own: Vec<_> = names.filter(|name| cluster.node_of(name).port() == victim).collect();
        (cluster, own.into_iter().collect::<std::collections::HashSet<_>>())
    })
    .await;
    let (own, others): (Vec<Guard>, Vec<Guard>) =
        guards.into_iter().partition(|guard| its_own.contains(guard.name()));
    let before = watch(&[&own, &others], TTL).await;
    let victim: &RedisServer = &cluster.nodes()[0];
    match end {
        End::Stops => victim.pause(),
        End::Dies => victim.kill(),
    }
    let least = watch(&[&others], 2 * TTL).await;
    let lost = |guards: &[Guard]| {
        let lost = guards.iter().filter(|guard| !guard.is_held()).count();
        as_measure(u64::try_from(lost).unwrap_or(u64::MAX))
    };
    let seen = Seen {
        before: before.as_secs_f64(),
        others: least.as_secs_f64(),
        others_lost: lost(&others),
        its_own_lost: lost(&own),
    };
    eprintln!(
        "shortest time left: {before:?} before, {least:?} afterwards; leases lost: {}",
        seen.others_lost
    );
    Ok(seen)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(work).await.expect("the servers work")
}

/// The least validity of any of these leases for some time.
async fn watch(guards: &[&[Guard]], lasts: Duration) -> Duration {
    let (mut least, began) = (Duration::MAX, Instant::now());
    while began.elapsed() < lasts {
        let now = guards.iter().copied().flatten().map(Guard::remaining).min();
        least = least.min(now.unwrap_or_default());
        tokio::time::sleep(LOOK_EVERY).await;
    }
    least
}
