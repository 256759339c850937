//! Each form of deployment: a failover while a command runs, names that change, and URLs that do
//! not fit.

mod failing_over;
mod forms;
mod refused;
mod renamed;

use std::process::Command;

use crate::harness::World;

/// `leasehold run x FLAGS -- sh -c SCRIPT` at this URL, with the directory of the world as `$1`.
fn run(world: &World, url: &str, flags: &[&str], script: &str) -> Command {
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", url).args(["run", "x"]).args(flags);
    command.args(["--", "sh", "-c", script, "sh"]).arg(world.path(""));
    command
}
