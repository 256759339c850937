//! The contract between leases and the stores that grant them.
//!
//! A store makes no policy. Each method is one atomic step, tried once. A store never retries or
//! renews by itself, and never imitates a feature that it lacks. A store does not list in its
//! [`Capabilities`] what it cannot promise, and refuses it with [`ErrorKind::Unsupported`].
//!
//! To write a store, see the guide `docs/your-own-store.md`. The crate `leasehold-conformance` has
//! the tests that it must pass. These help:
//!
//! | name | what it does |
//! |---|---|
//! | [`InOrder`] | sends the requests of a lazy client in their order, and ends each answer in time |
//! | [`within`] | ends an answer in time |
//! | [`core::line`](crate::core::line) | decides who may have a key, who waits, and whose turn it is |
//! | [`Sinks`] | the receivers of hints |
//! | [`matches_pattern`] | the patterns of [`Browse::list`] |
//! | [`errors`] | the errors that all stores have in common |
//! | [`Process`](crate::process::Process) | refuses to work in a forked copy |
//!
//! [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported

mod answer;
mod any;
mod capabilities;
#[cfg(any(feature = "_members", feature = "_sql"))]
mod delegate;
#[cfg(feature = "_members")]
mod entry;
pub mod errors;
#[cfg(feature = "etcd")]
pub mod etcd;
mod from_url;
mod hint;
mod in_order;
mod limit;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "_net")]
mod net;
mod pattern;
#[cfg(feature = "postgres")]
pub mod postgres;
mod probe;
mod quorum;
#[cfg(feature = "redis")]
pub mod redis;
mod request;
mod revocation;
mod sinks;
mod snapshot;
#[cfg(feature = "_sql")]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "_members")]
mod steps;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::sync::Weak;
use std::time::Duration;

pub use answer::{
    Acquired, Afterwards, Evicted, Page, Quarantine, Refusal, Released, Renewed, Revoked, Stopped,
    Why,
};
pub use any::AnyStore;
pub use capabilities::{Capabilities, Reach};
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
#[cfg(feature = "etcd")]
pub(crate) use etcd::examine::EtcdFacts;
#[cfg(all(feature = "etcd", test))]
pub(crate) use etcd::examine::MemberFacts;
#[cfg(feature = "_stores")]
pub(crate) use from_url::Named;
pub use from_url::{from_url, quorum_from_urls, redact_url};
pub use hint::{Hint, HintSink};
pub use in_order::InOrder;
pub use limit::within;
pub use memory::MemoryStore;
#[cfg(feature = "mysql")]
pub use mysql::MysqlStore;
pub use pattern::matches_pattern;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use probe::try_out;
pub use quorum::{NODES_MAX, Quorum};
#[cfg(feature = "redis")]
pub use redis::RedisStore;
pub use request::{Ask, ClientRecord, Keep, LeaseId, Line, Note, OnRelease, PlaceTerms, Renewal};
pub use revocation::Revocation;
pub use sinks::Sinks;
pub use snapshot::{Holder, PermitsTaken, Snapshot, Vote, Waiter};
#[cfg(feature = "_sql")]
pub(crate) use sql::errors::MIGRATE;
#[cfg(feature = "_sql")]
pub(crate) use sql::examine::{About, DatabaseFacts, HintsArrive, Keeping};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
#[cfg(feature = "zookeeper")]
pub use zookeeper::ZookeeperStore;
#[cfg(all(feature = "zookeeper", test))]
pub(crate) use zookeeper::examine::ServerFacts;
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::examine::ZookeeperFacts;

pub use crate::core::claim::{Claim, PERMITS_MAX, Usage};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::ClientId;
pub(crate) use errors::{
    impossible_claim, line_is_full, other_usage, unsupported_claim, unsupported_revoke,
};
#[cfg(feature = "redis")]
pub(crate) use limit::unanswered;

/// A store: it grants leases.
///
/// # Order
///
/// A method sends its request before it returns, so before its future is polled. The requests of
/// one caller reach the store in order. The future only waits for the answer, and dropping it
/// undoes nothing. So a guard can submit its release inside `Drop`, and the client's next ask comes
/// after it. Only renewals may travel apart from the others and arrive earlier or later. That
/// changes nothing, because a renewal has the same effect, or none once the lease has ended.
/// [`InOrder`] gives this order to a store whose client sends only when polled.
///
/// # Outcomes
///
/// A definite answer is `Ok`, including *taken* and *lost*. `Err` means that the store did not
/// answer. Its kind tells whether the request may have taken effect:
/// [`Unknown`](crate::ErrorKind::Unknown) if it may, [`Unavailable`](crate::ErrorKind::Unavailable)
/// or another kind if it certainly did not. Every future ends within the command limit of its ttl
/// ([`command_limit`](crate::core::validity::command_limit)), or twice that if one step needs two
/// commands.
///
/// # Same owner, same answer
///
/// An owner that asks again while its lease lives is granted again, with the same fencing tokens.
/// Repeating the request thus repairs a lost reply. A repeated ask or a renewal never shortens a
/// lease: the new time left is the larger of the time left and the ttl, in the same step.
///
/// A [`Refusal`] says whether the client may ask again with the same token.
pub trait Store: Send + Sync + 'static {
    /// Grants the key, or puts the asker in line. [`core::line`](crate::core::line) has the table
    /// of decisions.
    ///
    /// # Errors
    ///
    /// `Unavailable` also if the line is full ([`PLACES_MAX`](crate::core::line::PLACES_MAX)).
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired>;

    /// Restarts the ttl if the owner still holds the key. Never re-creates a lease that has ended.
    ///
    /// # Errors
    ///
    /// If the store gives no answer. The lease is unchanged, or perhaps renewed if the kind is
    /// `Unknown`.
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed>;

    /// Ends the lease *and* the place in line of its owner. If somebody waits, hands the key to the
    /// head of the line; with [`OnRelease::FreeAndWake`], frees the key and tells the head. Leases
    /// of other owners stay untouched. If the head leaves the line while the key is free, the next
    /// place is told ([`wakes_next`](crate::core::line::wakes_next)).
    ///
    /// # Errors
    ///
    /// If the store gives no answer. The lease is unchanged, or perhaps ended if the kind is
    /// `Unknown`. Repeating the request is harmless.
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released>;

    /// Reports the state of a key. For people and tools: never act on it.
    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot>;

    /// Delivers the hints for `inbox` to `sink` while the sink lives. Replaces any other sink of
    /// that inbox. A store without hints does nothing; its waiters poll.
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>);

    /// Starts to receive the hints of `inbox`, as a waiter does. A holder that keeps a lease idle
    /// or passes it on among its tasks must know who else waits. If the store needs a connection
    /// for hints, it opens one now, and sends [`Hint::Missed`] once hints arrive. Repeating the
    /// call is harmless, and helps if the right to listen was given meanwhile.
    fn listen(&self, inbox: &ClientId);

    /// Asks for one [`Hint::MaybeFree`] to `inbox` when `key` changes, for a client that found it
    /// taken and waits without a place in line. The client also asks again by itself, so a store
    /// that cannot tell does nothing. The method does not wait. Default: does nothing.
    fn tell_when_free(&self, _key: &Key, _inbox: &ClientId) {}

    /// Stops looking after this lease, because another process may renew or release it. A store
    /// that requests a lease on its own, such as a quorum at nodes that lack it, stops doing so.
    /// Default: does nothing.
    fn let_go(&self, _lease: &LeaseId) {}

    /// Which shard of the store keeps this key, as any number. Shards fail one by one, as the nodes
    /// of a cluster do. While one of them is silent, the session renews and releases the leases of
    /// the others without delay. This is called for each request, so it sends none and does not
    /// wait.
    /// Default: the store has one shard.
    fn shard(&self, _key: &Key) -> u64 {
        0
    }

    /// Changes how many permits a key has. Returns how many it had, if anybody used it as a
    /// semaphore lately. Holders keep what they have, even if that is more than there are now.
    /// Default: `Unsupported`.
    ///
    /// # Errors
    ///
    /// `Config` if the key is in use as a lock, or `of` is zero or above [`PERMITS_MAX`].
    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        let claim = Claim::Permits { want: 1, of };
        Box::pin(std::future::ready(Err(unsupported_claim(claim, &key))))
    }

    /// The promises of this store.
    fn capabilities(&self) -> Capabilities;

    /// The tools of this store, if it has any.
    fn browse(&self) -> Option<&dyn Browse>;

    /// The name of this store for messages and logs: the URL without a password.
    fn label(&self) -> String;
}

/// Tools for people: listing keys, and ending leases of others.
pub trait Browse: Send + Sync {
    /// Lists the keys after `cursor` that match `pattern` and have a living lease or place, in
    /// order. `*` matches any run of characters, `?` any single character. A page has at most
    /// [`PAGE_KEYS_MAX`] keys.
    ///
    /// A store that must look at all of its keys returns the whole listing as one page, after one
    /// pass. That page has at most [`LISTING_KEYS_MAX`] keys. The store stops after a bounded time
    /// and sets [`Page::stopped`].
    ///
    /// # Errors
    ///
    /// If the store gives no answer.
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page>;

    /// Ends the lease of another owner if its token is still `seen`. Raises the fencing counter and
    /// tells the line. Logs each such step with its `reason`.
    ///
    /// # Errors
    ///
    /// If the store gives no answer. If the kind is `Unknown`, the lease may have ended.
    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted>;

    /// Asks a holder to let go, if its token is still `seen`. `by` says who asks. The request
    /// changes nothing else. It is kept beside the lease, ends with it, and each renewal by that
    /// token carries it ([`Renewed::Renewed::revoked`]). While it lasts, another request changes
    /// nothing. No other owner ever sees it. Only a store that promises
    /// [`revoke`](Capabilities::revoke) does this. Default: `Unsupported`.
    ///
    /// # Errors
    ///
    /// If the store gives no answer. If the kind is `Unknown`, the holder may have been asked.
    /// `Unsupported` if the holder uses another library, and the store cannot store a request for
    /// it.
    fn revoke(&self, key: Key, _seen: Vec<u8>, _by: String, _reason: String) -> BoxAnswer<Revoked> {
        Box::pin(std::future::ready(Err(unsupported_revoke().with_name(key.as_str()))))
    }
}

/// The answer of a store to one request, as a boxed future. It borrows nothing from its store.
pub type BoxAnswer<T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// The most keys in one page of [`Browse::list`].
pub const PAGE_KEYS_MAX: usize = 1_000;

/// The most keys in a whole listing.
pub const LISTING_KEYS_MAX: usize = 100_000;

/// How long a store keeps the counter of an idle key and the record of a silent client.
pub const FENCE_IDLE: Duration = Duration::from_mins(10);
