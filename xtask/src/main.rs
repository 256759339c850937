//! The tasks of this repository. `usage.txt` lists them.
//!
//! This is one program and not a set of scripts, so that a laptop and a build machine do exactly
//! the same.
#![allow(clippy::disallowed_methods, reason = "this is a tool, not the library")]

mod bench;
mod chaos;
mod check;
mod interop;
mod invariants;
mod planted;
mod record;
mod rivals;
mod servers;
mod sim;
mod step;
mod suite;
mod test_program;
mod tidy;
mod tools;
mod trust;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = include_str!("usage.txt");

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    // Help comes before anything is built or installed.
    let asks_for_help = rest.iter().any(|arg| arg == "--help" || arg == "-h");
    // The simulation explains its own flags.
    if asks_for_help && command != "sim" {
        print!("{USAGE}");
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
        ("interop", rest) => interop::run(rest),
        ("bench", rest) => bench::run(rest),
        ("ci", []) => {
            let checked = check::run();
            let simulated = sim::run(&["--short".to_owned()]);
            let elsewhere = servers::run(&[]);
            let together = interop::run(&["--exclusion".to_owned()]);
            suite::run(&[]).and(together).and(elsewhere).and(simulated).and(checked)
        }
        _ => {
            eprint!("{USAGE}");
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

/// A file of the repository, by its path from the root.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

/// The root of the repository.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the root of the repository").to_owned()
}
