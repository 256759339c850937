//! A limit on how often work starts, across processes and machines.
//!
//! A start is a permit of a semaphore that stays taken for the period. So the limit needs no
//! counter of its own, and a renewal that is repeated or late changes nothing.

use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::guard::Guard;
use crate::locking::Locking;

/// How late a start may be after its grant: a quarter of the period within these bounds, and never
/// more than the period.
const LATE_MIN: Duration = Duration::from_millis(100);
const LATE_MAX: Duration = Duration::from_secs(3);

/// A limit on the number of starts in each period, across processes and machines. Made by
/// [`Client::rate_limit`](crate::Client::rate_limit).
///
/// A start takes one of `starts` permits, and the permit stays taken for the period. So in every
/// span of that length at most `starts` starts are granted, wherever the span begins. Limits with
/// fixed windows or with a bucket of tokens may allow twice as many for a moment. A start does not
/// say how long the work takes: use a [`Semaphore`](crate::Semaphore) to limit how much runs at a
/// time.
///
/// The period of a start is counted from its grant. [`start`](Self::start) returns about one round
/// trip later, after the store has confirmed that the permit stays taken. If that takes more than a
/// quarter of the period, it is an error. That limit is at least 100 ms, at most 3 s, and never
/// more than the period. So two starts may be closer than their grants by that much.
///
/// The period runs on the clocks of this process and of the store. No step of a client's wall clock
/// changes it, but one of a Redis server's does, as for every lease there. It lasts from 10 ms to
/// 24 h. It should be at least 100 ms, and at least four times as long as a request takes. With a
/// shorter period, starts fail, and starts that wait may lose their turn.
///
/// # What it costs
///
/// A start costs two requests. A start that waits has a place in the line of the store, and costs
/// about one more request a second. If the period or the ttl is below 3 s, it costs one more
/// request in each third of the shorter of the two. First come, first served.
///
/// # Failures
///
/// | what happens | what it means for the limit |
/// |---|---|
/// | a request or an answer is lost | the client repeats the request, and it counts as one start |
/// | a call fails or is dropped | nothing may start; its permit may count for one period |
/// | a process dies while it starts | its permit is free after one ttl or one period |
/// | the store forgets its leases | it forgets past starts too, so more may start |
///
/// # Stores
///
/// Same as for [`Semaphore`](crate::Semaphore). The first user of a name sets how many starts there
/// are, and another number is refused ([`Config`](crate::ErrorKind::Config)). All users of a name
/// should use the same period, because each start counts for the period of its own caller.
///
/// # Examples
///
/// Two calls a minute, whoever makes them:
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let calls = client.rate_limit("partner-api", 2, Duration::from_mins(1));
/// calls.start().await?; // Waits for its turn.
/// assert!(calls.try_start().await?);
/// assert!(!calls.try_start().await?, "that was enough for this minute");
/// # Ok(()) }
/// ```
///
/// Without `async`:
///
/// ```
/// # use std::time::Duration;
/// use leasehold::blocking::block_on;
///
/// # fn main() -> Result<(), leasehold::Error> {
/// let client = block_on(leasehold::Client::connect("memory:"))?;
/// let calls = client.rate_limit("partner-api", 1, Duration::from_mins(1));
/// block_on(calls.start())?;
/// let refused = block_on(calls.start_timeout(Duration::from_millis(5))).expect_err("too early");
/// assert_eq!(refused.kind(), leasehold::ErrorKind::WaitElapsed);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a rate limit does nothing until something starts"]
pub struct RateLimit {
    locking: Locking,
    starts: u32,
    per: Duration,
}

impl RateLimit {
    pub(crate) fn new(locking: Locking, starts: u32, per: Duration) -> Self {
        let locking = locking.permits(1, starts).changed(|spec| {
            // A lease that outlives its period would count for too long. A permit protects no work,
            // so it needs no margin and no fencing token. Half of the usual validity is enough when
            // the grant arrives.
            spec.half_validity = true;
            spec.ttl = spec.ttl.min(Ttl::nearest(per));
            spec.lock_delay = Duration::ZERO;
            spec.fencing = false;
        });
        Self { locking, starts, per }
    }

    /// Adds a reason for people, see [`Mutex::why`](crate::Mutex::why). It is shown until the
    /// period is over.
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text), ..self }
    }

    /// Waits until one more start is allowed. When it returns `Ok`, the start counts.
    ///
    /// # Errors
    ///
    /// Same as [`Semaphore::acquire`](crate::Semaphore::acquire). Nothing may start after any
    /// error. Also:
    ///
    /// - [`Config`](crate::ErrorKind::Config) for no starts, more than
    ///   [`PERMITS_MAX`](crate::store::PERMITS_MAX), or a period out of bounds;
    /// - [`Unknown`](crate::ErrorKind::Unknown) or another error of the store if it does not
    ///   confirm in time that the permit stays taken. That time is a quarter of the period, but at
    ///   least 100 ms and at most 3 s. The start may count anyway.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. If its turn had come already, that counts as a start.
    pub async fn start(&self) -> Result<(), Error> {
        self.check()?;
        let guard = self.locking.lock().await?;
        self.count(guard).await
    }

    /// Starts if that is allowed now and nobody waits. Otherwise returns `false` without waiting.
    ///
    /// # Errors
    ///
    /// Same as [`start`](Self::start).
    ///
    /// # Cancel safety
    ///
    /// Same as [`start`](Self::start).
    pub async fn try_start(&self) -> Result<bool, Error> {
        self.check()?;
        let Some(guard) = self.locking.try_lock().await? else { return Ok(false) };
        self.count(guard).await?;
        Ok(true)
    }

    /// Waits for at most `wait` until one more start is allowed.
    ///
    /// # Errors
    ///
    /// Same as [`start`](Self::start). [`WaitElapsed`](crate::ErrorKind::WaitElapsed) if no start
    /// was allowed in that time.
    ///
    /// # Cancel safety
    ///
    /// Same as [`start`](Self::start).
    pub async fn start_timeout(&self, wait: Duration) -> Result<(), Error> {
        self.check()?;
        let guard = match self.locking.lock_timeout(wait).await {
            Err(error) if error.kind() == ErrorKind::WaitElapsed => {
                let message = "no start was allowed before the wait ended; nothing was counted; \
                               wait longer or try again later";
                let elapsed = Error::new(ErrorKind::WaitElapsed, message).with_source(error);
                return self.locking.named(Err(elapsed));
            }
            guard => guard?,
        };
        self.count(guard).await
    }

    fn check(&self) -> Result<(), Error> {
        self.locking.key()?;
        self.locking.check_number("the number of starts in a period", self.starts)?;
        self.locking.check_span("the period of a rate limit", self.per)?;
        self.locking.check_kept(self.per)
    }

    /// Lets a grant count as a start. A start that is not confirmed must not happen, since its
    /// permit may be free before the period is over.
    async fn count(&self, guard: Guard) -> Result<(), Error> {
        let session = self.locking.session();
        let until = session.now() + (self.per / 4).clamp(LATE_MIN, LATE_MAX).min(self.per);
        let message = format!(
            "the store did not confirm the start in time; it may count for {:?}; do not start, and \
             try again later",
            self.per
        );
        let kept = tokio::select! {
            biased;
            kept = guard.keep_for(self.per) => kept,
            // The client goes on asking, so that the permit stays taken if it can.
            () = session.sleep_until(until) => return self.locking.named(Err(unknown(message))),
        };
        self.locking.named(match kept {
            Ok(()) if session.now() <= until => Ok(()),
            // A start so late might be followed by the next one at once.
            Ok(()) => Err(unknown(message)),
            // No work runs yet that would have to stop.
            Err(error) if error.kind() == ErrorKind::Lost => {
                Err(unknown(message).with_source(error))
            }
            Err(error) => Err(Error::new(error.kind(), message).with_source(error)),
        })
    }
}

fn unknown(message: String) -> Error {
    Error::new(ErrorKind::Unknown, message)
}
