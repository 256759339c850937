//! Real servers for tests: private, on free ports, and ended with the test process.
//!
//! | module | contents |
//! |---|---|
//! | [`redis_server`] | a Redis server that a test starts, pauses, kills and restarts |
//! | `redis_program` | the program of such a server, and its version |
//! | [`pool`] | servers that one test after the other uses |
//! | [`outside`] | a server on virtual time |
//! | [`certificates`] | certificates for TLS, from an authority that a test makes |
//! | [`postgres`] | a PostgreSQL server, schemas on it, and one on virtual time |
//! | [`etcd`] | an etcd server, prefixes on it, and a cluster of three members |
//! | [`zookeeper`] | a ZooKeeper server, paths on it, and an ensemble of three |
//! | `kept` | processes that end with the test process |
//! | [`clock`] | a server's clock that a test controls |
//! | [`disk`] | a disk of a server, which a test fills |
//! | `preload` | compiles what a program loads before its own libraries |
//! | [`proxy`] | a bad network in front of a server |
//! | [`resolver`] | a host name whose address a test changes |
//! | [`fake`] | servers that answer nonsense, or nothing |
//! | [`narrow`] | a proxy that knows few commands |
//! | [`cluster`] | a Redis Cluster, whose slots and primaries move |
//! | `replication` | a primary whose replicas lag |
//! | [`sentinels`] | a primary with replicas, and the sentinels that watch over them |
//! | [`resp`] | a small blocking client, with which tests inspect a server |
//!
//! If a server does not start, the test fails and says what to do. No test is skipped.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

pub mod certificates;
pub mod clock;
pub mod cluster;
pub mod disk;
pub mod etcd;
pub mod fake;
mod frames;
mod kept;
mod listening;
pub mod mysql;
pub mod narrow;
pub mod outside;
pub mod pool;
mod port;
pub mod postgres;
mod preload;
pub(crate) mod process;
pub mod proxy;
mod redis_program;
pub mod redis_server;
mod replication;
pub mod resolver;
pub mod resp;
pub mod sentinels;
#[cfg(test)]
mod tests;
pub mod zookeeper;

use std::time::Duration;

pub use certificates::{Authority, Identity};
pub use clock::ServerClock;
pub use cluster::Cluster;
pub use disk::Disk;
pub use etcd::{EtcdPrefix, EtcdServer};
pub use fake::FakeServer;
pub use mysql::{MysqlDatabase, MysqlServer};
pub use narrow::{NarrowProxy, Unknown};
pub use outside::ServerOutside;
pub use postgres::{Lends, Pooler, PostgresServer, Schema, SchemaOutside};
pub use proxy::{Counts, Proxy, Then, Way};
pub use redis_program::{PROGRAM_VARIABLE, version};
pub use redis_server::{RedisServer, RedisServerBuilder};
pub use resolver::Resolver;
pub use resp::Reply;
pub use sentinels::Sentinels;
pub use zookeeper::{ZookeeperClient, ZookeeperPath, ZookeeperServer};

/// How long any step in real time may take before the test gives up. This is far more than a slow
/// machine needs.
pub const PATIENCE: Duration = Duration::from_secs(60);
