//! Why a lease was lost.

use std::fmt;

/// Why a lease was lost. [`Guard::lost`](crate::Guard::lost) resolves to it.
///
/// # Examples
///
/// ```
/// use leasehold::Lost;
///
/// fn alert(lost: Lost) -> &'static str {
///     match lost {
///         Lost::Deadline => "look at the store: it did not answer in time",
///         Lost::NotOurs => "look at the log of the operators: the lock was taken away",
///         Lost::MaxHold => "look at the work: it took longer than planned",
///         _ => "look at both",
///     }
/// }
/// assert!(alert(Lost::Deadline).contains("store"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The validity ended before a renewal was confirmed: the store gave no answer, or this process
    /// did not run.
    Deadline,
    /// The store answered that the lease is not ours: it ended, was deleted, or an operator ended
    /// it.
    NotOurs,
    /// The holder had it for as long as its [`max_hold`](crate::Mutex::max_hold) allows.
    MaxHold,
}

impl Lost {
    /// Whether the client ended it by its own clock, so that the store may still keep it.
    pub(crate) const fn is_by_our_clock(self) -> bool {
        matches!(self, Self::Deadline | Self::MaxHold)
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "its validity ended before a renewal was confirmed",
            Self::NotOurs => "the store says that it is no longer ours",
            Self::MaxHold => "it was held for as long as its max_hold allows",
        })
    }
}
