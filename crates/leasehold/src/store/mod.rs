//! The contract between leases and the places that grant them.
//!
//! A store makes no policy. Each method is one atomic step, tried once: a store never renews,
//! retries or emulates. What it cannot promise is absent from its [`Capabilities`] and refused with
//! [`ErrorKind::Unsupported`].
//!
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported

mod answer;
mod any;
mod capabilities;
mod from_url;
mod hint;
mod limit;
pub mod memory;
mod pattern;
mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
mod request;
mod sinks;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::future::Future;
use std::sync::Weak;
use std::time::Duration;

pub use answer::{
    Acquired, Evicted, Holder, Page, Quarantine, Released, Renewed, Snapshot, Stopped, Vote, Waiter,
};
pub use any::AnyStore;
pub use capabilities::{Capabilities, Reach};
pub use from_url::{from_url, quorum_from_urls, redact_url};
pub use hint::{Hint, HintSink};
pub use memory::MemoryStore;
pub use quorum::{NODES_MAX, Quorum};
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use request::{Ask, Claim, ClientRecord, LeaseId, Line, Note, Otherwise, Renewal};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::ClientId;
#[cfg(feature = "redis")]
pub(crate) use limit::unanswered;
pub(crate) use limit::within;
pub(crate) use pattern::matches_pattern;
pub(crate) use request::{Keep, PlaceTerms};

/// A place that grants leases.
///
/// # Order
///
/// A request is on its way when the method returns, before its future is polled: what one caller
/// asks first reaches the store first. The future only waits for the answer, and dropping it takes
/// nothing back. So a guard can submit its release inside `Drop`, and the same client's next ask
/// comes after it. Renewals alone may travel apart from the others, and arrive before or after
/// them: what a renewal does is the same, or nothing once the lease has ended.
///
/// # Outcomes
///
/// Whatever the store could answer is `Ok`, also *taken* and *lost*. `Err` means that there is no
/// answer, and its kind says whether the request may have taken effect:
/// [`Unknown`](crate::ErrorKind::Unknown) if it may, [`Unavailable`](crate::ErrorKind::Unavailable)
/// or another kind if surely not. Every future ends within the command limit of its ttl
/// ([`command_limit`](crate::core::validity::command_limit)), or twice that where one step needs
/// two.
///
/// # Same owner, same answer
///
/// While its lease lives, an owner that asks again is granted again, with the same fencing tokens:
/// a lost reply is repaired by repeating the request. Neither a repeated ask nor a renewal ever
/// shortens a lease: the new time left is the larger of the time left and the ttl, decided in the
/// same step.
///
/// An owner that does not wait, and was told that another has the key, asks again by the same token
/// only where the store promises [`Capabilities::reask`].
pub trait Store: Send + Sync + 'static {
    /// Grants the key, or puts the asker in line, see [`core::line`](crate::core::line) for the
    /// table of decisions.
    ///
    /// # Errors
    ///
    /// `Unavailable` also if the line is full ([`PLACES_MAX`](crate::core::line::PLACES_MAX)), and
    /// where a server is to have copies of what it grants, if there were too few of them: the grant
    /// was given back then, see [`Capabilities::gives_back`].
    fn acquire(&self, ask: Ask) -> impl Future<Output = Result<Acquired, Error>> + Send + 'static;

    /// Restarts the ttl if the owner still holds the key. Never re-creates a lease that ended.
    ///
    /// # Errors
    ///
    /// If there is no answer: the lease is as it was, or, if the kind is `Unknown`, perhaps
    /// renewed.
    fn renew(
        &self,
        renewal: Renewal,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static;

    /// Ends the lease *and* the place in line of its owner, and hands the key to the head of the
    /// line if somebody waits; under [`Otherwise::Wake`] it frees the key and tells the head.
    /// Anybody else's lease stays untouched.
    ///
    /// # Errors
    ///
    /// If there is no answer: the lease is as it was, or, if the kind is `Unknown`, perhaps ended.
    /// Repeating it is harmless.
    fn release(
        &self,
        lease: LeaseId,
        otherwise: Otherwise,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static;

    /// Reports what is known of a key now. For people and tools, never a basis for acting on the
    /// lock.
    fn inspect(&self, key: Key) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static;

    /// Delivers the hints for `inbox` to `sink` for as long as the sink lives. Every other sink of
    /// that inbox is replaced.
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>);

    /// Asks for the hints of `inbox` from now on, as one does who waits: a holder that keeps a
    /// lease idle, or passes it on among its own tasks, wants to be told who else waits. A store
    /// that opens a connection for hints opens it now, and says [`Hint::Missed`] once they come.
    /// Repeating it is harmless, and helps where the right to listen was given since.
    fn listen(&self, inbox: &ClientId);

    /// The client looks after this lease no longer: another process may renew or release it, and
    /// this store hears nothing of that. A store that asks for a lease on its own, as a quorum asks
    /// the nodes that do not have it, asks no more. Default: does nothing.
    fn let_go(&self, _lease: &LeaseId) {}

    /// What this store promises.
    fn capabilities(&self) -> Capabilities;

    /// The tools' view of this store, if it has one.
    fn browse(&self) -> Option<&dyn Browse>;

    /// Which store this is, for messages and logs: the URL without a password.
    fn label(&self) -> String;
}

/// What people and tools may do beside holding locks.
pub trait Browse: Send + Sync {
    /// Lists the keys that have a living lease or place and match `pattern` (`*` any run, `?` any
    /// one character), in order, after `cursor`. At most [`PAGE_KEYS_MAX`] a page.
    ///
    /// A store that has to look at all of its keys for a page answers with a single page instead:
    /// it looks once for the whole listing. That page has at most [`LISTING_KEYS_MAX`] keys. The
    /// store stops after a bounded time, and says so by [`Page::stopped`].
    ///
    /// # Errors
    ///
    /// If there is no answer.
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page>;

    /// Ends another's lease if its owner is still the one that was `seen`; raises the fencing
    /// counter, tells the line. Every such step is an event in the log with its `reason`.
    ///
    /// # Errors
    ///
    /// If there is no answer; if the kind is `Unknown`, the lease may have been ended.
    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted>;
}

/// A boxed answer of a store.
pub type BoxAnswer<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// How many keys one page of [`Browse::list`] has at most.
pub const PAGE_KEYS_MAX: usize = 1_000;

/// How many keys a whole listing has at most.
pub const LISTING_KEYS_MAX: usize = 100_000;

/// How long the counter of an idle key, and the record of a silent client, are kept.
pub const FENCE_IDLE: Duration = Duration::from_mins(10);

/// What an ask in a way that a store does not promise is answered.
pub(crate) fn unsupported_claim(claim: Claim, key: &Key) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this store does not grant {claim:?}; nothing was asked, use a store that promises it"
        ),
    )
    .with_name(key.as_str())
}

/// What an ask that would take one place too many is answered.
pub(crate) fn line_is_full(key: &Key) -> Error {
    let places = crate::core::line::PLACES_MAX;
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{places} clients wait in line already, which is the limit; nothing was taken, \
             come back later"
        ),
    )
    .with_name(key.as_str())
}
