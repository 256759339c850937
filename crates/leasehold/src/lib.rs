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
//! // Only one of us is here. Pass guard.fencing_token() along to what must refuse a late writer.
//! assert_eq!(guard.release().await?, leasehold::Release::Released);
//! # Ok(()) }
//! ```
//!
//! | to … | use |
//! |---|---|
//! | connect to a store | [`Client::connect`], [`store::from_url`] |
//! | lock | [`Mutex::lock`], [`Mutex::lock_timeout`], [`Mutex::try_lock`], [`Mutex::with`] |
//! | know whether it is still yours | [`Guard::is_held`], [`Guard::lost`], [`Guard::remaining`] |
//! | stop a paused holder's late write | [`Guard::fencing_token`] |
//! | share a name with libraries that poll | [`Mutex::coexist`] |
//! | hand a lease to another process | [`Guard::detach`], [`Client::lease`] |
//! | see who holds and who waits | [`Client::inspect`], [`Client::list`] |
//! | write a store of your own | [`store::Store`], [`store::InOrder`], [`Client::with_store`] |
//!
//! # What it promises
//!
//! - Two guards of one name never report [`is_held`](Guard::is_held) at the same time, under the
//!   assumptions of the store.
//! - The holder learns that a lock is lost before anybody else can have it.
//! - Each grant carries a higher number than all grants before it.
//!
//! Leasehold does not promise that only one process *acts*: no lease can. GUARANTEES.md in the
//! repository lists the assumptions and the limits, and says how to choose a ttl.
//!
//! # Runtimes and threads
//!
//! Futures run on any executor. One small thread per process renews the leases; the first client
//! starts it. A blocked executor therefore loses no lease. The SQLite store has a thread of its
//! own. If no other process uses its file, a lock or a release runs on the calling thread, takes
//! some microseconds and does not wait.
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
//! | `redis` | yes | leases on one Redis or Valkey server |
//! | `sqlite` | yes | leases in one file, for the processes of one user on one machine |

pub mod core;
pub mod host;
pub mod store;

mod client;
mod guard;
mod identity;
mod lease;
mod mutex;
mod process;
mod session;

pub use client::{Client, ClientBuilder, Listing, Shutdown};
#[doc(inline)]
pub use core::{Error, ErrorKind, FencingToken, Key, Lost, OwnerToken, Ttl};
pub use guard::{Guard, Release};
pub use identity::Identity;
pub use lease::Lease;
pub use mutex::Mutex;
#[doc(inline)]
pub use store::Snapshot;

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
