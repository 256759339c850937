//! `cargo xtask sim`: the library on simulated servers, networks and clocks.

use std::process::Command;

use crate::{planted, step, suite, tools};

/// How many seeds the short simulation runs twice, and how many more it runs once.
const TWICE: u64 = 100;
const FRESH: u64 = 1_500;

/// Builds the simulation and runs it with `args`, or plants bugs for it to find.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    tools::need_c_compiler()?;
    match args {
        _ if args.iter().any(|arg| arg == "--help" || arg == "-h") => {
            step::run(simulate().arg("--help"))
        }
        [first, rest @ ..] if first == "--planted" => planted::run(rest),
        [only] if only == "--short" => short(),
        _ => step::run(simulate().args(["--commit", &step::commit()]).args(args)),
    }
}

fn simulate() -> Command {
    let mut cargo = step::cargo();
    cargo.args(["run", "--quiet", "--release", "--locked"]);
    cargo.args(["--package", "leasehold-testkit", "--bin", "simulate", "--"]);
    cargo
}

/// The short simulation for every change. It checks that the same seeds give the same worlds in two
/// processes. Its seeds are derived from the commit, so that each commit gets worlds of its own.
///
/// It runs the program that is built for the tests. So it needs no build of its own, but a world
/// takes a fifth longer.
fn short() -> Result<(), String> {
    let _programs = suite::build()?;
    let built = || Command::new(step::built("debug", "simulate"));
    let first = first_of(&step::commit());
    let seeds = format!("{first}..{}", first + TWICE);
    let hashes = || step::output(built().args(["--seeds", &seeds, "--hashes"]));
    let (once, again) = (hashes()?, hashes()?);
    if once != again {
        return Err(differing(&once, &again));
    }
    println!("seeds {seeds}, run twice: the same to the last event");
    let seeds = format!("{}..{}", first + TWICE, first + TWICE + FRESH);
    step::run(built().args(["--seeds", &seeds]))
}

/// The first seed for a commit; 0 if there is no commit.
fn first_of(commit: &str) -> u64 {
    let digits: String = commit.chars().take_while(char::is_ascii_hexdigit).take(9).collect();
    u64::from_str_radix(&digits, 16).unwrap_or_default() * (TWICE + FRESH)
}

fn differing(once: &str, again: &str) -> String {
    let pair = once.lines().zip(again.lines()).find(|(once, again)| once != again);
    let (once, again) = pair.unwrap_or(("too few", "lines"));
    format!(
        "the same seed gave two worlds: `{once}` and `{again}`; something reads a clock, or draws \
         what the seed does not decide"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_seeds_of_their_own() {
        assert_eq!(first_of("0000000002345"), 0);
        assert_eq!(first_of("0000000022345"), 2 * (TWICE + FRESH));
        assert_eq!(first_of("fffffffff0-dirty") / (TWICE + FRESH), 0xf_ffff_ffff);
        assert_eq!(first_of("unknown"), 0);
    }

    #[test]
    fn a_seed_that_means_two_worlds_is_named() {
        let complaint = differing("1 aa\n2 bb\n", "1 aa\n2 cc\n");
        assert!(complaint.contains("`2 bb` and `2 cc`"), "{complaint}");
    }
}
