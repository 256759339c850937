//! A lock that one owner holds at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::Lost;
use crate::core::ttl::Ttl;
use crate::guard::{Guard, Release};
use crate::session::{Hold, Spec, User, Wait, lost_error};
use crate::store::Note;

/// A lock across processes and machines that one owner holds at a time.
///
/// Cheap to make and to clone: a description of the lock, with no connection and no state of its
/// own. Its owner is the [`Guard`], not the task or the thread: a task that locks again while it
/// holds the guard waits for itself, as with `tokio::sync::Mutex`. What other recipes call
/// re-entrant acquire is [`Guard::renew`] here.
///
/// # Fairness
///
/// Clients are served first come first served: each has one place in the line of a key, and its
/// tasks queue behind it in the order in which they came. A task that releases passes the lock on
/// to the next task of its client that asks in the same way (ttl, fencing, reason), without
/// asking the store. Once another client waits, that goes on for 64 times and 20 ms at most; then
/// the lock is handed over, and the client takes a new place at the end of the line.
/// [`strict_fifo`](Self::strict_fifo) is for one line of all tasks instead.
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
    user: Arc<User>,
    name: Arc<str>,
    /// A bad name surfaces at the first call.
    spec: Result<Arc<Spec>, Error>,
    /// So does a bad ttl.
    bad_ttl: Option<Error>,
}

impl Mutex {
    pub(crate) fn new(
        user: Arc<User>,
        name: Arc<str>,
        key: Result<Key, Error>,
        ttl: Ttl,
        lock_delay: Duration,
    ) -> Self {
        let spec = key.map(|key| {
            Arc::new(Spec {
                key,
                ttl,
                lock_delay,
                why: None,
                fencing: true,
                keep_idle: Duration::ZERO,
                strict_fifo: false,
                unqueued: false,
                coexist: false,
            })
        });
        Self { user, name, spec, bad_ttl: None }
    }

    fn changed(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        if let Ok(spec) = &mut self.spec {
            change(Arc::make_mut(spec));
        }
        self
    }

    /// Sets how long the store keeps the lock if this process dies or cannot reach it, from 10 ms
    /// to 24 h, or to 60 s, lock delay included, on a Redis server with `strict=yes`. Default: the
    /// client's, which is 10 s.
    ///
    /// Shorter means that others wait less after a crash, longer that the lock survives longer
    /// outages of the store. How long the work takes does not matter: the lease is renewed. A ttl
    /// out of bounds surfaces at the first call.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        match Ttl::new(ttl) {
            Ok(ttl) => {
                self.bad_ttl = None;
                self.changed(|spec| spec.ttl = ttl)
            }
            Err(error) => {
                self.bad_ttl = Some(error.about(&self.name));
                self
            }
        }
    }

    /// Says why, in words for people: they see it while they wait, and in `leasehold inspect`.
    /// Default: nothing. What is longer than 1 KiB is cut.
    pub fn why(self, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Note::WHY_BYTES_MAX));
        self.changed(|spec| spec.why = Some(text.into()))
    }

    /// Whether grants carry fencing tokens. Default: on. Off saves the store a counter.
    pub fn fencing(self, on: bool) -> Self {
        self.changed(|spec| spec.fencing = on)
    }

    /// For how long a released lock is kept by this client, idle, for its next task that wants it:
    /// that one has it without asking the store. Default: zero, it is freed at once.
    ///
    /// The lock is given up as soon as another client waits for it, when the last client and mutex
    /// are gone, and at a shutdown. It is renewed while it is idle, and never kept past its
    /// validity. To others it is taken, and `leasehold inspect` shows it as idle. Who only tries
    /// ([`try_lock`](Self::try_lock), `leasehold run -n`) finds it taken, and does not have it
    /// given up, however often. A process that dies keeps it for what is left of its ttl.
    ///
    /// Worth it where one process takes the same lock again and again and others rarely do. Without
    /// effect together with [`strict_fifo`](Self::strict_fifo).
    pub fn keep_idle(self, span: Duration) -> Self {
        self.changed(|spec| spec.keep_idle = span)
    }

    /// Gives every task a place of its own in the store's line: first come first served among all
    /// tasks of all clients. Default: the tasks of one client share a place, and pass the lock on
    /// among themselves, see [Fairness](Self#fairness).
    ///
    /// It costs two requests for each lock and one a second for each task that waits, and the line
    /// of a key has 10 000 places.
    pub fn strict_fifo(self) -> Self {
        self.changed(|spec| spec.strict_fifo = true)
    }

    /// Has nobody queue for this lock: whoever waits for it asks again and again, after 5 to 10 ms
    /// at first and up to a second in the end, in no order. Default: a line.
    ///
    /// For locks that are only tried, or rarely contended. Together with
    /// [`fencing(false)`](Self::fencing) it makes the lock as cheap as the store allows: on Redis
    /// one `SET` and one compare-and-delete, with nothing kept beside the key, so that
    /// [`why`](Self::why) is not shown. The tasks of one client still queue and pass the lock on,
    /// for 64 times and 20 ms at most; then it is freed, and who comes first has it.
    /// [`keep_idle`](Self::keep_idle) has no effect, since nobody can say that it is wanted.
    ///
    /// Every client of that name has to lock it in this way, or those that queue may be passed by
    /// and are not woken. That one alone holds it is true in any case.
    pub fn unqueued(self) -> Self {
        self.changed(|spec| spec.unqueued = true)
    }

    /// Leaves clients that are not Leasehold's a chance: a release frees the key for whoever asks
    /// first, and wakes the first in line, instead of handing the key over. Default: off.
    ///
    /// For names that others lock too who ask again and again and stand in no line: go-zero,
    /// redsync, the Jedis recipe and their like. While locks are handed over, the key is never
    /// free, and a line that never empties starves them. Whether one of them waits nobody can
    /// know, so this costs as if one always did: a client passes the lock on among its own tasks
    /// for 64 times and 20 ms at most; between clients the key is left alone for 5 to 10 ms, by the
    /// first in line, which gives way once while it waits, and by the client that had it; and
    /// [`keep_idle`](Self::keep_idle) has no effect. Who asks more often than every 5 ms has the
    /// key then, who asks less often now and then. Among Leasehold's own clients the order stays
    /// first come first served, and that one alone holds it is true in any case.
    ///
    /// Every client of that name has to lock it in this way: one that does not hands over.
    /// [`try_lock`](Self::try_lock) does not wait: on a free key for which others of ours wait, it
    /// hands it to the first of them.
    pub fn coexist(self) -> Self {
        self.changed(|spec| spec.coexist = true)
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
    /// could not be asked. [`Unavailable`](crate::ErrorKind::Unavailable) also where a store is in
    /// [quarantine](crate::store::Quarantine) and has no holder of the lock: whether there is one,
    /// nobody knows. It is a promise that a lock held by another is never an error. After
    /// [`Unknown`](crate::ErrorKind::Unknown), a grant that may have happened is given back in the
    /// background.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives back a grant that is on its way.
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        let hold = self.user.session().try_acquire(self.spec()?).await;
        Ok(self.named(hold)?.map(|hold| self.guard(hold)))
    }

    /// Waits for the lock, for as long as it takes.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock), but only if the store could not be asked the first time:
    /// once it has answered, an outage is waited out. So is a quarantine, from the first answer on.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) also where 100 000 tasks of this client wait
    /// for the lock already, or 10 000 clients.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and gives back a grant that is on its way.
    pub async fn lock(&self) -> Result<Guard, Error> {
        self.wait(Wait::ForEver).await
    }

    /// Waits for the lock, for `wait` at most.
    ///
    /// # Errors
    ///
    /// [`WaitElapsed`](crate::ErrorKind::WaitElapsed) if another held it all the while, or if the
    /// store was in [quarantine](crate::store::Quarantine) at the end, which the message says; else
    /// as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.wait(Wait::Until(self.user.session().now() + wait)).await
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
        result.map_err(|error| error.about(&self.name))
    }

    async fn wait(&self, wait: Wait) -> Result<Guard, Error> {
        let hold = self.user.session().acquire(self.spec()?, wait).await;
        Ok(self.guard(self.named(hold)?))
    }

    /// What is wanted, unless the name or the ttl was bad.
    fn spec(&self) -> Result<&Arc<Spec>, Error> {
        match (&self.spec, &self.bad_ttl) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(error.clone()),
            (Ok(spec), None) => Ok(spec),
        }
    }

    fn named<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        outcome.map_err(|error| error.about(&self.name))
    }

    fn guard(&self, hold: Hold) -> Guard {
        Guard::new(hold, Arc::clone(&self.name))
    }
}
