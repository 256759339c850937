//! The world of one case: its time, and two handles on the store under test.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Key;
use leasehold::core::{Moment, WallTime};
use leasehold::store::{AnyStore, Browse, Capabilities, FENCE_IDLE, Released, Snapshot, Store};

use crate::VirtualHost;
use crate::actor::Actor;
pub use crate::actor::{key, ttl};
use crate::check::{granted, released};
pub use crate::time::SLACK;
use crate::time::{Output, SEEDS, Time};

/// A handle that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = AnyStore>>>;

/// Opens another handle on the underlying store, as another process or client would. It is dropped
/// at the end of the case, with everything that it keeps.
pub type Opener = Box<dyn Fn() -> Opening>;

/// Makes a new, empty underlying store on the clock of the host.
pub type Setup = fn(&Arc<VirtualHost>) -> Opener;

/// Makes a new, empty underlying store on the clocks of this machine or of a server: a database, a
/// schema or a prefix that no other case uses. The opener runs on a runtime of tokio with input,
/// output and timers, which lives as long as the case.
pub type RealSetup = fn() -> Opener;

/// The tools of a case.
pub struct World {
    time: Time,
    stores: [AnyStore; 2],
    opener: Opener,
    actors: Cell<u32>,
}

impl World {
    /// Opens a world on that host. Tests of a single store use it too.
    pub async fn open(host: Arc<VirtualHost>, opener: Opener) -> Self {
        Self::on(Time::Virtual(host), opener).await
    }

    /// Opens a world on that time.
    pub(crate) async fn on(time: Time, opener: Opener) -> Self {
        let stores = [opener().await, opener().await];
        Self { time, stores, opener, actors: Cell::new(0) }
    }

    /// The host of a world on virtual time. The cases do not use it, as they also run on real time.
    ///
    /// # Panics
    ///
    /// If the world is on real time.
    #[must_use]
    pub fn host(&self) -> &Arc<VirtualHost> {
        match &self.time {
            Time::Virtual(host) => host,
            Time::Real(_) => panic!("this world is on real time and has no virtual host"),
        }
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

    /// A new client. Clients use the two handles alternately, so two clients in a row act like two
    /// processes.
    #[must_use]
    pub fn actor(&self) -> Actor {
        let number = self.actors.get();
        self.actors.set(number + 1);
        let store = self.stores[number as usize % self.stores.len()].clone();
        Actor::new(&self.time, store, number)
    }

    /// A new client on the first handle.
    #[must_use]
    pub fn actor_here(&self) -> Actor {
        let number = self.actors.get();
        self.actors.set(number + 1);
        Actor::new(&self.time, self.store().clone(), number)
    }

    /// Lets time pass. Everything that is due happens.
    pub async fn pass(&self, span: Duration) {
        self.time.pass(span).await;
    }

    /// Lets time pass until `at`.
    pub async fn pass_until(&self, at: Moment) {
        self.time.pass(at.since(self.time.now())).await;
    }

    /// Lets twice as much time pass as it takes until a store may forget a key that nobody uses.
    /// Another key is used meanwhile, which may make the store clean up.
    pub(crate) async fn leave_idle(&self) {
        for _ in 0..2 {
            self.pass(FENCE_IDLE + ms(1)).await;
            // Ask through each of the two handles. A store may clean up behind the first answer.
            for _ in 0..4 {
                let other = self.actor();
                granted(other.ask(&key("other")).send().await);
                released(other.release(&key("other")).await, Released::Freed);
            }
            self.settle().await;
        }
    }

    /// Lets the store do everything that it does at this very moment once a client waits. For
    /// example, it may have to open a connection for hints. `Missed` stands for earlier hints.
    pub async fn settle(&self) {
        self.time.settle().await;
    }

    /// Forgets the hints of an actor. A store may wake more waiters than it must, and has done so
    /// after this wait.
    pub(crate) async fn forget_extra_hints(&self, actor: &Actor) {
        self.pass(SLACK).await;
        drop(actor.hints());
    }

    /// The current moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.time.now()
    }

    /// The time of day.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.time.wall()
    }

    /// How long before the end of a lease a case still expects the lease: `span`, or more on real
    /// time, which is never exact.
    #[must_use]
    pub fn early(&self, span: Duration) -> Duration {
        self.time.early(span)
    }

    /// How much later than its ttl a lease may end: [`SLACK`], or a second more on a store that
    /// counts whole seconds.
    #[must_use]
    pub fn slack(&self) -> Duration {
        self.time.slack()
    }

    /// Whether the store may be a node of a quorum, whose waiters watch. Such a store keeps a
    /// counter of fencing tokens for each key, also while the key is free, and raises it if asked.
    #[must_use]
    pub fn may_be_a_node(&self) -> bool {
        self.capabilities().watching
    }

    /// Ends the case on a store that counts whole seconds. Only the part of the case before this
    /// can be tested there.
    pub async fn fine_only(&self, why: &'static str) {
        self.time.fine_only(why).await;
    }

    /// Steps the time of day by that many microseconds, forward or back. Ends the case on real
    /// time.
    pub async fn step_wall(&self, by_us: i64) {
        self.virtual_only("nobody may step the clock of this machine").await;
        self.host().step_wall(by_us);
    }

    /// Puts the machine to sleep for `span`. Ends the case on real time.
    pub async fn suspend(&self, span: Duration) {
        self.virtual_only("nobody may put this machine to sleep").await;
        self.host().suspend(span);
    }

    /// Ends the case on real time. Only the part of the case before this can be tested there.
    pub async fn virtual_only(&self, why: &'static str) {
        self.time.virtual_only(why).await;
    }

    /// Whether this is the first run of the case. Other runs have other seeds.
    #[must_use]
    pub fn is_first_run(&self) -> bool {
        match &self.time {
            Time::Virtual(host) => host.seed() == SEEDS.start,
            Time::Real(_) => true,
        }
    }

    /// Runs `task` concurrently with the case. Await the returned value for its output.
    pub(crate) fn task<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Output<T> {
        self.time.task(task)
    }

    /// The time, for a task that runs concurrently with the case.
    pub(crate) fn time(&self) -> &Time {
        &self.time
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
        write!(f, "World({:?}, {:?})", self.stores[0], self.time)
    }
}

/// A ttl that is longer than [`World::leave_idle`] takes.
pub(crate) const HOUR_MS: u64 = 3_600_000;

/// That many milliseconds.
#[must_use]
pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
