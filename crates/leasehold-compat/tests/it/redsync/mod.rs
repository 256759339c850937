//! What redsync does: labels such as `S1` are of what its own tests assert.

mod contention;
mod cut;
mod labels;
mod lasting;
mod tries;
mod trouble;
mod world;
