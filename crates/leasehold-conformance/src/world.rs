//! The world of one case: a virtual host, and two handles on the store under test.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Key;
use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::{AnyStore, Browse, Capabilities, Snapshot, Store};

use crate::VirtualHost;
use crate::actor::Actor;
pub use crate::actor::{SLACK, ttl};

/// A handle that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = AnyStore>>>;

/// Opens another handle on the underlying store, as another process or client would. Dropped at the
/// end of the case, with everything that it keeps.
pub type Opener = Box<dyn Fn() -> Opening>;

/// Makes a new, empty underlying store on the clock of the host.
pub type Setup = fn(&Arc<VirtualHost>) -> Opener;

/// The tools of a case.
pub struct World {
    host: Arc<VirtualHost>,
    stores: [AnyStore; 2],
    opener: Opener,
    actors: Cell<u32>,
}

impl World {
    /// Opens a world on that host. Tests of a single store use it too.
    pub async fn open(host: Arc<VirtualHost>, opener: Opener) -> Self {
        let stores = [opener().await, opener().await];
        Self { host, stores, opener, actors: Cell::new(0) }
    }

    /// The host of the world.
    #[must_use]
    pub fn host(&self) -> &Arc<VirtualHost> {
        &self.host
    }

    /// The first handle.
    #[must_use]
    pub fn store(&self) -> &AnyStore {
        &self.stores[0]
    }

    /// The second handle, as in another process.
    #[must_use]
    pub fn other_store(&self) -> &AnyStore {
        &self.stores[1]
    }

    /// Opens another handle.
    pub async fn open_store(&self) -> AnyStore {
        (self.opener)().await
    }

    /// The capabilities of the store.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    /// The tools of the store.
    ///
    /// # Panics
    ///
    /// If the store has no tools. A case that calls this needs [`Capabilities::browse`].
    #[must_use]
    pub fn browse(&self) -> &dyn Browse {
        self.store().browse().expect("a store that promises tools has them")
    }

    /// A new client. Clients use the two handles in turns, so two clients in a row act like two
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

    /// Lets time pass. Everything that is due happens.
    pub async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }

    /// Lets time pass until `at`.
    pub async fn pass_until(&self, at: Moment) {
        self.host.advance(at.since(self.host.now())).await;
    }

    /// Lets the store do everything that it does at this very moment once a client waits. For
    /// example, it may have to open a connection for hints. `Missed` stands for earlier hints.
    pub async fn settle(&self) {
        self.host.settle().await;
    }

    /// The current moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.host.now()
    }

    /// The snapshot of `key` through the second handle.
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

/// A key with that name.
///
/// # Panics
///
/// If the name is not valid.
#[must_use]
pub fn key(name: &str) -> Key {
    Key::new(name).expect("a name that passes")
}

/// That many milliseconds.
#[must_use]
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
