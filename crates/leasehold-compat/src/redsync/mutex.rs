//! One lock on all nodes.

use std::fmt;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::Store;

use super::error::Error;
use super::nodes::Nodes;
use super::options::Options;

/// A lock on one name, held if a quorum of the nodes has it: more than half of them.
///
/// Made by [`Redsync::new_mutex`](super::Redsync::new_mutex), then given its options. Tasks may
/// share it, but it remembers one lock only, the last one that was taken.
pub struct Mutex<S> {
    pub(super) host: Arc<dyn Host>,
    pub(super) nodes: Nodes<S>,
    pub(super) options: Options,
    name: String,
    held: StdMutex<Held>,
}

/// The last lock that was taken.
#[derive(Default)]
pub(super) struct Held {
    pub(super) value: Option<String>,
    pub(super) until: Option<Moment>,
}

impl<S: Store> Mutex<S> {
    pub(super) fn new(name: String, pools: Arc<[S]>, host: Arc<dyn Host>) -> Self {
        let (nodes, options) = (Nodes::new(pools), Options::DEFAULT);
        Self { host, nodes, options, name, held: StdMutex::default() }
    }

    /// The name, which is the key on every node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of the lock, of which it is known who has it: `None` until the first lock, unless
    /// [given](Self::with_value). Treat it as a password.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        self.held().value.clone()
    }

    /// Until when the lock that was taken or extended last may be relied upon, on the clock of the
    /// host ([`Host::now`]): `None` until the first one. Not reset by an unlock.
    #[must_use]
    pub fn until(&self) -> Option<Moment> {
        self.held().until
    }

    /// Takes the lock. While it cannot be had, tries again, [so often](Self::with_tries) in all.
    ///
    /// A try asks all nodes and waits for all of them, [a part of the
    /// expiry](Self::with_timeout_factor) at most. If no quorum grants it, or if nothing of the
    /// expiry is left, it is given back on all of them.
    ///
    /// # Errors
    ///
    /// What the nodes said the last time: [`Taken`](Error::Taken) if a quorum is another's, else
    /// each node's [`NodeTaken`](Error::NodeTaken) or [`Redis`](Error::Redis). [`Failed`] if they
    /// said nothing of the kind, or without tries. [`GenValue`](Error::GenValue) and
    /// [`Config`](Error::Config) before anything is asked.
    ///
    /// [`Failed`]: Error::Failed
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back what it may have got.
    pub async fn lock(&self) -> Result<(), Error> {
        self.lock_until(self.options.tries, None).await
    }

    /// As [`lock`](Self::lock), for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there. [`Elapsed`](Error::Elapsed) if the time elapses between two tries; a try that it
    /// elapses in is given back, and is the last.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn lock_within(&self, timeout: Duration) -> Result<(), Error> {
        self.lock_until(self.options.tries, Some(self.host.now() + timeout)).await
    }

    /// As [`lock`](Self::lock), and tries once.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn try_lock(&self) -> Result<(), Error> {
        self.lock_until(1, None).await
    }

    /// As [`lock_within`](Self::lock_within), and tries once.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn try_lock_within(&self, timeout: Duration) -> Result<(), Error> {
        self.lock_until(1, Some(self.host.now() + timeout)).await
    }

    /// Frees the lock on all nodes. `true`: a quorum had it, whatever the others say. `false`:
    /// there are no nodes.
    ///
    /// # Errors
    ///
    /// If fewer than a quorum had it: [`Taken`](Error::Taken) if a quorum is another's, else each
    /// node's [`NodeTaken`](Error::NodeTaken), [`LockAlreadyExpired`](Error::LockAlreadyExpired) or
    /// [`Redis`](Error::Redis). Repeating it is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answers; the lock is freed all the same.
    pub async fn unlock(&self) -> Result<bool, Error> {
        self.unlock_until(None).await
    }

    /// As [`unlock`](Self::unlock), and waits for the answers for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there; a timeout of zero has elapsed, and nothing is asked.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn unlock_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.unlock_until(Some(self.host.now() + timeout)).await
    }

    /// Restarts the expiry on all nodes that still have the lock. `true`: a quorum has it.
    /// `false`: there are no nodes.
    ///
    /// # Errors
    ///
    /// If fewer than a quorum had it, as [`unlock`](Self::unlock), where a node on which it has
    /// ended is a [`NodeTaken`](Error::NodeTaken) too. [`ExtendFailed`](Error::ExtendFailed) if it
    /// took longer than the expiry. On some nodes it may be extended all the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answers; the lock may be extended all the same.
    pub async fn extend(&self) -> Result<bool, Error> {
        self.extend_until(None).await
    }

    /// As [`extend`](Self::extend), and waits for the answers for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there; a timeout of zero has elapsed, and nothing is asked.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn extend_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.extend_until(Some(self.host.now() + timeout)).await
    }

    /// Looks whether a quorum of the nodes has the lock. What it says may be over when it says so:
    /// prefer [`until`](Self::until).
    ///
    /// # Errors
    ///
    /// If fewer than a quorum has it, as [`extend`](Self::extend). `Ok(false)`: there are no nodes.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    pub async fn valid(&self) -> Result<bool, Error> {
        self.valid_until(None).await
    }

    /// As [`valid`](Self::valid), and waits for the answers for `timeout` at most.
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Cancel safety
    ///
    /// As there.
    pub async fn valid_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.valid_until(Some(self.host.now() + timeout)).await
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        // Whole at every moment.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> fmt::Debug for Mutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
