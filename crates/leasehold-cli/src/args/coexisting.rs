//! How a lock shares its name with clients of other libraries.

use clap::{Args, ValueEnum};
use leasehold::Coexist;

/// How a lock shares its name with clients of other libraries.
#[derive(Debug, Args)]
pub(super) struct Coexisting {
    /// How to share NAME on Redis with other libraries, whose clients poll. auto: waiters leave
    /// them a chance now and then. on: waiters leave it free for 5 to 10 ms after each release,
    /// for clients that poll that often. off: never
    #[arg(long, value_name = "HOW", default_value = "auto", hide_possible_values = true)]
    #[arg(conflicts_with_all = ["shared", "permits"])]
    coexist: How,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum How {
    Auto,
    On,
    Off,
}

impl Coexisting {
    /// The choice, as the library names it.
    pub(super) fn how(&self) -> Coexist {
        match self.coexist {
            How::Auto => Coexist::Auto,
            How::On => Coexist::On,
            How::Off => Coexist::Off,
        }
    }
}
