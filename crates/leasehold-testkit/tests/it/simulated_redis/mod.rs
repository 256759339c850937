//! The simulated Redis against real servers: the same commands at the same times get the same
//! answers, and leave the same keys.

mod commands;
mod errors;
mod replication;
mod scripts;
mod store;
mod tracking;
mod twins;

use leasehold_testkit::not_run;

use self::twins::{Kind, Twins};

/// Plays a test with each kind of server that is installed.
fn with_each_server(test: impl Fn(&mut Twins)) {
    kinds_here().for_each(|kind| test(&mut Twins::start(kind)));
}

/// The kinds of servers that are installed. Only Redis is required.
fn kinds_here() -> impl Iterator<Item = Kind> {
    [Kind::Redis, Kind::Valkey].into_iter().filter(|kind| {
        let is_here = kind.is_here();
        if !is_here {
            not_run(&format!("{kind:?} (no {} here)", kind.program()));
        }
        is_here
    })
}
