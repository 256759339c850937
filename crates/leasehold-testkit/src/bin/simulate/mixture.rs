//! Runs clients of another library together with ours, for each seed.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_testkit::simulation::{Mixed, Mixture};

use crate::args::Args;

pub(crate) fn run(args: &Args) -> ExitCode {
    let next = AtomicU64::new(args.seeds.start);
    let all: Mutex<Vec<(u64, Mixed)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        return;
                    }
                    let mut mixture = Mixture::of_seed(seed);
                    mixture.span = args.time.unwrap_or(mixture.span);
                    let mixed = mixture.run();
                    all.lock().expect("no panic passes a run").push((seed, mixed));
                }
            });
        }
    });
    let mut all = all.into_inner().expect("no panic passes a run");
    all.sort_by_key(|(seed, _)| *seed);
    let ours: u64 = all.iter().map(|(_, one)| one.ours.grants()).sum();
    let foreign: u64 = all.iter().map(|(_, one)| one.foreign.grants()).sum();
    println!("{} seeds: {ours} grants to our clients, {foreign} to others", all.len());
    let most = |figure: fn(&Mixed) -> f64| {
        all.iter()
            .map(|(seed, one)| (figure(one), *seed))
            .fold((0.0, 0), |most, one| if one.0 > most.0 { one } else { most })
    };
    for (what, figure) in [
        ("a task of ours waits", (|one| one.ours.longest_wait.as_secs_f64()) as fn(&Mixed) -> f64),
        ("another library waits", |one| one.foreign.longest_gap.as_secs_f64()),
        ("another library waits at first", |one| one.foreign.first.as_secs_f64()),
    ] {
        let (most, seed) = most(figure);
        println!("the longest that {what}: {most:.3} s, seed {seed}");
    }
    let mut has_failed = false;
    for (seed, broken) in all.iter().filter_map(|(seed, one)| Some((seed, one.broken()?))) {
        has_failed = true;
        println!("seed {seed}: {broken} in {:?}", Mixture::of_seed(*seed));
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
