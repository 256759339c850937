//! Measures Leasehold, each figure beside a yardstick that is measured in the same run, in turns
//! with it.
//!
//! Machines are noisy: read medians and ratios, not single values, and compare within one run only.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time on real threads")]

mod bare_redis;
mod figure;
mod handoff;
mod recording;
mod renew;
mod roundtrip;
mod usage;
mod yardstick;

use clap::{Parser, Subcommand};
use leasehold_testkit::servers::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// Counts what is allocated, for figures in bytes.
#[cfg(feature = "memory")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

#[derive(Parser)]
#[command(about = "Measures Leasehold, each figure beside a yardstick of the same run")]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(clap::Args)]
struct Common {
    /// Which store to measure; default: the embedded store in a temporary file
    #[arg(long, conflicts_with = "redis")]
    url: Option<String>,
    /// Measure on a private Redis server, which inherits the cores that this process is pinned to
    #[arg(long)]
    redis: bool,
    /// Run on a runtime with that many worker threads; default: on one thread, the main one
    #[arg(long)]
    workers: Option<usize>,
    /// Print one JSON object per figure instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Scenario {
    /// One client locks and releases, alone
    Roundtrip {
        #[command(flatten)]
        common: Common,
        /// How many pairs of lock and release
        #[arg(long, default_value_t = 5_000)]
        pairs: usize,
    },
    /// One client holds many leases and renews them
    Renew {
        #[command(flatten)]
        common: Common,
        /// How many leases
        #[arg(long, default_value_t = 10_000)]
        leases: usize,
        /// For how many seconds to measure
        #[arg(long, default_value_t = 20)]
        seconds: u64,
    },
    /// Two processes hand one lock to one another
    Handoff {
        #[command(flatten)]
        common: Common,
        /// How many times the lock is handed over
        #[arg(long, default_value_t = 500)]
        rounds: usize,
    },
    /// The other process of `handoff`
    #[command(hide = true)]
    HandoffPeer {
        #[arg(long)]
        url: String,
        #[arg(long)]
        rounds: usize,
    },
}

fn main() -> std::process::ExitCode {
    match run(Arguments::parse().scenario) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(scenario: Scenario) -> Result<(), Box<dyn std::error::Error>> {
    let common = match &scenario {
        Scenario::Roundtrip { common, .. }
        | Scenario::Renew { common, .. }
        | Scenario::Handoff { common, .. } => common,
        Scenario::HandoffPeer { url, rounds } => {
            runtime(None)?.block_on(handoff::peer(url, *rounds))?;
            return Ok(());
        }
    };
    let (json, runtime) = (common.json, runtime(common.workers)?);
    let scratch = tempfile::tempdir()?;
    let server = common.redis.then(RedisServer::start);
    let url = match (&common.url, &server) {
        (Some(url), _) => url.clone(),
        (None, Some(server)) => server.url(),
        (None, None) => format!("sqlite:{}", scratch.path().join("locks.db").display()),
    };
    let report = runtime.block_on(async {
        match scenario {
            Scenario::Roundtrip { pairs, .. } => roundtrip::measure(&url, pairs).await,
            Scenario::Renew { leases, seconds, .. } => renew::measure(&url, leases, seconds).await,
            Scenario::Handoff { rounds, .. } => handoff::measure(&url, rounds).await,
            Scenario::HandoffPeer { .. } => unreachable!("it has no report"),
        }
    });
    report?.print(json);
    Ok(())
}

fn runtime(workers: Option<usize>) -> std::io::Result<Runtime> {
    match workers {
        None => Builder::new_current_thread().enable_all().build(),
        Some(workers) => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}
