//! What is done to this repository: `cargo xtask test`, `tidy`, `check` and `ci`.
//!
//! One program instead of scripts, so that a laptop and a build machine do the very same.
#![allow(clippy::disallowed_methods, reason = "this is a tool, not the library")]

mod check;
mod step;
mod suite;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [ARGS]  every test of the workspace, doctests and examples included; with ARGS, what
               `cargo test ARGS` runs
  tidy         the rules of this repository that no compiler knows
  check        formatting, clippy, documentation, features, tidy, dependencies
  ci           check, then test";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let outcome = match (command.as_str(), rest.as_slice()) {
        ("test", rest) => suite::run(rest),
        ("tidy", []) => tidy::run(),
        ("check", []) => check::run(),
        ("ci", []) => {
            let checked = check::run();
            suite::run(&[]).and(checked)
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
