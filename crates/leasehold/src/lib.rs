//! Locks across machines.

pub mod core;
pub mod host;
pub mod store;

pub use core::{Error, ErrorKind, FencingToken, Key, OwnerToken, Ttl};
