//! One planted bug under the test that must catch it: builds and runs the test, and judges the end.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::bug::Catcher;
use super::copy::Copy;
use super::watch::{Ended, watch};
use super::{By, Outcome};
use crate::step;
use crate::test_program::TestProgram;

/// The most runs of a test with the bug. Some tests need luck to catch it.
const RUNS: u64 = 3;

/// The longest time for one run of a test, so that a bug that hangs is noticed.
const LIMIT: Duration = Duration::from_mins(10);

/// Our crates are built again for each bug, for one test of seconds, whose backtrace nobody reads.
/// Other crates are built once.
const UNOPTIMISED: [&str; 6] = [
    "--config",
    "profile.dev.opt-level = 0",
    "--config",
    "profile.dev.package.\"*\".opt-level = 1",
    "--config",
    "profile.dev.debug = false",
];

/// The name of a test: its package, and its path in the package.
type Name = (String, String);

/// The tests that must catch bugs. Each must pass without the bug.
#[derive(Debug)]
pub(super) struct Tests<'a> {
    copy: &'a Copy,
    jobs: usize,
    programs: BTreeMap<Name, Result<TestProgram, String>>,
}

/// The result of running a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
}

impl<'a> Tests<'a> {
    /// Builds the packages of these tests from the unchanged copy, and runs each test once. A
    /// failure with a bug means something only if the test passes without it.
    pub(super) fn of<'b>(
        copy: &'a Copy,
        jobs: usize,
        catchers: impl Iterator<Item = &'b Catcher>,
    ) -> Result<Self, String> {
        let mut tests = Self { copy, jobs, programs: BTreeMap::new() };
        let mut packages: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for catcher in catchers {
            if let Catcher::Test { package, path } = catcher {
                packages.entry(package).or_default().push(path);
            }
        }
        for (package, mut paths) in packages {
            paths.sort_unstable();
            paths.dedup();
            println!("building the tests of {package} as they are");
            let every = vec!["--tests".to_owned()];
            let programs = tests
                .build(package, &every)
                .map_err(|complaint| format!("without a planted bug: {complaint}"))?;
            for path in paths {
                let program = tests.prove(path, &programs);
                tests.programs.insert((package.to_owned(), path.to_owned()), program);
            }
        }
        Ok(tests)
    }

    /// Builds the test with the bug, and runs it until it fails.
    pub(super) fn run(&self, package: &str, path: &str) -> Outcome {
        self.failing_run(package, path)
            .map_or_else(Outcome::Failed, |run| Outcome::Found(By::Run(run)))
    }

    fn failing_run(&self, package: &str, path: &str) -> Result<u64, String> {
        let program = self.programs[&(package.to_owned(), path.to_owned())].clone()?;
        let built = self.build(package, &program.picked_by);
        let built = built.map_err(|complaint| format!("it does not build: {complaint}"))?;
        let [program] = built.as_slice() else {
            return Err(format!("cargo builds {} programs of it, not one", built.len()));
        };
        for run in 1..=RUNS {
            if judged(program, path)? == Verdict::Failed {
                return Ok(run);
            }
        }
        Err(format!("its test passed {RUNS} times"))
    }

    /// Finds the one program that has this test, and checks that the test passes there.
    fn prove(&self, path: &str, programs: &[TestProgram]) -> Result<TestProgram, String> {
        let mut having = Vec::new();
        for program in programs {
            let listed = step::output(only(program, path).args(["--list", "--format", "terse"]))?;
            if listed.lines().any(|line| line.strip_suffix(": test") == Some(path)) {
                having.push(program);
            }
        }
        match having.as_slice() {
            [program] => match judged(program, path)? {
                Verdict::Passed => Ok((*program).clone()),
                Verdict::Failed => Err("its test fails without it".to_owned()),
            },
            [] => Err(format!("there is no test {path}")),
            [..] => Err(format!("there are {} tests {path}", having.len())),
        }
    }

    /// Builds these parts of a package with their tests.
    fn build(&self, package: &str, picked_by: &[String]) -> Result<Vec<TestProgram>, String> {
        let mut cargo = step::cargo();
        cargo.current_dir(&self.copy.root).env("CARGO_TARGET_DIR", &self.copy.target);
        let jobs = self.jobs.to_string();
        // Not all engines are default features.
        let chosen = ["--quiet", "--package", package, "--all-features", "--jobs", &jobs];
        TestProgram::build(cargo, &[&chosen[..], &UNOPTIMISED].concat(), picked_by)
    }
}

fn judged(program: &TestProgram, path: &str) -> Result<Verdict, String> {
    verdict(watch(only(program, path), LIMIT, summary)?)
}

/// The command that runs one test.
fn only(program: &TestProgram, path: &str) -> Command {
    let mut command = program.command();
    command.args([path, "--exact"]);
    command
}

/// The summary of a test program, if this line is one.
fn summary(line: &str) -> Option<String> {
    line.strip_prefix("test result: ").map(str::to_owned)
}

/// Judges the one test that should have run. A program that aborts has no summary, and it ran this
/// test alone.
fn verdict(ended: Ended<String>) -> Result<Verdict, String> {
    let Ended { status, kept, last_words } = ended;
    if status.signal() == Some(Signal::ABORT.as_raw()) {
        return Ok(Verdict::Failed);
    }
    let counts = kept.unwrap_or_default();
    if status.success() && counts.contains(" 1 passed; 0 failed;") {
        Ok(Verdict::Passed)
    } else if !status.success() && counts.contains(" 0 passed; 1 failed;") {
        Ok(Verdict::Failed)
    } else {
        Err(format!("its test did not run to its end: {status} {counts} {last_words}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on a shell script that plays a test program.
    fn verdict_of(script: &str) -> Result<Verdict, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        let minute = Duration::from_mins(1);
        verdict(watch(shell, minute, summary)?)
    }

    #[test]
    fn a_test_catches_a_bug_only_by_running_and_failing() {
        let passed = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let failed = "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101";
        let none = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out'";
        assert_eq!(verdict_of(passed), Ok(Verdict::Passed));
        for fails in [failed, "echo 'running 1 test'; kill -ABRT $$"] {
            assert_eq!(verdict_of(fails), Ok(Verdict::Failed), "{fails}");
        }
        for neither in [none, "echo 'running 1 test'; exit 101", "kill -KILL $$"] {
            assert!(verdict_of(neither).is_err(), "{neither}");
        }
    }
}
