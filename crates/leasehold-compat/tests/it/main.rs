//! The locks against their namesakes: on a real server, by what stands there and in which order who
//! has it.
//!
//! Labels such as `G1` are of what the tests of the namesake assert; the rest is what they leave
//! out.

mod gozero;
mod inside;
mod jedis;
mod race;
mod redsync;
mod side_by_side;
mod wire;
mod world;
