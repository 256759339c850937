//! The holders and waiters of a key, and the part of it that each of them has or wants.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::Name;

/// The part of a key that a client has or wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// The whole key.
    Alone,
    /// The whole key, together with other readers.
    Reader,
    /// Some of its permits.
    Permits {
        /// How many.
        want: u32,
        /// The number of all permits, as far as its client knows.
        of: u32,
    },
}

impl Share {
    /// How many permits this is.
    #[must_use]
    pub const fn permits(self) -> u32 {
        if let Self::Permits { want, .. } = self { want } else { 0 }
    }

    /// The same share, of a semaphore with at least this many permits.
    #[must_use]
    pub fn of_at_least(self, least: u32) -> Self {
        match self {
            Self::Permits { want, of } => Self::Permits { want, of: of.max(least) },
            share => share,
        }
    }

    /// The same share, of a semaphore with this many permits.
    #[must_use]
    pub const fn of_exactly(self, of: u32) -> Self {
        match self {
            Self::Permits { want, .. } => Self::Permits { want, of },
            share => share,
        }
    }

    /// How many permits there are in all.
    #[must_use]
    pub const fn of(self) -> u32 {
        if let Self::Permits { of, .. } = self { of } else { 0 }
    }
}

/// The holders and the waiters of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// How many permits there are, if the server knows.
    pub of: Option<u32>,
    /// The holders whose leases live.
    pub holders: Vec<(Name, Share)>,
    /// How long the lease of each of them has left on the server.
    #[serde(default)]
    pub lefts: Vec<Duration>,
    /// The living places that may be made holders, in order.
    pub line: Vec<(Name, Share)>,
    /// How many dead places stand before the living ones.
    pub dead: usize,
    /// All dead places, each with the number of living ones before it. An ask revives its own.
    pub expired: Vec<(Name, usize)>,
    /// Whether the line stands aside for other libraries.
    #[serde(default)]
    pub is_open: bool,
}

impl Standing {
    /// Whether a token has a living lease.
    #[must_use]
    pub fn is_holder(&self, token: &str) -> bool {
        self.holders.iter().any(|(holder, _)| **holder == *token)
    }

    /// Whether a token has a living place in the line.
    #[must_use]
    pub fn waits(&self, token: &str) -> bool {
        self.line.iter().any(|(waiter, _)| **waiter == *token)
    }

    /// How long the lease of a token has left; zero if it has none.
    #[must_use]
    pub fn left(&self, token: &str) -> Duration {
        let mut lefts = self.holders.iter().zip(&self.lefts);
        lefts.find(|((holder, _), _)| **holder == *token).map_or(Duration::ZERO, |(_, left)| *left)
    }
}
