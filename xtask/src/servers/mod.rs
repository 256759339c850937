//! `cargo xtask servers`: repeats the tests that use a server on other servers than the system's.
//!
//! The programs are kept under `target/` and not installed.

mod debian;
mod engine;
mod wheel;

use std::path::{Path, PathBuf};

use self::engine::Engine;
use crate::test_program::TestProgram;
use crate::{step, suite, tools};

/// A server that the tests can use.
struct Server {
    name: &'static str,
    engine: Engine,
    source: Source,
    /// The tests that it cannot pass, by a part of their name, with the reason.
    without: Option<(&'static str, &'static str)>,
}

/// The origin of a program.
enum Source {
    /// A package of the Python index.
    Wheel(wheel::Wheel),
    /// A package of another Debian release than the system's.
    Debian(debian::Package),
}

/// The word for all servers.
const ALL: &str = "all";

/// The servers that are used if none is named: the oldest and the newest Redis, and the newest
/// Valkey.
const USUAL: [&str; 3] = ["redis-6.2", "redis-8", "valkey-9"];

/// A server from a Debian package. It passes all tests.
const fn packaged(
    name: &'static str,
    engine: Engine,
    (suite, package): (&'static str, &'static str),
    programs: &'static [&'static str],
) -> Server {
    let source = Source::Debian(debian::Package { suite, name: package, programs });
    Server { name, engine, source, without: None }
}

/// For Redis, these are the oldest supported version, the newest version, and two versions of
/// Valkey. For the other engines, they are versions that Debian has besides the one of
/// `cargo xtask test`.
const SERVERS: [Server; 11] = [
    Server {
        name: "redis-6.2",
        engine: Engine::Redis,
        source: Source::Wheel(wheel::REDIS_6_2),
        without: Some(("tls", "this build has no TLS")),
    },
    packaged("redis-8", Engine::Redis, ("trixie", "redis-server"), &["usr/bin/redis-server"]),
    packaged("valkey-8.1", Engine::Redis, ("trixie", "valkey-server"), &["usr/bin/valkey-server"]),
    packaged("valkey-9", Engine::Redis, ("forky", "valkey-server"), &["usr/bin/valkey-server"]),
    packaged(
        "postgres-13",
        Engine::Postgres,
        ("bullseye", "postgresql-13"),
        &["usr/lib/postgresql/13/bin/postgres", "usr/lib/postgresql/13/bin/initdb"],
    ),
    packaged(
        "postgres-17",
        Engine::Postgres,
        ("trixie", "postgresql-17"),
        &["usr/lib/postgresql/17/bin/postgres", "usr/lib/postgresql/17/bin/initdb"],
    ),
    packaged(
        "postgres-18",
        Engine::Postgres,
        ("forky", "postgresql-18"),
        &["usr/lib/postgresql/18/bin/postgres", "usr/lib/postgresql/18/bin/initdb"],
    ),
    packaged(
        "mariadb-11.8",
        Engine::Mysql,
        ("trixie", "mariadb-server"),
        &[
            "usr/sbin/mariadbd",
            "usr/bin/mariadb-install-db",
            "usr/bin/mariadb",
            "usr/bin/my_print_defaults",
            "usr/bin/resolveip",
        ],
    ),
    // No stable release has MySQL 9, so its version changes.
    packaged("mysql-9", Engine::Mysql, ("sid", "mysql-server"), &["usr/sbin/mysqld"]),
    packaged("etcd-3.5", Engine::Etcd, ("trixie", "etcd-server"), &["usr/bin/etcd"]),
    packaged("zookeeper-3.9", Engine::Zookeeper, ("trixie", "zookeeper"), &[engine::ZOOKEEPER_JAR]),
];

/// Runs the tests on the usual servers, on the named ones, or on all.
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
    let is_usual = |server: &&Server| USUAL.contains(&server.name);
    match names {
        [] => return Ok(SERVERS.iter().filter(is_usual).collect()),
        [all] if all == ALL => return Ok(SERVERS.iter().collect()),
        _ => {}
    }
    let of_name = |name: &String| {
        SERVERS.iter().find(|server| server.name == name).ok_or_else(|| {
            let known: Vec<_> = SERVERS.iter().map(|server| server.name).collect();
            format!("`{name}` is not one of the servers: {ALL}, {}", known.join(", "))
        })
    };
    names.iter().map(of_name).collect()
}

impl Server {
    /// The path of its program. Downloads it if necessary.
    fn fetch(&self) -> Result<PathBuf, String> {
        // Each version of a package gets its own folder.
        let version = match &self.source {
            Source::Wheel(wheel) => &wheel.sha256[..12],
            Source::Debian(package) => package.suite,
        };
        let home = crate::root().join(format!("target/servers/{}-{version}", self.name));
        let program = match &self.source {
            Source::Wheel(wheel) => home.join(wheel.program),
            Source::Debian(package) => home.join("bin").join(package.server()),
        };
        let runs = || self.engine.runs(&program);
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
        let environment = self.engine.environment(path)?;
        let mut commands = Vec::new();
        for tests in self.engine.tests() {
            let skipped = tests.elsewhere.iter().copied();
            let skipped = skipped.chain(self.without.map(|(name, _)| name));
            let skipped: Vec<_> = skipped.flat_map(|name| ["--skip", name]).collect();
            for program in programs.iter().filter(|program| program.is_of(tests.package)) {
                let mut command = program.command();
                command.envs(environment.iter().map(|(name, value)| (name, value)));
                command.args(tests.chosen).args(&skipped);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_chosen_by_name_or_all_of_them() {
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            chosen(&names).map(|all| all.iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]), Ok(USUAL.to_vec()));
        assert_eq!(names(&["valkey-8.1"]), Ok(vec!["valkey-8.1"]));
        assert_eq!(names(&["all"]).map(|all| all.len()), Ok(SERVERS.len()));
        let error = names(&["redis-9"]).expect_err("there is none");
        assert!(error.contains("redis-6.2, redis-8, valkey-8.1, valkey-9"), "{error}");
    }
}
