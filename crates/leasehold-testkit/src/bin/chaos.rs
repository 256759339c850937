//! `chaos` injects faults into real servers and processes, and checks the promises.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use leasehold_testkit::chaos::campaign::Campaign;
use leasehold_testkit::chaos::child::{self, ChildPlan};
use leasehold_testkit::chaos::kind::Kind;
use leasehold_testkit::chaos::left_out::{self, Parted};
use leasehold_testkit::chaos::servers::Deployment;
use leasehold_testkit::chaos::worker::{self, WorkerPlan};
use leasehold_testkit::chaos::world::Make;
use leasehold_testkit::history::event::ProcessId;
use leasehold_testkit::servers::Disk;

const USAGE: &str = "\
usage: chaos [FLAGS]
  --minutes N       how long faults are injected; default 1
  --seed S          the seed of all choices; default: a random one
  --json FILE       the file for the record
  --worlds N        how many worlds run side by side; default 3
  --deployment D    one (default), tls, sentinels, cluster, quorum, postgres,
                    mysql, etcd or zookeeper
  --kinds A,B       only these faults
  --black-holes N   how many children lose their server for good; default 100
  --ttl-ms N        the ttl of every lock; default 1200
  --leasehold FILE  the command; default: beside this program
  --without-run     without `leasehold run`, and without faults that need it
  --commit HASH     the commit in the record
The fault `disk-full` mounts file systems in memory. It needs root, or
`unshare -Urm`. Without that right, the run says that it leaves the fault out.
Exits with 1 if a promise was broken, or if a fault counted too rarely.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some("worker") => Flags::read(&args[1..]).and_then(|flags| Ok(worker::run(work(&flags)?))),
        Some("child") => Flags::read(&args[1..]).and_then(|flags| Ok(child::run(&live(&flags)?))),
        _ => Flags::read(&args).and_then(|flags| fire(&flags)),
    };
    done.unwrap_or_else(|complaint| {
        eprintln!("chaos: {complaint}\n{USAGE}");
        ExitCode::from(64)
    })
}

/// The flags, by their names without the dashes.
struct Flags(HashMap<String, String>);

impl Flags {
    fn read(args: &[String]) -> Result<Self, String> {
        let (mut flags, mut args) = (HashMap::new(), args.iter());
        while let Some(flag) = args.next() {
            let name = flag.strip_prefix("--").ok_or_else(|| format!("what is `{flag}`?"))?;
            let value = match name {
                "without-run" | "shares" => String::new(),
                _ => args.next().ok_or_else(|| format!("`{flag}` wants a value"))?.clone(),
            };
            flags.insert(name.to_owned(), value);
        }
        Ok(Self(flags))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("`--{name} {value}` is not understood"))
    }

    fn value<T: FromStr>(&self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("`--{name}` is missing"))
    }

    fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        Ok(self.optional(name)?.unwrap_or(default))
    }
}

fn work(flags: &Flags) -> Result<WorkerPlan, String> {
    let keys: String = flags.value("keys")?;
    Ok(WorkerPlan {
        url: flags.value("url")?,
        ttl: Duration::from_millis(flags.value("ttl-ms")?),
        keys: keys.split(',').map(str::to_owned).collect(),
        shares: flags.has("shares"),
        tasks: flags.value("tasks")?,
        process: ProcessId(flags.value("process")?),
        seed: flags.value("seed")?,
    })
}

fn live(flags: &Flags) -> Result<ChildPlan, String> {
    Ok(ChildPlan {
        process: ProcessId(flags.value("process")?),
        lives: Duration::from_millis(flags.value("lives-ms")?),
        every: Duration::from_millis(flags.value("every-ms")?),
    })
}

fn campaign(flags: &Flags) -> Result<Campaign, String> {
    let chaos = std::env::current_exe().map_err(|error| format!("cannot find chaos: {error}"))?;
    let without_run = flags.has("without-run");
    let leasehold: PathBuf = flags.or("leasehold", chaos.with_file_name("leasehold"))?;
    if !without_run && !leasehold.is_file() {
        let leasehold = leasehold.display();
        return Err(format!("{leasehold} is missing: build it, or use --without-run"));
    }
    let deployment: String = flags.or("deployment", Deployment::One.name().to_owned())?;
    let deployment = Deployment::of_name(&deployment)
        .ok_or_else(|| format!("`{deployment}` is not a deployment"))?;
    let mut kinds = match flags.optional::<String>("kinds")? {
        None => deployment.kinds(),
        Some(names) => names
            .split(',')
            .map(|name| Kind::of_name(name).ok_or_else(|| format!("`{name}` is not a fault")))
            .collect::<Result<_, _>>()?,
    };
    if without_run {
        kinds.retain(|kind| *kind != Kind::RunStop);
    }
    let Parted { kinds, left_out } = left_out::part(kinds, Disk::refusal);
    left_out::lines(&left_out).for_each(|line| println!("{line}"));
    if kinds.is_empty() {
        return Err("no fault is left to be done".to_owned());
    }
    let mut seed = [0; 4];
    getrandom::fill(&mut seed).map_err(|error| format!("no random numbers: {error}"))?;
    let minutes = flags.or("minutes", 1.0)?;
    if !(0.0..=120.0).contains(&minutes) {
        return Err("a run takes 0 to 120 minutes".to_owned());
    }
    Ok(Campaign {
        make: Make {
            chaos,
            leasehold: (!without_run).then_some(leasehold),
            deployment,
            on_disks: kinds.contains(&Kind::DiskFull),
            ttl: Duration::from_millis(flags.or("ttl-ms", 1_200)?),
            workers: 3,
            tasks: 5,
            runs: if without_run { 0 } else { 2 },
        },
        worlds: flags.or("worlds", 3)?,
        minutes,
        seed: flags.or("seed", u32::from_ne_bytes(seed).into())?,
        kinds,
        left_out,
        black_holes: if without_run || deployment != Deployment::One {
            0
        } else {
            flags.or("black-holes", 100)?
        },
        histories: std::env::temp_dir(),
        commit: flags.or("commit", "unknown".to_owned())?,
    })
}

fn fire(flags: &Flags) -> Result<ExitCode, String> {
    let campaign = campaign(flags)?;
    println!("seed {}", campaign.seed);
    let (record, wrong) = campaign.run();
    let text = serde_json::to_string_pretty(&record).expect("names and numbers");
    println!("{text}");
    if let Some(path) = flags.optional::<PathBuf>("json")? {
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
