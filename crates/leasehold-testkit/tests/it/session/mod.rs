//! The promises of a client, on virtual time, with injected faults.

mod another_grant;
mod asking;
mod called_up;
mod cancelling;
mod coexisting;
mod curator;
mod driving;
mod electing;
mod failing;
mod guarded;
mod handed_over;
mod holding;
mod idling;
mod latch;
mod leases;
mod local_line;
mod losing;
mod max_hold;
mod min_hold;
mod names;
mod once;
mod panicking;
mod passing;
mod permits;
mod polling;
mod rate_limit;
mod redisson;
mod reentering;
mod revoking;
mod settings;
mod several;
mod several_held;
mod shards;
mod sharing;
mod shedlock;
mod shutting_down;
mod soak;
mod telling;
mod unqueued;
mod waiting;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::AnyStore;
use leasehold::{Client, Identity};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::{Opener, Setup};
use leasehold_testkit::faults::Faults;
use leasehold_testkit::servers::PROGRAM_VARIABLE;

use crate::stores;

/// One store, and its clients.
pub(crate) struct Scene {
    pub(crate) host: Arc<VirtualHost>,
    pub(crate) faults: Faults,
    opener: Opener,
}

impl Scene {
    /// A client whose requests meet the faults.
    pub(crate) async fn client(&self) -> Client {
        self.client_of(Duration::from_secs(3)).await
    }

    /// A client with this ttl, whose requests meet the faults.
    pub(crate) async fn client_of(&self, ttl: Duration) -> Client {
        self.client_with(&self.faults, ttl).await
    }

    /// A client with this ttl, whose requests meet faults of its own.
    pub(crate) async fn client_with(&self, faults: &Faults, ttl: Duration) -> Client {
        let store = faults.decorate(self.store().await);
        Self::connect(Client::with_store(store), self.host.clone(), ttl).await
    }

    /// A client whose requests meet the faults. The store keeps its leases this much longer.
    pub(crate) async fn client_with_delay(&self, lock_delay: Duration) -> Client {
        let builder = Client::with_store(self.faults.decorate(self.store().await));
        let builder = builder.lock_delay(lock_delay);
        Self::connect(builder, self.host.clone(), Duration::from_secs(3)).await
    }

    /// A client on this handle, whose requests meet the faults.
    pub(crate) async fn client_on(&self, store: AnyStore) -> Client {
        let store = self.faults.decorate(store);
        Self::connect(Client::with_store(store), self.host.clone(), Duration::from_secs(3)).await
    }

    /// A client in another process, whose requests meet no faults.
    pub(crate) async fn calm_client(&self) -> Client {
        let builder = Client::with_store(self.store().await);
        Self::connect(builder, self.host.clone(), Duration::from_secs(3)).await
    }

    async fn connect(
        builder: leasehold::ClientBuilder,
        host: Arc<VirtualHost>,
        ttl: Duration,
    ) -> Client {
        let builder = builder.host(host).ttl(ttl).identity(Identity::anonymous());
        builder.connect().await.expect("connected")
    }

    /// One more handle on the store.
    pub(crate) async fn store(&self) -> AnyStore {
        (self.opener)().await
    }

    pub(crate) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }
}

const STORES: [Setup; 3] = [stores::memory, stores::sqlite, stores::redis];

/// The stores on which scenes are played. If the environment names a Redis server, the scenes use
/// only that server, since the other stores were tested before.
pub(crate) fn stores_here() -> &'static [Setup] {
    if is_about_one_server() { &STORES[2..] } else { &STORES }
}

fn is_about_one_server() -> bool {
    std::env::var_os(PROGRAM_VARIABLE).is_some()
}

/// The variable with which `cargo xtask test` says that there is no PostgreSQL server.
const WITHOUT_POSTGRES: &str = "LEASEHOLD_TEST_WITHOUT_POSTGRES";

/// Plays the scene once for every store here and every seed. On PostgreSQL, it plays one seed.
pub(crate) fn play(seeds: Range<u64>, scene: impl AsyncFn(&Scene)) {
    if !is_about_one_server() && std::env::var_os(WITHOUT_POSTGRES).is_none() {
        play_on(stores::postgres, seeds.start, &scene);
    }
    for &setup in stores_here() {
        for seed in seeds.clone() {
            play_on(setup, seed, &scene);
        }
    }
}

/// Plays the scene once.
pub(crate) fn play_on<T>(setup: Setup, seed: u64, scene: impl AsyncFnOnce(&Scene) -> T) -> T {
    let host = VirtualHost::new(seed);
    let opener = setup(&host);
    let set = Scene { faults: Faults::new(host.clone()), opener, host: host.clone() };
    let output = set.host.run(scene(&set));
    // Let drivers start, since a driver that has not started yet would keep its references for
    // ever.
    set.host.run(set.host.settle());
    drop(set);
    host.drop_tasks();
    assert_eq!(Arc::strong_count(&host), 1, "something keeps itself alive");
    output
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The time from the sending of an ask until the holder of a 3 s lease learns of its loss. That is
/// 1 % and 2 ms before the store frees the key, minus 1 ms by which a timer may be late.
pub(crate) const TOLD: Duration = ms(3_000 - 30 - 2 - 1);
