//! Runs processes on real servers and injects faults: kills, stops, partitions, lost answers.
//!
//! Several worlds run side by side. A world is one server, or several that belong together, and
//! some processes, each behind its own bad network where there can be one. *Workers* use the
//! library: they take mutexes and, where the servers grant shares, a lock of readers and writers
//! and a semaphore. *Runs* are `leasehold run` with a child that reports that it lives. A world
//! gets one fault at a time. The fault counts only if the processes attempt enough acquisitions
//! meanwhile.
//!
//! After the last fault, the world goes on until it was calm for a while. Then all processes end in
//! order, and no key of a lock may be left. Their reports become one history, which is checked.
//!
//! | module | contents |
//! |---|---|
//! | [`kind`] | the faults for real servers, with their names from GUARANTEES.md |
//! | [`fault`] | injects and ends each fault |
//! | `full_disk` | faults of servers that cannot write any more |
//! | [`left_out`] | the faults that cannot be injected on this machine |
//! | `takeover` | faults of deployments with several servers |
//! | [`servers`] | the servers of a world, in each form in which people run them |
//! | `server` | one server, of either make |
//! | `keys` | the keys that are left on the servers |
//! | [`world`] | a server, its processes, and their history |
//! | [`journal`] | the reported events of a world |
//! | [`board`] | chooses the next fault, and counts those that met enough load |
//! | [`verdict`] | checks the history of a world |
//! | `calm` | the calm after the last fault, and how long waiters wait in it |
//! | [`black_hole`] | tests that a child dies in time when its server is out of reach |
//! | [`record`] | the record of a run |
//! | [`campaign`] | a whole run |
//! | [`worker`], [`child`] | the processes |
//! | `run_plan` | what a `leasehold run` does |
//! | [`shares`] | locks that holders share |
//! | [`teller`] | how the processes report events |
#![allow(clippy::disallowed_methods, reason = "processes live in real time")]

pub mod black_hole;
pub mod board;
mod calm;
pub mod campaign;
pub mod child;
pub mod fault;
mod full_disk;
pub mod journal;
mod keys;
pub mod kind;
pub mod left_out;
mod reader;
pub mod record;
mod run_plan;
mod server;
pub mod servers;
pub mod shares;
mod takeover;
pub mod teller;
pub mod verdict;
pub mod worker;
pub mod world;

use std::time::Duration;

use crate::virtual_host::SeededRandom;

/// A random span between two numbers of milliseconds.
fn span(random: &mut SeededRandom, least_ms: u64, most_ms: u64) -> Duration {
    let width = usize::try_from(most_ms - least_ms).expect("a few seconds");
    let drawn = u64::try_from(random.below(width + 1)).expect("a few seconds");
    Duration::from_millis(least_ms + drawn)
}

/// A random part of `whole`, between two numbers in hundredths.
fn part_of(random: &mut SeededRandom, whole: Duration, least: u32, most: u32) -> Duration {
    let width = usize::try_from(most - least).expect("a small number");
    let drawn = u32::try_from(random.below(width + 1)).expect("a small number");
    whole * (least + drawn) / 100
}
