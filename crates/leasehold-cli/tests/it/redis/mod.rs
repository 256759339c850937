//! Situations that only a server can cause.

mod blocked;
mod costs;
mod deployments;
mod losing;
mod lying;
mod monitor;
mod passwords;
mod quarantined;
mod quorum;
mod reaching;
mod refusing;
mod restarting;
mod strict;

use leasehold_testkit::servers::RedisServer;
use rustix::time::{ClockId, clock_gettime};

use crate::harness::World;

/// The machine's clock in seconds, as /proc/uptime shows it.
#[allow(clippy::cast_precision_loss, reason = "microseconds are compared")]
fn uptime() -> f64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// How long the server of a world keeps a key, in seconds; `None` if there is no such key.
fn time_left(world: &World, key: &str) -> Option<f64> {
    time_left_at(world.server(), key)
}

/// How long this server keeps a key, in seconds; `None` if there is no such key.
#[allow(clippy::cast_precision_loss, reason = "milliseconds are compared")]
fn time_left_at(server: &RedisServer, key: &str) -> Option<f64> {
    let left = server.command(&["PTTL", key]).int();
    (left > 0).then_some(left as f64 / 1e3)
}

/// One value of the server's `INFO`.
fn info(world: &World, section: &str, name: &str) -> String {
    let text = world.server().command(&["INFO", section]).text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("`{name}` is not in:\n{text}")).to_owned()
}

/// The URL of the server with credentials, followed by `rest`.
fn url_of(world: &World, credentials: &str, rest: &str) -> String {
    format!("redis://{credentials}127.0.0.1:{}{rest}", world.server().port())
}
