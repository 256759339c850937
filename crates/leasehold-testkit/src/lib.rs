//! What Leasehold is tested with, and what whoever writes a store of their own can test it with.
//!
//! | module | what it is |
//! |---|---|
//! | [`virtual_host`] | a host on virtual time: nothing sleeps, and everything follows from a seed |
//! | [`conformance`] | the suite that every store must pass |
//! | [`faults`] | a store that loses, refuses and delays what a test tells it to |
//! | [`servers`] | real servers that tests start, kill and deceive about the time |
//! | [`history`] | what happened to one key, and whether it may have happened |

pub mod conformance;
mod cut;
pub mod faults;
pub mod history;
pub mod servers;
pub mod virtual_host;

pub use cut::cut_after;
pub use virtual_host::VirtualHost;
