//! Locks across processes and machines, as leases: the right to act for a limited time, kept by
//! renewing it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), leasehold::Error> {
//! let client = leasehold::Client::connect("memory:").await?;
//! let guard = client.mutex("order:42").lock().await?;
//! // Only one of us is here. Pass guard.fencing_token() along to what must refuse a late writer.
//! let _released = guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! | to … | use |
//! |---|---|
//! | connect to a store | [`Client::connect`], [`store::from_url`] |
//! | wait for a lock, or try | [`Mutex::lock`], [`Mutex::lock_timeout`], [`Mutex::try_lock`], [`Mutex::with`] |
//! | know whether it is still yours | [`Guard::is_held`], [`Guard::lost`], [`Guard::remaining`] |
//! | stop a paused holder's late write | [`Guard::fencing_token`] |
//! | hand a lease to another process | [`Guard::detach`], [`Client::lease`] |
//! | see who holds and who waits | [`Client::inspect`], [`Client::list`] |
//! | write a store of your own | [`store::Store`], [`Client::with_store`] |
//!
//! # What it promises
//!
//! The times during which two guards of one name report [`is_held`](Guard::is_held) never overlap,
//! under the assumptions that GUARANTEES.md states for each store; the holder of a lost lock learns
//! of it before anybody else can have it; each grant carries a number higher than all before it. It
//! does not promise that only one process *acts*: no lease can.
//!
//! # Runtimes
//!
//! Futures run on any executor. Leases are renewed on one small thread of the process's own,
//! started with the first lock, so that a blocked executor loses none.

pub mod core;
pub mod host;
pub mod store;

mod client;
mod guard;
mod identity;
mod lease;
mod mutex;
mod session;

pub use client::{Client, ClientBuilder, Shutdown};
pub use core::lease::Lost;
pub use core::{Error, ErrorKind, FencingToken, Key, OwnerToken, Ttl};
pub use guard::{Guard, Release};
pub use identity::Identity;
pub use lease::Lease;
pub use mutex::Mutex;
pub use store::Snapshot;

/// The README's example is compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
