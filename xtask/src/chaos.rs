//! `cargo xtask chaos`: real processes on real servers, under faults.

use crate::{step, suite};

/// Builds the programs as users get them, and runs `chaos` with `args`.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    suite::need()?;
    let mut build = step::cargo();
    build.args(["build", "--release", "--package", "leasehold-cli"]);
    step::run(build.args([
        "--package",
        "leasehold-testkit",
        "--bin",
        "leasehold",
        "--bin",
        "chaos",
    ]))?;
    let mut chaos = std::process::Command::new(step::released("chaos"));
    step::run(chaos.args(["--commit", &step::commit()]).args(args).current_dir(crate::root()))
}
