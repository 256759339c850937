//! Runs many seeds side by side.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host, SystemHost};
use leasehold_testkit::history::{Violation, check, summary};
use leasehold_testkit::simulation::{Kind, run};
use strum::VariantArray as _;

use crate::args::{Args, Sought};

/// The name under which seeds with a panic are counted, in addition to the invariants.
const PANIC: &str = "panic";

/// How many violations are printed at most.
const PRINTED_MAX: usize = 20;

/// In this number of worlds of all kinds, or in more, some hand-overs must have been compared.
const HAND_OVERS_IN: u64 = 50;

/// The result of all seeds.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) seeds: u64,
    pub(crate) simulated: Duration,
    /// How much of that time was calm. Some invariants are checked only then.
    pub(crate) calm: Duration,
    pub(crate) wall: Duration,
    pub(crate) acquisitions: u64,
    pub(crate) acquisitions_least: Option<u64>,
    pub(crate) calls: u64,
    /// How many hand-overs between two clients had their fencing tokens compared.
    pub(crate) hand_overs: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) faults_least: Option<u64>,
    pub(crate) in_model: u64,
    pub(crate) promised: BTreeMap<&'static str, u64>,
    pub(crate) not_covered: BTreeMap<&'static str, u64>,
    /// How many worlds of each kind there were, and counts of events that only such worlds have.
    pub(crate) kinds: BTreeMap<&'static str, u64>,
    pub(crate) did: BTreeMap<&'static str, u64>,
    /// Whether the user asked for a kind of worlds. Some kinds have no fencing tokens to compare.
    is_of_a_kind: bool,
    hashes: BTreeMap<u64, u64>,
    found: Option<(u64, Violation)>,
    panicked: Vec<u64>,
    printed: usize,
}

impl Sweep {
    pub(crate) fn run(args: &Args) -> Self {
        let clock = SystemHost;
        let began: Moment = clock.now();
        let (next, enough) = (AtomicU64::new(args.seeds.start), AtomicBool::new(false));
        let is_of_a_kind = !args.worlds.is_empty();
        let sweep = Mutex::new(Self { is_of_a_kind, ..Self::default() });
        std::thread::scope(|scope| {
            for _ in 0..args.jobs {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= args.seeds.end || enough.load(Ordering::Relaxed) {
                            return;
                        }
                        if !args.want(seed) {
                            continue;
                        }
                        let one = One::of(seed, args);
                        let mut sweep = sweep.lock().expect("no panic passes a run");
                        sweep.add(seed, one, args);
                        enough.fetch_or(
                            sweep.has_found(args.mode.until_violation),
                            Ordering::Relaxed,
                        );
                    }
                });
            }
        });
        let mut sweep = sweep.into_inner().expect("no panic passes a run");
        sweep.wall = clock.now().since(began);
        sweep
    }

    fn add(&mut self, seed: u64, one: Option<One>, args: &Args) {
        self.seeds += 1;
        let Some(one) = one else {
            println!("panic in seed {seed}; replay: {}", replay(seed, args));
            *self.promised.entry(PANIC).or_default() += 1;
            return self.panicked.push(seed);
        };
        self.simulated += one.simulated;
        self.calm += one.calm;
        self.acquisitions += one.acquisitions;
        self.acquisitions_least =
            Some(self.acquisitions_least.unwrap_or(u64::MAX).min(one.acquisitions));
        self.calls += one.calls;
        self.hand_overs += one.hand_overs;
        let faults = one.faults.values().sum();
        self.faults_least = Some(self.faults_least.unwrap_or(u64::MAX).min(faults));
        for (kind, number) in one.faults {
            *self.faults.entry(kind).or_default() += number;
        }
        for kind in one.kinds {
            *self.kinds.entry(kind).or_default() += 1;
        }
        for (what, times) in one.did {
            *self.did.entry(what).or_default() += times;
        }
        self.in_model += u64::from(one.in_model);
        if args.mode.hashes {
            self.hashes.insert(seed, one.hash);
        }
        for violation in one.violations {
            let counted =
                if violation.promised { &mut self.promised } else { &mut self.not_covered };
            *counted.entry(violation.invariant.name()).or_default() += 1;
            // If the user looks for one invariant, violations of others are only counted.
            let is_told = !matches!(args.mode.until_violation, Some(Sought::One(_)));
            if violation.promised && is_told && self.printed < PRINTED_MAX {
                self.printed += 1;
                let name = violation.invariant.name();
                let replay = replay(seed, args);
                let told =
                    format!("violation {name} seed {seed}: {violation}\n    replay: {replay}");
                // The hashes on standard output are compared, so violations go to standard error.
                if args.mode.hashes {
                    eprintln!("{told}");
                } else {
                    println!("{told}");
                }
            }
            let is_sought = match args.mode.until_violation {
                Some(Sought::One(sought)) => sought == violation.invariant,
                Some(Sought::Any) => true,
                None => false,
            };
            let is_earlier = self.found.as_ref().is_none_or(|(found, _)| seed < *found);
            if is_sought && violation.promised && is_earlier {
                self.found = Some((seed, violation));
            }
        }
    }

    /// Whether the search has succeeded. A search for any violation also finds a panic.
    fn has_found(&self, sought: Option<Sought>) -> bool {
        self.found.is_some() || sought == Some(Sought::Any) && !self.panicked.is_empty()
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.promised.is_empty() || self.compares_nothing()
    }

    /// Whether the check of fencing tokens had no hand-over to judge in this many worlds.
    fn compares_nothing(&self) -> bool {
        self.seeds >= HAND_OVERS_IN && self.hand_overs == 0 && !self.is_of_a_kind
    }

    pub(crate) fn print_hashes(&self) {
        for (seed, hash) in &self.hashes {
            println!("{seed} {hash:016x}");
        }
    }

    pub(crate) fn print_found(&self, sought: Sought) -> ExitCode {
        match &self.found {
            Some((seed, violation)) => {
                let invariant = violation.invariant;
                println!(
                    "found {invariant} at seed {seed} after {} seeds: {violation}",
                    self.seeds
                );
                ExitCode::SUCCESS
            }
            None if sought == Sought::Any && !self.panicked.is_empty() => ExitCode::SUCCESS,
            None => {
                let what = match sought {
                    Sought::Any => "a promise",
                    Sought::One(invariant) => invariant.name(),
                };
                println!("{what} was broken in none of {} seeds", self.seeds);
                println!("others: {}", counts(&self.promised));
                ExitCode::FAILURE
            }
        }
    }

    pub(crate) fn print_verdict(&self) {
        let simulated = self.simulated.as_secs_f64();
        println!(
            "{} seeds ({} with covered faults only), {simulated:.0} simulated seconds in {:.1} s: \
             {:.0} per second",
            self.seeds,
            self.in_model,
            self.wall.as_secs_f64(),
            simulated / self.wall.as_secs_f64()
        );
        println!("calm for {:.1} % of that", 100.0 * self.calm.as_secs_f64() / simulated);
        println!(
            "{} acquisitions ({:.1} per simulated second, at least {} in each seed), {} calls, {} \
             hand-overs compared",
            self.acquisitions,
            self.acquisitions as f64 / simulated,
            self.acquisitions_least.unwrap_or_default(),
            self.calls,
            self.hand_overs
        );
        if self.compares_nothing() {
            println!("no hand-over was compared: the check of fencing tokens says nothing");
        }
        let faults: Vec<_> =
            self.faults.iter().map(|(kind, number)| format!("{kind} {number}")).collect();
        println!(
            "faults (at least {} in each seed): {}",
            self.faults_least.unwrap_or_default(),
            faults.join(", ")
        );
        println!("worlds: {}", counts(&self.kinds));
        println!("in them: {}", counts(&self.did));
        println!("violations of promises: {}", counts(&self.promised));
        println!("what was not promised and did not hold: {}", counts(&self.not_covered));
        if !self.panicked.is_empty() {
            println!("panics in seeds {:?}", self.panicked);
        }
    }
}

fn counts(counts: &BTreeMap<&'static str, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let counts: Vec<_> = counts.iter().map(|(name, number)| format!("{name} {number}")).collect();
    counts.join(", ")
}

fn replay(seed: u64, args: &Args) -> String {
    let time = match args.time_of_world().as_secs() {
        30 => String::new(),
        seconds => format!(" --time {seconds}s"),
    };
    let worlds: String = args.worlds.iter().map(|kind| format!(" --world {kind}")).collect();
    format!("cargo xtask sim --seeds {seed}..{}{time}{worlds}", seed + 1)
}

/// The result of one seed.
struct One {
    simulated: Duration,
    calm: Duration,
    hash: u64,
    acquisitions: u64,
    calls: u64,
    hand_overs: u64,
    faults: BTreeMap<String, u64>,
    kinds: Vec<&'static str>,
    did: BTreeMap<&'static str, u64>,
    in_model: bool,
    violations: Vec<Violation>,
}

impl One {
    /// Runs a seed. Returns `None` if something panicked.
    fn of(seed: u64, args: &Args) -> Option<Self> {
        let plan = args.plan(seed);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&plan))).ok()?;
        if args.trace {
            for event in &ran.events {
                println!("{:?} {:?}", event.at, event.what);
            }
        }
        let bounds = plan.bounds();
        let summary = summary(&ran.events, &bounds);
        Some(Self {
            simulated: ran.simulated,
            calm: summary.calm,
            hash: ran.hash,
            acquisitions: summary.acquisitions,
            calls: summary.calls,
            hand_overs: summary.hand_overs,
            faults: summary
                .faults
                .iter()
                .map(|(kind, one)| (kind.to_string(), one.injected))
                .collect(),
            kinds: Kind::VARIANTS
                .iter()
                .filter(|kind| plan.is(**kind))
                .map(|kind| kind.name())
                .collect(),
            did: ran.did,
            in_model: plan.is_covered(),
            violations: check(&ran.events, &bounds),
        })
    }
}
