//! redsync v4 (`github.com/go-redsync/redsync`): one lock on several Redis servers that know
//! nothing of one another, held by whoever has more than half of them.
//!
//! | there | here |
//! |---|---|
//! | `redsync.New(pools...)` | [`Redsync::new`]`(stores)`, a store per server |
//! | `rs.NewMutex(name, options...)` | [`new_mutex`](Redsync::new_mutex)`(name)`, then its options |
//! | `WithExpiry(d)` and each other option | [`with_expiry`](Mutex::with_expiry)`(d)` and so on, with the same default |
//! | `Lock()`, `TryLock()` | [`lock`](Mutex::lock), [`try_lock`](Mutex::try_lock) |
//! | `Unlock()`, `Extend()`, `Valid()`: `(bool, error)` | [`unlock`](Mutex::unlock), [`extend`](Mutex::extend), [`valid`](Mutex::valid): `Result<bool, Error>` |
//! | `LockContext(ctx)` and so on | [`lock_within`](Mutex::lock_within)`(timeout)` and so on, or dropping the future |
//! | `Name()`, `Value()`, `Until()` | [`name`](Mutex::name), [`value`](Mutex::value), [`until`](Mutex::until) |
//! | `ErrFailed`, `*ErrTaken`, `*RedisError`, … | [`Error`] |
//! | `errors.As(err, &taken)` | a `match` on each of [`Error::errors`] |
//!
//! On each server: `SET name value NX PX 8000` with 16 random bytes in Base64 as the value, and
//! scripts that compare before they extend or delete.
//!
//! # Use [`leasehold::Client::quorum`] instead
//!
//! As there, nothing is renewed and nobody is told that a lock was lost: what takes longer than
//! [`until`](Mutex::until) goes on unprotected. Who waits asks every 50 to 249 ms, two commands for
//! each node each time, in no order, and gives up after some 4.6 s, sooner than a lock ends whose
//! holder died. A node that forgot the lock is not told it again, unless by
//! [`with_set_nx_on_extend`](Mutex::with_set_nx_on_extend), which also takes anew what was lost.
//! And nothing that is written under the lock can be told from what comes too late.
//!
//! `Client::quorum([url, …])` asks the same nodes for the same keys, and its
//! [`Mutex`](leasehold::Mutex) renews, waits to be told, says when the lock is lost, and gives
//! every grant a [fencing token](leasehold::Guard::fencing_token) that what is written can be
//! checked by. To move, lock the same name with `client.mutex(name).coexist()`, process by process,
//! on the same servers everywhere: both contend on it. Drop `coexist` with the last of the old
//! ones.
//!
//! # What differs
//!
//! Beside [what differs from all](crate#what-differs-from-all-namesakes):
//!
//! - What a try may have got is given back also when the time for it is over or its future is
//!   dropped. There a context that has ended ends the roll-back too, and the keys stay.
//! - `unlock`, `extend` and `valid` end when a store gives up: for Redis after 1 s, or twice that
//!   where an unlock looks why it found nothing. There nothing limits them.
//! - A value is 1 to 128 printable ASCII characters without spaces, and no other lock may have it:
//!   see [`with_gen_value_func`](Mutex::with_gen_value_func). Without any value, `extend` finds the
//!   lock taken.
//! - The expiry is at least 10 ms. Options that make no sense are refused by the next call.
//! - A node is numbered by its place in what was given to [`Redsync::new`], also where the order is
//!   [shuffled](Mutex::with_shuffle_pools).
//! - `valid` is `true` or an error, and drops what a minority said, as `unlock` does.
//! - A key that is no string is an error, and not *taken*.

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

/// Locks on these stores.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::host::SystemHost;
/// use leasehold::store::RedisStore;
/// use leasehold_compat::redsync::Redsync;
///
/// let mut stores = Vec::new();
/// for url in ["redis://one", "redis://two", "redis://three"] {
///     stores.push(RedisStore::connect(url, SystemHost::shared()).await?);
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
    /// Locks on these stores, one for each server. Without any, none can be taken.
    ///
    /// A [`Quorum`](leasehold::store::Quorum) is none of them: give its servers.
    ///
    /// Everybody who locks a name must give the same servers, in whatever order.
    pub fn new(pools: impl IntoIterator<Item = S>) -> Self {
        Self::new_on(pools, SystemHost::shared())
    }

    /// As [`new`](Self::new), with time and randomness of that host, for instance a virtual one in
    /// tests.
    pub fn new_on(pools: impl IntoIterator<Item = S>, host: Arc<dyn Host>) -> Self {
        Self { pools: pools.into_iter().collect(), host }
    }

    /// A lock on `name`, which is the key on every server, as it is. Nothing is asked yet.
    pub fn new_mutex(&self, name: impl Into<String>) -> Mutex<S> {
        Mutex::new(name.into(), Arc::clone(&self.pools), Arc::clone(&self.host))
    }
}

impl<S> fmt::Debug for Redsync<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redsync").field("pools", &self.pools.len()).finish_non_exhaustive()
    }
}
