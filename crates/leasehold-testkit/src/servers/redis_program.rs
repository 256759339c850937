//! The program that is the Redis server of the tests, and its version.

use std::process::Command;
use std::sync::OnceLock;

use super::process::find;

/// The program that runs if a test names no other.
const PROGRAM: &str = "redis-server";

/// The variable that names another program by its name or path. It must take the same
/// configuration.
pub const PROGRAM_VARIABLE: &str = "LEASEHOLD_TEST_SERVER";

pub(super) fn default_program() -> &'static str {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    let named = || std::env::var(PROGRAM_VARIABLE).ok().filter(|program| !program.is_empty());
    NAMED.get_or_init(named).as_deref().unwrap_or(PROGRAM)
}

/// The version of the default server, such as `(7, 0)`. Valkey continues the version numbers of
/// Redis.
///
/// # Panics
///
/// If the program is missing, or prints no version.
#[must_use]
pub fn version() -> (u32, u32) {
    static VERSION: OnceLock<(u32, u32)> = OnceLock::new();
    *VERSION.get_or_init(|| version_of(default_program()))
}

pub(super) fn version_of(program: &str) -> (u32, u32) {
    let said = Command::new(find(program, program)).arg("--version").output();
    let said = said.expect("a program that can be run");
    let said = String::from_utf8_lossy(&said.stdout);
    let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    let mut numbers = version.unwrap_or_default().split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
        _ => panic!("`{program} --version` says no version: {said}"),
    }
}
