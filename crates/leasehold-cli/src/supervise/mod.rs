//! Runs a command under a lease: tells it to stop when the lease is in danger, and makes sure that
//! it is dead before another client can hold the lock.
//!
//! [`machine`] decides, with the settings of [`policy`] and the count of [`requests`], until it has
//! a [`verdict`].
//! [`drive`](mod@drive) carries the decisions out. [`keeper`] is a process of its own between us
//! and the command: it counts and kills with [`tree`]. [`child`] talks to it over a [`link`].
//! [`terminal`] knows which signals of a terminal the command gets without us. [`descent`] proves
//! to an inner `leasehold run` that a keeper would kill it.

mod by_wait;
pub(crate) mod child;
pub(crate) mod descent;
mod drive;
pub(crate) mod keeper;
mod link;
pub(crate) mod machine;
mod news;
mod policy;
mod requests;
mod terminal;
mod tree;
pub(crate) mod verdict;

pub(crate) use child::Child;
pub(crate) use drive::supervise;
pub(crate) use policy::Policy;
