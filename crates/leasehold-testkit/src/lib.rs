//! What Leasehold is tested with, and what whoever writes a store of their own can test it with.
//!
//! | module | what it is |
//! |---|---|
//! | [`virtual_host`] | a host on virtual time: nothing sleeps, and everything follows from a seed |
//! | [`conformance`] | the suite that every store must pass |
//! | [`faults`] | a store that loses, refuses and delays what a test tells it to |
//! | [`servers`] | real servers that tests start, kill and deceive about the time |
//! | [`fuzz`] | functions that take any bytes, and the corpus that they are tried with |
//! | [`history`] | what happened, and whether it may have happened |
//! | [`simulation`] | the library on a simulated server, network and clocks, all from a seed |
//! | [`chaos`] | processes on real servers, and what is done to them |

pub mod chaos;
pub mod conformance;
mod cut;
pub mod faults;
pub mod fuzz;
pub mod history;
pub mod servers;
pub mod simulation;
pub mod virtual_host;

pub use cut::{cut_after, cut_when_woken};
pub use virtual_host::VirtualHost;
