//! One server of a world, of either make.

use std::time::Duration;

use crate::servers::etcd::EtcdServer;
use crate::servers::mysql::MysqlServer;
use crate::servers::postgres::PostgresServer;
use crate::servers::zookeeper::ZookeeperServer;
use crate::servers::{Disk, RedisServer, Reply};

/// The database of MariaDB with the tables of Leasehold.
pub(super) const DATABASE: &str = "leasehold";

/// The prefix of the locks in etcd, and their path in ZooKeeper.
pub(super) const PREFIX: &str = "chaos";

/// The timeout of the sessions at a ZooKeeper server. No lease may be longer than half of it.
pub(super) const SESSION: Duration = Duration::from_secs(4);

/// The clock of a PostgreSQL server, to which steps can be added.
const POSTGRES_CLOCK: &str = "CREATE TABLE clock_steps (us bigint NOT NULL);
    INSERT INTO clock_steps VALUES (0);
    CREATE OR REPLACE FUNCTION leasehold.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
        SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
             + (SELECT us FROM public.clock_steps)
    $$";

/// The clock of a MariaDB server, to which steps can be added.
const MYSQL_CLOCK: &str = "CREATE TABLE clock_steps (us bigint NOT NULL);
    INSERT INTO clock_steps VALUES (0);
    CREATE OR REPLACE PROCEDURE leasehold_clock(OUT now_us BIGINT)
        SET now_us = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
                   + (SELECT us FROM clock_steps)";

/// The names of the leases, shares and places of a PostgreSQL server, and how long each lasts. The
/// row of a lease that has ended keeps its owner until the next step.
const POSTGRES_KEYS: &str = "
    SELECT key, greatest(expires - leasehold.clock(), 0) FROM (
        SELECT key, expires FROM leasehold.locks WHERE owner IS NOT NULL
        UNION ALL SELECT '{' || key || '}:lh:share', expires FROM leasehold.shares
        UNION ALL SELECT '{' || key || '}:lh:place', expires FROM leasehold.places
    ) AS kept (key, expires) WHERE expires > leasehold.clock()";

/// The same for a MariaDB server.
const MYSQL_KEYS: &str = "
    CALL leasehold_clock(@now);
    SELECT name, expires - @now FROM (
        SELECT name, expires FROM leasehold_locks WHERE owner IS NOT NULL
        UNION ALL SELECT CONCAT('{', name, '}:lh:share'), expires FROM leasehold_shares
        UNION ALL SELECT CONCAT('{', name, '}:lh:place'), expires FROM leasehold_places
    ) AS kept WHERE expires > @now";

/// A PostgreSQL server with the tables of Leasehold, and a clock that can be stepped.
pub(super) fn postgres(on_disk: bool) -> PostgresServer {
    let server = if on_disk { PostgresServer::start_on_disk() } else { PostgresServer::start() };
    server.migrate("postgres");
    server.sql(POSTGRES_CLOCK);
    server
}

/// A MariaDB server with the tables of Leasehold, and a clock that can be stepped.
pub(super) fn mysql(on_disk: bool) -> MysqlServer {
    let server = if on_disk { MysqlServer::start_on_disk() } else { MysqlServer::start() };
    server.sql(&format!("CREATE DATABASE {DATABASE}"));
    server.migrate(DATABASE);
    server.sql_in(DATABASE, MYSQL_CLOCK);
    server
}

/// A server that grants locks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Server<'a> {
    Redis(&'a RedisServer),
    Postgres(&'a PostgresServer),
    Mysql(&'a MysqlServer),
    /// A member of a cluster.
    Etcd(&'a EtcdServer, usize),
    /// A server of an ensemble.
    Zookeeper(&'a ZookeeperServer, usize),
}

impl<'a> Server<'a> {
    /// The Redis server, for faults that only Redis knows.
    pub(super) fn redis(self) -> &'a RedisServer {
        match self {
            Self::Redis(server) => server,
            _ => self.has_no_such_fault(),
        }
    }

    fn has_no_such_fault(self) -> ! {
        unreachable!("{self:?} does not have this fault")
    }

    pub(super) fn pause(self) {
        match self {
            Self::Redis(server) => server.pause(),
            Self::Postgres(server) => server.pause(),
            Self::Mysql(server) => server.pause(),
            Self::Etcd(server, member) => server.pause(member),
            Self::Zookeeper(server, member) => server.pause(member),
        }
    }

    pub(super) fn resume(self) {
        match self {
            Self::Redis(server) => server.resume(),
            Self::Postgres(server) => server.resume(),
            Self::Mysql(server) => server.resume(),
            Self::Etcd(server, member) => server.resume(member),
            Self::Zookeeper(server, member) => server.resume(member),
        }
    }

    pub(super) fn kill(self) {
        match self {
            Self::Redis(server) => server.kill(),
            Self::Postgres(server) => server.kill(),
            Self::Mysql(server) => server.kill(),
            Self::Etcd(server, member) => server.kill(member),
            Self::Zookeeper(server, member) => server.kill(member),
        }
    }

    pub(super) fn restart(self) {
        match self {
            Self::Redis(server) => server.restart(),
            Self::Postgres(server) => server.restart(),
            Self::Mysql(server) => server.restart(),
            Self::Etcd(server, member) => server.restart(member),
            Self::Zookeeper(server, member) => server.restart(member),
        }
    }

    /// Starts it again after its disk was full.
    pub(super) fn restart_after_full_disk(self) {
        match self {
            Self::Zookeeper(server, member) => server.restart_empty(member),
            _ => self.restart(),
        }
    }

    /// The disk with its data.
    pub(super) fn disk(self) -> &'a Disk {
        match self {
            Self::Redis(server) => server.disk(),
            Self::Postgres(server) => server.disk(),
            Self::Mysql(server) => server.disk(),
            Self::Etcd(server, member) => server.disk(member),
            Self::Zookeeper(server, member) => server.disk(member),
        }
    }

    /// Whether it answers, and writes what it should keep.
    pub(super) fn serves(self) -> bool {
        match self {
            // A server that could not write its log refuses this too.
            Self::Redis(server) => matches!(server.look(&["PING"]), Some(Reply::Status(_))),
            Self::Postgres(server) => {
                server.try_sql("CREATE TABLE probe (); DROP TABLE probe").is_ok()
            }
            Self::Mysql(server) => server.commits(),
            // A member that could not write has ended.
            Self::Etcd(server, member) => server.answers(member),
            Self::Zookeeper(server, member) => server.begins_session(member),
        }
    }

    /// The cluster of etcd, for faults that only etcd knows.
    pub(super) fn etcd(self) -> &'a EtcdServer {
        match self {
            Self::Etcd(server, _) => server,
            _ => self.has_no_such_fault(),
        }
    }

    /// Ends the connections that wait for hints.
    pub(super) fn end_listening(self) {
        match self {
            Self::Redis(server) => {
                server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            }
            // The last statement of a session that waits is `LISTEN`.
            Self::Postgres(server) => {
                server.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                      WHERE state = 'idle' AND query ILIKE '%listen %'",
                );
            }
            Self::Mysql(_) | Self::Etcd(..) | Self::Zookeeper(..) => self.has_no_such_fault(),
        }
    }

    /// Removes everything.
    pub(super) fn flush(self) {
        match self {
            Self::Redis(server) => server.flush(),
            Self::Postgres(server) => {
                server.sql("TRUNCATE leasehold.locks, leasehold.shares, leasehold.places");
            }
            Self::Mysql(server) => {
                let tables = ["locks", "shares", "places"];
                let delete = tables.map(|table| format!("DELETE FROM leasehold_{table};"));
                server.sql_in(DATABASE, &delete.concat());
            }
            Self::Etcd(server, _) => server.remove_all(),
            Self::Zookeeper(server, _) => server.remove_locks(&format!("/{PREFIX}")),
        }
    }

    /// Steps its clock.
    pub(super) fn step_clock_by(self, us: i64) {
        match self {
            Self::Redis(server) => server.clock().step_by(us),
            Self::Postgres(server) => {
                server.sql(&format!("UPDATE clock_steps SET us = us + {us}"));
            }
            Self::Mysql(server) => {
                server.sql_in(DATABASE, &format!("UPDATE clock_steps SET us = us + {us}"));
            }
            Self::Etcd(..) | Self::Zookeeper(..) => self.has_no_such_fault(),
        }
    }

    /// Its make and version.
    pub(super) fn version(self) -> String {
        match self {
            Self::Redis(server) => {
                let info = server.command(&["INFO", "server"]).text();
                let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
                format!("redis {}", version.unwrap_or("of no version"))
            }
            Self::Postgres(server) => {
                let version = server.sql("SHOW server_version");
                let number = version[0][0].split(' ').next().expect("one part at least");
                format!("PostgreSQL {number}")
            }
            Self::Mysql(server) => {
                let version = server.sql("SELECT version()");
                let number = version[0][0].split('-').next().expect("one part at least");
                let make = if version[0][0].contains("MariaDB") { "MariaDB" } else { "MySQL" };
                format!("{make} {number}")
            }
            Self::Etcd(server, _) => format!("etcd {}", server.version()),
            Self::Zookeeper(server, _) => format!("ZooKeeper {}", server.version()),
        }
    }

    /// The names of the keys that it has, and the time to live of each. `None` means for ever.
    pub(super) fn keys(self) -> Vec<(String, Option<Duration>)> {
        match self {
            Self::Redis(server) => {
                let names = server.command(&["KEYS", "*"]).texts().into_iter();
                let key = |name: String| left(server, &name).map(|left| (name, left));
                names.filter_map(key).collect()
            }
            Self::Postgres(server) => {
                let rows = server.sql(POSTGRES_KEYS);
                let left = |us: &str| us.parse().map(Duration::from_micros).expect("a number");
                rows.into_iter().map(|row| (row[0].clone(), Some(left(&row[1])))).collect()
            }
            Self::Mysql(server) => {
                let rows = server.sql_in(DATABASE, MYSQL_KEYS);
                let left = |us: &str| us.parse().map(Duration::from_micros).expect("a number");
                rows.into_iter().map(|row| (row[0].clone(), Some(left(&row[1])))).collect()
            }
            Self::Etcd(server, _) => {
                let key = |(key, left): (String, Option<u64>)| {
                    Some((etcd_key(&key)?, left.map(Duration::from_secs)))
                };
                server.keys().into_iter().filter_map(key).collect()
            }
            Self::Zookeeper(server, _) => {
                // The node of a lock has no time of its own. It ends with its session.
                let locks = server.locks_in_use(&format!("/{PREFIX}"));
                locks.into_iter().map(|name| (name, Some(SESSION))).collect()
            }
        }
    }
}

/// The name of a lease or a place in etcd.
fn etcd_key(key: &str) -> Option<String> {
    let key = key.strip_prefix(PREFIX)?;
    if let Some(name) = key.strip_prefix("/held/") {
        return Some(name.to_owned());
    }
    let (name, _) = key.strip_prefix("/line/")?.split_once('\t')?;
    Some(format!("{{{name}}}:lh:place"))
}

/// For how long a key stays; `None` if it is gone meanwhile.
fn left(server: &RedisServer, name: &str) -> Option<Option<Duration>> {
    // The slot of the key may have moved meanwhile.
    let Ok(Reply::Int(left)) = server.try_command(&["PTTL", name]) else { return None };
    match u64::try_from(left) {
        Ok(left) => Some(Some(Duration::from_millis(left))),
        Err(_) => (left == -1).then_some(None),
    }
}
