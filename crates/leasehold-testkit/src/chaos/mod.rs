//! Runs processes on real servers and injects faults: kills, stops, partitions, lost answers.
//!
//! Several worlds run side by side. A world is one server, or several that belong together, and
//! some processes, each behind its own bad network where there can be one. *Workers* use the
//! library. *Runs* are `leasehold run` with a child that reports that it lives. A world gets one
//! fault at a time. The fault counts only if the processes attempt enough acquisitions meanwhile.
//! The reports of all processes become one history, which is checked at the end.
//!
//! | module | contents |
//! |---|---|
//! | [`kind`] | the faults for real servers, with their names from GUARANTEES.md |
//! | [`fault`] | injects and ends each fault |
//! | `takeover` | faults of deployments with several servers |
//! | [`servers`] | the servers of a world, in each form in which people run them |
//! | `server` | one server, of either make |
//! | `keys` | the keys that are left on the servers |
//! | [`world`] | a server, its processes, and their history |
//! | [`board`] | chooses the next fault, and counts those that met enough load |
//! | [`verdict`] | checks the history of a world |
//! | [`black_hole`] | tests that a child dies in time when its server is out of reach |
//! | [`record`] | the record of a run |
//! | [`campaign`] | a whole run |
//! | [`worker`], [`child`] | the processes |
//! | [`teller`] | how the processes report events |
#![allow(clippy::disallowed_methods, reason = "processes live in real time")]

pub mod black_hole;
pub mod board;
pub mod campaign;
pub mod child;
pub mod fault;
mod keys;
pub mod kind;
mod reader;
pub mod record;
mod server;
pub mod servers;
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

/// A random share of `whole`, between two numbers in hundredths.
fn share(random: &mut SeededRandom, whole: Duration, least: u32, most: u32) -> Duration {
    let width = usize::try_from(most - least).expect("a small number");
    let drawn = u32::try_from(random.below(width + 1)).expect("a small number");
    whole * (least + drawn) / 100
}
