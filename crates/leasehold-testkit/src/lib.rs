//! The tools that test Leasehold itself.
//!
//! | module | contents |
//! |---|---|
//! | [`virtual_host`] | a host on virtual time: nothing sleeps, and a seed decides everything |
//! | [`conformance`] | the suite that every store must pass |
//! | [`faults`] | a store that loses, refuses and delays requests as a test says |
//! | [`real_suite`] | the suite on a real server, in real time |
//! | [`servers`] | real servers that tests start and kill, and whose clocks they set |
//! | [`fuzz`] | functions that take any bytes, and their corpus |
//! | [`protocol`] | the protocol of Redis: asks servers, and plays them |
//! | [`history`] | records what happened, and checks whether it may have happened |
//! | [`simulation`] | the library on simulated servers, networks and clocks, all from a seed |
//! | [`chaos`] | processes on real servers, and faults |
//! | [`not_run()`] | names a test that cannot run on this machine |

pub mod chaos;
mod cut;
mod deaf;
pub mod faults;
mod forward;
pub mod fuzz;
pub mod history;
mod not_run;
pub mod protocol;
pub mod real_suite;
pub mod servers;
pub mod simulation;

pub use cut::{cut_after, cut_when_woken};
pub use deaf::Deaf;
pub use leasehold_conformance as conformance;
pub use leasehold_conformance::virtual_host::{self, VirtualHost};
pub use not_run::not_run;
