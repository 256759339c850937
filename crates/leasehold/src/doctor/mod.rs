//! Finds out whether locks work in a deployment, and what they survive there.
//!
//! [`diagnose`] asks each store about itself. It also tries the operations that a lock relies on,
//! with keys of its own, which it removes. It needs no rights beyond those of a lock. With fewer
//! rights, some checks are [`Unknown`](Verdict::Unknown) and name the right that they lack.
//!
//! Each check is a pure function over the facts that were measured, so tests can cover every fault.

mod check;
#[cfg(feature = "_sql")]
mod database;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(feature = "_members")]
mod members;
#[cfg(feature = "redis")]
mod server;
mod survival;
#[cfg(all(test, feature = "postgres", feature = "redis"))]
mod tests;
mod texts;
#[cfg(any(feature = "_members", feature = "_sql", feature = "sqlite"))]
mod trials;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use futures_util::future::join;
use futures_util::future::{BoxFuture, join_all, ready};

use self::check::Subject;
pub use self::check::{Check, Diagnosis, Verdict};
#[cfg(feature = "redis")]
pub use self::server::rule::acl_rules;
use self::survival::{Deployment, Kind, survival};
use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::Named;
#[cfg(feature = "etcd")]
use crate::store::etcd as etcd_store;
#[cfg(feature = "mysql")]
use crate::store::mysql;
#[cfg(feature = "postgres")]
use crate::store::postgres;
#[cfg(feature = "redis")]
use crate::store::redis::examine::cluster::{self, ClusterFacts};
#[cfg(feature = "redis")]
use crate::store::redis::examine::{Facts, Patient};
#[cfg(feature = "redis")]
use crate::store::redis::{Connector as _, RedisConnector};
#[cfg(feature = "sqlite")]
use crate::store::sqlite;
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper as zookeeper_store;

/// How long all questions together may take.
#[cfg(feature = "redis")]
const LIMIT: Duration = Duration::from_secs(9);

const PRIVATE: Subject =
    Subject { id: "reach", why: "Other processes do not see these locks, and take the same ones." };

/// Examines the store that `urls` name: one store, or the nodes of a quorum. It judges them for
/// locks with this `ttl`. It usually ends within 10 s.
///
/// The keys that it writes begin with `namespace`, if there is one. So a user who may only write
/// keys with that prefix can run it.
///
/// # Errors
///
/// [`Config`](ErrorKind::Config) for a URL or a ttl that cannot be used. A store that cannot be
/// reached is a failed check, not an error.
///
/// # Cancel safety
///
/// The keys that were written expire within 15 s.
pub async fn diagnose(
    urls: &[impl AsRef<str>],
    namespace: Option<&str>,
    ttl: Duration,
    host: Arc<dyn Host>,
) -> Result<Diagnosis, Error> {
    let ttl = Ttl::new(ttl)?;
    let named = Named::of_all(urls)?;
    if named.is_empty() {
        let message = "no store is named; no request was sent; name one by its URL";
        return Err(Error::new(ErrorKind::Config, message));
    }
    host.start()?;
    let found = examine(named, &canary(namespace, &*host), &host, ttl).await;
    Ok(judge(found, ttl))
}

/// The facts about all stores.
#[derive(Debug, Default)]
struct Found {
    #[cfg(feature = "redis")]
    servers: Vec<Facts>,
    /// The clusters, whose nodes are among the servers.
    #[cfg(feature = "redis")]
    clusters: Vec<ClusterFacts>,
    /// All other stores.
    others: Vec<Examined>,
}

/// The judgement of the facts about one store.
#[derive(Debug)]
struct Examined {
    checks: Vec<Check>,
    deployment: Deployment,
    /// Why the store did not answer.
    refused: Option<Error>,
}

/// The prefix of all keys that are written. Nobody else uses it.
fn canary(namespace: Option<&str>, host: &dyn Host) -> String {
    let mut random = [0; 16];
    host.random(&mut random);
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}:"));
    format!("{prefix}leasehold:probe:{random}")
}

/// Examines all stores at the same time, so that a slow one costs the others no time.
#[allow(unused_variables, reason = "not every build has stores that need them all")]
async fn examine(named: Vec<Named>, canary: &str, host: &Arc<dyn Host>, ttl: Ttl) -> Found {
    let mut examining: Vec<BoxFuture<'_, Examined>> = Vec::new();
    #[cfg(feature = "redis")]
    let mut of_redis = Vec::new();
    #[cfg(feature = "redis")]
    let is_quorum = named.len() > 1;
    for (number, named) in (1..).zip(named) {
        examining.push(match named {
            Named::Memory(_) => Box::pin(ready(memory())),
            #[cfg(feature = "redis")]
            Named::Redis(connector) => {
                of_redis.push((number, connector));
                continue;
            }
            #[cfg(feature = "etcd")]
            Named::Etcd(connector) => Box::pin(async move {
                etcd::examined(etcd_store::examine::examine(connector, host, canary).await, ttl)
            }),
            #[cfg(feature = "mysql")]
            Named::Mysql(connector) => Box::pin(async move {
                database::examined(mysql::examine::examine(connector, host, canary).await, ttl)
            }),
            #[cfg(feature = "postgres")]
            Named::Postgres(connector) => Box::pin(async move {
                database::examined(postgres::examine::examine(connector, host, canary).await, ttl)
            }),
            #[cfg(feature = "sqlite")]
            Named::File(path) => Box::pin(async move {
                file::examined(&sqlite::examine::examine(&path, host, canary).await, ttl)
            }),
            #[cfg(feature = "zookeeper")]
            Named::Zookeeper(connector) => Box::pin(async move {
                let facts = zookeeper_store::examine::examine(connector, host, canary).await;
                zookeeper::examined(facts, ttl)
            }),
        });
    }
    #[cfg(feature = "redis")]
    {
        let servers = examine_redis(of_redis, is_quorum, (host, canary));
        let ((servers, clusters), others) = join(servers, join_all(examining)).await;
        Found { servers, clusters, others }
    }
    #[cfg(not(feature = "redis"))]
    {
        Found { others: join_all(examining).await }
    }
}

fn memory() -> Examined {
    let evidence = "the store is in the memory of this process";
    let check = PRIVATE.fail(evidence, "name a file or a server by its URL");
    let deployment = Deployment { kind: Kind::Memory, ..Deployment::default() };
    Examined { checks: vec![check.at("memory:")], deployment, refused: None }
}

/// Examines the servers of all URLs of Redis, with the numbers of the URLs.
#[cfg(feature = "redis")]
async fn examine_redis(
    named: Vec<(usize, RedisConnector)>,
    is_quorum: bool,
    (host, canary): (&Arc<dyn Host>, &str),
) -> (Vec<Facts>, Vec<ClusterFacts>) {
    let (mut patients, mut clusters) = (Vec::new(), Vec::new());
    let ends = host.now() + LIMIT;
    let reading = named.into_iter().map(async |(number, connector)| {
        let canary = format!("{canary}:{number}");
        if connector.seeds().is_empty() {
            return (number, None, vec![Patient::new(connector, Arc::clone(host), ends, canary)]);
        }
        let (facts, nodes) = cluster::read(&connector, (host, ends), (number, &canary)).await;
        let nodes = nodes.into_iter().map(|node| Patient::of_node(node, Arc::clone(host), ends));
        (number, Some(facts), nodes.collect())
    });
    for (number, cluster, mut of_url) in join_all(reading).await {
        clusters.extend(cluster);
        for patient in &mut of_url {
            let place = &mut patient.facts.place;
            (place.url, place.is_in_quorum) = (number, is_quorum);
            if patients.iter().any(|it: &Patient| it.facts.place.label == place.label) {
                // Otherwise its checks could not be told apart from those of the other URL.
                place.label.push_str(&format!(" (URL {number})"));
            }
        }
        patients.append(&mut of_url);
    }
    (examine_servers(patients).await, clusters)
}

/// Asks all servers at the same time. Different URLs may name the same server.
#[cfg(feature = "redis")]
async fn examine_servers(mut patients: Vec<Patient>) -> Vec<Facts> {
    join_all(patients.iter_mut().map(Patient::examine)).await;
    let marks: Vec<_> = patients.iter().map(Patient::mark).collect();
    if marks.len() > 1 && patients.iter().any(|it| !it.is_of_same_url(&patients[0])) {
        join_all(patients.iter_mut().map(|patient| patient.look_for(&marks))).await;
    }
    join_all(patients.into_iter().map(Patient::end)).await
}

/// Decides what the facts mean.
#[cfg_attr(not(feature = "redis"), allow(unused_variables, reason = "there are no servers"))]
fn judge(found: Found, ttl: Ttl) -> Diagnosis {
    #[cfg_attr(not(feature = "redis"), allow(unused_mut, reason = "there are no servers"))]
    let mut nodes = found.others.len();
    let (mut checks, mut deployments, mut is_refused) = (Vec::new(), Vec::new(), false);
    // A wrong password, for example, is final. A quorum refuses it even at one of its nodes.
    let is_final = |it: &Option<Error>| it.as_ref().is_some_and(|it| !it.is_retryable());
    for store in found.others {
        checks.extend(store.checks);
        deployments.push(store.deployment);
        is_refused |= is_final(&store.refused);
    }
    #[cfg(feature = "redis")]
    {
        nodes += server::count(&found.servers, &found.clusters);
        checks.extend(server::all_checks(&found.servers, &found.clusters, ttl));
        if nodes > 1 {
            let servers: Vec<_> = found.servers.iter().collect();
            checks.extend(server::nodes::checks(nodes, &servers));
        }
        if !found.servers.is_empty() {
            deployments.push(server::deployment(&found.servers, &found.clusters));
        }
        is_refused |= found.servers.iter().any(|it| is_final(&it.unreached))
            || found.clusters.iter().any(server::cluster::is_refused);
    }
    let mut deployment = deployments.into_iter().reduce(Deployment::with).unwrap_or_default();
    deployment.nodes = nodes;
    #[cfg_attr(not(feature = "redis"), allow(unused_mut, reason = "there are no clusters"))]
    let mut failed = failing(&checks);
    #[cfg(feature = "redis")]
    {
        deployment.is_partial =
            server::cluster::merge(&mut failed, &found.servers, &found.clusters);
    }
    deployment.failing = failed.len();
    is_refused |= checks.iter().any(|it| it.verdict == Verdict::Fail && FINAL.contains(&it.id));
    deployment.grants = !is_refused && nodes - deployment.failing > nodes / 2;
    let survival = survival(&deployment);
    Diagnosis {
        checks,
        survives: survival.yes,
        does_not_survive: survival.no,
        fencing: survival.fencing,
    }
}

/// The checks without which a node grants no lock.
const VITAL: [&str; 9] =
    ["reachable", "role", "mode", "cluster", "writes", "copies", "rights", "release", "session"];

/// The checks that clients make too. If one of them fails, they refuse the store.
const FINAL: [&str; 4] = ["strict", "same-terms", "independent-nodes", "reach"];

/// The nodes that grant no lock.
fn failing(checks: &[Check]) -> BTreeSet<&str> {
    let failed = checks.iter().filter(|it| it.verdict == Verdict::Fail && VITAL.contains(&it.id));
    failed.map(|check| check.node.as_str()).collect()
}
