//! The effect of a request at the servers of a cluster, and what is known of it without an answer.

use crate::core::error::ErrorKind;

/// The effect of a request at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request is part of connecting.
    Connects,
    /// The request only reads, or only changes things that no lock uses.
    Nothing,
    /// The request changes locks.
    Changes,
}

impl Effect {
    /// The known state of the lock if the request has no answer.
    pub(crate) const fn state(self) -> &'static str {
        match self {
            Self::Connects => "no request was sent",
            Self::Nothing => "nothing was changed",
            Self::Changes => "the request may have taken effect",
        }
    }

    /// The kind of the error for a request without an answer.
    pub(crate) const fn unanswered(self) -> ErrorKind {
        match self {
            Self::Changes => ErrorKind::Unknown,
            Self::Connects | Self::Nothing => ErrorKind::Unavailable,
        }
    }
}
