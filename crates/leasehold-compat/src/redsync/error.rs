//! What goes wrong.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Why a call did not do what it was asked to.
///
/// Nodes are counted from 0, in the order in which the stores were given to
/// [`Redsync::new`](super::Redsync::new).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock could not be had in so many tries (`ErrFailed`).
    Failed,
    /// The time for all tries was over before the last of them (`ErrFailed` too, for which its
    /// context has ended).
    Elapsed,
    /// A quorum was extended, but that took so long that nothing is left of it (`ErrExtendFailed`).
    ExtendFailed,
    /// A node has no lock to release: it has ended (`ErrLockAlreadyExpired`).
    LockAlreadyExpired,
    /// A quorum of nodes says that another has it, whatever the rest says (`*ErrTaken`).
    Taken {
        /// Which nodes, in order.
        nodes: Vec<usize>,
    },
    /// One node says that another has it (`*ErrNodeTaken`).
    NodeTaken {
        /// Which.
        node: usize,
    },
    /// One node did not answer, or refused (`*RedisError`). So does a strict one that may have
    /// forgotten who has the lock.
    Redis {
        /// Which.
        node: usize,
        /// Why.
        source: leasehold::Error,
    },
    /// What several nodes said, in the order of the nodes (`errors.Join`). None of these is joined
    /// itself.
    Joined(Vec<Self>),
    /// No value could be had: what the function of
    /// [`with_gen_value_func`](super::Mutex::with_gen_value_func) says.
    GenValue {
        /// What it says.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// The name, the value, an option or a store cannot be worked with; nothing was asked.
    Config {
        /// What is wrong.
        source: leasehold::Error,
    },
}

impl Error {
    /// The errors that this consists of: those that are joined, or itself. What `errors.Is` and
    /// `errors.As` look through there.
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

    /// All of them in one; none if there are none.
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
