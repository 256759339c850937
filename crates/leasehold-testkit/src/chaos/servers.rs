//! The servers of a world, in each form in which people run them.

use std::time::Duration;

use super::kind::Kind;
use super::server::{DATABASE, PREFIX, SESSION, Server, mysql, postgres};
use crate::servers::etcd::EtcdServer;
use crate::servers::mysql::MysqlServer;
use crate::servers::postgres::PostgresServer;
use crate::servers::redis_server::RedisServerBuilder;
use crate::servers::sentinels::PRIMARY;
use crate::servers::zookeeper::ZookeeperServer;
use crate::servers::{Authority, Cluster, Proxy, RedisServer, Sentinels};

/// The members of a cluster of etcd and of an ensemble of ZooKeeper, and the nodes of a quorum.
const MEMBERS: usize = 3;

/// The faults of a network that does not tell messages apart.
const NETWORK: [Kind; 6] = [
    Kind::Delay,
    Kind::Partition,
    Kind::PartitionToServer,
    Kind::PartitionToClient,
    Kind::Reset,
    Kind::LateRequest,
];

const OF_PROCESSES: [Kind; 3] = [Kind::ClientStop, Kind::ClientCrash, Kind::RunStop];

/// A form in which people run servers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
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
    /// A PostgreSQL server.
    Postgres,
    /// A MariaDB server.
    Mysql,
    /// A cluster of three members of etcd.
    Etcd,
    /// An ensemble of three servers of ZooKeeper.
    Zookeeper,
}

impl Deployment {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The faults that can be injected here. Sentinels and nodes of a cluster name the addresses of
    /// servers, so no bad network can be put in between. They keep nothing on a disk either.
    #[must_use]
    pub fn kinds(self) -> Vec<Kind> {
        let data = [Kind::OutOfMemory, Kind::RestartEmpty, Kind::RestartOld];
        let steps = [Kind::ClockStepBack, Kind::ClockStepForward];
        let server = [Kind::ServerStop, Kind::ServerRestart, Kind::DiskFull];
        let replies = [Kind::ReplyLost, Kind::Duplicate];
        let redis = [Kind::SubscriberKill, Kind::ScriptFlush];
        // Only a network that Redis's protocol crosses openly can tell one reply from the next.
        let own: &[&[Kind]] = match self {
            Self::One => return Kind::OF_ONE.to_vec(),
            Self::Tls => &[&NETWORK, &server, &data, &redis, &[Kind::Flushall]],
            Self::Sentinels => &[&redis, &[Kind::Failover, Kind::SentinelStop, Kind::Flushall]],
            Self::Cluster => {
                &[&redis, &[Kind::Failover, Kind::Handover, Kind::SlotMove, Kind::Flushall]]
            }
            // Each of these faults hits one node. No node forgets, since no quorum survives that
            // unless its nodes are strict.
            Self::Quorum => &[&NETWORK, &replies, &server, &steps, &redis, &[Kind::OutOfMemory]],
            Self::Postgres => &[&NETWORK, &server, &steps, &[Kind::SubscriberKill, Kind::Flushall]],
            Self::Mysql => &[&NETWORK, &server, &steps, &[Kind::Flushall]],
            // These servers do not use the time of day.
            Self::Etcd => &[&NETWORK, &server, &[Kind::Flushall, Kind::QuotaFull]],
            Self::Zookeeper => &[&NETWORK, &server, &[Kind::Flushall]],
        };
        [own, &[&OF_PROCESSES]].concat().concat()
    }

    /// Whether its servers grant shares: to readers, and of permits.
    pub(super) const fn shares(self) -> bool {
        !matches!(self, Self::Quorum | Self::Etcd | Self::Zookeeper)
    }

    /// How long a lease may stay after a crash of its client. This is the ttl, except on ZooKeeper.
    pub(super) const fn stays_after_crash(self, ttl: Duration) -> Duration {
        match self {
            Self::Zookeeper => SESSION,
            _ => ttl,
        }
    }

    /// Starts the servers, each with its data on a disk of its own if `on_disks`.
    pub(super) fn start(self, on_disks: bool) -> Servers {
        match self {
            Self::One => Servers::One(Box::new(keeping(on_disks).with_clock().start())),
            Self::Tls => {
                let authority = Authority::new();
                let identity = authority.issue("server", &["127.0.0.1"]);
                let server = keeping(on_disks).with_tls(&identity, &authority).start();
                Servers::Tls(Box::new(server), Box::new(authority))
            }
            Self::Sentinels => {
                // The kit's own limit is shorter than the pauses of a busy machine.
                let patient = format!("sentinel down-after-milliseconds {PRIMARY} 1000");
                Servers::Sentinels(Sentinels::builder().replicas(2).line(&patient).start())
            }
            Self::Cluster => Servers::Cluster(Cluster::builder().start()),
            Self::Quorum => {
                let node = |_| keeping(on_disks).with_clock().start();
                Servers::Quorum((0..MEMBERS).map(node).collect())
            }
            Self::Postgres => Servers::Postgres(Box::new(postgres(on_disks))),
            Self::Mysql => Servers::Mysql(Box::new(mysql(on_disks))),
            Self::Etcd if on_disks => Servers::Etcd(Box::new(EtcdServer::quick_cluster_on_disks())),
            Self::Etcd => Servers::Etcd(Box::new(EtcdServer::quick_cluster())),
            Self::Zookeeper if on_disks => {
                Servers::Zookeeper(Box::new(ZookeeperServer::ensemble_on_disks()))
            }
            Self::Zookeeper => Servers::Zookeeper(Box::new(ZookeeperServer::ensemble())),
        }
    }
}

/// A server that keeps its data over a restart.
fn keeping(on_disk: bool) -> RedisServerBuilder {
    RedisServer::builder()
        .on_disk(on_disk)
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
    Postgres(Box<PostgresServer>),
    Mysql(Box<MysqlServer>),
    Etcd(Box<EtcdServer>),
    Zookeeper(Box<ZookeeperServer>),
}

impl Servers {
    /// The bad networks in front of the servers, for that slot. A quorum has one for each node.
    /// Empty if there can be none.
    pub(super) fn proxies(&self, slot: usize) -> Vec<Proxy> {
        let ports = match self {
            Self::Etcd(all) => far(slot).map(|member| all.port(member)).into_iter().collect(),
            Self::Zookeeper(all) => far(slot).map(|member| all.port(member)).into_iter().collect(),
            Self::Mysql(server) => vec![server.port()],
            Self::One(server) => vec![server.port()],
            Self::Tls(server, _) => vec![server.tls_port()],
            Self::Postgres(server) => vec![server.port()],
            Self::Quorum(nodes) => nodes.iter().map(RedisServer::port).collect(),
            Self::Sentinels(_) | Self::Cluster(_) => Vec::new(),
        };
        ports.into_iter().map(Proxy::to).collect()
    }

    /// The URLs by which a process reaches the servers behind those networks; several for a quorum.
    pub(super) fn urls(&self, proxies: &[Proxy]) -> Vec<String> {
        match (self, proxies.first()) {
            (Self::Tls(_, authority), Some(proxy)) => {
                let ca = authority.ca().display();
                vec![format!("rediss://127.0.0.1:{}?ca={ca}", proxy.port())]
            }
            (Self::One(_) | Self::Quorum(_), Some(_)) => proxies.iter().map(Proxy::url).collect(),
            (Self::One(server) | Self::Tls(server, _), None) => vec![server.url()],
            (Self::Postgres(server), proxy) => {
                let port = proxy.map_or_else(|| server.port(), Proxy::port);
                vec![format!("postgres://postgres@127.0.0.1:{port}/postgres")]
            }
            (Self::Mysql(server), proxy) => {
                let port = proxy.map_or_else(|| server.port(), Proxy::port);
                vec![format!("mysql://app@127.0.0.1:{port}/{DATABASE}")]
            }
            (Self::Etcd(_), Some(proxy)) => {
                vec![format!("etcd://127.0.0.1:{}/{PREFIX}", proxy.port())]
            }
            (Self::Etcd(all), None) => vec![all.url(PREFIX)],
            (Self::Zookeeper(all), proxy) => {
                let one =
                    |proxy: &Proxy| format!("zookeeper://127.0.0.1:{}/{PREFIX}", proxy.port());
                let url = proxy.map_or_else(|| all.url(PREFIX), one);
                vec![format!("{url}?session_timeout={}ms", SESSION.as_millis())]
            }
            (Self::Sentinels(all), _) => vec![all.url()],
            (Self::Cluster(all), _) => vec![all.url()],
            (Self::Quorum(nodes), None) => nodes.iter().map(RedisServer::url).collect(),
        }
    }

    /// The server that a fault hits. Of several equal servers, `number` chooses one.
    pub(super) fn victim(&self, number: usize, key: &str) -> Server<'_> {
        let redis = match self {
            Self::Postgres(server) => return Server::Postgres(server),
            Self::Mysql(server) => return Server::Mysql(server),
            Self::Etcd(all) => return Server::Etcd(all, number % MEMBERS),
            Self::Zookeeper(all) => return Server::Zookeeper(all, number % MEMBERS),
            Self::One(server) | Self::Tls(server, _) => server,
            Self::Sentinels(all) => all.primary(),
            Self::Cluster(all) => all.node_of(key),
            Self::Quorum(nodes) => &nodes[number % nodes.len()],
        };
        Server::Redis(redis)
    }

    /// A number that rises with each failover, if sentinels watch the servers. Otherwise zero.
    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Sentinels(all) => all.epoch(),
            _ => 0,
        }
    }

    /// All servers that grant locks.
    pub(super) fn granting(&self) -> Vec<Server<'_>> {
        let redis = match self {
            Self::Postgres(server) => return vec![Server::Postgres(server)],
            Self::Mysql(server) => return vec![Server::Mysql(server)],
            Self::Etcd(all) => return vec![Server::Etcd(all, 0)],
            Self::Zookeeper(all) => return vec![Server::Zookeeper(all, 0)],
            Self::One(server) | Self::Tls(server, _) => vec![&**server],
            Self::Sentinels(all) => vec![all.primary()],
            Self::Cluster(all) => all.primaries(),
            Self::Quorum(nodes) => nodes.iter().collect(),
        };
        redis.into_iter().map(Server::Redis).collect()
    }
}

/// The only member that the process of a slot knows, over a bad network. `None` if the process
/// knows all members.
fn far(slot: usize) -> Option<usize> {
    slot.is_multiple_of(2).then_some(slot / 2 % MEMBERS)
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn each_deployment_has_faults_and_each_fault_a_deployment() {
        for deployment in Deployment::VARIANTS {
            assert!(deployment.kinds().contains(&Kind::ClientCrash), "{deployment}");
        }
        let all: Vec<_> = Deployment::VARIANTS.iter().flat_map(|it| it.kinds()).collect();
        assert!(Kind::VARIANTS.iter().all(|kind| all.contains(kind)));
    }

    #[test]
    fn a_disk_is_filled_wherever_servers_keep_their_data_on_one() {
        for deployment in Deployment::VARIANTS {
            let keeps = !matches!(deployment, Deployment::Sentinels | Deployment::Cluster);
            assert_eq!(deployment.kinds().contains(&Kind::DiskFull), keeps, "{deployment}");
        }
    }

    #[test]
    fn a_fault_of_a_network_needs_a_network_that_can_be_bad() {
        for deployment in Deployment::VARIANTS {
            let is_far = !matches!(deployment, Deployment::Sentinels | Deployment::Cluster);
            let kinds = deployment.kinds();
            for kind in NETWORK {
                assert_eq!(kinds.contains(&kind), is_far, "{kind} of {deployment}");
            }
        }
    }

    #[test]
    fn a_node_of_a_plain_quorum_meets_every_fault_in_which_it_forgets_nothing() {
        let forgets = [Kind::RestartEmpty, Kind::RestartOld, Kind::Flushall];
        let kinds = Deployment::Quorum.kinds();
        for kind in Kind::OF_ONE {
            assert_eq!(kinds.contains(&kind), !forgets.contains(&kind), "{kind}");
        }
        assert_eq!(kinds.len(), Kind::OF_ONE.len() - forgets.len(), "no fault twice");
    }
}
