//! One client locks and releases at a server that is reached in some way, another one over plain
//! TCP at a server alone. Measures what TLS, sentinels and a cluster cost.

use std::time::Instant;

use leasehold::{Client, Error};
use leasehold_testkit::servers::{Authority, Cluster, RedisServer, Sentinels};
use tokio::task::spawn_blocking;

use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many pairs of one kind are measured in a row.
const TURN: usize = 20;

/// The pairs are split into this many rounds, each with its own quantiles.
const ROUNDS: usize = 9;

pub(crate) async fn measure_tls(pairs: usize) -> Result<Report, Error> {
    let authority = Authority::new();
    let identity = authority.issue("server", &["127.0.0.1"]);
    let server = RedisServer::builder().with_tls(&identity, &authority).start();
    let with_tls = format!("{}?ca={}", server.tls_url(), authority.ca().display());
    let (plain, with_tls) =
        (Client::connect(&server.url()).await?, Client::connect(&with_tls).await?);
    let mut report = Report::new("tls");
    compare(&mut report, "lock + release, TLS", [&with_tls, &plain], pairs, 1.25).await?;
    Ok(report)
}

/// Sentinels and a cluster.
pub(crate) async fn measure_deployments(pairs: usize) -> Result<Report, Error> {
    let mut report = Report::new("deployments");
    let alone = RedisServer::start();
    let plain = Client::connect(&alone.url()).await?;
    {
        let all = start(|| Sentinels::builder().start()).await;
        let ours = Client::connect(&all.url()).await?;
        let subject = "lock + release, sentinels";
        compare(&mut report, subject, [&ours, &plain], pairs, 1.05).await?;
        // Measures the client alone: the primary copies to its replica in both cases.
        let direct = Client::connect(&all.primary().url()).await?;
        let subject = "sentinels, beside the primary itself";
        compare(&mut report, subject, [&ours, &direct], pairs, 1.05).await?;
    }
    {
        let all = start(|| Cluster::builder().without_replicas().start()).await;
        let ours = Client::connect(&all.url()).await?;
        let subject = "lock + release, cluster without replicas";
        compare(&mut report, subject, [&ours, &plain], pairs, 1.05).await?;
    }
    let all = start(|| Cluster::builder().start()).await;
    let ours = Client::connect(&all.url()).await?;
    compare(&mut report, "lock + release, cluster", [&ours, &plain], pairs, 1.05).await?;
    Ok(report)
}

async fn start<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(start).await.expect("the servers start")
}

/// Measures ours and the plain one alternately, and adds the figures.
async fn compare(
    report: &mut Report,
    subject: &str,
    [ours, plain]: [&Client; 2],
    pairs: usize,
    at_most: f64,
) -> Result<(), Error> {
    let (mut of_ours, mut of_plain) = (Vec::new(), Vec::new());
    let turns = pairs.div_ceil(TURN * ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let (mut plain_round, mut our_round) = (Samples::default(), Samples::default());
        for _ in 0..turns {
            lock_and_release(plain, "bench:plain", &mut plain_round).await?;
            lock_and_release(ours, "bench:ours", &mut our_round).await?;
        }
        if round > 0 {
            of_plain.push(plain_round);
            of_ours.push(our_round);
        }
    }
    let (ours_us, plain_us) = (quantiles_us(&mut of_ours, 0.5), quantiles_us(&mut of_plain, 0.5));
    report.add(subject, "p50", &ours_us, "us");
    let compared = Compared { ours: &ours_us, theirs: &plain_us, unit: "us", to: "lock + release" };
    report.ratio(subject, "p50", compared).at_most(at_most);
    Ok(())
}

async fn lock_and_release(client: &Client, name: &str, samples: &mut Samples) -> Result<(), Error> {
    let mutex = client.mutex(name);
    for _ in 0..TURN {
        let started = Instant::now();
        let _released = mutex.lock().await?.release().await?;
        samples.push(started.elapsed());
    }
    Ok(())
}
