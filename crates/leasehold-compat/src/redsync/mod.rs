//! redsync v4 (`github.com/go-redsync/redsync`): one lock on several independent Redis servers. The
//! client that has more than half of the servers holds it.
//!
//! | redsync | here |
//! |---|---|
//! | `redsync.New(pools...)` | [`Redsync::new`]`(stores)`, a store per server |
//! | `rs.NewMutex(name, options...)` | [`new_mutex`](Redsync::new_mutex)`(name)` |
//! | `WithExpiry(d)` | [`with_expiry`](Mutex::with_expiry)`(d)` |
//! | other options | `with_…`, with the same defaults |
//! | `Lock()`, `TryLock()` | [`lock`](Mutex::lock), [`try_lock`](Mutex::try_lock) |
//! | `Unlock()` | [`unlock`](Mutex::unlock) |
//! | `Extend()`, `Valid()` | [`extend`](Mutex::extend), [`valid`](Mutex::valid) |
//! | `LockContext(ctx)` | [`lock_within`](Mutex::lock_within)`(timeout)`, or drop the future |
//! | other calls with a context | `…_within(timeout)`, or drop the future |
//! | `Name()`, `Value()` | [`name`](Mutex::name), [`value`](Mutex::value) |
//! | `Until()` | [`until`](Mutex::until) |
//! | `ErrFailed`, `*ErrTaken`, `*RedisError`, … | [`Error`] |
//! | `errors.As(err, &taken)` | a `match` on each of [`Error::errors`] |
//!
//! On each server: `SET name value NX PX 8000` with 16 random bytes in Base64 as the value, and
//! scripts that compare before they extend or delete.
//!
//! # Use [`leasehold::Client::quorum`] instead
//!
//! Like redsync, this type has these weaknesses:
//!
//! - It renews nothing and tells nobody that a lock was lost. Work that takes longer than
//!   [`until`](Mutex::until) continues unprotected.
//! - A waiter polls every 50 to 249 ms with two commands per node, in no order. It gives up after
//!   about 4.6 s, which is sooner than the lock of a dead holder ends.
//! - A node that forgot the lock does not get it again, except with
//!   [`with_set_nx_on_extend`](Mutex::with_set_nx_on_extend), which also takes lost locks again.
//! - There is no fencing token, so nothing distinguishes a late write.
//!
//! `Client::quorum([url, …])` asks the same nodes for the same keys. Its
//! [`Mutex`](leasehold::Mutex) renews, waits for wake-ups, tells when the lock is lost, and gives
//! every grant a [fencing token](leasehold::Guard::fencing_token). To move, lock the same name with
//! `client.mutex(name)`, process by process, on the same servers: both kinds contend for the same
//! keys. On several servers, add `.coexist(Coexist::On)` until no redsync process is left, because
//! there a line never stands aside by itself.
//!
//! # What differs
//!
//! Besides [what differs from all](crate#what-differs-from-all-namesakes):
//!
//! - A failed try is released even if its time is over or its future is dropped. In redsync, the
//!   end of the context also ends the roll-back, and the keys stay.
//! - `unlock`, `extend` and `valid` end when a store gives up: for Redis after 1 s, or twice that
//!   if an unlock checks why it found nothing. In redsync nothing limits them.
//! - A value is 1 to 128 printable ASCII characters without spaces, and no other lock may have it:
//!   see [`with_gen_value_func`](Mutex::with_gen_value_func). Without a value, `extend` reports the
//!   lock as taken.
//! - The expiry is at least 10 ms. The next call refuses options that make no sense.
//! - A node's number is its place in the list for [`Redsync::new`], even if the order is
//!   [shuffled](Mutex::with_shuffle_pools).
//! - `valid` is `true` or an error, and ignores the errors of a minority, as `unlock` does.
//! - A key that is not a string is an error, and not *taken*.

mod calls;
mod error;
mod mutex;
mod nodes;
mod options;
mod round;

use std::fmt;
use std::sync::Arc;

use leasehold::host::{Host, SystemHost};
use leasehold::store::Store;

pub use error::Error;
pub use mutex::Mutex;

/// Makes locks on a set of stores.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::redis::{RedisConnector, RedisStore};
/// use leasehold_compat::redsync::Redsync;
///
/// let mut stores = Vec::new();
/// for url in ["redis://one", "redis://two", "redis://three"] {
///     // It connects with the first request, so a minority of the servers may be down.
///     stores.push(RedisStore::open(RedisConnector::new(url)?, SystemHost::shared()));
/// }
/// let redsync = Redsync::new(stores);
/// let mutex = redsync.new_mutex("stock:42").with_tries(3);
/// mutex.lock().await?;
/// // The stock is counted here, in less than eight seconds.
/// mutex.unlock().await?;
/// # Ok(()) }
/// ```
pub struct Redsync<S> {
    pools: Arc<[S]>,
    host: Arc<dyn Host>,
}

impl<S: Store> Redsync<S> {
    /// Makes locks on these stores, one for each server. Without stores, no lock can be acquired.
    ///
    /// Give the servers of a [`Quorum`](leasehold::store::Quorum), not the quorum itself.
    ///
    /// All clients of a name must give the same servers, in any order.
    pub fn new(pools: impl IntoIterator<Item = S>) -> Self {
        Self::new_on(pools, SystemHost::shared())
    }

    /// Like [`new`](Self::new), with the time and randomness of `host`, for example a virtual one
    /// in tests.
    pub fn new_on(pools: impl IntoIterator<Item = S>, host: Arc<dyn Host>) -> Self {
        Self { pools: pools.into_iter().collect(), host }
    }

    /// Makes a lock on `name`, which is the exact key on every server. Sends no request.
    pub fn new_mutex(&self, name: impl Into<String>) -> Mutex<S> {
        Mutex::new(name.into(), Arc::clone(&self.pools), Arc::clone(&self.host))
    }
}

impl<S> fmt::Debug for Redsync<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redsync").field("pools", &self.pools.len()).finish_non_exhaustive()
    }
}
