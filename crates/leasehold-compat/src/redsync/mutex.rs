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

/// A lock on one name. A client holds it if it has a quorum of the nodes: more than half.
///
/// Make it with [`Redsync::new_mutex`](super::Redsync::new_mutex), then set its options. Tasks may
/// share it, but it remembers only the last lock that was acquired.
pub struct Mutex<S> {
    pub(super) host: Arc<dyn Host>,
    pub(super) nodes: Nodes<S>,
    pub(super) options: Options,
    name: String,
    held: StdMutex<Held>,
}

/// The last lock that was acquired.
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

    /// The name, which is also the key on every node.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of the last lock, which proves its ownership. `None` until the first lock, unless
    /// it was [given](Self::with_value). Treat it as a password.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        self.held().value.clone()
    }

    /// Until when the last lock or extension may be relied upon, on the clock of the host
    /// ([`Host::now`]). `None` until the first lock. An unlock does not reset it.
    #[must_use]
    pub fn until(&self) -> Option<Moment> {
        self.held().until
    }

    /// Acquires the lock. Tries up to [this many](Self::with_tries) times.
    ///
    /// A try asks all nodes and waits for them, at most [a part of the
    /// expiry](Self::with_timeout_factor). If no quorum grants the lock, or no validity is left,
    /// the try is undone on all nodes.
    ///
    /// # Errors
    ///
    /// The errors of the last try: [`Taken`](Error::Taken) if another client has a quorum,
    /// otherwise each node's [`NodeTaken`](Error::NodeTaken) or [`Redis`](Error::Redis). [`Failed`]
    /// if there are no such errors, or no tries. [`GenValue`](Error::GenValue) and
    /// [`Config`](Error::Config) before any request.
    ///
    /// [`Failed`]: Error::Failed
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a possible grant.
    pub async fn lock(&self) -> Result<(), Error> {
        self.lock_until(self.options.tries, None).await
    }

    /// Like [`lock`](Self::lock), for at most `timeout`.
    ///
    /// # Errors
    ///
    /// Same as [`lock`](Self::lock). Also [`Elapsed`](Error::Elapsed) if the time ends between two
    /// tries. If it ends during a try, that try is undone and is the last.
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn lock_within(&self, timeout: Duration) -> Result<(), Error> {
        self.lock_until(self.options.tries, Some(self.host.now() + timeout)).await
    }

    /// Like [`lock`](Self::lock), with a single try.
    ///
    /// # Errors
    ///
    /// Same as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<(), Error> {
        self.lock_until(1, None).await
    }

    /// Like [`lock_within`](Self::lock_within), with a single try.
    ///
    /// # Errors
    ///
    /// Same as [`lock_within`](Self::lock_within).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn try_lock_within(&self, timeout: Duration) -> Result<(), Error> {
        self.lock_until(1, Some(self.host.now() + timeout)).await
    }

    /// Frees the lock on all nodes. Returns `true` if a quorum had it. The other answers do not
    /// matter. Returns `false` if there are no nodes.
    ///
    /// # Errors
    ///
    /// If fewer than a quorum had it: [`Taken`](Error::Taken) if another client has a quorum,
    /// otherwise each node's [`NodeTaken`](Error::NodeTaken),
    /// [`LockAlreadyExpired`](Error::LockAlreadyExpired) or [`Redis`](Error::Redis). Repeating the
    /// call is harmless.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answers. The lock is still freed.
    pub async fn unlock(&self) -> Result<bool, Error> {
        self.unlock_until(None).await
    }

    /// Like [`unlock`](Self::unlock), but waits at most `timeout` for the answers.
    ///
    /// # Errors
    ///
    /// Same as [`unlock`](Self::unlock). With a timeout of zero, no request is sent.
    ///
    /// # Cancel safety
    ///
    /// Same as [`unlock`](Self::unlock).
    pub async fn unlock_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.unlock_until(Some(self.host.now() + timeout)).await
    }

    /// Restarts the expiry on all nodes that still have the lock. Returns `true` if that is a
    /// quorum. Returns `false` if there are no nodes.
    ///
    /// # Errors
    ///
    /// If fewer than a quorum had it, as [`unlock`](Self::unlock), but a node where it has ended is
    /// also a [`NodeTaken`](Error::NodeTaken). [`ExtendFailed`](Error::ExtendFailed) if it took
    /// longer than the expiry. Some nodes may still be extended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answers. The lock may still be extended.
    pub async fn extend(&self) -> Result<bool, Error> {
        self.extend_until(None).await
    }

    /// Like [`extend`](Self::extend), but waits at most `timeout` for the answers.
    ///
    /// # Errors
    ///
    /// Same as [`extend`](Self::extend). With a timeout of zero, no request is sent.
    ///
    /// # Cancel safety
    ///
    /// Same as [`extend`](Self::extend).
    pub async fn extend_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.extend_until(Some(self.host.now() + timeout)).await
    }

    /// Checks whether a quorum of the nodes has the lock. The lock may end before you see the
    /// answer: prefer [`until`](Self::until).
    ///
    /// # Errors
    ///
    /// If fewer than a quorum has it, as [`extend`](Self::extend). Returns `Ok(false)` if there are
    /// no nodes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn valid(&self) -> Result<bool, Error> {
        self.valid_until(None).await
    }

    /// Like [`valid`](Self::valid), but waits at most `timeout` for the answers.
    ///
    /// # Errors
    ///
    /// Same as [`valid`](Self::valid).
    ///
    /// # Cancel safety
    ///
    /// Same as [`valid`](Self::valid).
    pub async fn valid_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.valid_until(Some(self.host.now() + timeout)).await
    }

    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        // Its content is valid at every moment.
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
