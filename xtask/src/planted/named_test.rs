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

/// The most lines of a panic's message that are kept. A failed assertion has one line for each of
/// its two values.
const SAID_LINES: usize = 3;

/// The most characters of these lines that are kept.
const SAID_CHARACTERS: usize = 240;

/// Our crates are built again for each bug, for one test of a few seconds, whose backtrace nobody
/// reads. Other crates are built once.
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

/// The result of a run of a test.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// It failed, and its first panic said this.
    Failed(String),
}

/// The part of the output of a test program that matters, as far as it was read.
#[derive(Clone, Debug, Default)]
struct Report {
    /// The lines after the first panic. They begin with its message.
    after_panic: Option<Vec<String>>,
    /// The line with the numbers of tests.
    counts: String,
}

impl Report {
    /// Reads the next line, and returns whether it matters.
    fn read(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            counts.clone_into(&mut self.counts);
            return true;
        }
        match &mut self.after_panic {
            None if line.contains(" panicked at ") => self.after_panic = Some(Vec::new()),
            Some(lines) if lines.len() < SAID_LINES => lines.push(line.trim().to_owned()),
            _ => return false,
        }
        true
    }

    /// The message of the first panic, in one line; empty if nothing panicked.
    fn said(&self) -> String {
        let lines = self.after_panic.iter().flatten();
        let message = lines.take_while(|line| !line.is_empty() && !line.starts_with("note: "));
        let words: Vec<_> = message.map(String::as_str).collect();
        words.join(" ").chars().take(SAID_CHARACTERS).collect()
    }
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
        self.failing_run(package, path).map_or_else(Outcome::Failed, Outcome::Found)
    }

    fn failing_run(&self, package: &str, path: &str) -> Result<By, String> {
        let program = self.programs[&(package.to_owned(), path.to_owned())].clone()?;
        let built = self.build(package, &program.picked_by);
        let built = built.map_err(|complaint| format!("it does not build: {complaint}"))?;
        let [program] = built.as_slice() else {
            return Err(format!("cargo builds {} programs of it, not one", built.len()));
        };
        for run in 1..=RUNS {
            if let Verdict::Failed(said) = judged(program, path)? {
                let here = self.copy.root.display().to_string();
                return Ok(By::Run { run, said: said.replace(&here, ".") });
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
                Verdict::Failed(said) => Err(format!("its test fails without it: {said}")),
            },
            [] => Err(format!("there is no test {path}")),
            [..] => Err(format!("{} test programs have a test {path}", having.len())),
        }
    }

    /// Builds these parts of a package with their tests.
    fn build(&self, package: &str, picked_by: &[String]) -> Result<Vec<TestProgram>, String> {
        let mut cargo = step::cargo();
        cargo.current_dir(&self.copy.root).env("CARGO_TARGET_DIR", &self.copy.target);
        let jobs = self.jobs.to_string();
        // Build with all features, since not all engines are default features.
        let chosen = ["--quiet", "--package", package, "--all-features", "--jobs", &jobs];
        TestProgram::build(cargo, &[&chosen[..], &UNOPTIMISED].concat(), picked_by)
    }
}

fn judged(program: &TestProgram, path: &str) -> Result<Verdict, String> {
    judge(only(program, path))
}

fn judge(test: Command) -> Result<Verdict, String> {
    let mut report = Report::default();
    verdict(watch(test, LIMIT, move |line| report.read(line).then(|| report.clone()))?)
}

/// The command that runs one test.
fn only(program: &TestProgram, path: &str) -> Command {
    let mut command = program.command();
    command.args([path, "--exact"]).env("RUST_BACKTRACE", "0");
    command
}

/// Judges the one test that should have run. A program that aborts prints no summary. It ran only
/// this test, so the test failed.
fn verdict(ended: Ended<Report>) -> Result<Verdict, String> {
    let Ended { status, kept, last_words } = ended;
    if status.signal() == Some(Signal::ABORT.as_raw()) {
        return Ok(Verdict::Failed(last_words));
    }
    let report = kept.unwrap_or_default();
    let counts = &report.counts;
    if status.success() && counts.contains(" 1 passed; 0 failed;") {
        Ok(Verdict::Passed)
    } else if !status.success() && counts.contains(" 0 passed; 1 failed;") {
        Ok(Verdict::Failed(report.said()))
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
        judge(shell)
    }

    #[test]
    fn a_test_catches_a_bug_only_by_running_and_failing() {
        let passed = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
        let failed = "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101";
        let none = "echo 'test result: ok. 0 passed; 0 failed; 0 ignored; 9 filtered out'";
        assert_eq!(verdict_of(passed), Ok(Verdict::Passed));
        for fails in [failed, "echo 'running 1 test'; kill -ABRT $$"] {
            assert!(matches!(verdict_of(fails), Ok(Verdict::Failed(_))), "{fails}");
        }
        for neither in [none, "echo 'running 1 test'; exit 101", "kill -KILL $$"] {
            assert!(verdict_of(neither).is_err(), "{neither}");
        }
    }

    #[test]
    fn a_failure_is_told_with_the_message_of_the_first_panic() {
        let counts = "test result: FAILED. 0 passed; 1 failed; 0 ignored";
        let table = [
            ("it hangs\nnote: run with x\n\n", "it hangs"),
            (
                "not equal: a\n  left: 1\n right: 2\nstack backtrace:\n",
                "not equal: a left: 1 right: 2",
            ),
            ("one\n\nthread 'b' (2) panicked at b.rs:1:1:\ntwo\n", "one"),
        ];
        for (output, said) in table {
            let text = format!("thread 'a' (1) panicked at a.rs:1:1:\n{output}{counts}\n");
            let verdict = verdict_of(&format!("printf %s \"{text}\"; exit 101"));
            assert_eq!(verdict, Ok(Verdict::Failed(said.to_owned())), "{output}");
        }
    }
}
