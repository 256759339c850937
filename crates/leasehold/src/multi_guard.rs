//! The guard of several locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all, select_all};

use crate::core::error::Error;
use crate::core::lost::Lost;
use crate::core::token::FencingToken;
use crate::guard::{Guard, Release};
use crate::store::Revocation;

/// Proof that this process holds several locks, until they are released or one of them is lost.
///
/// It is one guard: if one lock is lost, [`is_held`](Self::is_held) turns false for ever and
/// [`lost`](Self::lost) names that lock. Stop the protected work then. The other locks stay held
/// and are renewed until this guard is released or dropped, so that the work can come to a safe
/// end.
///
/// Dropping it releases all locks, as [`Guard`] describes. [`into_guards`](Self::into_guards) takes
/// it apart.
///
/// # Examples
///
/// Work that stops when one of the locks is lost:
///
/// ```
/// # async fn work() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock_all(["a", "b"]).lock().await?;
/// tokio::select! {
///     () = work() => println!("done"),
///     (name, lost) = guard.lost() => eprintln!("stopped: {name}: {lost}"),
/// }
/// assert_eq!(guard.release().await?, leasehold::MultiRelease::Released);
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases its locks"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    /// One or more.
    guards: Vec<Guard>,
}

/// The outcome of a release of several locks.
///
/// # Examples
///
/// ```
/// use leasehold::MultiRelease;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.lock_all(["a", "b"]).lock().await?;
/// match guard.release().await? {
///     MultiRelease::Released => println!("done"),
///     MultiRelease::NotHeld(names) => eprintln!("lost: {names:?}, look at what was written last"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "`NotHeld` means that a lock was lost before it was released"]
pub enum MultiRelease {
    /// The guard held all of its locks until now.
    Released,
    /// The locks with these names had been lost before. Other clients may have held them since. The
    /// rest was held until now.
    NotHeld(Vec<String>),
}

impl MultiGuard {
    /// `guards` has at least one.
    pub(crate) fn new(guards: Vec<Guard>) -> Self {
        debug_assert!(!guards.is_empty(), "there is no lock without a name");
        Self { guards }
    }

    /// The names of the locks in the order in which they were given, without a namespace.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.guards.iter().map(Guard::name)
    }

    /// The guards of the locks, in the order of the names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The number of the grant of that name, as [`Guard::fencing_token`]. Also `None` if the name
    /// is not one of those that were given.
    #[must_use]
    pub fn fencing_token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name() == name)?.fencing_token()
    }

    /// Whether this guard holds all locks now, by the local clock. Sends no request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// How long this guard holds all locks if no renewal succeeds from now on: the least of all.
    /// Zero once one of them is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Resolves when the first lock is lost, no later than its deadline, to the name of that lock
    /// and the reason. Never resolves if the locks are released.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again at any time.
    pub fn lost(&self) -> impl Future<Output = (String, Lost)> + Send + 'static {
        self.first_of(|guard| guard.lost().boxed())
    }

    /// Resolves when the holder of one of the locks is asked to let go, with the name of that lock,
    /// who asked and why: see [`Guard::revoked`]. Never resolves if they are released or lost
    /// first.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again at any time.
    pub fn revoked(&self) -> impl Future<Output = (String, Arc<Revocation>)> + Send + 'static {
        self.first_of(|guard| guard.revoked().boxed())
    }

    /// Waits for the first of these futures. Returns the name of its lock, and its output.
    fn first_of<T: 'static>(
        &self,
        future: impl Fn(&Guard) -> BoxFuture<'static, T>,
    ) -> BoxFuture<'static, (String, T)> {
        let all = self.guards.iter().map(|guard| {
            let name = guard.name().to_owned();
            future(guard).map(|output| (name, output))
        });
        select_all(all).map(|(first, ..)| first).boxed()
    }

    /// Asks the store whether this guard still holds each lock, and restarts their ttls. All
    /// requests are sent at the same time.
    ///
    /// # Errors
    ///
    /// Like [`Guard::renew`], about the first lock that failed. The others are renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answers. The requests may still take effect.
    pub async fn renew(&self) -> Result<(), Error> {
        join_all(self.guards.iter().map(Guard::renew)).await.into_iter().collect()
    }

    /// Releases all locks, and waits until the store confirms it. All requests are sent at the same
    /// time.
    ///
    /// # Errors
    ///
    /// Like [`Guard::release`], about the first lock whose release got no answer. The guard no
    /// longer holds any lock even then. If the store says that another lock was lost, the answer is
    /// [`MultiRelease::NotHeld`] instead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still releases all locks, even before its first poll.
    pub async fn release(self) -> Result<MultiRelease, Error> {
        let names: Vec<_> = self.names().map(str::to_owned).collect();
        let answers = join_all(self.guards.into_iter().map(Guard::release)).await;
        let not_held = names.into_iter().zip(&answers);
        let not_held = not_held.filter(|(_, answer)| matches!(answer, Ok(Release::NotHeld)));
        let not_held: Vec<_> = not_held.map(|(name, _)| name).collect();
        if !not_held.is_empty() {
            return Ok(MultiRelease::NotHeld(not_held));
        }
        match answers.into_iter().find_map(Result::err) {
            Some(error) => Err(error),
            None => Ok(MultiRelease::Released),
        }
    }

    /// Takes this guard apart into the guards of the single locks, in the order of the names. From
    /// then on each lock is released and lost alone.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }
}

/// A guard of one lock, for code that handles one and several locks alike.
impl From<Guard> for MultiGuard {
    fn from(guard: Guard) -> Self {
        Self::new(vec![guard])
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.guards).finish()
    }
}
