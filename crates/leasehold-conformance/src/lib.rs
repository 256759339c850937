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
//! A case passes without running if it needs a capability that the store does not promise. So check
//! in a test of your own that your store promises what it should.

mod actor;
mod cases;
pub mod check;
mod promises;
pub mod virtual_host;
mod world;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use leasehold::store::Capabilities;

pub use self::actor::{Actor, Asking};
pub use self::cases::cases;
pub use self::virtual_host::VirtualHost;
pub use self::world::{Opener, Opening, SLACK, Setup, World, key, ms, ttl};

/// Each case runs with each of these seeds.
pub const SEEDS: std::ops::Range<u64> = 0..3;

/// One sentence that must hold for every store.
#[derive(Clone, Copy)]
pub struct Case {
    /// The sentence.
    pub name: &'static str,
    /// The promise that the sentence belongs to.
    pub promise: &'static str,
    /// Whether a store with these capabilities must pass the case.
    pub needs: fn(&Capabilities) -> bool,
    /// The test. It panics if the sentence does not hold.
    pub run: for<'w> fn(&'w World) -> Pin<Box<dyn Future<Output = ()> + 'w>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({}: {})", self.promise, self.name)
    }
}

/// The end of a case that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The sentence holds.
    Holds,
    /// The store does not promise it.
    NotPromised,
}

/// Runs one case on a new store, on virtual time.
///
/// # Panics
///
/// If the sentence does not hold. The seed is printed then.
pub fn run(case: &Case, seed: u64, setup: Setup) -> Outcome {
    let host = VirtualHost::new(seed);
    let _ended = Ended(Arc::clone(&host));
    let opener = setup(&host);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        if !(case.needs)(&world.capabilities()) {
            return Outcome::NotPromised;
        }
        (case.run)(&world).await;
        Outcome::Holds
    })
}

/// Drops the tasks of a case at its end, even after a panic, because they may keep a server.
struct Ended(Arc<VirtualHost>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.drop_tasks();
    }
}

/// Runs the case with that name with each of [`SEEDS`].
///
/// # Panics
///
/// If there is no such case, and as [`run`].
pub fn run_named(name: &str, setup: Setup) {
    let case = cases().into_iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case named {name}"));
    for seed in SEEDS {
        if run(&case, seed, setup) == Outcome::NotPromised {
            println!("{name}: the store does not promise that {}", case.promise);
            return;
        }
    }
}
