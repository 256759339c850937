//! Locks across processes and machines.
//!
//! A lock is a *lease* here: the right to a name for a limited time. The library renews the lease
//! in the background. The holder has a *guard*, which tells whether the lock is still held.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::Client::connect("memory:").await?;
//! let guard = client.mutex("order:42").lock().await?;
//! // Only one of us is here. With guard.fencing_token(), your data can refuse a late writer.
//! assert_eq!(guard.release().await?, leasehold::Release::Released);
//! # Ok(()) }
//! ```
//!
//! | to … | use |
//! |---|---|
//! | connect to a store | [`Client::connect`], [`store::from_url`] |
//! | lock | [`Mutex::lock`], [`Mutex::lock_timeout`], [`Mutex::try_lock`], [`Mutex::with`] |
//! | share a lock among readers | [`RwLock::read`], [`RwLock::write`], [`RwLock::downgrade`] |
//! | let a few work at a time | [`Semaphore::acquire`], [`Semaphore::resize`] |
//! | take several locks together | [`Client::lock_all`], [`MultiLock`] |
//! | know whether it is still yours | [`Guard::is_held`], [`Guard::lost`], [`Guard::remaining`] |
//! | stop a paused holder's late write | [`Guard::fencing_token`] |
//! | lock without `async` | [`blocking::block_on`] |
//! | let one process lead | [`Client::election`], [`Election::campaign`], [`Election::observe`] |
//! | do work once per period | [`Client::once`], [`Once::start`], [`Run::done`], [`Guard::keep_for`] |
//! | limit how often work starts | [`Client::rate_limit`], [`RateLimit::start`] |
//! | wait until several processes are ready | [`Client::latch`], [`Latch::count_down`], [`Latch::wait`] |
//! | keep data out of reach without the lock | [`Guarded`] |
//! | check a fencing token in SQL or in Redis | [`fence`] |
//! | lock in a transaction of your own | [`in_transaction`] |
//! | choose how to share a name with libraries that poll | [`Mutex::coexist`] |
//! | hand a lease to another process | [`Guard::detach`], [`Client::lease`] |
//! | see who holds and who waits | [`Client::inspect`], [`Client::list`] |
//! | check that a store keeps locks safely | [`doctor::diagnose`] |
//! | grant nothing while a server may have forgotten its leases | [`strict::switch`] |
//! | end the program | [`Client::shutdown`] |
//! | write a store of your own | [`store::Store`], [`store::InOrder`], [`Client::with_store`] |
//!
//! | an example of | is at |
//! |---|---|
//! | a job that one of many hosts does, and a handler that waits for 2 s at most | [`Mutex`] |
//! | work that stops when the lock is lost | [`Guard`], [`Lost`] |
//! | a resource that refuses late writes | [`FencingToken`] |
//! | telling failures apart | [`Error`], [`ErrorKind`] |
//! | the end of a service | [`Shutdown`] |
//! | a test without a server | [below](#tests) |
//!
//! # What it promises
//!
//! - Two guards of one name never report [`is_held`](Guard::is_held) at the same time, under the
//!   assumptions of the store.
//! - The holder learns that a lock is lost before anybody else can have it. If an operator
//!   [ends its lease](Client::evict), the holder learns it at its next renewal.
//! - Each grant carries a higher number than all grants before it.
//!
//! The main assumptions are that clocks of clients and servers run at about the same speed, and
//! that the store does not forget what it granted. `GUARANTEES.md` in the repository lists them for
//! each store, and says how to choose a ttl.
//!
//! Leasehold does not promise that only one process *acts*, because no lease can. Where a late
//! write does harm, let the resource check [`Guard::fencing_token`].
//!
//! # Outages
//!
//! A client connects again by itself. A held lock stays held until its deadline, and the library
//! repeats the renewals. [`Mutex::lock`] waits an outage out once the store has answered. A first
//! request fails with [`Unavailable`](ErrorKind::Unavailable) or [`Unknown`](ErrorKind::Unknown).
//!
//! # Log
//!
//! Each call that locks is a `tracing` span named `lock`, with the level `info`. It lasts until its
//! guard ends. Its events say how long the lock was waited for and held, how often it was renewed,
//! and why it ended: `acquired` and `released` at `debug`, each renewal at `trace`, a lost lock at
//! `warn`. All have the target `leasehold::lock`. No event has the whole owner token or a password.
//! Without a subscriber, nothing is measured or formatted.
//!
//! # Tests
//!
//! `memory:` is a store in this process, and `memory:NAME` is one that several clients share. To
//! see how your code takes a loss, end the lease as an operator would:
//!
//! ```
//! use leasehold::{Client, ErrorKind};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! let ours = Client::connect("memory:a-test").await?;
//! let others = Client::connect("memory:a-test").await?;
//! let guard = ours.mutex("stock").lock().await?;
//! assert!(others.mutex("stock").try_lock().await?.is_none());
//!
//! let seen = others.inspect("stock").await?;
//! let _ended = others.evict("stock", &seen.holders[0].token, "a test").await?;
//! let error = guard.renew().await.expect_err("the lock was taken away");
//! assert_eq!(error.kind(), ErrorKind::Lost);
//! # Ok(()) }
//! ```
//!
//! A paused clock of tokio does not pause Leasehold, which has a clock and a thread of its own. On
//! a paused runtime, `tokio::time::timeout` around a lock may end at once: use
//! [`Mutex::lock_timeout`].
//!
//! # Runtimes and threads
//!
//! Futures run on any executor. One small thread per process renews the leases. The first client
//! starts it. A blocked executor therefore loses no lease, unless the store uses a [connection of
//! the application](store/redis/struct.ApplicationConnector.html). The SQLite store has a thread of
//! its own. If no other process uses its file, a lock or a release runs on the calling thread,
//! takes some microseconds and does not wait.
//!
//! The connection for other requests lives on the runtime of the first request. If a second runtime
//! uses the client too, the first one must either go on running or be dropped. While it exists and
//! stands still, requests of the second one may fail as `Unavailable`.
//!
//! # Forks
//!
//! After a fork, the child cannot use the client, guard or store of its parent. A copied guard is
//! not held, and calls fail with [`Config`](ErrorKind::Config). Open a new client in the child.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `redis` | yes | leases on Redis or Valkey: one server, sentinels, a cluster |
//! | `etcd` | no | leases in an etcd cluster, 3.4 or later |
//! | `mysql` | no | leases in tables of a MySQL server, 8.0 or later, or MariaDB, 10.6 or later |
//! | `postgres` | no | leases in tables of a PostgreSQL server, 13 or later |
//! | `tls` | no | TLS for the stores on servers |
//! | `redis-crate` | no | leases through a connection of the crate `redis`, see [`store::redis`] |
//! | `zookeeper` | no | leases in a ZooKeeper ensemble, 3.5 or later |
//! | `sqlite` | yes | leases in one file, for the processes of one user on one machine |

// A future is a part of each future around it, and builds for debugging copy all of them on a
// stack of 2 MiB.
#![warn(clippy::large_futures)]

pub mod blocking;
pub mod core;
#[cfg(feature = "_stores")]
pub mod doctor;
pub mod fence;
pub mod host;
pub mod in_transaction;
pub mod process;
pub mod store;
#[cfg(feature = "redis")]
pub mod strict;

mod client;
mod election;
mod guard;
mod guarded;
mod identity;
mod latch;
mod lease;
mod listing;
mod locking;
mod multi_guard;
mod multi_lock;
mod mutex;
mod once;
mod rate_limit;
mod rwlock;
mod semaphore;
mod session;
mod unpoisoned;

pub use client::{Client, ClientBuilder, Shutdown};
#[doc(inline)]
pub use core::{Coexist, Error, ErrorKind, FencingToken, Key, Lost, OwnerToken, Ttl};
pub use election::{Election, Leader, Leadership, Observer};
pub use guard::{Guard, Release};
pub use guarded::{Guarded, GuardedRef};
pub use identity::Identity;
pub use latch::{CountDown, Latch};
pub use lease::Lease;
pub use listing::Listing;
pub use multi_guard::{MultiGuard, MultiRelease};
pub use multi_lock::MultiLock;
pub use mutex::Mutex;
pub use once::{Once, Run};
pub use rate_limit::RateLimit;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
#[doc(inline)]
pub use store::Snapshot;

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of the crate's own README is compiled too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The examples of the guide are compiled too.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
