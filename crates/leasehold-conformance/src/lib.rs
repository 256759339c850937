//! The suite that every store must pass: one file for each promise, one case for each sentence.
//!
//! You can test your own store with one line in an integration test. The line makes a `#[test]` of
//! each case:
//!
//! ```
//! use std::sync::Arc;
//! use leasehold::store::{AnyStore, MemoryStore};
//! use leasehold_conformance::{Opener, VirtualHost};
//!
//! fn setup(host: &Arc<VirtualHost>) -> Opener {
//!     let store = MemoryStore::new(host.clone());
//!     // Each call opens one more handle on the same underlying store.
//!     Box::new(move || Box::pin(std::future::ready(AnyStore::new(store.clone()))))
//! }
//!
//! leasehold_conformance::conformance_tests!(my_store, setup);
//! # fn main() {}
//! ```
//!
//! A case passes without running if it needs a capability that the store does not promise. Other
//! cases test that the store refuses what it does not promise. So check in a test of your own that
//! your store promises what it should:
//!
//! ```
//! # use leasehold::store::{MemoryStore, Store};
//! # use leasehold_conformance::VirtualHost;
//! let promised = MemoryStore::new(VirtualHost::new(0)).capabilities();
//! assert!(promised.fencing && promised.line);
//! ```
//!
//! # Time
//!
//! | Your store takes the time from | Use | A case takes |
//! |---|---|---|
//! | its [`Host`](leasehold::host::Host) | [`conformance_tests!`] | no time but that of its requests, in each of three [runs](SEEDS) |
//! | a server, or the clock of the machine | [`conformance_tests_in_real_time!`] | at most [`REAL_TIME_MAX`] besides its requests, and [`REAL_CASE_MAX`] in all |
//!
//! If your server counts whole seconds, call [`run_in_whole_seconds`] for each of the [`cases`].
//!
//! On virtual time, nothing sleeps, and a seed decides everything. A server whose clock a test can
//! set may keep virtual time too: see [`virtual_host::Outside`]. On real time, a few cases are not
//! run to their end, and say so. Nobody can step the clock of the machine, or wait for an hour.
//!
//! Most of a case on real time is waiting. So run many cases at the same time: `cargo test --
//! --test-threads 50`.
//!
//! # What a failure says
//!
//! A failure names the promise, the demanded sentence, what was seen instead, where the contract
//! demands it, and on which time and with which seed the case ran. [`Failure`] has the same for
//! programs.
//!
//! # Where the contract says it
//!
//! The guide `docs/your-own-store.md` says how to write a store.
//! [`Store`](leasehold::store::Store) and [`Browse`](leasehold::store::Browse) are the contract.
//! [`core::line`](leasehold::core::line) has the decisions of a store as tables of pure functions.
//! [`Capabilities`] says what each promise is about.

mod actor;
mod cases;
pub mod check;
mod failure;
mod promises;
mod run;
mod time;
pub mod virtual_host;
mod world;

use std::fmt;
use std::pin::Pin;

use leasehold::store::Capabilities;

pub use self::actor::{Actor, Asking};
pub use self::cases::cases;
pub use self::failure::Failure;
pub use self::run::{
    Outcome, REAL_CASE_MAX, run, run_in_real_time, run_in_whole_seconds, run_named,
    run_named_in_real_time,
};
pub use self::time::{REAL_TIME_MAX, SEEDS};
pub use self::virtual_host::VirtualHost;
pub use self::world::{Opener, Opening, RealSetup, SLACK, Setup, World, key, ms, ttl};

/// One sentence that must hold for every store.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the case: the sentence with underscores.
    pub name: &'static str,
    /// The promise that the sentence belongs to.
    pub promise: &'static str,
    /// Where the contract demands it.
    pub contract: &'static str,
    /// Whether a store with these capabilities must pass the case.
    pub needs: fn(&Capabilities) -> bool,
    /// The test. It panics if the sentence does not hold.
    pub run: for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = ()> + 'w>>,
}

impl Case {
    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.name.replace('_', " ")
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({}: {})", self.promise, self.name)
    }
}

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guide for authors of stores are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/your-own-store.md")]
struct Guide;
