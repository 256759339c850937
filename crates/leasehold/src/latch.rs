//! A latch: a number that processes count down, and that others wait for.
//!
//! A count is a permit of a semaphore that stays taken. So the store counts, and no message has to
//! be sent to waiters: each of them asks again after a pause.

use std::time::Duration;

use crate::core::backoff::Backoff;
use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::locking::Locking;
use crate::session::{Wait, closed_meanwhile};
use crate::store::Store as _;

/// The pauses of a waiting task between two requests.
const LOOKS: Backoff =
    Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(1) };

/// A number that processes count down to zero, and that others wait for. Made by
/// [`Client::latch`](crate::Client::latch).
///
/// The latch is open once `count` calls of [`count_down`](Self::count_down) have succeeded. Each
/// count lasts for [`keep`](Self::keep), by default 24 h, even if its process has ended. Then the
/// store forgets it, and the latch starts again. So use a separate name for each round, such as
/// `migrated:2.4`. No call of this type closes a latch. But
/// [`Semaphore::resize`](crate::Semaphore::resize) of its name changes its count, so do not call
/// it.
///
/// If all parties call [`arrive_and_wait`](Self::arrive_and_wait), the latch is a barrier: each
/// goes on when all have arrived. A party that dies after it arrived still counts.
///
/// # Waiting
///
/// A waiting task asks the store again and again, so no lost message can make it hang. The
/// pauses grow from 10 ms to 1 s. So each task looks about once a second, and it notices up to a
/// second late that the latch is open. A look is one request. On Redis it is a few requests, which
/// also show up to 100 of the parties that counted.
///
/// # Guarantees
///
/// If a request or an answer is lost, the client repeats the request with the same token. So
/// nothing is counted twice. A call that ends with an error did not count, or the client takes its
/// count back before it asks for this name again. Until then, others may see the latch open, and
/// go on. So call again: those who looked later wait for this count.
/// [`arrive_and_wait`](Self::arrive_and_wait) names two errors after which its count stays. Before
/// the program ends, wait for [`Client::shutdown`](crate::Client::shutdown). Without it, a count of
/// a call that failed may stay for as long as it is [kept](Self::keep). The same holds for the
/// count of a process that dies within the call. If the store forgets its leases, it forgets the
/// counts too.
///
/// # Stores
///
/// Same as for [`Semaphore`](crate::Semaphore). The first user of a name sets the count, and
/// another count is refused ([`Config`](crate::ErrorKind::Config)). The store does not tell a count
/// from a permit of a semaphore, or from a start of a rate limit, if the numbers are the same. So
/// use the name for this latch alone.
///
/// # Examples
///
/// Two workers prepare, and a third process goes on when both are ready:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let ready = client.latch("ready:2.4", 2);
/// let _counted = ready.count_down().await?;
/// assert_eq!(ready.remaining().await?, 1);
/// let _counted = ready.count_down().await?;
/// ready.wait().await?;
/// # Ok(()) }
/// ```
///
/// Without `async`:
///
/// ```
/// use leasehold::CountDown;
/// use leasehold::blocking::block_on;
///
/// # fn main() -> Result<(), leasehold::Error> {
/// let client = block_on(leasehold::Client::connect("memory:"))?;
/// let ready = client.latch("ready", 1);
/// assert_eq!(block_on(ready.count_down())?, CountDown::Counted);
/// assert_eq!(block_on(ready.count_down())?, CountDown::AlreadyOpen);
/// block_on(ready.wait())?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a latch does nothing until it is counted down or waited for"]
pub struct Latch {
    locking: Locking,
    count: u32,
    keep: Duration,
}

/// The outcome of [`Latch::count_down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "`AlreadyOpen` means that this call did not count"]
pub enum CountDown {
    /// This call counted.
    Counted,
    /// All were counted before, so this call changed nothing. That is one call too many, or a call
    /// that was repeated after a crash. If another call fails at the same time, its count is taken
    /// back, and this call has still not counted.
    AlreadyOpen,
}

impl Latch {
    pub(crate) fn new(locking: Locking, count: u32) -> Self {
        let locking = locking.permits(1, count).changed(|spec| {
            // A count protects no work, so it needs no margin and no fencing token.
            spec.lock_delay = Duration::ZERO;
            spec.fencing = false;
        });
        let keep = Ttl::MAX.get();
        Self { locking: locking.ttl(keep), count, keep }
    }

    /// Sets how long each count lasts, from 10 ms to 24 h. Default: 24 h. Tasks that wait see the
    /// latch open only while all counts last. So choose it longer than the time from the first
    /// count until the last waiter has seen the latch open.
    pub fn keep(self, span: Duration) -> Self {
        Self { locking: self.locking.ttl(span), keep: span, ..self }
    }

    /// Adds a reason for people, see [`Mutex::why`](crate::Mutex::why). It is shown as long as the
    /// count lasts.
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text), ..self }
    }

    /// Counts down by one. The count stays when this process ends.
    ///
    /// # Errors
    ///
    /// Same as [`Semaphore::try_acquire`](crate::Semaphore::try_acquire). After any error, this
    /// call does not count. Also:
    ///
    /// - [`Config`](crate::ErrorKind::Config) for a count of zero or above
    ///   [`PERMITS_MAX`](crate::store::PERMITS_MAX);
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) if others wait for permits of this name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes back a count that is under way.
    pub async fn count_down(&self) -> Result<CountDown, Error> {
        self.check()?;
        let guard = match self.locking.try_lock().await {
            Ok(Some(guard)) => guard,
            Ok(None) => return self.locking.named(self.not_counted().await),
            // The error of the store is about permits, and that of `look` about counts.
            Err(error) if error.kind() == ErrorKind::Config => {
                self.locking.named(self.look().await)?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        // The lease lasts as long as the count. From the grant on, nothing can take it back.
        drop(guard.detach());
        Ok(CountDown::Counted)
    }

    /// How many counts are missing now. Zero if the latch is open.
    ///
    /// # Errors
    ///
    /// Same as [`Client::inspect`](crate::Client::inspect).
    /// [`Unsupported`](crate::ErrorKind::Unsupported) on a store without permits.
    /// [`Config`](crate::ErrorKind::Config) if others use the name with another count, or as a
    /// lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn remaining(&self) -> Result<u32, Error> {
        self.check()?;
        self.locking.named(self.look().await)
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    ///
    /// Same as [`remaining`](Self::remaining), for the first request. Once the store has answered,
    /// this waits until an outage ends. [`Closed`](crate::ErrorKind::Closed) if the client is shut
    /// down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_until(Wait::ForEver, false).await
    }

    /// Waits until the latch is open, for at most `wait`.
    ///
    /// # Errors
    ///
    /// Same as [`wait`](Self::wait). [`WaitElapsed`](crate::ErrorKind::WaitElapsed) if the latch
    /// was not seen open in that time. If the last look failed, this is the error of that look.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn wait_timeout(&self, wait: Duration) -> Result<(), Error> {
        self.wait_until(Wait::Until(self.locking.session().now() + wait), false).await
    }

    /// Counts down by one, and waits until the latch is open.
    ///
    /// # Errors
    ///
    /// Same as [`count_down`](Self::count_down). [`Config`](crate::ErrorKind::Config) if the latch
    /// was open already: more parties arrived than it counts, or the name was used before.
    ///
    /// Once this call has counted, it waits until outages and missing rights end. After these two
    /// errors the count stays, so do not call this again. Their messages say that the count stays.
    /// Without these words, an error of the same kind means that this call did not count.
    ///
    /// - [`Closed`](crate::ErrorKind::Closed): the client was shut down while this call waited.
    /// - [`Config`](crate::ErrorKind::Config): others use this name for something else meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes back a count that is under way. A count that was made stays: call
    /// [`wait`](Self::wait) then.
    pub async fn arrive_and_wait(&self) -> Result<(), Error> {
        match self.count_down().await? {
            CountDown::Counted => self.wait_until(Wait::ForEver, true).await.map_err(counted),
            CountDown::AlreadyOpen => self.locking.refused(
                ErrorKind::Config,
                format!(
                    "all {} parties of this latch have arrived already; nothing was counted; use \
                     another name for each round",
                    self.count
                ),
            ),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let session = self.locking.session();
        self.locking.check_number("the count of a latch", self.count)?;
        self.locking.check_span("the time for which a count lasts", self.keep)?;
        self.locking.key()?;
        if !session.store.capabilities().permits {
            let message = "this store has no permits, so it cannot count; nothing was counted; use \
                           another store";
            return self.locking.refused(ErrorKind::Unsupported, message);
        }
        Ok(())
    }

    /// The outcome if there was no permit: the latch is open, or others wait for permits.
    async fn not_counted(&self) -> Result<CountDown, Error> {
        if self.look().await? == 0 {
            return Ok(CountDown::AlreadyOpen);
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            "others wait for this name, or count at the same time; nothing was counted; call \
             again, and use the name for this latch alone",
        ))
    }

    /// How many counts are missing, as the store says.
    async fn look(&self) -> Result<u32, Error> {
        let session = self.locking.session();
        session.check_here()?;
        let seen = session.store.inspect(self.locking.key()?.clone()).await?;
        let used = match seen.permits {
            Some(permits) if permits.of == self.count => {
                return Ok(permits.of.saturating_sub(permits.taken));
            }
            // Nobody has counted lately.
            None if seen.holders.is_empty() => return Ok(self.count),
            Some(permits) => format!("with a count of {}", permits.of),
            None => "as a lock".to_owned(),
        };
        let message = format!(
            "others use this name {used}, and this latch counts {}; nothing was changed; use \
             another name",
            self.count
        );
        Err(Error::new(ErrorKind::Config, message))
    }

    /// Waits until the latch is open or the time is over. Once the store has answered, this waits
    /// until an outage ends. If the call `has_counted`, it also waits for missing rights, since an
    /// error would say that the call did not count.
    async fn wait_until(&self, wait: Wait, has_counted: bool) -> Result<(), Error> {
        self.check()?;
        let session = self.locking.session();
        let mut outage = None;
        let ended = tokio::select! {
            biased;
            open = self.until_open(has_counted, &mut outage) => open,
            () = session.sleep(wait) => Err(outage.unwrap_or_else(not_seen_open)),
            () = session.until_closed() => Err(closed_meanwhile()),
        };
        self.locking.named(ended)
    }

    /// Looks until the latch is open. Nothing but time decides when to look again. `outage` is the
    /// error of the last look.
    async fn until_open(&self, has_counted: bool, outage: &mut Option<Error>) -> Result<(), Error> {
        let session = self.locking.session();
        let mut pauses = LOOKS.delays();
        let mut has_answered = has_counted;
        let passes = |error: &Error| {
            error.is_retryable() || has_counted && error.kind() == ErrorKind::Denied
        };
        loop {
            let left = self.look().await;
            *outage = left.as_ref().err().cloned();
            match left {
                Ok(0) => return Ok(()),
                Ok(_) => has_answered = true,
                Err(error) if has_answered && passes(&error) => {
                    tracing::debug!(%error, "the latch is looked at again");
                }
                Err(error) => return Err(error),
            }
            session.pause(&mut pauses).await;
        }
    }
}

fn not_seen_open() -> Error {
    Error::new(
        ErrorKind::WaitElapsed,
        "the latch was not seen open before the wait ended; nothing was changed; wait longer or \
         try again later",
    )
}

/// The error of a party whose count stays.
fn counted(error: Error) -> Error {
    let why = match error.kind() {
        ErrorKind::Closed => "its client was shut down while it waited; let a new client `wait`",
        ErrorKind::Config => "others use this name in another way meanwhile; use another name",
        _ => return error,
    };
    let message = format!("this party was counted, and the count stays; {why}");
    let name = error.name().map(str::to_owned);
    let told = Error::new(error.kind(), message).with_source(error);
    match name {
        Some(name) => told.with_name(&name),
        None => told,
    }
}
