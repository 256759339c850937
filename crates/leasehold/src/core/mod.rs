//! Terms and decisions without input or output. Nothing here reads a clock, draws a random number,
//! spawns or waits.
//!
//! The caller passes the time as a [`Moment`], and randomness as bytes. The result is a value that
//! says what to do. So a table can test every decision, and the same code runs in production and in
//! simulation.

pub(crate) mod acquire;
pub(crate) mod backoff;
pub mod claim;
pub(crate) mod coexist;
pub mod error;
pub mod key;
pub(crate) mod lease;
pub mod line;
pub(crate) mod local_line;
pub(crate) mod lost;
pub(crate) mod majority;
pub mod moment;
pub(crate) mod passing;
pub mod token;
pub mod ttl;
pub mod validity;

pub use coexist::Coexist;
pub use error::{Error, ErrorKind};
pub use key::Key;
pub use lost::Lost;
pub use moment::{Moment, WallTime};
pub use token::{FencingBlock, FencingToken, OwnerToken};
pub use ttl::Ttl;
