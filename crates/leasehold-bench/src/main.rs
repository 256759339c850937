//! Measures Leasehold. Each figure comes with a yardstick that is measured alternately in the same
//! run.
//!
//! Machines are noisy: read medians and ratios, not single values. Compare only within one run.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time on real threads")]

mod bare_lock;
mod bare_redis;
mod clock;
mod cluster_renew;
mod cycles;
mod engines;
mod failover;
mod figure;
mod handoff;
mod hot;
mod idle;
mod many;
mod opening;
mod peer;
mod quorum;
mod reach;
mod recording;
mod renew;
mod requests;
mod rival;
mod roundtrip;
mod rwlock;
mod samples;
mod semaphore;
mod throughput;
mod usage;
mod waiters;
mod yardstick;

use std::time::Duration;

use clap::{Parser, Subcommand};
use leasehold::Error;
use leasehold_testkit::servers::RedisServer;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::runtime::{Builder, Runtime};

use figure::Report;

/// Counts allocations, for figures in bytes.
#[cfg(feature = "memory")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

#[derive(Parser)]
#[command(about = "Measures Leasehold. Compares each figure with a yardstick of the same run")]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(clap::Args)]
struct Common {
    /// Which store to measure; default: the SQLite store in a temporary file
    #[arg(long, global = true, conflicts_with = "redis")]
    url: Option<String>,
    /// Measure on a private Redis server, or on five of them. They inherit the cores of this
    /// process
    #[arg(long, global = true)]
    redis: bool,
    /// Use a runtime with this many worker threads; default: the main thread alone, but two threads
    /// for `hot`
    #[arg(long, global = true)]
    workers: Option<usize>,
    /// Pin this process, its server and its other processes to this many cores
    #[arg(long, global = true)]
    cores: Option<usize>,
    /// Print one JSON object per figure instead of a table
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Scenario {
    /// One client locks and releases, alone
    Roundtrip {
        /// How many pairs of lock and release
        #[arg(long, default_value_t = 6_000)]
        pairs: usize,
    },
    /// One client locks and releases over TLS, and another one over plain TCP. It starts a private
    /// server of its own
    Tls {
        /// How many pairs of lock and release
        #[arg(long, default_value_t = 6_000)]
        pairs: usize,
    },
    /// One client locks and releases at a primary with sentinels, then in a cluster. Another one
    /// does so at a server alone. It starts private servers of its own
    Deployments {
        /// How many pairs of lock and release
        #[arg(long, default_value_t = 6_000)]
        pairs: usize,
    },
    /// A primary fails over, again and again: first with sentinels, then in a cluster. It starts
    /// private servers of its own
    Failover {
        /// How many failovers of each kind
        #[arg(long, default_value_t = 25)]
        rounds: usize,
    },
    /// Many tasks of one client lock and release their own keys
    Throughput {
        /// How often each kind is measured
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// For how long each time
        #[arg(long, default_value_t = 250)]
        ms: u64,
    },
    /// Two processes hand one lock to each other
    Handoff {
        /// How many times each of them hands it over
        #[arg(long, default_value_t = 1_200)]
        rounds: usize,
    },
    /// Many tasks of one process, then of several, want one key
    Hot {
        /// How often each is measured
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// For how long each time; several processes get twice that
        #[arg(long, default_value_t = 1_000)]
        ms: u64,
    },
    /// Many tasks of several processes wait
    Waiters {
        /// How many tasks, all together
        #[arg(long, default_value_t = 10_000)]
        tasks: usize,
        /// For how many seconds to measure
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Many tasks of one client share locks, alone and with a writer
    Rwlock {
        /// How often each is measured
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// For how long each time
        #[arg(long, default_value_t = 500)]
        ms: u64,
    },
    /// One client takes three names together, and a thread that blocks takes one
    Many {
        /// How many pairs of lock and release of each kind
        #[arg(long, default_value_t = 6_000)]
        pairs: usize,
    },
    /// Many tasks of one client want permits, with more and more waiters
    Semaphore {
        /// How often each number of waiters is measured
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// For how long each time
        #[arg(long, default_value_t = 1_000)]
        ms: u64,
    },
    /// One client holds many leases and renews them
    Renew {
        /// How many leases
        #[arg(long, default_value_t = 100_000)]
        leases: usize,
        /// For how many thirds of the ttl, which is 10 s, to measure, twice
        #[arg(long, default_value_t = 3)]
        rounds: u32,
    },
    /// One client holds many leases in a cluster, of which one node stops or dies. It starts
    /// private servers of its own
    ClusterRenew {
        /// How many leases
        #[arg(long, default_value_t = 10_000)]
        leases: usize,
        /// How often a node stops, and how often one dies
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// One task locks and releases a key that its client keeps in between
    Idle {
        /// How often each kind is measured
        #[arg(long, default_value_t = 9)]
        rounds: usize,
        /// How many locks each time
        #[arg(long, default_value_t = 5_000)]
        cycles: u32,
    },
    /// One client locks at five servers, also while one and two of them are silent
    Quorum {
        /// How often each is measured
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// How many locks each time
        #[arg(long, default_value_t = 2_000)]
        acquires: usize,
        /// After how many ms a server that is silent is taken to have been noticed
        #[arg(long, default_value_t = 1_000)]
        noticed_ms: u64,
    },
    /// `leasehold run -n` at three servers, of which one is silent, and at three far ones. It
    /// starts private servers of its own, and the command that is built beside it
    Opening {
        /// How many runs with all servers healthy, and as many with one that is silent
        #[arg(long, default_value_t = 30)]
        pairs: usize,
        /// How many runs with far servers
        #[arg(long, default_value_t = 50)]
        tries: usize,
    },
    /// Locks on a PostgreSQL server, compared with bare statements. It starts a private server of
    /// its own
    Engines {
        /// How many pairs of lock and release
        #[arg(long, default_value_t = 7_000)]
        pairs: usize,
        /// How many leases a client holds
        #[arg(long, default_value_t = 10_000)]
        leases: usize,
        /// For how many seconds waiters and leases are watched
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
    /// Obeys the orders of `cargo xtask bench --rivals`, as a program of another library does
    #[command(hide = true)]
    Rival {
        program: rival::Program,
        /// The Redis server, as HOST:PORT, several of them, or another store as a URL
        address: String,
        ttl_ms: u64,
        /// For libraries that poll. Ours does not
        _poll_ms: u64,
    },
    /// A ZooKeeper server for programs of the bench, until standard input ends
    #[command(hide = true)]
    Zookeeper,
    /// A longer way to the server on a port of this machine, until standard input ends
    #[command(hide = true)]
    Distance { port: u16, trip_us: u64 },
    /// One of the other processes of a scenario
    #[command(hide = true)]
    Peer {
        #[command(subcommand)]
        of: PeerOf,
    },
}

#[derive(Subcommand)]
enum PeerOf {
    Handoff,
    Hot {
        #[arg(long)]
        tasks: usize,
    },
    Waiters {
        #[arg(long)]
        tasks: usize,
        #[arg(long)]
        keys: usize,
    },
}

impl Scenario {
    /// How many servers the scenario needs.
    const fn servers(&self) -> usize {
        if let Self::Quorum { .. } = self { quorum::NODES } else { 1 }
    }

    /// How many worker threads it has, unless told otherwise. `None` is the main thread alone.
    fn workers(&self) -> Option<usize> {
        match self {
            Self::Hot { .. } => Some(2),
            // Like a program with `#[tokio::main]`. The programs of other libraries use that.
            Self::Rival { .. } => std::thread::available_parallelism().ok().map(usize::from),
            _ => None,
        }
    }

    /// Runs the scenario on the store at `url`, or on `servers` if it needs several. The other
    /// process of a scenario has no report.
    async fn run(self, url: &str, servers: &[RedisServer]) -> Result<Option<Report>, Error> {
        let report = match self {
            Self::Roundtrip { pairs } => roundtrip::measure(url, pairs).await?,
            Self::Failover { rounds } => failover::measure(rounds).await?,
            Self::Deployments { pairs } => reach::measure_deployments(pairs).await?,
            Self::Tls { pairs } => reach::measure_tls(pairs).await?,
            Self::Throughput { rounds, ms } => throughput::measure(url, rounds, ms).await?,
            Self::Handoff { rounds } => handoff::measure(url, rounds).await?,
            Self::Hot { rounds, ms } => hot::measure(url, rounds, ms).await?,
            Self::Waiters { tasks, seconds } => waiters::measure(url, tasks, seconds).await?,
            Self::Rwlock { rounds, ms } => rwlock::measure(url, rounds, ms).await?,
            Self::Many { pairs } => many::measure(url, pairs).await?,
            Self::Semaphore { rounds, ms } => semaphore::measure(url, rounds, ms).await?,
            Self::Renew { leases, rounds } => renew::measure(url, leases, rounds).await?,
            Self::ClusterRenew { leases, rounds } => cluster_renew::measure(leases, rounds).await?,
            Self::Idle { rounds, cycles } => idle::measure(url, rounds, cycles).await?,
            Self::Quorum { rounds, acquires, noticed_ms } => {
                let noticed_in = Duration::from_millis(noticed_ms);
                let extent = quorum::Extent { rounds, acquires, noticed_in };
                quorum::measure(servers, extent).await?
            }
            Self::Opening { pairs, tries } => opening::measure(opening::Extent { pairs, tries })?,
            Self::Engines { pairs, leases, seconds } => {
                let watched = Duration::from_secs(seconds);
                engines::measure(engines::Extent { pairs, leases, watched }).await?
            }
            Self::Rival { program, address, ttl_ms, .. } => {
                rival::run(program, &address, ttl_ms).await?;
                return Ok(None);
            }
            Self::Zookeeper => {
                rival::serve_zookeeper();
                return Ok(None);
            }
            Self::Distance { port, trip_us } => {
                rival::serve_distance(port, Duration::from_micros(trip_us));
                return Ok(None);
            }
            Self::Peer { of } => {
                match of {
                    PeerOf::Handoff => handoff::peer(url).await,
                    PeerOf::Hot { tasks } => hot::peer(url, tasks).await,
                    PeerOf::Waiters { tasks, keys } => waiters::peer(url, tasks, keys).await,
                }?;
                return Ok(None);
            }
        };
        Ok(Some(report))
    }
}

fn main() -> std::process::ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(Arguments { common, scenario }: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(cores) = common.cores {
        pin_to(cores)?;
    }
    let workers = common.workers.or_else(|| scenario.workers());
    let runtime = runtime(workers)?;
    let scratch = tempfile::tempdir()?;
    let servers = if common.redis { scenario.servers() } else { 0 };
    let servers: Vec<_> = (0..servers).map(|_| RedisServer::start()).collect();
    let url = match (common.url, servers.first()) {
        (Some(url), _) => url,
        (None, Some(server)) => server.url(),
        (None, None) => format!("sqlite:{}", scratch.path().join("locks.db").display()),
    };
    if let Some(report) = runtime.block_on(scenario.run(&url, &servers))? {
        report.print(common.json);
    }
    Ok(())
}

/// Restricts this process and its children to the first few of its cores.
fn pin_to(cores: usize) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let mut few = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).take(cores);
    first.for_each(|core| few.set(core));
    sched_setaffinity(None, &few)
}

fn runtime(workers: Option<usize>) -> std::io::Result<Runtime> {
    match workers {
        None => Builder::new_current_thread().enable_all().build(),
        Some(workers) => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}
