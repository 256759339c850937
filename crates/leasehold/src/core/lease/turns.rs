//! The turns of a lease, and what follows when one ends or another one begins.

use crate::core::lost::Lost;
use crate::core::token::FencingToken;

/// The time of one guard with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The number of this turn of the lease.
    pub(crate) number: u64,
    /// The fencing token of this turn.
    pub(crate) fencing: Option<FencingToken>,
}

/// The next use of a lease when its guard ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// Pass it to the next task of this client.
    Pass(Turn),
    /// Keep it without a guard.
    Idle,
    /// Release it. In one step, the store hands it over or grants it to this client again with
    /// another token.
    Leave,
    /// Release it.
    Free,
    /// The lease was lost before.
    Lost(Lost),
    /// This guard ended before.
    Over,
}

/// The answer to a task that asks for an idle lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taking {
    /// The task gets it.
    Take(Turn),
    /// Release it. In one step, the store hands it over or grants it to this client again with
    /// another token.
    Leave,
    /// A guard uses it.
    InUse,
    /// The lease is gone.
    Gone,
}
