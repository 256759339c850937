//! One client locks and releases over TLS, another one over plain TCP. Measures what TLS costs.

use std::time::Instant;

use leasehold::{Client, Error};
use leasehold_testkit::servers::{Authority, RedisServer};

use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many pairs of one kind are measured in a row.
const TURN: usize = 20;

/// The pairs are split into this many rounds, each with its own quantiles.
const ROUNDS: usize = 9;

pub(crate) async fn measure(pairs: usize) -> Result<Report, Error> {
    let authority = Authority::new();
    let identity = authority.issue("server", &["127.0.0.1"]);
    let server = RedisServer::builder().with_tls(&identity, &authority).start();
    let with_tls = format!("{}?ca={}", server.tls_url(), authority.ca().display());
    let (plain, with_tls) =
        (Client::connect(&server.url()).await?, Client::connect(&with_tls).await?);
    let (mut of_plain, mut of_tls) = (Vec::new(), Vec::new());
    let turns = pairs.div_ceil(TURN * ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let (mut plain_round, mut tls_round) = (Samples::default(), Samples::default());
        for _ in 0..turns {
            lock_and_release(&plain, "bench:tls1", &mut plain_round).await?;
            lock_and_release(&with_tls, "bench:tls2", &mut tls_round).await?;
        }
        if round > 0 {
            of_plain.push(plain_round);
            of_tls.push(tls_round);
        }
    }
    let mut report = Report::new("tls");
    let (secured_us, plain_us) = (quantiles_us(&mut of_tls, 0.5), quantiles_us(&mut of_plain, 0.5));
    report.add("lock + release, TLS", "p50", &secured_us, "us");
    let compared =
        Compared { ours: &secured_us, theirs: &plain_us, unit: "us", to: "lock + release" };
    report.ratio("lock + release, TLS", "p50", compared).at_most(1.25);
    Ok(report)
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
