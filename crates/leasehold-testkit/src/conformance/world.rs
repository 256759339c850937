//! The world of one case: a virtual host, and two handles on one store under test.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::{AnyStore, Browse, Capabilities, Snapshot, Store};
use leasehold::{Key, Ttl};

use super::actor::Actor;
use crate::VirtualHost;

/// A handle that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = AnyStore>>>;

/// Opens one more handle on the underlying store, as one more process or client would. Dropped at
/// the end of the case, with whatever it keeps.
pub type Opener = Box<dyn Fn() -> Opening>;

/// Makes an underlying store of its own, empty, on the clock of the host.
pub type Setup = fn(&Arc<VirtualHost>) -> Opener;

/// How long a hint, or the end of a lease, may be late on virtual time: many times what the
/// slowest store needs to look at what others did.
pub const SLACK: Duration = Duration::from_millis(100);

/// What a case works with.
pub struct World {
    host: Arc<VirtualHost>,
    stores: [AnyStore; 2],
    opener: Opener,
    actors: Cell<u32>,
}

impl World {
    /// A world on that host: tests of one store alone play in it too.
    pub async fn open(host: Arc<VirtualHost>, opener: Opener) -> Self {
        let stores = [opener().await, opener().await];
        Self { host, stores, opener, actors: Cell::new(0) }
    }

    /// The host of everything in it.
    #[must_use]
    pub fn host(&self) -> &Arc<VirtualHost> {
        &self.host
    }

    /// One handle.
    #[must_use]
    pub fn store(&self) -> &AnyStore {
        &self.stores[0]
    }

    /// The other handle, as another process would have it.
    #[must_use]
    pub fn other_store(&self) -> &AnyStore {
        &self.stores[1]
    }

    /// Opens one more handle.
    pub async fn open_store(&self) -> AnyStore {
        (self.opener)().await
    }

    /// What the store promises.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    /// The tools of the store.
    ///
    /// # Panics
    ///
    /// If it has none: a case that calls this needs [`Capabilities::browse`].
    #[must_use]
    pub fn browse(&self) -> &dyn Browse {
        self.store().browse().expect("a store that promises tools has them")
    }

    /// A new client on the one handle and the other by turns: two actors in a row are two
    /// processes.
    #[must_use]
    pub fn actor(&self) -> Actor {
        let number = self.actors.get();
        self.actors.set(number + 1);
        let store = self.stores[number as usize % self.stores.len()].clone();
        Actor::new(&self.host, store, number)
    }

    /// A new client on the first handle.
    #[must_use]
    pub fn actor_here(&self) -> Actor {
        let number = self.actors.get();
        self.actors.set(number + 1);
        Actor::new(&self.host, self.store().clone(), number)
    }

    /// Lets that much time pass, and whatever is due in it happen.
    pub async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }

    /// Lets time pass until `at`.
    pub async fn pass_until(&self, at: Moment) {
        self.host.advance(at.since(self.host.now())).await;
    }

    /// Lets the store do, at this very moment, what it does once somebody waits: it may have to
    /// open what hints come in by. Hints before that are told by `Missed`.
    pub async fn settle(&self) {
        self.host.settle().await;
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.host.now()
    }

    /// What the store knows of `key`, seen through the second handle.
    ///
    /// # Panics
    ///
    /// If the store does not answer.
    pub async fn inspect(&self, key: &Key) -> Snapshot {
        self.other_store().inspect(key.clone()).await.expect("an inspection is answered")
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({:?}, {:?})", self.stores[0], self.host)
    }
}

/// A key of that name.
///
/// # Panics
///
/// If the name is none.
#[must_use]
pub fn key(name: &str) -> Key {
    Key::new(name).expect("a name that passes")
}

/// That many milliseconds.
#[must_use]
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A ttl of that many milliseconds.
///
/// # Panics
///
/// Out of bounds.
#[must_use]
pub fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a ttl within bounds")
}
