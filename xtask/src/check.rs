//! `cargo xtask check`: everything except the tests.
//!
//! Warnings are denied by a flag of each command, not through `RUSTFLAGS`, which would compile
//! every dependency once more.

use std::time::Instant;

use crate::{step, tidy, tools};

type Check = fn() -> Result<(), String>;

const CHECKS: [(&str, Check); 6] = [
    ("formatting", formatting),
    ("clippy", clippy),
    ("documentation", documentation),
    ("features", features),
    ("tidy", tidy::run),
    ("dependencies", dependencies),
];

/// Runs all checks even if one fails, and names the failed ones at the end.
pub(crate) fn run() -> Result<(), String> {
    tools::need_c_compiler()?;
    tools::need_component("fmt", "rustfmt")?;
    tools::need_component("clippy", "clippy")?;
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        eprintln!("== {name}");
        let began = Instant::now();
        if let Err(complaint) = check() {
            eprintln!("== {name} FAILED: {complaint}");
            failed.push(name);
        } else {
            eprintln!("== {name} ok ({} s)", began.elapsed().as_secs());
        }
    }
    if failed.is_empty() {
        eprintln!("== all {} checks ok", CHECKS.len());
        return Ok(());
    }
    Err(format!("{} of {} checks failed: {}", failed.len(), CHECKS.len(), failed.join(", ")))
}

fn formatting() -> Result<(), String> {
    step::run(step::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), String> {
    let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--locked"];
    step::run(step::cargo().args(clippy).args(["--", "-D", "warnings"]))
}

fn documentation() -> Result<(), String> {
    let doc = ["doc", "--quiet", "--workspace", "--no-deps", "--locked"];
    step::run(step::cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks that the library compiles without the stores that need other crates, and that each of
/// the stores on servers compiles alone and without TLS.
fn features() -> Result<(), String> {
    for features in ["", "etcd", "mysql", "postgres", "redis", "redis-crate", "zookeeper"] {
        let clippy = ["clippy", "--quiet", "--package", "leasehold", "--no-default-features"];
        let features = ["--features", features, "--locked", "--", "-D", "warnings"];
        step::run(step::cargo().args(clippy).args(features))?;
    }
    Ok(())
}

/// Checks that deny.toml allows the licences, versions and sources of all dependencies.
fn dependencies() -> Result<(), String> {
    let deny = ["check", "--deny", "warnings", "bans", "licenses", "sources"];
    step::run(tools::cargo_deny()?.args(deny))
}
