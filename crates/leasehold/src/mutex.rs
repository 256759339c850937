//! A lock that one owner holds at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::Lost;
use crate::core::ttl::Ttl;
use crate::guard::{Guard, Release};
use crate::session::{Session, Spec, Wait, lost_error};
use crate::store::{Claim, Note};

/// A lock across processes and machines that one owner holds at a time.
///
/// Cheap to make and to clone: a description of the lock, with no connection and no state of its
/// own. Its owner is the [`Guard`], not the task or the thread: a task that locks again while it
/// holds the guard waits for itself, as with `tokio::sync::Mutex`. What other recipes call
/// re-entrant acquire is [`Guard::renew`] here.
///
/// # Fairness
///
/// Who waits is served first come first served: the tasks of one client among themselves, and one
/// place per client in the line of the key. A client that has several tasks waiting takes a new
/// place, at the end, for each of them in turn.
///
/// # Guarantees
///
/// The times during which two guards of one name report [`is_held`](Guard::is_held) never overlap,
/// under the assumptions that GUARANTEES.md states for each store. This is not the same as *only
/// one process acts*: a process that is paused between its check and its write can be late. Pass
/// [`Guard::fencing_token`] along where that must not be.
#[derive(Clone, Debug)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    session: Arc<Session>,
    name: Arc<str>,
    /// A bad name or ttl surfaces at the first call.
    key: Result<Key, Error>,
    ttl: Result<Ttl, Error>,
    lock_delay: Duration,
    why: Option<Arc<str>>,
    fencing: bool,
}

impl Mutex {
    pub(crate) fn new(
        session: Arc<Session>,
        name: Arc<str>,
        key: Result<Key, Error>,
        ttl: Ttl,
        lock_delay: Duration,
    ) -> Self {
        Self { session, name, key, ttl: Ok(ttl), lock_delay, why: None, fencing: true }
    }

    /// Sets how long the store keeps the lock if this process dies or cannot reach it, from 10 ms
    /// to 24 h. Default: the client's, which is 10 s.
    ///
    /// Shorter means that others wait less after a crash, longer that the lock survives longer
    /// outages of the store. How long the work takes does not matter: the lease is renewed. A ttl
    /// out of bounds surfaces at the first call.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Ttl::new(ttl).map_err(|error| error.with_name(&*self.name));
        self
    }

    /// Says why, in words for people: they see it while they wait, and in `leasehold inspect`.
    /// Default: nothing. What is longer than 1 KiB is cut.
    pub fn why(mut self, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Note::WHY_BYTES_MAX));
        self.why = Some(text.into());
        self
    }

    /// Whether grants carry fencing tokens. Default: on. Off saves the store a counter.
    pub const fn fencing(mut self, on: bool) -> Self {
        self.fencing = on;
        self
    }

    /// Takes the lock if it is free and nobody waits for it, without waiting: `None` if not.
    ///
    /// Prefer this to [`lock`](Self::lock) for work that is worthless once another did it, such as
    /// a cron job.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) for a bad name or ttl,
    /// [`Closed`](crate::ErrorKind::Closed) after a shutdown, and whatever the store says if it
    /// could not be asked. It is a promise that a lock held by another is never an error. After
    /// [`Unknown`](crate::ErrorKind::Unknown), a grant that may have happened is given back in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back a grant that is on its way.
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.take(Wait::No).await
    }

    /// Waits for the lock, for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), but only if the store could not be asked the first time:
    /// once it has answered, an outage is waited out.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and gives back a grant that is on its way.
    pub async fn lock(&self) -> Result<Guard, Error> {
        let guard = self.take(Wait::ForEver).await?;
        Ok(guard.expect("who waits is told nothing but the lock or an error"))
    }

    /// Waits for the lock, for `wait` at most.
    ///
    /// # Errors
    ///
    /// [`WaitElapsed`](crate::ErrorKind::WaitElapsed) if another held it all the while; else as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        let guard = self.take(Wait::Until(self.session.now() + wait)).await?;
        Ok(guard.expect("who waits is told nothing but the lock or an error"))
    }

    /// Waits for the lock, does `work` under it, and releases it. `work` is dropped at its next
    /// await when the lock is lost.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Lost`](crate::ErrorKind::Lost) if the lock was lost before
    /// the end: `work` was dropped half done then, or was done while another may have held the
    /// lock.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock); `work` is dropped with it, and the lock is released.
    ///
    /// ```
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let fence = client.mutex("order:42").with(async |guard| guard.fencing_token()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.lock().await?;
        let result = tokio::select! {
            biased;
            result = work(&guard) => Ok(result),
            lost = guard.lost() => Err(lost_error(lost)),
        };
        // A release that failed after work that was done in time is no reason to lose its result:
        // it is repeated in the background, and the key is free after one ttl at the latest.
        let why_lost = if guard.is_held() { Lost::NotOurs } else { guard.why_lost() };
        let result = match (guard.release().await, result) {
            (Ok(Release::NotHeld), Ok(_)) => Err(lost_error(why_lost)),
            (_, result) => result,
        };
        result.map_err(|error| error.with_name(&*self.name))
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        let spec = self.spec()?;
        let held = self.session.acquire(&spec, wait).await;
        let held = held.map_err(|error| error.with_name(&*self.name))?;
        Ok(held.map(|held| Guard::new(Arc::clone(&self.session), held, Arc::clone(&self.name))))
    }

    fn spec(&self) -> Result<Spec, Error> {
        Ok(Spec {
            key: self.key.clone()?,
            claim: Claim::Exclusive,
            ttl: self.ttl.clone()?,
            lock_delay: self.lock_delay,
            why: self.why.clone(),
            fencing: self.fencing,
        })
    }
}
