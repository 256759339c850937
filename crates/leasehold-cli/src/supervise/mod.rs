//! A command that runs under a lease: told to stop when the lease is in danger, dead before
//! another may hold it.
//!
//! [`machine`] decides, [`drive`](mod@drive) carries it out. [`keeper`] is a process of its own
//! between us and the command: it counts and kills with [`tree`], and speaks with [`child`] over a
//! [`link`].

pub(crate) mod child;
mod drive;
pub(crate) mod keeper;
mod link;
pub(crate) mod machine;
mod tree;

pub(crate) use child::Child;
pub(crate) use drive::supervise;
