//! Runs seeds of the simulation, and prints the violations.
//!
//! `cargo xtask sim` builds it and passes its arguments on.

mod args;
mod contention;
mod mixture;
mod record;
mod sweep;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::Args;
use self::sweep::Sweep;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = match Args::parse().check() {
        Ok(args) => args,
        Err(error) => {
            eprintln!("simulate: {error}");
            return ExitCode::from(2);
        }
    };
    if args.mode.contention {
        return contention::run(&args);
    }
    if args.mode.mixture {
        return mixture::run(&args);
    }
    let sweep = Sweep::run(&args);
    if let Some(sought) = args.mode.until_violation {
        return sweep.print_found(sought);
    }
    if args.mode.hashes {
        sweep.print_hashes();
    } else {
        sweep.print_verdict();
    }
    if let Some(path) = &args.json
        && let Err(error) = record::write(path, &args, &sweep)
    {
        eprintln!("simulate: cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    if sweep.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
