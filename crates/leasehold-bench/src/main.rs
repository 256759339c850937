//! Measures Leasehold, each figure beside a yardstick that is measured in the same run, in turns
//! with it.
//!
//! Machines are noisy: read medians and ratios, not single values, and compare within one run only.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time on real threads")]

mod figure;
mod handoff;
mod renew;
mod roundtrip;
mod usage;
mod yardstick;

use clap::{Parser, Subcommand};
use leasehold::Error;

use crate::figure::Report;

/// Counts what is allocated, for figures in bytes.
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
    #[arg(long)]
    url: Option<String>,
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let scratch = tempfile::tempdir()?;
    let url = |common: &Common| {
        common
            .url
            .clone()
            .unwrap_or_else(|| format!("sqlite:{}", scratch.path().join("locks.db").display()))
    };
    let (json, report): (bool, Result<Report, Error>) = match scenario {
        Scenario::Roundtrip { common, pairs } => {
            (common.json, runtime.block_on(roundtrip::measure(&url(&common), pairs)))
        }
        Scenario::Renew { common, leases, seconds } => {
            (common.json, runtime.block_on(renew::measure(&url(&common), leases, seconds)))
        }
        Scenario::Handoff { common, rounds } => {
            (common.json, runtime.block_on(handoff::measure(&url(&common), rounds)))
        }
        Scenario::HandoffPeer { url, rounds } => {
            runtime.block_on(handoff::peer(&url, rounds))?;
            return Ok(());
        }
    };
    report?.print(json);
    Ok(())
}
