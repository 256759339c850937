//! One planted bug under the test that must catch it: built, run, and what came of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::bug::Catcher;
use super::copy::Copy;
use super::watch::{Ended, watch};
use super::{By, Outcome};
use crate::step;

/// How often a test may pass with the bug. Some need luck to see it.
const RUNS: u64 = 3;

/// How long one run of a test may take, so that a bug that hangs is noticed.
const LIMIT: Duration = Duration::from_mins(10);

/// Names a test: its package, and its path in there.
type Name = (String, String);

/// The tests that must catch bugs, all of which pass without one.
#[derive(Debug)]
pub(super) struct Tests<'a> {
    copy: &'a Copy,
    jobs: usize,
    targets: BTreeMap<Name, Result<Target, String>>,
}

/// A part of a package that cargo builds to one program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    /// What picks it on the command line of cargo.
    picked_by: Vec<String>,
    program: PathBuf,
    /// Where its package lies.
    directory: PathBuf,
}

/// What a run of a test came to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
}

impl<'a> Tests<'a> {
    /// Builds the packages of these tests from the copy as it is now, and runs each test once: only
    /// a test that passes there says anything when it fails with a bug.
    pub(super) fn of<'b>(
        copy: &'a Copy,
        jobs: usize,
        catchers: impl Iterator<Item = &'b Catcher>,
    ) -> Result<Self, String> {
        let mut tests = Self { copy, jobs, targets: BTreeMap::new() };
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
            let targets = tests
                .build(package, &every)
                .map_err(|complaint| format!("without a planted bug: {complaint}"))?;
            for path in paths {
                let target = tests.prove(path, &targets);
                tests.targets.insert((package.to_owned(), path.to_owned()), target);
            }
        }
        Ok(tests)
    }

    /// Builds the test with the bug and runs it, until it fails.
    pub(super) fn run(&self, package: &str, path: &str) -> Outcome {
        self.failing_run(package, path)
            .map_or_else(Outcome::Failed, |run| Outcome::Found(By::Run(run)))
    }

    fn failing_run(&self, package: &str, path: &str) -> Result<u64, String> {
        let target = self.targets[&(package.to_owned(), path.to_owned())].clone()?;
        let built = self.build(package, &target.picked_by);
        let built = built.map_err(|complaint| format!("it does not build: {complaint}"))?;
        let [program] = built.as_slice() else {
            return Err(format!("cargo builds {} programs of it, not one", built.len()));
        };
        for run in 1..=RUNS {
            if program.run(path)? == Verdict::Failed {
                return Ok(run);
            }
        }
        Err(format!("its test passed {RUNS} times"))
    }

    /// The one target that has this test, which passes there.
    fn prove(&self, path: &str, targets: &[Target]) -> Result<Target, String> {
        let mut having = Vec::new();
        for target in targets {
            let listed = step::output(target.test(path).args(["--list", "--format", "terse"]))?;
            if listed.lines().any(|line| line.strip_suffix(": test") == Some(path)) {
                having.push(target);
            }
        }
        match having.as_slice() {
            [target] => match target.run(path)? {
                Verdict::Passed => Ok((*target).clone()),
                Verdict::Failed => Err("its test fails without it".to_owned()),
            },
            [] => Err(format!("there is no test {path}")),
            [..] => Err(format!("there are {} tests {path}", having.len())),
        }
    }

    /// Builds these targets of a package with their tests.
    fn build(&self, package: &str, picked_by: &[String]) -> Result<Vec<Target>, String> {
        let mut cargo = step::cargo();
        cargo.args(["test", "--no-run", "--quiet", "--locked", "--package", package]);
        cargo.args(picked_by).args(["--jobs", &self.jobs.to_string()]);
        cargo.args(["--message-format", "json"]);
        cargo.current_dir(&self.copy.root).env("CARGO_TARGET_DIR", &self.copy.target);
        let messages = step::output(&mut cargo)?;
        Ok(messages.lines().filter_map(Target::read).collect())
    }
}

impl Target {
    /// The target of which a message of cargo says that it was built with its tests.
    fn read(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        let program = message["executable"].as_str()?;
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let name = message["target"]["name"].as_str()?;
        let picked_by = match message["target"]["kind"][0].as_str()? {
            "lib" => vec!["--lib".to_owned()],
            kind @ ("bin" | "test") => vec![format!("--{kind}"), name.to_owned()],
            _ => return None,
        };
        is_test.then(|| Self { picked_by, program: program.into(), directory })
    }

    /// The program, about to run one test where cargo would run it.
    fn test(&self, path: &str) -> Command {
        let mut program = Command::new(&self.program);
        program.args([path, "--exact"]).current_dir(&self.directory);
        program
    }

    fn run(&self, path: &str) -> Result<Verdict, String> {
        verdict(watch(self.test(path), LIMIT, summary)?)
    }
}

/// What a program of tests says of all of them, if this line says it.
fn summary(line: &str) -> Option<String> {
    line.strip_prefix("test result: ").map(str::to_owned)
}

/// What became of the one test that should have run.
fn verdict(ended: Ended<String>) -> Result<Verdict, String> {
    let Ended { status, kept, last_words } = ended;
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

    #[test]
    fn only_programs_with_tests_are_targets() {
        let message = |kind: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":
                {{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{is_test}}},
                "executable":"/t/it-1"}}"#
            )
        };
        let picked_by = |kind: &str, is_test| {
            Target::read(&message(kind, is_test)).map(|target| target.picked_by.join(" "))
        };
        assert_eq!(picked_by("lib", true).as_deref(), Some("--lib"));
        assert_eq!(picked_by("bin", true).as_deref(), Some("--bin it"));
        assert_eq!(picked_by("test", true).as_deref(), Some("--test it"));
        assert_eq!(picked_by("bin", false), None);
        assert_eq!(picked_by("example", true), None);
        assert_eq!(Target::read(r#"{"reason":"build-finished","success":true}"#), None);
    }

    /// Stands in for the program of a test.
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
        assert_eq!(verdict_of(failed), Ok(Verdict::Failed));
        for neither in [none, "echo 'running 1 test'; exit 101", "kill -ABRT $$"] {
            assert!(verdict_of(neither).is_err(), "{neither}");
        }
    }
}
