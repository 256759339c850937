//! The errors of redsync.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why a call failed.
///
/// Nodes are counted from 0, in the order in which the stores were given to
/// [`Redsync::new`](super::Redsync::new).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No try succeeded (`ErrFailed`).
    Failed,
    /// The time for all tries ended before the last try. redsync returns `ErrFailed` for this, too,
    /// when its context ends.
    Elapsed,
    /// A quorum was extended, but it took longer than the expiry (`ErrExtendFailed`).
    ExtendFailed,
    /// A node has no lock to release, because it has ended (`ErrLockAlreadyExpired`).
    LockAlreadyExpired,
    /// Another client holds a quorum of the nodes, so the other answers do not matter
    /// (`*ErrTaken`).
    Taken {
        /// The nodes, in order.
        nodes: Vec<usize>,
    },
    /// On one node, another client holds the lock (`*ErrNodeTaken`).
    NodeTaken {
        /// The node.
        node: usize,
    },
    /// One node gave no answer, or refused (`*RedisError`). This is also the error if a strict
    /// server may have forgotten who holds the lock.
    Redis {
        /// The node.
        node: usize,
        /// The cause.
        source: leasehold::Error,
    },
    /// The errors of several nodes, in the order of the nodes (`errors.Join`). None of them is
    /// `Joined`.
    Joined(Vec<Self>),
    /// The function of [`with_gen_value_func`](super::Mutex::with_gen_value_func) failed.
    GenValue {
        /// The error of that function.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The name, the value, an option or a store is unsuitable. No request was sent.
    Config {
        /// The details.
        source: leasehold::Error,
    },
}

impl Error {
    /// The joined errors, or this error itself. `errors.Is` and `errors.As` look through the same
    /// list in Go.
    ///
    /// ```
    /// use leasehold_compat::redsync::Error;
    ///
    /// let said = Error::Joined(vec![Error::LockAlreadyExpired, Error::NodeTaken { node: 2 }]);
    /// assert!(said.errors().iter().any(|error| matches!(error, Error::NodeTaken { node: 2 })));
    /// assert_eq!(Error::Failed.errors().len(), 1);
    /// ```
    #[must_use]
    pub fn errors(&self) -> &[Self] {
        match self {
            Self::Joined(errors) => errors,
            one => std::slice::from_ref(one),
        }
    }

    /// Joins errors into one. `None` if there are none.
    pub(super) fn join(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() > 1 { Some(Self::Joined(errors)) } else { errors.pop() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed => f.write_str("redsync: failed to acquire lock"),
            Self::Elapsed => f.write_str("redsync: failed to acquire lock in the time given"),
            Self::ExtendFailed => f.write_str("redsync: failed to extend lock"),
            Self::LockAlreadyExpired => {
                f.write_str("redsync: failed to unlock, lock was already expired")
            }
            Self::Taken { nodes } => {
                f.write_str("lock already taken, locked nodes: [")?;
                for (at, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if at == 0 { "" } else { " " })?;
                }
                f.write_str("]")
            }
            Self::NodeTaken { node } => write!(f, "node #{node}: lock already taken"),
            Self::Redis { node, source } => write!(f, "node #{node}: {source}"),
            Self::Joined(errors) => {
                for (at, error) in errors.iter().enumerate() {
                    write!(f, "{}{error}", if at == 0 { "" } else { "\n" })?;
                }
                Ok(())
            }
            Self::GenValue { source } => source.fmt(f),
            Self::Config { source } => source.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Redis { source, .. } | Self::Config { source } => Some(source),
            Self::GenValue { source } => Some(&**source),
            Self::Joined(errors) => errors.iter().find_map(|error| error.source()),
            Self::Failed
            | Self::Elapsed
            | Self::ExtendFailed
            | Self::LockAlreadyExpired
            | Self::Taken { .. }
            | Self::NodeTaken { .. } => None,
        }
    }
}
