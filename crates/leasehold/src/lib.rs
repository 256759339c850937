//! Locks across processes and machines.
//!
//! A lock is a *lease* here: the right to a name for a limited time, kept by renewing it in the
//! background. Who holds it has a *guard*, which says whether it is held still.
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
//! | wait for a lock, or try | [`Mutex::lock`], [`Mutex::lock_timeout`], [`Mutex::try_lock`], [`Mutex::with`] |
//! | know whether it is still yours | [`Guard::is_held`], [`Guard::lost`], [`Guard::remaining`] |
//! | stop a paused holder's late write | [`Guard::fencing_token`] |
//! | share a name with other libraries, which poll | [`Mutex::coexist`] |
//! | hand a lease to another process | [`Guard::detach`], [`Client::lease`] |
//! | see who holds and who waits | [`Client::inspect`], [`Client::list`] |
//! | write a store of your own | [`store::Store`], [`Client::with_store`] |
//!
//! # What it promises
//!
//! The times during which two guards of one name report [`is_held`](Guard::is_held) never overlap,
//! under assumptions that are stated for each store; the holder of a lost lock learns of it before
//! anybody else can have it; each grant carries a number higher than all before it. It does not
//! promise that only one process *acts*: no lease can. The assumptions, what is not given, and how
//! to choose a ttl stand in the repository's GUARANTEES.md.
//!
//! # Runtimes and threads
//!
//! Futures run on any executor. Leases are renewed on one small thread of the process, started with
//! the first client, so that a blocked executor loses none. The embedded store has a thread of its
//! own besides; where nobody else is at its file, a lock or a release is done on the calling
//! thread, in some microseconds and without waiting.
//!
//! # Forks
//!
//! What a fork copies of a client, a guard or a store is of no use in the child: it holds nothing,
//! and refuses every call with [`Config`](ErrorKind::Config). Open a new client there.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `redis` | yes | leases on one Redis or Valkey server |
//! | `sqlite` | yes | the embedded store: one file, shared by the processes of one user on one machine |

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
pub use core::{Error, ErrorKind, FencingToken, Key, Lost, OwnerToken, Ttl};
pub use guard::{Guard, Release};
pub use identity::Identity;
pub use lease::Lease;
pub use mutex::Mutex;
pub use store::Snapshot;

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
