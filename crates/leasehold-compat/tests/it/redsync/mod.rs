//! The behaviour of redsync. Labels such as `S1` name assertions in its own tests.

mod contention;
mod cut;
mod labels;
mod lasting;
mod tries;
mod trouble;
mod world;
