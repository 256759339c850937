//! The tasks of this repository: `cargo xtask test`, `check`, `tidy`, `ci`, `sim`, `chaos`, `trust`
//! and `bench`.
//!
//! One program instead of scripts, so that a laptop and a build machine do exactly the same.
#![allow(clippy::disallowed_methods, reason = "this is a tool, not the library")]

mod bench;
mod chaos;
mod check;
mod invariants;
mod planted;
mod record;
mod servers;
mod sim;
mod step;
mod suite;
mod tidy;
mod tools;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [ARGS]  every test of the workspace, doctests and examples included; with ARGS, what
               `cargo test ARGS` runs
  servers [NAME]...
               what talks to a server, tested again on Redis 6.2 and Valkey 8.1
  chaos [--minutes N] [--seed S] [--json FILE]
               real servers and processes under fire
  tidy         the rules of this repository that no compiler knows
  check        formatting, clippy, documentation, features, tidy, dependencies
  ci           check, the short simulation, servers, then test
  sim --short  100 seeds twice, to the same end, and 2 000 that follow from the commit
  sim ARGS     the simulation: `sim --seeds A..B [--world KIND] [--jobs N] [--json FILE] [--trace]`;
               `sim --help` explains every flag
  sim --planted [NAME...] [--jobs N] [--json FILE]
               plants known bugs in a copy of the sources; fails if the simulation, or the test
               that a bug names, misses one
  trust        renders TRUST.md from the records in trust/
  bench [--scenario NAME]...
               measures all scenarios, or these, keeps the records in bench/records/, and renders
               BENCHMARKS.md
  bench --render
               renders BENCHMARKS.md from the records and notes that are there";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    // Help comes before anything is built or installed.
    let asks_for_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    // The simulation explains its own flags.
    if asks_for_help && command != "sim" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let outcome = match (command.as_str(), rest.as_slice()) {
        ("test", rest) => suite::run(rest),
        ("servers", rest) => servers::run(rest),
        ("chaos", rest) => chaos::run(rest),
        ("tidy", []) => tidy::run(),
        ("check", []) => check::run(),
        ("sim", rest) => sim::run(rest),
        ("trust", []) => trust::run(),
        ("bench", rest) => bench::run(rest),
        ("ci", []) => {
            let checked = check::run();
            let simulated = sim::run(&["--short".to_owned()]);
            let elsewhere = servers::run(&[]);
            suite::run(&[]).and(elsewhere).and(simulated).and(checked)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(complaint) => {
            eprintln!("xtask {command}: {complaint}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the root of the repository").to_owned()
}
