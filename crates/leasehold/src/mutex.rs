//! A lock that one owner holds at a time.

use std::time::Duration;

use crate::core::coexist::Coexist;
use crate::core::error::Error;
use crate::core::lost::Lost;
use crate::guard::{Guard, Release};
use crate::locking::Locking;
use crate::session::{Spec, lost_error};

/// A lock across processes and machines that one owner holds at a time.
///
/// A mutex only describes a lock: it has no connection and no state, so it is cheap to make and to
/// clone. The owner is the [`Guard`], not the task or the thread. A task that locks again while it
/// holds the guard waits for itself, as with `tokio::sync::Mutex`. Where other libraries acquire a
/// lock re-entrantly, pass the guard on: see [Reentrancy](Guard#reentrancy).
///
/// # Fairness
///
/// Clients are served first come, first served. Each client has one place in the line of a key, and
/// its tasks queue behind that place in order. When a task releases the lock, the next task of its
/// client that asks with the same settings (ttl, fencing, reason) gets it. This needs no request.
///
/// Once another client waits, a client passes the lock on at most 64 times and for at most 20 ms.
/// Then it hands the lock over and queues again at the end. Use [`strict_fifo`](Self::strict_fifo)
/// for a single line of all tasks.
///
/// # Guarantees
///
/// Two guards of one name never report [`is_held`](Guard::is_held) at the same time, under the
/// [assumptions](crate#what-it-promises) of the store. This does not mean that *only one process
/// acts*: a process that is paused between its check and its write can write late. Where late
/// writes do harm, check [`Guard::fencing_token`].
///
/// # Examples
///
/// A job that one of many hosts does, and a handler that waits for two seconds at most:
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Client, Error};
///
/// async fn nightly(client: &Client) -> Result<(), Error> {
///     let Some(guard) = client.mutex("nightly-report").try_lock().await? else {
///         return Ok(()); // Another host does it.
///     };
///     // The report is made here.
///     let _released = guard.release().await?;
///     Ok(())
/// }
///
/// async fn order(client: &Client) -> Result<(), Error> {
///     let stock = client.mutex("stock:42").ttl(Duration::from_secs(5)).why("an order");
///     let guard = stock.lock_timeout(Duration::from_secs(2)).await?;
///     // The stock is changed here.
///     let _released = guard.release().await?;
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// # let client = Client::connect("memory:").await?;
/// # nightly(&client).await?;
/// # order(&client).await
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    locking: Locking,
}

impl Mutex {
    pub(crate) const fn new(locking: Locking) -> Self {
        Self { locking }
    }

    pub(crate) const fn locking(&self) -> &Locking {
        &self.locking
    }

    fn changed(self, change: impl FnOnce(&mut Spec)) -> Self {
        Self { locking: self.locking.changed(change) }
    }

    /// Sets how long the store keeps the lock if this process dies or cannot reach the store. From
    /// 10 ms to 24 h. In [strict mode](crate::store::Capabilities::strict), at most 60 s including
    /// the lock delay. Default: the client's ttl, which is 10 s unless set.
    ///
    /// With a short ttl, others wait less after a crash. With a long ttl, the lock survives longer
    /// outages of the store. The ttl does not limit the work, as the library renews the lease. The
    /// first call reports a ttl out of bounds.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { locking: self.locking.ttl(ttl) }
    }

    /// Adds a reason for people. Waiters see it, and so does `leasehold inspect`. Longer text is
    /// truncated to 1 KiB. Default: none.
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text) }
    }

    /// Sets whether grants carry fencing tokens. Default: on. If off, the store needs no counter.
    pub fn fencing(self, on: bool) -> Self {
        self.changed(|spec| spec.fencing = on)
    }

    /// Keeps a released lock idle for this long. The next task of this client gets it without a
    /// request. Default: zero, which frees the lock at once.
    ///
    /// The client gives the idle lock up as soon as another client waits for it. It also gives it
    /// up at a shutdown, and when the last client and mutex are dropped. It renews the idle lock,
    /// and never keeps it past its validity. To others the lock is taken, and `leasehold inspect`
    /// shows it as idle. A client that only tries ([`try_lock`](Self::try_lock), `leasehold run
    /// -n`) finds it taken each time, because a try does not make the holder give it up. If the
    /// process dies, the lock stays taken until its ttl ends.
    ///
    /// A lock for which this client had to wait is not kept until a renewal says that nobody else
    /// waits.
    ///
    /// Useful if one process takes the same lock again and again and others rarely want it. Has no
    /// effect with [`strict_fifo`](Self::strict_fifo).
    pub fn keep_idle(self, span: Duration) -> Self {
        self.changed(|spec| spec.keep_idle = span)
    }

    /// Keeps the lock taken for at least this long after each grant, even if its guard ends before.
    /// Use it for work that must happen at most once per interval. The span must be at least the
    /// ttl plus the [lock delay](crate::ClientBuilder::lock_delay), and at most 24 h. With another
    /// span, the first attempt to lock returns an error. Default: zero, which frees the lock at
    /// once.
    ///
    /// Each guard that ends early leaves the lock as [`Guard::keep_for`] does, also if it is
    /// dropped. The next holder gets the lock when the time is over, even if it is a task of this
    /// client. If the lease lasts longer than the span when the guard ends, the lock stays taken
    /// until the lease ends: up to one ttl and the lock delay after the span. A lock that was lost
    /// or [detached](Guard::detach) is not kept. If the process dies, the lock is free after the
    /// ttl. If the store does not confirm that the lock stays taken, [`Guard::release`] says so.
    ///
    /// Each task has its own place in line, as with [`strict_fifo`](Self::strict_fifo), and
    /// [`keep_idle`](Self::keep_idle) has no effect. ZooKeeper, and a store in
    /// [strict mode](crate::store::Capabilities::strict), refuse such a lock
    /// ([`Unsupported`](crate::ErrorKind::Unsupported)).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let mail = client.mutex("mail:anna").min_hold(Duration::from_mins(10));
    /// drop(mail.lock().await?); // One mail is sent here.
    /// assert!(mail.try_lock().await?.is_none(), "the next one has to wait");
    /// # Ok(()) }
    /// ```
    pub fn min_hold(self, span: Duration) -> Self {
        self.changed(|spec| spec.min_hold = span)
    }

    /// Holds the lock for at most this long after each grant. Then the guard is lost, even if the
    /// store answers and the holder still works. Use it for holders that may hang. The span is at
    /// least the ttl and [`min_hold`](Self::min_hold). The first call reports shorter spans.
    /// Default: no limit.
    ///
    /// When the time is over, [`Guard::lost`] resolves to [`Lost::MaxHold`] and
    /// [`is_held`](Guard::is_held) turns false. Then the client releases the lock, and the next
    /// waiter gets it. If the process cannot do so any more, the lease ends by itself at about that
    /// time, since the last renewals ask for no more. On etcd, the lease may last one ttl and a
    /// second longer. On ZooKeeper, it ends with the session. The time runs on the clock of this
    /// process.
    ///
    /// The work itself is not stopped, so the holder has to listen to `lost`, as
    /// [`with`](Self::with) does. Each task has its own place in line, as with
    /// [`strict_fifo`](Self::strict_fifo), and [`keep_idle`](Self::keep_idle) has no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let span = Duration::from_millis(50);
    /// let report = client.mutex("report").ttl(span).max_hold(span);
    /// let guard = report.lock().await?;
    /// assert_eq!(guard.lost().await, leasehold::Lost::MaxHold);
    /// assert!(!guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn max_hold(self, span: Duration) -> Self {
        self.changed(|spec| spec.max_hold = Some(span))
    }

    /// Gives every task its own place in the store's line. Then all tasks of all clients are served
    /// first come, first served. Default: the tasks of a client share a place and pass the lock on,
    /// see [Fairness](Self#fairness).
    ///
    /// Each lock costs two requests, and each waiting task one request a second. With a ttl below
    /// 3 s, a waiting task costs one in each third of the ttl. The line of a key has 10 000 places.
    pub fn strict_fifo(self) -> Self {
        self.changed(|spec| spec.strict_fifo = true)
    }

    /// Disables queueing for this lock. Waiters have no order. A single server of Redis or Valkey
    /// tells them when the key changes, up to eight times a second in vain. They also poll, at
    /// first after 5 to 10 ms, later after up to 250 ms. Default: waiters queue.
    ///
    /// Use it for locks that are only tried, or rarely contended. With
    /// [`fencing(false)`](Self::fencing) the lock is as cheap as the store allows: on Redis one
    /// `SET` and one compare-and-delete. The store then keeps only the key, so [`why`](Self::why)
    /// is not shown. Such locks also work on servers without scripts, if they have `DELIFEQ`
    /// (Valkey 9.0) or `DELEX` (Redis 8.4). There, a server that is out of memory refuses renewals.
    ///
    /// The tasks of one client still queue and pass the lock on, at most 64 times and for at most
    /// 20 ms. Then the client frees the lock, and the first client to ask gets it.
    /// [`keep_idle`](Self::keep_idle) has no effect, since nobody can tell the holder that the lock
    /// is wanted.
    ///
    /// Use it in every client of that name. Otherwise clients that queue may be overtaken and are
    /// not woken. Mutual exclusion holds in any case.
    pub fn unqueued(self) -> Self {
        self.changed(|spec| (spec.unqueued, spec.bare) = (true, true))
    }

    /// Sets how the lock shares its name with clients of other libraries, such as go-zero, redsync,
    /// redis-py, rslock or the Jedis recipe. They poll and do not queue. Default:
    /// [`Auto`](Coexist::Auto), which needs no choice.
    ///
    /// With [`On`](Coexist::On), each release leaves such a client a chance:
    ///
    /// - A client passes the lock on among its own tasks at most 64 times and for at most 20 ms.
    /// - When the key becomes free, the first waiter in line pauses for 5 to 10 ms, once per wait.
    /// - A client that releases the lock and locks it again pauses too, if another client of
    ///   Leasehold waits. If none waits, it leaves no gap.
    /// - [`keep_idle`](Self::keep_idle) has no effect.
    ///
    /// A client that polls more often than every 5 ms then gets the key. A client that polls less
    /// often gets it now and then. On a single server, [`Auto`](Coexist::Auto) serves such a client
    /// as well or better. Use `On` in every Leasehold client of that lock, because a client without
    /// it hands the key over. [`try_lock`](Self::try_lock) does not wait: if the key is free and
    /// Leasehold clients wait, it hands the key to the first of them.
    pub fn coexist(self, coexist: Coexist) -> Self {
        Self { locking: self.locking.coexist(coexist) }
    }

    /// Takes the lock if it is free and nobody waits for it. Otherwise returns `None` without
    /// waiting.
    ///
    /// Prefer this to [`lock`](Self::lock) for work that must be done only once, such as a cron
    /// job.
    ///
    /// # Errors
    ///
    /// A lock that another client holds is never an error.
    ///
    /// - [`Config`](crate::ErrorKind::Config) for a bad name, ttl, [`min_hold`](Self::min_hold) or
    ///   [`max_hold`](Self::max_hold).
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) if the store cannot do what
    ///   [`min_hold`](Self::min_hold) or [`Coexist::On`](Self::coexist) asks for.
    /// - [`Closed`](crate::ErrorKind::Closed) after a shutdown.
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) also if the store is in
    ///   [quarantine](crate::store::Quarantine) and knows no holder, since nobody can tell whether
    ///   one exists.
    /// - Otherwise the error of the store if it gives no answer. After
    ///   [`Unknown`](crate::ErrorKind::Unknown), the client releases a possible grant in the
    ///   background. Three grants in a row that arrive too late to use are `Unknown` too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is under way.
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.locking.try_lock().await
    }

    /// Waits for the lock without a limit.
    ///
    /// # Errors
    ///
    /// Like [`try_lock`](Self::try_lock), but only until the store has answered once. After that,
    /// the client waits until an outage ends. It waits for the end of a quarantine in any case.
    /// [`Unavailable`](crate::ErrorKind::Unavailable) also if 100 000 tasks of this client already
    /// wait for the lock, or if its line has no place left of 10 000. A client takes one place.
    /// Each task takes one with [`strict_fifo`](Self::strict_fifo), [`min_hold`](Self::min_hold) or
    /// [`max_hold`](Self::max_hold), and in the other kinds of locks.
    /// [`Unknown`](crate::ErrorKind::Unknown) also if 20 grants in a row arrive too late to use:
    /// the store is too slow for this ttl.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases a grant that is under way.
    ///
    /// Poll the future until it is ready, or drop it. A future that is only kept may still be
    /// granted the lock, and then nobody else gets it. An example is `&mut future` in a `select!`
    /// whose other branch takes long.
    pub async fn lock(&self) -> Result<Guard, Error> {
        self.locking.lock().await
    }

    /// Waits for the lock for at most `wait`.
    ///
    /// # Errors
    ///
    /// [`WaitElapsed`](crate::ErrorKind::WaitElapsed) if another client held the lock all the time.
    /// The same if the store was in [quarantine](crate::store::Quarantine) at the end, which the
    /// message says. If the store did not answer at the end:
    /// [`Unknown`](crate::ErrorKind::Unknown) if any request got no answer, and
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if all were refused. Otherwise as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.locking.lock_timeout(wait).await
    }

    /// Waits for the lock, runs `work` while it is held, and releases it. If the lock is lost,
    /// `work` is dropped at its next await.
    ///
    /// # Errors
    ///
    /// Same as [`lock`](Self::lock). Also [`Lost`](crate::ErrorKind::Lost) if the lock was lost
    /// before the end. Then `work` was dropped half done, or another client may have held the lock
    /// before it ended.
    ///
    /// # Cancel safety
    ///
    /// Same as [`lock`](Self::lock). Dropping the future also drops `work` and releases the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let fence = client.mutex("order:42").with(async |guard| guard.fencing_token()).await?;
    /// assert!(fence.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.lock().await?;
        let result = tokio::select! {
            biased;
            result = work(&guard) => Ok(result),
            lost = guard.lost() => Err(lost_error(lost)),
        };
        // The work was done in time, so keep its result even if the release failed. The client
        // repeats the release in the background, and the key is free after one ttl at the latest.
        let why_lost = if guard.is_held() { Lost::NotOurs } else { guard.why_lost() };
        let result = match (guard.release().await, result) {
            (Ok(Release::NotHeld), Ok(_)) => Err(lost_error(why_lost)),
            (_, result) => result,
        };
        self.locking.named(result)
    }
}
