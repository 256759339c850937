//! The guard of a held lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::lost::Lost;
use crate::core::token::{FencingToken, OwnerToken};
use crate::core::ttl::Ttl;
use crate::session::{Hold, Parted, Session};
use crate::store::{Released, Revocation};

/// Proof that this process holds the lock, until it is released or lost. All kinds of locks use
/// this type.
///
/// The library renews the lease in the background, even if the task is busy or the last
/// [`Client`](crate::Client) was dropped. The lease can still be lost. Then [`lost`](Self::lost)
/// resolves and [`is_held`](Self::is_held) turns false, no later than the local deadline. Stop the
/// protected work then. The store lets nobody else have the key before that deadline.
///
/// Dropping a guard releases the lock. `drop` submits the request, never blocks, and needs no
/// runtime. The request goes out before any later request of this client. It does not report the
/// outcome, so call [`release`](Self::release) where the outcome matters. Call it also at the end
/// of a program, which may otherwise end before the request is sent.
///
/// # Reentrancy
///
/// A function that runs under the lock and wants it too takes the guard, or a clone of an
/// `Arc<Guard>`, instead of locking again. The clones are counted in this process and send no
/// request. All of them have one lease and one fencing token, and each learns of a loss. No clone
/// shortens the lease, and the last one that is dropped releases it. [`renew`](Self::renew) does
/// what a re-entrant acquire of other libraries does in addition to counting: it asks the store
/// whether the lock is still held, and restarts its ttl.
///
/// ```
/// use std::sync::Arc;
/// use leasehold::{Client, Error, Guard};
///
/// async fn transfer(account: &Arc<Guard>) -> Result<(), Error> {
///     let handle = Arc::clone(account); // For a task that may outlive this call.
///     tokio::spawn(async move { audit(&handle) });
///     account.renew().await // Still ours, with the whole ttl before it.
/// }
///
/// fn audit(account: &Guard) {
///     assert!(account.is_held());
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let client = Client::connect("memory:").await?;
/// let account = Arc::new(client.mutex("account:7").lock().await?);
/// transfer(&account).await?;
/// // The last handle releases the lock, and can wait for the outcome.
/// if let Some(guard) = Arc::into_inner(account) {
///     let _released = guard.release().await?;
/// }
/// # Ok(()) }
/// ```
///
/// # Examples
///
/// Work that stops when the lock is lost:
///
/// ```
/// # async fn work() {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.mutex("nightly").lock().await?;
/// tokio::select! {
///     () = work() => println!("done"),
///     lost = guard.lost() => eprintln!("stopped: {lost}"),
/// }
/// assert_eq!(guard.release().await?, leasehold::Release::Released);
/// # Ok(()) }
/// ```
#[must_use = "dropping a guard releases the lock"]
#[clippy::has_significant_drop]
pub struct Guard {
    /// Dropping it ends the hold.
    hold: Hold,
    name: Arc<str>,
}

/// The outcome of a release.
///
/// # Examples
///
/// ```
/// use leasehold::Release;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let guard = client.mutex("nightly").lock().await?;
/// match guard.release().await? {
///     Release::Released => println!("done"),
///     Release::NotHeld => eprintln!("the lock was lost: look at what was written last"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "`NotHeld` means that the lock was lost before it was released"]
pub enum Release {
    /// The guard held the lock until now.
    Released,
    /// The lock had been lost before. Another client may have held it since.
    NotHeld,
}

impl Guard {
    pub(crate) fn new(hold: Hold, name: Arc<str>) -> Self {
        Self { hold, name }
    }

    /// The name of the lock, without a namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret that proves ownership of the lease. Pass it to another process to hand the lease
    /// over, see [`Client::lease`](crate::Client::lease).
    #[must_use]
    pub fn token(&self) -> &OwnerToken {
        &self.hold.id().owner
    }

    /// The number that rises with each grant. Pass it to the protected resource, which can then
    /// refuse a holder that was paused past its lease. `None` if fencing is off or the store does
    /// not count.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing()
    }

    /// Whether this guard holds the lock now, by the local clock. Sends no request, so it costs
    /// almost nothing.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// How long this guard holds the lock if no renewal succeeds from now on. Zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the lock is lost, no later than its deadline. Never resolves if the lock is
    /// released or detached.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again at any time.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        self.hold.lost()
    }

    /// Resolves when the holder is asked to let go, see
    /// [`Client::revoke`](crate::Client::revoke), with who asked and why. Never resolves if the
    /// lock is released, detached or lost first.
    ///
    /// It is a request: the lock stays held and is renewed until this guard ends. Finish the work,
    /// or bring it to a safe point, and release. The lease then ends, even where it would be kept
    /// idle or passed to another task. Tasks of this client that wait ask the store again. They
    /// come after others in its line, and get the lock at once if nobody else waits. With
    /// [`min_hold`](crate::Mutex::min_hold), the lock stays taken until that time is over.
    ///
    /// The request arrives with a renewal, so within ttl/3 + ttl/30, or with
    /// [`renew`](Self::renew).
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again at any time. It then resolves again.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn next_step() {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let guard = client.mutex("import").lock().await?;
    /// # let _asked = client.revoke("import", guard.token().as_str().as_bytes(), "deploy").await?;
    /// # guard.renew().await?;
    /// tokio::select! {
    ///     biased;
    ///     revoked = guard.revoked() => println!("{} asks: {}", revoked.by, revoked.reason),
    ///     () = next_step() => {}
    /// }
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn revoked(&self) -> impl Future<Output = Arc<Revocation>> + Send + 'static {
        self.hold.revoked()
    }

    /// Asks the store whether this guard still holds the lock, and restarts its ttl. Other
    /// libraries call this a re-entrant acquire: see [Reentrancy](Self#reentrancy).
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if this guard no longer holds the lock.
    /// [`Config`](crate::ErrorKind::Config) in the child of a fork, which holds nothing. Otherwise
    /// the error of the store if it gives no answer, such as
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Unknown`](crate::ErrorKind::Unknown).
    /// The guard then holds the lock for [`remaining`](Self::remaining) more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer. The request may still take effect.
    pub async fn renew(&self) -> Result<(), Error> {
        let renewed = self.hold.renew().await;
        renewed.map_err(|error| error.about(self.name()))
    }

    /// Why this guard is not a writer of `key` that `session` got. `None` if it is one.
    pub(crate) fn not_a_writer_of(
        &self,
        session: &Arc<Session>,
        key: &Key,
    ) -> Option<&'static str> {
        let id = self.hold.id();
        if !self.hold.is_of(session) {
            Some("belongs to another client")
        } else if id.key != *key {
            Some("belongs to another lock")
        } else if !id.claim.is_alone() {
            Some("shares its key with others")
        } else {
            None
        }
    }

    /// Shares the lock from now on.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        let Self { hold, name } = self;
        match hold.downgrade().await {
            Ok(hold) => Ok(Self { hold, name }),
            Err(error) => Err(error.about(&name)),
        }
    }

    pub(crate) fn why_lost(&self) -> Lost {
        self.hold.why_lost()
    }

    /// Releases the lock, and waits until the store confirms it. No request is needed if another
    /// task of this client waits or the lock is kept idle, as long as the lock is surely held. With
    /// [`min_hold`](crate::Mutex::min_hold), the lock stays taken until that time is over.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) in the child of a fork: the parent still holds the
    /// lock. Otherwise the error of the store if it gives no answer. The guard no longer holds the
    /// lock even then. The client repeats the release in the background, and the key is free after
    /// one ttl and the [lock delay](crate::ClientBuilder::lock_delay) at the latest. With
    /// `min_hold`, the error comes only after the client has repeated the request until the lease
    /// ended, or at once if the store denies it ([`Denied`](crate::ErrorKind::Denied)). The key may
    /// then be free too early.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future still releases the lock, even before its first poll.
    pub async fn release(self) -> Result<Release, Error> {
        match self.hold.part().map_err(|error| error.about(&self.name))? {
            Parted::Lost(_) | Parted::Over => Ok(Release::NotHeld),
            Parted::Passed | Parted::Idle => Ok(Release::Released),
            Parted::Releasing(release) => told(&self.name, release.await),
            Parted::Leaving(answer) => told(&self.name, answer.await),
            Parted::Keeping(answer) => match answer.await {
                Ok(()) => Ok(Release::Released),
                Err(error) if error.kind() == ErrorKind::Lost => Ok(Release::NotHeld),
                Err(error) => Err(error.about(&self.name)),
            },
        }
    }

    /// Leaves the lock taken until `span` after this guard got it. Then the lease ends by itself,
    /// even if this process has ended. If that time is over, this is a [`release`](Self::release).
    ///
    /// Others find the lock taken until then, and `leasehold inspect` shows it as idle. The time
    /// runs on the clocks of this process and of the store, and no step of a wall clock changes it.
    /// If less time is left than the lease still has, the lock stays taken for the rest of the
    /// lease: up to one ttl and the [lock delay](crate::ClientBuilder::lock_delay). `span` is at
    /// most 24 h. [`Once`](crate::Once) builds on this.
    ///
    /// The request is submitted before this returns, and the client repeats it while it gets no
    /// answer. Await the future, or [shut down](crate::Client::shutdown) the client, before the
    /// program ends.
    ///
    /// # Errors
    ///
    /// - [`Lost`](crate::ErrorKind::Lost) if this guard no longer holds the lock: nothing is kept,
    ///   and another client may have it.
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on ZooKeeper, where a lock ends with its
    ///   process: the lock is released.
    /// - [`Config`](crate::ErrorKind::Config) for a span of more than 24 h: the lock is released.
    ///   Also in the child of a fork: the parent still holds the lock. Also in
    ///   [strict mode](crate::store::Capabilities::strict) if more than 60 s are left: the lock is
    ///   free after one ttl.
    /// - Otherwise the error of the store if it gives no answer until the lease has ended. The lock
    ///   may then be free early.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer, and changes nothing else.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let mutex = client.mutex("newsletter");
    /// mutex.lock().await?.keep_for(Duration::from_hours(1)).await?;
    /// assert!(mutex.try_lock().await?.is_none(), "one newsletter an hour is enough");
    /// # Ok(()) }
    /// ```
    pub fn keep_for(
        self,
        span: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let Self { hold, name } = self;
        // On an error, the guard is dropped, which releases the lock.
        let kept = check_kept(span, "the lock is released").and_then(|()| hold.keep(span));
        async move {
            let kept = match kept {
                Ok(answer) => answer.await,
                Err(error) => Err(error),
            };
            kept.map_err(|error| error.about(&name))
        }
    }

    /// Stops renewing without releasing. The lease ends by its ttl, unless another process
    /// continues it with [`Client::lease`](crate::Client::lease). So the lock does not stay taken
    /// for its [`min_hold`](crate::Mutex::min_hold). On ZooKeeper no other process can continue it,
    /// and the lease also ends with this process or this client.
    ///
    /// Much of the ttl may have passed, and a lost guard has a token too. So the next holder of the
    /// token renews the lease before it begins to work.
    ///
    /// If the lock was just handed over, one last renewal in the background gives it its whole ttl.
    /// [Shut down](crate::Client::shutdown) the client before the program ends. Otherwise the lease
    /// may end 3 s after the hand-over.
    #[must_use = "without the token nobody can renew or release the lease"]
    pub fn detach(self) -> OwnerToken {
        self.hold.let_go()
    }
}

/// Checks for how long a lock is to stay taken. If that is too long, the error says `state`.
pub(crate) fn check_kept(span: Duration, state: &str) -> Result<(), Error> {
    if span <= Ttl::MAX.get() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Config,
        format!(
            "a lock can stay taken for at most 24 h after its grant, not for {span:?}; {state}; \
             ask for a shorter time"
        ),
    ))
}

/// Turns the store's answer to a release into a [`Release`].
fn told(name: &str, answer: Result<Released, Error>) -> Result<Release, Error> {
    match answer {
        Ok(Released::NotHeld) => Ok(Release::NotHeld),
        Ok(_) => Ok(Release::Released),
        Err(error) => Err(error.about(name)),
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", self.token())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
