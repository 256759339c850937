//! Processes on real servers, and what is done to them: kills, stops, partitions, lost answers.
//!
//! Several worlds run side by side. A world is one server and some processes, each with a bad
//! network of its own in between: *workers* use the library, *runs* are `leasehold run` with a
//! child that tells that it lives. One fault at a time is done to a world, and it counts only if
//! enough is asked meanwhile. What the processes tell becomes one history, which is judged at the
//! end.
//!
//! | module | what it is |
//! |---|---|
//! | [`kind`] | the faults that are done to real servers, by their names in GUARANTEES.md |
//! | [`fault`] | how each of them is done and undone |
//! | [`world`] | a server, its processes, and their history |
//! | [`board`] | which fault is next, and which have counted |
//! | [`verdict`] | whether what happened may have happened |
//! | [`black_hole`] | whether a child is dead in time when its server is out of reach |
//! | [`record`] | what is kept of a run |
//! | [`campaign`] | a whole run |
//! | [`worker`], [`child`] | the processes |
//! | [`teller`] | how they tell what happens to them |
#![allow(clippy::disallowed_methods, reason = "processes live in real time")]

pub mod black_hole;
pub mod board;
pub mod campaign;
pub mod child;
pub mod fault;
pub mod kind;
pub mod record;
pub mod teller;
pub mod verdict;
pub mod worker;
pub mod world;

use std::time::Duration;

use crate::virtual_host::SeededRandom;

/// A span of so many milliseconds.
fn span(random: &mut SeededRandom, least_ms: u64, most_ms: u64) -> Duration {
    let width = usize::try_from(most_ms - least_ms).expect("a few seconds");
    let drawn = u64::try_from(random.below(width + 1)).expect("a few seconds");
    Duration::from_millis(least_ms + drawn)
}

/// A share of `whole` between so many hundredths of it.
fn share(random: &mut SeededRandom, whole: Duration, least: u32, most: u32) -> Duration {
    let width = usize::try_from(most - least).expect("a small number");
    let drawn = u32::try_from(random.below(width + 1)).expect("a small number");
    whole * (least + drawn) / 100
}
