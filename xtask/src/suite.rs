//! `cargo xtask test`: runs the tests, counts them, and names the failures.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::test_program::TestProgram;
use crate::{step, tools};

/// The variable that tells the test runner how many tests to run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// A part of the name of each test that needs a PostgreSQL server.
pub(crate) const ON_POSTGRES: &str = "on_postgres";

/// A part of the name of each test that needs a MariaDB server.
pub(crate) const ON_MYSQL: &str = "on_mysql";

/// A part of the name of each test that needs an etcd server.
pub(crate) const ON_ETCD: &str = "on_etcd";

/// A part of the name of each test that needs a ZooKeeper server.
pub(crate) const ON_ZOOKEEPER: &str = "on_zookeeper";

type Need = fn() -> Result<(), String>;

/// The servers that some tests need: the name of the server, a part of the names of those tests,
/// and how to get the server.
const SERVERS: [(&str, &str, Need); 4] = [
    ("PostgreSQL", ON_POSTGRES, tools::need_postgres),
    ("MariaDB", ON_MYSQL, || tools::MARIADB.get()),
    ("etcd", ON_ETCD, || tools::ETCD.get()),
    ("ZooKeeper", ON_ZOOKEEPER, || tools::ZOOKEEPER.get()),
];

/// The variable that tells tests on several stores that there is no PostgreSQL server.
const WITHOUT_POSTGRES: &str = "LEASEHOLD_TEST_WITHOUT_POSTGRES";

/// Most tests with a server wait most of their time: for a ttl, a failover, another process.
const TESTS_PER_CORE: usize = 4;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Runs every test of the workspace, or the tests that `args` choose.
///
/// It runs plain `cargo test`, which covers libraries, programs, integration tests and doctests.
/// Examples are built here and run by tests. Skipped tests must be named.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    need()?;
    let missing = SERVERS.map(|(name, part, need)| (name, part, need().err()));
    let missing: Vec<_> = missing.into_iter().filter(|(.., why)| why.is_some()).collect();
    let mut cargo = step::cargo();
    cargo.args(["test", "--no-fail-fast"]);
    if args.is_empty() {
        cargo.arg("--workspace");
    } else {
        cargo.args(args);
    }
    if !missing.is_empty() && !args.iter().any(|arg| arg == "--") {
        cargo.arg("--");
    }
    for (_, part, _) in &missing {
        cargo.args(["--skip", part]);
        if *part == ON_POSTGRES {
            cargo.env(WITHOUT_POSTGRES, "yes");
        }
    }
    let mut totals = Totals::default();
    let succeeded = totals.run(cargo)?;
    totals.report(!args.is_empty());
    for (name, _, why) in missing {
        println!("not run: the tests on {name}: {}", why.unwrap_or_default());
    }
    totals.verdict(succeeded)
}

/// Builds what [`run`] runs, and the programs that it starts.
pub(crate) fn build() -> Result<Vec<TestProgram>, String> {
    println!("xtask: building the tests");
    TestProgram::build(step::cargo(), &["--workspace", "--tests"], &[])
}

/// Runs these commands, each of which is a test program with arguments.
pub(crate) fn run_each(commands: Vec<Command>) -> Result<(), String> {
    let mut totals = Totals::default();
    let mut succeeded = true;
    for command in commands {
        succeeded &= totals.run(command)?;
    }
    totals.report(true);
    totals.verdict(succeeded)
}

/// Checks that the programs that the tests need are there. Installs missing ones if possible.
pub(crate) fn need() -> Result<(), String> {
    tools::need_c_compiler()?;
    tools::REDIS_SERVER.get()
}

/// The totals of all test programs.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    programs: usize,
    passed: usize,
    failed: usize,
    ignored: usize,
    filtered: usize,
    failures: Vec<String>,
    /// The output of failed tests.
    last_words: Vec<String>,
    skipped: Vec<String>,
    /// The tests that said that they cannot run here, and why.
    not_run: Vec<String>,
    /// Whether the next lines are output of a failed test.
    speaks: bool,
}

impl Totals {
    /// Runs a test program, or cargo that runs several. Shows and reads their output. Returns
    /// whether it succeeded.
    fn run(&mut self, mut command: Command) -> Result<bool, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, (cores() * TESTS_PER_CORE).to_string());
        }
        let mut runner =
            command.spawn().map_err(|error| format!("cannot start the tests: {error}"))?;
        let output = runner.stdout.take().expect("the output was asked for");
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| format!("cannot read from the tests: {error}"))?;
            let line = String::from_utf8_lossy(&line);
            // Do not use println!, which panics if the reader of stdout is gone.
            let _ = writeln!(std::io::stdout(), "{line}");
            self.read(&line);
        }
        let status =
            runner.wait().map_err(|error| format!("cannot wait for the tests: {error}"))?;
        Ok(status.success())
    }

    /// Reads one line of output.
    fn read(&mut self, line: &str) {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.speaks = true;
        } else if line == "failures:" {
            self.speaks = false;
        }
        if self.speaks {
            self.last_words.push(line.to_owned());
        } else if let Some(said) = line.strip_prefix("not run: ") {
            self.not_run.push(said.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.programs += 1;
            self.passed += count(counts, "passed");
            self.failed += count(counts, "failed");
            self.ignored += count(counts, "ignored");
            self.filtered += count(counts, "filtered");
        } else if let Some(test) = line.strip_prefix("test ") {
            if let Some(name) = test.strip_suffix(" ... FAILED") {
                self.failures.push(name.to_owned());
            } else if let Some((name, _)) = test.split_once(" ... ignored") {
                self.skipped.push(name.to_owned());
            }
        }
    }

    fn report(&self, chosen: bool) {
        println!();
        for line in &self.last_words {
            println!("{line}");
        }
        for name in &self.failures {
            println!("FAILED: {name}");
        }
        for name in &self.skipped {
            println!("not run: {name} (ignored)");
        }
        for said in &self.not_run {
            println!("not run: {said}");
        }
        if self.filtered > 0 {
            println!("not run: {} tests that the arguments left out", self.filtered);
        }
        if chosen {
            println!("not run: tests that the arguments did not choose");
        }
        for (other, name) in [("linux", "Linux"), ("macos", "macOS"), ("windows", "Windows")] {
            if other != std::env::consts::OS {
                println!("not run: tests on {name}, since this machine has another system");
            }
        }
        println!(
            "{} passed, {} failed in {} test programs",
            self.passed, self.failed, self.programs
        );
    }

    fn verdict(&self, succeeded: bool) -> Result<(), String> {
        if self.failed > 0 {
            // Name the tests here too, since only the end of the output is shown after several
            // suites.
            return Err(format!("{} tests failed: {}", self.failed, self.failures.join(", ")));
        }
        if !succeeded {
            // Compilation failed, or a test program died without a summary.
            return Err("`cargo test` failed, see above".to_owned());
        }
        if self.ignored > 0 {
            return Err(format!("{} tests are ignored; none may be", self.ignored));
        }
        if self.passed == 0 {
            return Err("no test ran".to_owned());
        }
        Ok(())
    }
}

/// The number before `word` in `ok. 12 passed; 0 failed; …`.
fn count(counts: &str, word: &str) -> usize {
    let words: Vec<&str> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .find(|pair| pair[1] == word)
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or_else(|| panic!("cannot read the test runner's `{counts}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(lines: &[&str]) -> Totals {
        let mut totals = Totals::default();
        lines.iter().for_each(|line| totals.read(line));
        totals
    }

    const GOOD: &str =
        "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out";

    #[test]
    fn the_results_of_all_programs_are_added_up() {
        let totals = totals(&[
            "running 2 tests",
            GOOD,
            "test a::b ... FAILED",
            "failures:",
            "",
            "---- a::b stdout ----",
            "test c::d ... ok, it says",
            "failures:",
            "    a::b",
            "test src/lib.rs - c (line 7) ... ignored",
            "not run: a::d: cannot mount a disk",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out",
        ]);
        assert_eq!(
            totals,
            Totals {
                programs: 2,
                passed: 13,
                failed: 1,
                ignored: 1,
                filtered: 3,
                failures: vec!["a::b".to_owned()],
                last_words: ["---- a::b stdout ----", "test c::d ... ok, it says"]
                    .map(ToOwned::to_owned)
                    .into(),
                skipped: vec!["src/lib.rs - c (line 7)".to_owned()],
                not_run: vec!["a::d: cannot mount a disk".to_owned()],
                speaks: false,
            }
        );
    }

    #[test]
    fn only_a_run_that_succeeded_and_ran_something_passes() {
        let bad = GOOD.replace("0 failed", "1 failed");
        let skipping = GOOD.replace("0 ignored", "1 ignored");
        // what the programs said, whether cargo succeeded, the complaint
        let table: [(&[&str], bool, Option<&str>); 6] = [
            (&[GOOD], true, None),
            (&[GOOD], false, Some("`cargo test` failed")),
            (&[&bad], false, Some("1 tests failed")),
            (&[&bad], true, Some("1 tests failed")),
            (&[&skipping], true, Some("ignored")),
            (&[], true, Some("no test ran")),
        ];
        for (lines, succeeded, complaint) in table {
            match (totals(lines).verdict(succeeded), complaint) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => assert!(error.contains(part), "{error}"),
                (verdict, _) => panic!("{lines:?} {succeeded} gave {verdict:?}"),
            }
        }
    }
}
