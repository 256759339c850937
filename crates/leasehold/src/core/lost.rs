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
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "its validity ended before a renewal was confirmed",
            Self::NotOurs => "the store says that it is no longer ours",
        })
    }
}
