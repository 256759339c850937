//! The locks against their originals on a real server: the data there, and the order in which they
//! hold it.
//!
//! Labels such as `G1` name assertions in the tests of the original. The rest covers what those
//! tests leave out.

mod gozero;
mod handing;
mod inside;
mod jedis;
mod race;
mod redsync;
mod side_by_side;
mod wire;
mod world;
