//! One planted bug under the simulation: builds and runs it, and judges the end.

use std::process::Command;
use std::time::Duration;

use super::copy::Copy;
use super::watch::{Ended, watch};
use super::{By, Outcome};
use crate::step;

/// Build settings of the copy. Dependencies are built as always. The code with the bugs is built
/// with little optimisation, since it is built again for each bug.
const PROFILE: [&str; 5] = [
    "profile.release.incremental=true",
    "profile.release.package.leasehold.opt-level=1",
    "profile.release.package.leasehold.debug=false",
    "profile.release.package.leasehold-testkit.opt-level=1",
    "profile.release.package.leasehold-testkit.debug=false",
];

/// The settings for trying bugs.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    pub(super) copy: &'a Copy,
    pub(super) seeds: u64,
    pub(super) jobs: usize,
    pub(super) limit: Duration,
}

impl Trial<'_> {
    /// Builds the simulation from the copy as it is now.
    pub(super) fn build(&self) -> Result<(), String> {
        let mut cargo = step::cargo();
        cargo.args(["build", "--quiet", "--release", "--locked"]);
        cargo.args(["--package", "leasehold-testkit", "--bin", "simulate"]);
        for setting in PROFILE {
            cargo.args(["--config", setting]);
        }
        cargo.current_dir(&self.copy.root).env("CARGO_TARGET_DIR", &self.copy.target);
        step::output(&mut cargo).map(drop)
    }

    /// Builds the simulation and runs it until the bug is found.
    pub(super) fn run(&self, invariant: &str) -> Outcome {
        if let Err(complaint) = self.build() {
            return Outcome::Failed(format!("it does not build: {complaint}"));
        }
        let mut simulate = Command::new(self.copy.target.join("release/simulate"));
        simulate.args(["--until-violation", invariant]);
        simulate.args(["--seeds", &format!("0..{}", self.seeds)]);
        simulate.args(["--jobs", &self.jobs.to_string()]);
        observe(simulate, invariant, self.limit)
    }
}

/// Runs the simulation and says how it ended.
fn observe(simulate: Command, invariant: &str, limit: Duration) -> Outcome {
    let invariant = invariant.to_owned();
    match watch(simulate, limit, move |line| found(line, &invariant)) {
        Ok(ended) => conclude(ended),
        Err(why) => Outcome::Failed(why),
    }
}

fn conclude(ended: Ended<(u64, u64)>) -> Outcome {
    let Ended { status, kept, last_words } = ended;
    match (status.code(), kept) {
        (Some(0), Some((seed, seeds_tried))) => Outcome::Found(By::Seed { seed, seeds_tried }),
        (Some(1), None) => Outcome::Failed("no seed finds it".to_owned()),
        _ => Outcome::Failed(format!("it crashed: {status} {last_words}")),
    }
}

/// Reads `found INVARIANT at seed N after M seeds`, followed by what was found.
fn found(line: &str, invariant: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("found ")?.strip_prefix(invariant)?.strip_prefix(" at seed ")?;
    let (seed, rest) = rest.split_once(" after ")?;
    let (seeds_tried, _what) = rest.split_once(" seeds")?;
    Some((seed.parse().ok()?, seeds_tried.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the outcome of a shell script that plays the simulation.
    #[track_caller]
    fn assert_outcome(script: &str, limit: Duration, expected: Result<(u64, u64), &str>) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        match (observe(shell, "no-overlap", limit), expected) {
            (Outcome::Found(By::Seed { seed, seeds_tried }), Ok(expected)) => {
                assert_eq!((seed, seeds_tried), expected);
            }
            (Outcome::Failed(why), Err(part)) => assert!(why.contains(part), "{why}"),
            (outcome, _) => panic!("{script}: {outcome:?}"),
        }
    }

    #[test]
    fn only_what_its_own_invariant_finds_is_found() {
        let minute = Duration::from_mins(1);
        let found = "echo violation; echo found no-overlap at seed 17 after 18 seeds: two";
        assert_outcome(found, minute, Ok((17, 18)));
        assert_outcome("exit 1", minute, Err("no seed finds it"));
        assert_outcome("echo found line-order at seed 1 after 2 seeds", minute, Err("crashed"));
        assert_outcome(&format!("{found}; exit 101"), minute, Err("crashed"));
        assert_outcome("echo panicked >&2; kill -ABRT $$", minute, Err("panicked"));
        assert_outcome("exec tail -f /dev/null", Duration::from_millis(1), Err("hangs"));
    }
}
