//! Work that is done once per period by one of many processes.
//!
//! The runner holds a mutex of that name. If the work was done, the key stays taken until the
//! period is over. If the work failed, the key is free at once. If the runner died, it is free
//! after the ttl.

use std::time::Duration;

use crate::core::error::Error;
use crate::core::lost::Lost;
use crate::guard::{Guard, Release};
use crate::locking::Locking;

/// Work that is done once per period, however many processes try. Made by
/// [`Client::once`](crate::Client::once).
///
/// The process that gets the [`Run`] does the work, and all others skip it:
///
/// | the work | others may start it |
/// |---|---|
/// | is [done](Run::done) | when the period is over, counted from the [`start`](Self::start) that got the run |
/// | [failed](Run::failed), or its run was dropped | at once |
/// | was never reported, because the runner died | after the [ttl](Self::ttl) |
///
/// The period runs on the clocks of the runner and of the store, and no step of a wall clock
/// changes it. It must be at least the ttl plus the [lock delay](crate::ClientBuilder::lock_delay),
/// and at most 24 h. If the work takes nearly the whole period, others may have to wait longer, by
/// up to one ttl and the lock delay.
///
/// A schedule that fires exactly once per period may fire a moment before the last period is over,
/// and then skips that turn. So choose a period that is a little shorter than the schedule's: 55
/// minutes for a job of every hour.
///
/// Use each name either for work or for locks, since a lock of that name keeps the work from
/// starting. To repeat work that was done, end the lease as an operator:
/// `leasehold unlock NAME --force --why TEXT`.
///
/// # Guarantees
///
/// At most one run [is held](Guard::is_held) at a time, as for every
/// [`Mutex`](crate::Mutex#guarantees). This is not *exactly once*. The work runs again within the
/// period if its run was lost, if the store did not confirm [`done`](Run::done), or if the store
/// forgets the lease. Make it harmless to run twice.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # async fn report() -> bool { true }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let hourly = client.once("report", Duration::from_mins(55));
/// if let Some(run) = hourly.start().await? {
///     if report().await {
///         run.done().await?;
///     } else {
///         let _released = run.failed().await?; // Another process may try now.
///     }
/// }
/// assert!(hourly.start().await?.is_none(), "done in this period");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "work does not start by itself"]
pub struct Once {
    locking: Locking,
    period: Duration,
}

impl Once {
    pub(crate) fn new(locking: Locking, period: Duration) -> Self {
        // A run that passed to the next task of this client would start work within the period.
        let locking = locking.changed(|spec| spec.strict_fifo = true);
        Self { locking, period }
    }

    /// Sets how long others wait if the runner dies, see [`Mutex::ttl`](crate::Mutex::ttl). The ttl
    /// plus the lock delay must not be longer than the period.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { locking: self.locking.ttl(ttl), ..self }
    }

    /// Adds a reason for people, see [`Mutex::why`](crate::Mutex::why). It is shown until the
    /// period is over.
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text), ..self }
    }

    /// Starts the work, unless it was done in this period or another process does it now. Never
    /// waits for the name.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::try_lock`](crate::Mutex::try_lock). Also:
    ///
    /// - [`Config`](crate::ErrorKind::Config) for a period below the ttl and the lock delay, or
    ///   above 24 h;
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) on ZooKeeper, and in
    ///   [strict mode](crate::store::Capabilities::strict), which keeps no lease for longer than
    ///   60 s.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends a run that is under way.
    pub async fn start(&self) -> Result<Option<Run>, Error> {
        self.locking.check_kept(self.period)?;
        let Some(guard) = self.locking.try_lock().await? else { return Ok(None) };
        // A store may learn from its first answer that it is strict.
        self.locking.check_store()?;
        Ok(Some(Run { guard, period: self.period }))
    }
}

/// The right to do the work of a [`Once`] now. Dropping it lets others start the work.
#[derive(Debug)]
#[must_use = "dropping it lets others start the work"]
#[clippy::has_significant_drop]
pub struct Run {
    guard: Guard,
    period: Duration,
}

impl Run {
    /// The lock that keeps others from the work.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Takes the lock out. The work counts as done only if the lock is
    /// [kept](Guard::keep_for) for the period.
    #[must_use = "dropping a guard releases the lock"]
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Resolves when the run is lost, before another process can start the work, like
    /// [`Guard::lost`]. Never resolves after its end. If an operator ended the lease, it resolves
    /// at the next renewal, and another process may have started by then.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        self.guard.lost()
    }

    /// Reports that the work is done, so that nobody starts it again before the period is over.
    ///
    /// # Errors
    ///
    /// Same as [`Guard::keep_for`]. After any of them, another process may start the work within
    /// the period.
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::keep_for`]: dropping the future loses the answer, and changes nothing else.
    pub fn done(self) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        self.guard.keep_for(self.period)
    }

    /// Reports that the work failed, so that others may start it at once.
    ///
    /// # Errors
    ///
    /// Same as [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::release`].
    pub async fn failed(self) -> Result<Release, Error> {
        self.guard.release().await
    }
}
