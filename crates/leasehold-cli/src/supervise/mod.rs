//! A command that runs under a lease: told to stop when the lease is in danger, dead before
//! another may hold it.
//!
//! [`machine`] decides, [`child`] and [`tree`] act, [`drive`](mod@drive) brings them together.

pub(crate) mod child;
mod drive;
pub(crate) mod machine;
mod tree;

pub(crate) use child::Child;
pub(crate) use drive::supervise;
