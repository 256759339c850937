//! Several locks that are taken together or not at all.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;

use crate::core::coexist::Coexist;
use crate::core::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::locking::Locking;
use crate::multi_guard::MultiGuard;
use crate::session::{UNANSWERED, Wait, wait_elapsed};

/// Several locks that are taken together or not at all. Made by
/// [`Client::lock_all`](crate::Client::lock_all).
///
/// Like a [`Mutex`](crate::Mutex), it only describes locks. Each name is a mutex of its own: a
/// client that locks one of the names alone keeps the others out. One [`MultiGuard`] holds them
/// all, and it is lost as soon as one of them is.
///
/// # No deadlock
///
/// All users take the names in the same order. The order in which a user writes them does not
/// matter. While a user waits for a name, it keeps the names before it, and none behind it. So no
/// two users wait for each other. That holds for users who take all their locks by one call. A task
/// that holds another lock meanwhile, or locks one more later, has to keep the order itself.
///
/// # Cost
///
/// [`lock`](Self::lock) asks for all names at the same time, so locks that are free cost about one
/// round trip. If one of them is taken, it releases those behind it and waits for the names one by
/// one. [`try_lock`](Self::try_lock) costs one round trip for each name.
///
/// The names need not share a slot of a cluster.
///
/// # Examples
///
/// A transfer between two accounts. Another one may go the other way at the same time:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::MultiRelease;
///
/// let client = leasehold::Client::connect("memory:").await?;
/// let accounts = client.lock_all(["account:7", "account:3"]);
/// let guard = accounts.lock().await?;
/// assert!(client.mutex("account:3").try_lock().await?.is_none());
/// // The money is moved here.
/// assert_eq!(guard.release().await?, MultiRelease::Released);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "locks do nothing until they are locked"]
pub struct MultiLock {
    /// In the order in which the user named them.
    locks: Vec<Locking>,
}

impl MultiLock {
    /// The highest number of names.
    pub const NAMES_MAX: usize = 64;

    pub(crate) const fn new(locks: Vec<Locking>) -> Self {
        Self { locks }
    }

    fn changed(self, change: impl Fn(Locking) -> Locking) -> Self {
        Self { locks: self.locks.into_iter().map(change).collect() }
    }

    /// Sets how long the store keeps each of the locks if this process dies. See
    /// [`Mutex::ttl`](crate::Mutex::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.changed(|lock| lock.ttl(ttl))
    }

    /// Adds a reason for people to each of the locks. See [`Mutex::why`](crate::Mutex::why).
    pub fn why(self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.changed(|lock| lock.why(text.clone()))
    }

    /// Sets whether grants carry fencing tokens. Default: on. Each lock has its own token.
    pub fn fencing(self, on: bool) -> Self {
        self.changed(|lock| lock.changed(|spec| spec.fencing = on))
    }

    /// Sets how each of the locks shares its name with clients of other libraries. See
    /// [`Mutex::coexist`](crate::Mutex::coexist).
    pub fn coexist(self, coexist: Coexist) -> Self {
        self.changed(|lock| lock.coexist(coexist))
    }

    /// Takes the locks if all of them are free and nobody waits for them. Otherwise returns `None`
    /// without waiting, and keeps none.
    ///
    /// It asks for one name after the other and stops at the first that is taken. So if several
    /// users try for some of the same names at the same time, at least one of them gets all of its
    /// own.
    ///
    /// # Errors
    ///
    /// Like [`Mutex::try_lock`](crate::Mutex::try_lock), about the first lock that failed. Also
    /// [`Config`](ErrorKind::Config) without names, with more than [`NAMES_MAX`](Self::NAMES_MAX),
    /// and for a name that is given twice. After an error no lock is kept: the client has submitted
    /// the releases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases the locks that it has, and a grant that is under way.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        let (_, order) = self.order()?;
        let mut guards = Vec::with_capacity(order.len());
        while let Some(&at) = order.get(guards.len()) {
            let Some(guard) = self.locks[at].try_lock().await? else { return Ok(None) };
            guards.push(guard);
            drop_lost(&mut guards);
        }
        Ok(Some(as_named(&order, guards)))
    }

    /// Waits for all of the locks without a limit.
    ///
    /// # Errors
    ///
    /// Like [`Mutex::lock`](crate::Mutex::lock), about the lock that failed. Also
    /// [`Config`](ErrorKind::Config) as [`try_lock`](Self::try_lock). After an error no lock is
    /// kept: the client has submitted the releases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases the locks that it has and a grant that is
    /// under way.
    pub async fn lock(&self) -> Result<MultiGuard, Error> {
        self.wait(Wait::ForEver).await
    }

    /// Waits for all of the locks for at most `wait`, taken together.
    ///
    /// # Errors
    ///
    /// [`WaitElapsed`](ErrorKind::WaitElapsed) if one of the locks was taken, and the store
    /// answered for the others. The error names it. Otherwise as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<MultiGuard, Error> {
        let first = self.locks.first().ok_or_else(no_names)?;
        self.wait(Wait::Until(first.session().now() + wait)).await
    }

    async fn wait(&self, wait: Wait) -> Result<MultiGuard, Error> {
        let (first, order) = self.order()?;
        let locks = order.iter().map(|&at| self.locks[at].clone()).collect();
        // In a forked copy, the future below never ends.
        first.named(first.session().check_here())?;
        let guards = first.session().only_here(take_all(locks, wait)).await?;
        Ok(as_named(&order, guards))
    }

    /// Returns the first lock, and the positions of all locks in the order of their keys. Everybody
    /// takes them in this order.
    ///
    /// # Errors
    ///
    /// `Config` if the names or the ttl cannot be used.
    fn order(&self) -> Result<(&Locking, Vec<usize>), Error> {
        let first = self.locks.first().ok_or_else(no_names)?;
        let names = self.locks.len();
        if names > Self::NAMES_MAX {
            let most = Self::NAMES_MAX;
            let message = format!(
                "at most {most} locks can be taken together, not {names}; no request was sent; \
                 name fewer locks, or use one lock for the whole group"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
        let keys = self.locks.iter().map(Locking::key).collect::<Result<Vec<_>, Error>>()?;
        let mut order: Vec<_> = (0..names).collect();
        order.sort_unstable_by_key(|&at| keys[at]);
        if let Some(twice) = order.windows(2).find(|two| keys[two[0]] == keys[two[1]]) {
            let message = "this name is given twice, so the second lock would wait for the first; \
                           no request was sent; name each lock once";
            return self.locks[twice[0]].refused(ErrorKind::Config, message);
        }
        Ok((first, order))
    }
}

/// Takes all locks in their order, and keeps none if one fails.
async fn take_all(locks: Vec<Locking>, wait: Wait) -> Result<Vec<Guard>, Error> {
    let mut guards = take_at_once(&locks, wait).await?;
    while let Some(next) = locks.get(guards.len()) {
        guards.push(next.wait(wait).await?);
        drop_lost(&mut guards);
    }
    Ok(guards)
}

/// Tries all locks at the same time. Keeps those before the first that is not granted. A client
/// that waits for a lock must not hold a lock that comes after it. If the wait ends, the error
/// names a lock that did not answer, or else one that was taken.
async fn take_at_once(locks: &[Locking], wait: Wait) -> Result<Vec<Guard>, Error> {
    let session = locks[0].session();
    locks[0].named(session.check_here())?;
    let in_use = |lock: &Locking| lock.key().is_ok_and(|key| session.is_in_use(key));
    if locks.len() == 1 || locks.iter().any(in_use) {
        // Waiting for another task of this client needs no request, and a try would fail.
        return Ok(Vec::new());
    }
    let ended = session.sleep(wait).shared();
    let answers = join_all(locks.iter().map(|lock| async {
        tokio::select! {
            biased;
            answer = lock.try_lock() => answer,
            () = ended.clone() => lock.named(Err(UNANSWERED.clone())),
        }
    }));
    let answers = answers.await;
    let is_over = matches!(wait, Wait::Until(at) if session.now() >= at);
    if is_over && let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
        // A failure says more than a lock that was taken at the beginning.
        return Err(error.clone());
    }
    let (mut guards, mut all_granted) = (Vec::with_capacity(locks.len()), true);
    for (lock, answer) in locks.iter().zip(answers) {
        match answer {
            Ok(Some(guard)) if all_granted => guards.push(guard),
            Ok(Some(_)) => {}
            Ok(None) if is_over => return lock.named(Err(wait_elapsed())),
            Err(error) if !error.is_retryable() => return Err(error),
            // The lock is asked for again. That request may wait, and reports its own error.
            Ok(None) | Err(_) => all_granted = false,
        }
    }
    drop_lost(&mut guards);
    Ok(guards)
}

/// Finds the first lock that was lost while the client asked for a later one. Releases it and all
/// locks after it. They are taken again in their order.
fn drop_lost(guards: &mut Vec<Guard>) {
    if let Some(lost) = guards.iter().position(|guard| !guard.is_held()) {
        guards.truncate(lost);
    }
}

/// Makes one guard of all locks, in the order in which the user named them.
fn as_named(order: &[usize], guards: Vec<Guard>) -> MultiGuard {
    let mut guards: Vec<_> = order.iter().zip(guards).collect();
    guards.sort_unstable_by_key(|(at, _)| **at);
    MultiGuard::new(guards.into_iter().map(|(_, guard)| guard).collect())
}

fn no_names() -> Error {
    Error::new(
        ErrorKind::Config,
        "there is no name of a lock to take; no request was sent; name at least one",
    )
}
