//! Runs ten clients that want one lock of five nodes, for each seed.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_testkit::simulation::{Contended, Contention};

use crate::args::Args;

pub(crate) fn run(args: &Args) -> ExitCode {
    let next = AtomicU64::new(args.seeds.start);
    let all: Mutex<Vec<(u64, Contended)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= args.seeds.end {
                        return;
                    }
                    let mut contention = Contention::of_seed(seed);
                    contention.span = args.time.unwrap_or(contention.span);
                    contention.grants_max = args.grants.unwrap_or(contention.grants_max);
                    let contended = contention.run();
                    all.lock().expect("no panic passes a run").push((seed, contended));
                }
            });
        }
    });
    let mut all = all.into_inner().expect("no panic passes a run");
    all.sort_by_key(|(seed, _)| *seed);
    let grants: u64 = all.iter().map(|(_, one)| one.grants()).sum();
    let requests: u64 = all.iter().map(|(_, one)| one.requests).sum();
    println!(
        "{} seeds, {grants} grants, {:.2} requests to one node for each",
        all.len(),
        requests as f64 / grants as f64
    );
    let most = |figure: fn(&Contended) -> f64| {
        all.iter()
            .map(|(seed, one)| (figure(one), *seed))
            .fold((0.0, 0), |most, one| if one.0 > most.0 { one } else { most })
    };
    for (what, figure) in [
        ("requests for each grant", Contended::requests_per_grant as fn(&Contended) -> f64),
        ("seconds without a turn", |one| one.longest_wait.as_secs_f64()),
        ("seconds without a grant", |one| one.longest_gap.as_secs_f64()),
    ] {
        let (most, seed) = most(figure);
        println!("most {what}: {most:.3}, seed {seed}");
    }
    let mut has_failed = false;
    for (seed, broken) in all.iter().filter_map(|(seed, one)| Some((seed, one.broken()?))) {
        has_failed = true;
        println!("seed {seed}: {broken}");
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
