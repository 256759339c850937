//! Elections: one of many processes leads, and each leader has a term of its own.
//!
//! A leader is the holder of a mutex of that name, and its term is the fencing token of the grant.
//! So an election keeps all promises of a mutex, and a client that locks the name keeps leaders
//! out.

use std::fmt;
use std::time::Duration;

use crate::core::coexist::Coexist;
use crate::core::error::{Error, ErrorKind};
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::token::FencingToken;
use crate::core::ttl::Ttl;
use crate::guard::{Guard, Release};
use crate::locking::Locking;
use crate::session::closed_meanwhile;
use crate::store::{ClientRecord, Holder, Snapshot, Store};

/// The pauses of an [`Observer`] between two requests.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(50);
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// An election, in which one of many processes leads. Made by
/// [`Client::election`](crate::Client::election).
///
/// Candidates are served first come, first served. If a leader resigns, the next candidate leads
/// one message later. If a leader crashes, the next one leads within the [ttl](Self::ttl) and the
/// [lock delay](crate::ClientBuilder::lock_delay). A candidate costs one request a second, or more
/// with a ttl below 3 s, see [`Mutex::strict_fifo`](crate::Mutex::strict_fifo).
///
/// A leader that is paused past its lease still believes for a moment that it leads. Pass its
/// [term](Leadership::term) to every part that must not take orders from an old leader.
///
/// # Examples
///
/// A service of which one process does the chores:
///
/// ```
/// # async fn chores(_term: leasehold::FencingToken) {}
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// # use std::time::Duration;
/// let client = leasehold::Client::connect("memory:").await?;
/// let election = client.election("chores").ttl(Duration::from_secs(5)).why("http://10.0.0.7");
/// let leadership = election.campaign().await?;
/// tokio::select! {
///     () = chores(leadership.term()) => {}
///     lost = leadership.lost() => eprintln!("no longer the leader: {lost}"),
/// }
/// let _released = leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an election does nothing without a campaign"]
pub struct Election {
    locking: Locking,
    look_every: Duration,
}

impl Election {
    pub(crate) fn new(locking: Locking, ttl: Ttl) -> Self {
        // Each candidate has its own place, so that each grant begins a new term. The line never
        // stands aside, since other libraries have no terms.
        let locking = locking.changed(|spec| spec.strict_fifo = true).coexist(Coexist::Off);
        Self { locking, look_every: look_every(ttl.get()) }
    }

    /// Sets how long a crashed leader still counts as the leader, see
    /// [`Mutex::ttl`](crate::Mutex::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { locking: self.locking.ttl(ttl), look_every: look_every(ttl) }
    }

    /// Adds a text that observers read, such as the address of this process. Longer text is
    /// truncated to 1 KiB. Default: none.
    pub fn why(self, text: impl Into<String>) -> Self {
        Self { locking: self.locking.why(text), ..self }
    }

    /// Waits until this candidate leads. Each call is a separate candidate, even in one process.
    ///
    /// # Errors
    ///
    /// Same as [`Mutex::lock`](crate::Mutex::lock). Also [`Unsupported`](ErrorKind::Unsupported) if
    /// the store gives no fencing tokens: then leaders have no terms.
    ///
    /// # Cancel safety
    ///
    /// Same as [`Mutex::lock`](crate::Mutex::lock): dropping the future ends the candidacy.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        if !self.locking.session().store.capabilities().fencing {
            return self.locking.named(Err(no_terms()));
        }
        let guard = self.locking.lock().await?;
        let term = self.locking.named(guard.fencing_token().ok_or_else(no_terms))?;
        Ok(Leadership { guard, term })
    }

    /// Asks the store who leads. Returns `None` if the store knows no leader.
    ///
    /// The answer may be old when it arrives. Use it to find the leader, and let the leader check
    /// [`is_leader`](Leadership::is_leader) before it acts.
    ///
    /// # Errors
    ///
    /// Same as [`Client::inspect`](crate::Client::inspect). Also
    /// [`Unavailable`](ErrorKind::Unavailable) if the store may have forgotten the leader: it is in
    /// [quarantine](crate::store::Quarantine), or no majority of a quorum says that it has none.
    /// [`Config`](ErrorKind::Config) if others share the name, or use it as a semaphore.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.holder().await?.map(Leader::of))
    }

    async fn holder(&self) -> Result<Option<Holder>, Error> {
        let session = self.locking.session();
        self.locking.named(session.check_here())?;
        let key = self.locking.key()?.clone();
        let seen = self.locking.named(session.store.inspect(key).await)?;
        match seen.holders.first() {
            None if !knows_that_nobody_holds(&seen) => self.locking.named(Err(not_known())),
            Some(holder) if !holder.claim.is_alone() => self.locking.named(Err(shared(&seen))),
            _ => Ok(seen.holders.into_iter().next()),
        }
    }

    /// Follows who leads. Needs no candidacy.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), seen: Seen::Nothing, look_at: None }
    }
}

fn look_every(ttl: Duration) -> Duration {
    (ttl / 3).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX)
}

/// Whether an empty answer means that there is no holder.
fn knows_that_nobody_holds(seen: &Snapshot) -> bool {
    let without = seen.votes.iter().filter(|vote| matches!(vote.holder, Ok(None))).count();
    let is_sure = seen.votes.is_empty() || 2 * without > seen.votes.len();
    is_sure && seen.quarantine.is_none()
}

fn not_known() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the store shows no leader, but it may have forgotten one; nothing was changed; ask again",
    )
}

/// The error for a name that is no election, since its holders share it.
fn shared(seen: &Snapshot) -> Error {
    let used = if seen.permits.is_some() { "take permits of this name" } else { "share this lock" };
    let message =
        format!("others {used}, so it has no leader; nothing was changed; use another name");
    Error::new(ErrorKind::Config, message)
}

fn no_terms() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this store gives no fencing tokens, so a leader would have no term; nothing is held; use \
         another store, or a mutex",
    )
}

/// Proof that this process leads, until it resigns or loses the leadership. Dropping it resigns.
#[must_use = "dropping it resigns"]
#[clippy::has_significant_drop]
pub struct Leadership {
    guard: Guard,
    term: FencingToken,
}

impl Leadership {
    /// The number of this term. It is higher than that of each term before.
    #[must_use]
    pub const fn term(&self) -> FencingToken {
        self.term
    }

    /// Whether this process leads now, by the local clock. Sends no request.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_held()
    }

    /// Resolves when the leadership is lost, before another process can have it, like
    /// [`Guard::lost`]. Never resolves after a resignation. If an operator ended the lease, it
    /// resolves at the next renewal, and another process may lead by then.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        self.guard.lost()
    }

    /// The guard of the lock behind the leadership.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns the guard of the lock behind the leadership, for code that takes a guard. The
    /// process still leads. The [fencing token](Guard::fencing_token) of the guard is the term.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::connect("memory:").await?;
    /// let leadership = client.election("chores").campaign().await?;
    /// let term = leadership.term();
    /// let guard = leadership.into_guard();
    /// assert!(guard.is_held());
    /// assert_eq!(guard.fencing_token(), Some(term));
    /// # Ok(()) }
    /// ```
    pub fn into_guard(self) -> Guard {
        self.guard
    }

    /// Hands the leadership to the next candidate, and waits until the store confirms it.
    ///
    /// # Errors
    ///
    /// Same as [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`Guard::release`].
    pub async fn resign(self) -> Result<Release, Error> {
        self.guard.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("term", &self.term).field("guard", &self.guard).finish()
    }
}

/// A leader, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The number of the leader's term. `None` if another program, or a lock without fencing, holds
    /// the name. On Redis, such a lock may show the term of an earlier leader. So use the name for
    /// this election alone.
    pub term: Option<FencingToken>,
    /// The process, if it left its record.
    pub client: Option<ClientRecord>,
    /// The leader's [text](Election::why).
    pub why: Option<String>,
}

impl Leader {
    fn of(holder: Holder) -> Self {
        let term = holder.fencing.map(|block| block.first);
        Self { term, client: holder.client, why: holder.why }
    }
}

/// Follows who leads. Made by [`Election::observe`].
///
/// It asks the store once per third of the ttl, with pauses of at least 50 ms and at most 1 s. It
/// may miss a leader that leads for a shorter time.
///
/// The terms of the leaders that it returns rise, if the name is used for the election alone. Only
/// a server that came back with older data may show a leader again that has gone.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let election = client.election("chores").why("http://10.0.0.7");
/// let mut leaders = election.observe();
/// assert_eq!(leaders.next().await?, None, "nobody leads yet");
/// let leadership = election.campaign().await?;
/// let leader = leaders.next().await?.expect("somebody leads");
/// assert_eq!(leader.why.as_deref(), Some("http://10.0.0.7"));
/// assert_eq!(leader.term, Some(leadership.term()));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "an observer does nothing until it is asked"]
pub struct Observer {
    election: Election,
    seen: Seen,
    /// When to ask again; `None` before the first time.
    look_at: Option<Moment>,
}

/// The last answer of an [`Observer`].
#[derive(PartialEq)]
enum Seen {
    Nothing,
    Nobody,
    /// The owner token. It is another one in each term, and the rest of a holder may change.
    Owner(Vec<u8>),
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Nobody => "Nobody",
            // With the token, anybody could end the lease.
            Self::Owner(_) => "Owner(…)",
        })
    }
}

impl Observer {
    /// Returns the leader: at once on the first call, and later as soon as the leader changes.
    /// `None` means that nobody leads.
    ///
    /// # Errors
    ///
    /// Same as [`Election::leader`]. The next call asks again, after the usual pause.
    /// [`Closed`](ErrorKind::Closed) if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing, since the next call tells of the same change.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        let locking = self.election.locking.clone();
        locking.check()?;
        tokio::select! {
            biased;
            next = self.until_changed() => next,
            () = locking.session().until_closed() => locking.named(Err(closed_meanwhile())),
        }
    }

    /// Looks until the store shows another leader.
    async fn until_changed(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            if let Some(look_at) = self.look_at {
                self.election.locking.session().sleep_until(look_at).await;
            }
            let holder = self.election.holder().await;
            // Not before the answer: a caller that gives up early would never get one.
            self.look_at = Some(self.election.locking.session().now() + self.election.look_every);
            let holder = holder?;
            let seen = holder.as_ref().map_or(Seen::Nobody, |it| Seen::Owner(it.token.clone()));
            if self.seen != seen {
                self.seen = seen;
                return Ok(holder.map(Leader::of));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Quarantine, Vote};

    #[test]
    fn a_store_in_quarantine_does_not_prove_that_nobody_leads() {
        let mut seen = Snapshot::default();
        assert!(knows_that_nobody_holds(&seen));
        seen.quarantine = Some(Quarantine::new(None, Duration::from_secs(1)));
        assert!(!knows_that_nobody_holds(&seen));
    }

    #[test]
    fn nobody_leads_if_more_than_half_of_the_nodes_have_no_holder() {
        let (free, taken) = (Ok(None), Ok(Some(b"token".to_vec())));
        let silent = Err("it did not answer".to_owned());
        for (votes, is_known) in [
            (vec![&free], true),
            (vec![&free, &free, &silent], true),
            (vec![&free, &free, &taken], true),
            (vec![&free, &silent, &silent], false),
            (vec![&free, &silent], false),
            (vec![&taken, &silent, &free], false),
        ] {
            let votes = votes.into_iter().map(|holder| Vote::new("n", holder.clone())).collect();
            let seen = Snapshot { votes, ..Snapshot::default() };
            assert_eq!(knows_that_nobody_holds(&seen), is_known, "{seen:?}");
        }
    }

    #[test]
    fn an_observer_looks_every_third_of_the_ttl_within_bounds() {
        for (ttl, pause) in [(10, 50), (60, 50), (300, 100), (3_000, 1_000), (60_000, 1_000)] {
            let [ttl, pause] = [ttl, pause].map(Duration::from_millis);
            assert_eq!(look_every(ttl), pause);
        }
    }
}
