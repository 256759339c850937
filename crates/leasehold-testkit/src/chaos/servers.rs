//! The servers of a world, in each form in which people run them.

use std::fmt;

use super::kind::Kind;
use crate::servers::redis_server::RedisServerBuilder;
use crate::servers::sentinels::PRIMARY;
use crate::servers::{Authority, Cluster, Proxy, RedisServer, Sentinels};

/// A form in which people run servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deployment {
    /// One server.
    #[default]
    One,
    /// One server behind TLS.
    Tls,
    /// A primary, two replicas and three sentinels.
    Sentinels,
    /// Three primaries, each with a replica.
    Cluster,
    /// Three independent servers.
    Quorum,
}

impl Deployment {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::One, Self::Tls, Self::Sentinels, Self::Cluster, Self::Quorum];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Tls => "tls",
            Self::Sentinels => "sentinels",
            Self::Cluster => "cluster",
            Self::Quorum => "quorum",
        }
    }

    /// The deployment with that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|deployment| deployment.name() == name)
    }

    /// The faults that can be injected here. Sentinels and nodes of a cluster name the addresses of
    /// servers, so no bad network can be put in between.
    #[must_use]
    pub fn kinds(self) -> Vec<Kind> {
        let of_processes = [Kind::ClientStop, Kind::ClientCrash, Kind::RunStop];
        let of_requests = [Kind::SubscriberKill, Kind::ScriptFlush];
        let own: &[Kind] = match self {
            Self::One => &Kind::OF_ONE,
            // The network is bad, but it cannot tell one reply from the next.
            Self::Tls => &[
                Kind::Delay,
                Kind::Partition,
                Kind::PartitionToServer,
                Kind::PartitionToClient,
                Kind::Reset,
                Kind::LateRequest,
                Kind::OutOfMemory,
                Kind::ServerStop,
                Kind::ServerRestart,
                Kind::RestartEmpty,
                Kind::RestartOld,
                Kind::Flushall,
            ],
            Self::Sentinels => &[Kind::Failover, Kind::SentinelStop, Kind::Flushall],
            Self::Cluster => &[Kind::Failover, Kind::Handover, Kind::SlotMove, Kind::Flushall],
            Self::Quorum => &[Kind::OutOfMemory, Kind::ServerStop, Kind::ServerRestart],
        };
        let mut kinds = own.to_vec();
        if self != Self::One {
            kinds.extend(of_processes.into_iter().chain(of_requests));
        }
        kinds
    }

    pub(super) fn start(self) -> Servers {
        match self {
            Self::One => Servers::One(Box::new(keeping().with_clock().start())),
            Self::Tls => {
                let authority = Authority::new();
                let identity = authority.issue("server", &["127.0.0.1"]);
                let server = keeping().with_tls(&identity, &authority).start();
                Servers::Tls(Box::new(server), Box::new(authority))
            }
            Self::Sentinels => {
                // The kit's own limit is shorter than the pauses of a busy machine.
                let patient = format!("sentinel down-after-milliseconds {PRIMARY} 1000");
                Servers::Sentinels(Sentinels::builder().replicas(2).line(&patient).start())
            }
            Self::Cluster => Servers::Cluster(Cluster::builder().start()),
            Self::Quorum => Servers::Quorum((0..3).map(|_| keeping().start()).collect()),
        }
    }
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A server that keeps its data over a restart.
fn keeping() -> RedisServerBuilder {
    RedisServer::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("auto-aof-rewrite-percentage", "0")
        .config("maxmemory-policy", "noeviction")
}

/// The servers of a world.
#[derive(Debug)]
pub(super) enum Servers {
    One(Box<RedisServer>),
    Tls(Box<RedisServer>, Box<Authority>),
    Sentinels(Sentinels),
    Cluster(Cluster),
    Quorum(Vec<RedisServer>),
}

impl Servers {
    /// A bad network in front of them, where there can be one.
    pub(super) fn proxy(&self) -> Option<Proxy> {
        match self {
            Self::One(server) => Some(Proxy::to(server.port())),
            Self::Tls(server, _) => Some(Proxy::to(server.tls_port())),
            Self::Sentinels(_) | Self::Cluster(_) | Self::Quorum(_) => None,
        }
    }

    /// The URLs by which a process reaches them: several for a quorum.
    pub(super) fn urls(&self, proxy: Option<&Proxy>) -> Vec<String> {
        match (self, proxy) {
            (Self::Tls(_, authority), Some(proxy)) => {
                let ca = authority.ca().display();
                vec![format!("rediss://127.0.0.1:{}?ca={ca}", proxy.port())]
            }
            (Self::One(_), Some(proxy)) => vec![proxy.url()],
            (Self::One(server) | Self::Tls(server, _), None) => vec![server.url()],
            (Self::Sentinels(all), _) => vec![all.url()],
            (Self::Cluster(all), _) => vec![all.url()],
            (Self::Quorum(nodes), _) => nodes.iter().map(RedisServer::url).collect(),
        }
    }

    /// The server that a fault hits, of which number `number` is one.
    pub(super) fn victim(&self, number: usize, key: &str) -> &RedisServer {
        match self {
            Self::One(server) | Self::Tls(server, _) => server,
            Self::Sentinels(all) => all.primary(),
            Self::Cluster(all) => all.node_of(key),
            Self::Quorum(nodes) => &nodes[number % nodes.len()],
        }
    }

    /// A number that rises with each failover, where somebody watches the servers.
    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Sentinels(all) => all.epoch(),
            Self::One(_) | Self::Tls(..) | Self::Cluster(_) | Self::Quorum(_) => 0,
        }
    }

    /// All servers that grant locks.
    pub(super) fn granting(&self) -> Vec<&RedisServer> {
        match self {
            Self::One(server) | Self::Tls(server, _) => vec![server],
            Self::Sentinels(all) => vec![all.primary()],
            Self::Cluster(all) => all.primaries(),
            Self::Quorum(nodes) => nodes.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_deployment_has_faults_and_each_fault_a_deployment() {
        for deployment in Deployment::ALL {
            assert_eq!(Deployment::of_name(deployment.name()), Some(deployment));
            assert!(deployment.kinds().contains(&Kind::ClientCrash), "{deployment}");
        }
        let all: Vec<_> = Deployment::ALL.into_iter().flat_map(Deployment::kinds).collect();
        assert!(Kind::ALL.iter().all(|kind| all.contains(kind)));
    }
}
