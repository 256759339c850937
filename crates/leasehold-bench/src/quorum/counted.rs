//! How many requests each server receives for an acquire, counted by a proxy.

use leasehold::{Client, Error};
use leasehold_testkit::servers::{Proxy, RedisServer};

use super::{Kind, Locks, release_all};
use crate::figure::{Compared, Report};
use crate::samples::measure as as_measure;

/// How many locks are acquired during the count. They are released afterwards.
const LOCKS: u64 = 100;

pub(super) async fn measure(report: &mut Report, servers: &[RedisServer]) -> Result<(), Error> {
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    let client = Client::quorum(proxies.iter().map(Proxy::url)).connect().await?;
    let mut counted = Vec::new();
    for kind in Kind::ALL {
        let locks = Locks::new(&client, kind, LOCKS);
        locks.warm_up().await?;
        counted.push(count(&locks, &proxies).await?);
    }
    let [unfenced, fenced] = &counted[..] else { unreachable!("one for each kind") };
    let subject = "5 nodes, counters in step";
    let compared = Compared { ours: fenced, theirs: unfenced, unit: "", to: "unfenced" };
    report.ratio(subject, "requests for an acquire, each node", compared).at_most(1.0);
    Ok(())
}

/// How many requests each server receives for one acquire.
async fn count(locks: &Locks, proxies: &[Proxy]) -> Result<Vec<f64>, Error> {
    let sent = || proxies.iter().map(|proxy| proxy.counts().requests).collect::<Vec<_>>();
    let before = sent();
    let guards = locks.acquire_all().await?;
    let since = sent().into_iter().zip(before).map(|(after, before)| after - before);
    let each = since.map(|requests| as_measure(requests) / as_measure(LOCKS)).collect();
    release_all(guards).await?;
    Ok(each)
}
