//! One server falls silent, then another: connections stay open, and nothing gets through.

use std::time::Instant;

use leasehold::{Client, Error};
use leasehold_testkit::servers::{Proxy, RedisServer, Way};

use super::{Extent, KEYS, Kind, Locks};
use crate::figure::{Compared, Report};
use crate::samples::{Samples, quantiles_us};

/// How many servers fall silent, one after another. With one more, there would be no majority.
const SILENT_MAX: usize = 2;

/// The samples while a number of servers is silent, one set per round.
#[derive(Default)]
struct Phase {
    /// Until the client should have noticed.
    at_first: Vec<Samples>,
    afterwards: Vec<Samples>,
}

pub(super) async fn measure(
    report: &mut Report,
    servers: &[RedisServer],
    extent: Extent,
) -> Result<(), Error> {
    let mut phases: [Phase; SILENT_MAX + 1] = Default::default();
    for _ in 0..extent.rounds {
        round(&mut phases, servers, extent).await?;
    }
    let [healthy, silent @ ..] = &mut phases;
    let healthy_us = quantiles_us(&mut healthy.afterwards, 0.99);
    report.add("5 nodes through a proxy", "acquire, p99", &healthy_us, "us");
    let bounds_us: Vec<_> = healthy_us.iter().map(|p99_us| 1.2 * p99_us + 1_000.0).collect();
    for (number, phase) in silent.iter_mut().enumerate() {
        let subject = format!("5 nodes, {} of them silent", number + 1);
        let longest_us = quantiles_us(&mut phase.at_first, 1.0);
        let seconds = extent.noticed_in.as_secs_f64();
        report.add(
            &subject,
            &format!("acquire, longest in the first {seconds} s"),
            &longest_us,
            "us",
        );
        let ours = quantiles_us(&mut phase.afterwards, 0.99);
        let to = "1.2 × p99 of all healthy + 1 ms";
        let compared = Compared { ours: &ours, theirs: &bounds_us, unit: "us", to };
        report.ratio(&subject, "acquire, p99 after that", compared).at_most(1.0);
    }
    Ok(())
}

/// One round through fresh proxies: all healthy, then one silent, then two.
async fn round(phases: &mut [Phase], servers: &[RedisServer], extent: Extent) -> Result<(), Error> {
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = Client::quorum(proxies.iter().map(Proxy::url)).connect().await?;
    let mut locks = Locks::new(&client, Kind::Fenced, KEYS);
    locks.warm_up().await?;
    for (silent, phase) in phases.iter_mut().enumerate() {
        if let Some(newly) = silent.checked_sub(1) {
            // A different server each time.
            let began = Instant::now();
            proxies[newly].hold(Way::Both);
            let mut at_first = Samples::default();
            while began.elapsed() < extent.noticed_in {
                at_first.push(locks.acquire().await?);
            }
            phase.at_first.push(at_first);
        }
        let mut afterwards = Samples::default();
        for _ in 0..extent.acquires {
            afterwards.push(locks.acquire().await?);
        }
        phase.afterwards.push(afterwards);
    }
    // Deliver what the silent servers missed, such as releases, so that it does not disturb the
    // next round.
    proxies.iter().for_each(|proxy| proxy.go_on(Way::Both));
    tokio::time::sleep(extent.noticed_in + extent.noticed_in / 2).await;
    Ok(())
}
