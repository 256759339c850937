//! Runs seeds of the simulation, and prints the violations.
//!
//! `cargo xtask sim` builds it and passes its arguments on.

mod args;
mod contention;
mod mixture;
mod record;
mod sweep;

use std::process::ExitCode;

use self::args::{Args, Mode};
use self::sweep::Sweep;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("simulate: {error}; `--help` explains every flag");
            return ExitCode::from(64);
        }
    };
    match args.mode {
        Mode::Contention => return contention::run(&args),
        Mode::Mixture => return mixture::run(&args),
        Mode::Help => {
            print!("{}", args::usage());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let sweep = Sweep::run(&args);
    match args.mode {
        Mode::Hashes => sweep.print_hashes(),
        Mode::UntilViolation(sought) => return sweep.print_found(sought),
        Mode::Check | Mode::Contention | Mode::Mixture | Mode::Help => sweep.print_verdict(),
    }
    if let Some(path) = &args.json
        && let Err(error) = record::write(path, &args, &sweep)
    {
        eprintln!("simulate: cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if sweep.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
