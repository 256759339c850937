//! `chaos` injects faults into real servers and processes, and checks the promises.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand};
use leasehold_testkit::chaos::campaign::Campaign;
use leasehold_testkit::chaos::child::{self, ChildPlan};
use leasehold_testkit::chaos::kind::Kind;
use leasehold_testkit::chaos::left_out::{self, Parted};
use leasehold_testkit::chaos::servers::Deployment;
use leasehold_testkit::chaos::worker::{self, WorkerPlan};
use leasehold_testkit::chaos::world::Make;
use leasehold_testkit::history::event::ProcessId;
use leasehold_testkit::servers::Disk;
use strum::VariantArray as _;

/// Injects faults into real servers and processes, and checks the promises.
///
/// The fault `disk-full` mounts file systems in memory. It needs root, or `unshare -Urm`. Without
/// that right, the run says that it leaves the fault out. Exits with 1 if a promise was broken, or
/// if a fault counted too rarely.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask chaos", args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
struct Chaos {
    #[command(subcommand)]
    role: Option<Role>,
    #[command(flatten)]
    fire: Fire,
}

/// The programs that a campaign starts.
#[derive(Debug, Subcommand)]
enum Role {
    /// A process that locks
    #[command(hide = true)]
    Worker(Worker),
    /// The child of a `leasehold run`
    #[command(hide = true)]
    Child(Child),
}

#[derive(Debug, clap::Args)]
struct Worker {
    #[arg(long)]
    url: String,
    #[arg(long)]
    ttl_ms: u64,
    #[arg(long, value_delimiter = ',')]
    keys: Vec<String>,
    #[arg(long)]
    shares: bool,
    #[arg(long)]
    tasks: u32,
    #[arg(long)]
    process: u32,
    #[arg(long)]
    seed: u64,
}

#[derive(Debug, clap::Args)]
struct Child {
    #[arg(long)]
    process: u32,
    #[arg(long)]
    lives_ms: u64,
    #[arg(long)]
    every_ms: u64,
}

#[derive(Debug, clap::Args)]
struct Fire {
    /// How long faults are injected
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// The seed of all choices [default: a random one]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The file for the record
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many worlds run side by side
    #[arg(long, value_name = "N", default_value_t = 3)]
    worlds: usize,
    /// The form in which the servers run
    #[arg(long, default_value_t, value_parser = named::<Deployment>(Deployment::VARIANTS))]
    deployment: Deployment,
    /// Only these faults
    #[arg(long, value_delimiter = ',', value_parser = named::<Kind>(Kind::VARIANTS))]
    kinds: Vec<Kind>,
    /// How many children lose their server for good
    #[arg(long, value_name = "N", default_value_t = 100)]
    black_holes: u64,
    /// The ttl of every lock
    #[arg(long, value_name = "N", default_value_t = 1_200)]
    ttl_ms: u64,
    /// The command [default: beside this program]
    #[arg(long, value_name = "FILE")]
    leasehold: Option<PathBuf>,
    /// Without `leasehold run`, and without faults that need it
    #[arg(long)]
    without_run: bool,
    /// The commit in the record
    #[arg(long, value_name = "HASH", default_value = "unknown")]
    commit: String,
}

/// Reads one of these names.
fn named<T>(all: &'static [T]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Into<&'static str> + FromStr<Err: std::error::Error + Send + Sync + 'static>,
    T: Send + Sync,
{
    PossibleValuesParser::new(all.iter().map(|it| (*it).into())).try_map(|name| name.parse())
}

fn main() -> ExitCode {
    let Chaos { role, fire } = Chaos::parse();
    let done = match role {
        Some(Role::Worker(worker)) => Ok(worker::run(worker.plan())),
        Some(Role::Child(child)) => Ok(child::run(&child.plan())),
        None => fire.run(),
    };
    done.unwrap_or_else(|complaint| {
        eprintln!("chaos: {complaint}");
        ExitCode::from(2)
    })
}

impl Worker {
    fn plan(self) -> WorkerPlan {
        WorkerPlan {
            url: self.url,
            ttl: Duration::from_millis(self.ttl_ms),
            keys: self.keys,
            shares: self.shares,
            tasks: self.tasks,
            process: ProcessId(self.process),
            seed: self.seed,
        }
    }
}

impl Child {
    fn plan(&self) -> ChildPlan {
        ChildPlan {
            process: ProcessId(self.process),
            lives: Duration::from_millis(self.lives_ms),
            every: Duration::from_millis(self.every_ms),
        }
    }
}

impl Fire {
    fn campaign(self) -> Result<Campaign, String> {
        let chaos =
            std::env::current_exe().map_err(|error| format!("cannot find chaos: {error}"))?;
        let leasehold = self.leasehold.unwrap_or_else(|| chaos.with_file_name("leasehold"));
        if !self.without_run && !leasehold.is_file() {
            let leasehold = leasehold.display();
            return Err(format!("{leasehold} is missing: build it, or use --without-run"));
        }
        let deployment = self.deployment;
        let mut kinds = if self.kinds.is_empty() { deployment.kinds() } else { self.kinds };
        if self.without_run {
            kinds.retain(|kind| *kind != Kind::RunStop);
        }
        let Parted { kinds, left_out } = left_out::part(kinds, Disk::refusal);
        left_out::lines(&left_out).for_each(|line| println!("{line}"));
        if kinds.is_empty() {
            return Err("no fault is left to be done".to_owned());
        }
        let mut drawn = [0; 4];
        getrandom::fill(&mut drawn).map_err(|error| format!("no random numbers: {error}"))?;
        if !(0.0..=120.0).contains(&self.minutes) {
            return Err("a run takes 0 to 120 minutes".to_owned());
        }
        let has_holes = !self.without_run && deployment == Deployment::One;
        Ok(Campaign {
            make: Make {
                chaos,
                leasehold: (!self.without_run).then_some(leasehold),
                deployment,
                on_disks: kinds.contains(&Kind::DiskFull),
                ttl: Duration::from_millis(self.ttl_ms),
                workers: 3,
                tasks: 5,
                runs: if self.without_run { 0 } else { 2 },
            },
            worlds: self.worlds,
            minutes: self.minutes,
            seed: self.seed.unwrap_or_else(|| u32::from_ne_bytes(drawn).into()),
            kinds,
            left_out,
            black_holes: if has_holes { self.black_holes } else { 0 },
            histories: std::env::temp_dir(),
            commit: self.commit,
        })
    }

    fn run(mut self) -> Result<ExitCode, String> {
        let json = self.json.take();
        let campaign = self.campaign()?;
        println!("seed {}", campaign.seed);
        let (record, wrong) = campaign.run();
        let text = serde_json::to_string_pretty(&record).expect("names and numbers");
        println!("{text}");
        if let Some(path) = json {
            let written = std::fs::write(&path, text + "\n");
            written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
        // A reader of the last lines must learn this too.
        left_out::lines(&record.left_out).for_each(|line| println!("{line}"));
        for complaint in &wrong {
            println!("violation: {complaint}");
        }
        if wrong.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        println!("FAILED; the same choices again: cargo xtask chaos --seed {}", campaign.seed);
        Ok(ExitCode::FAILURE)
    }
}
