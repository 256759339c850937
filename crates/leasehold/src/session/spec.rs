//! What one acquisition wants.

use std::sync::Arc;
use std::time::Duration;

use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::store::{Claim, Otherwise};

/// What is wanted, and how. A lease is passed on between tasks that want the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) key: Key,
    pub(crate) ttl: Ttl,
    pub(crate) lock_delay: Duration,
    pub(crate) why: Option<Arc<str>>,
    pub(crate) fencing: bool,
    /// For how long a released lease is kept for the next task.
    pub(crate) keep_idle: Duration,
    /// Every task has a place of its own in the store's line, and nothing is passed on.
    pub(crate) strict_fifo: bool,
    /// Nobody has a place in the store's line: who waits asks again and again.
    pub(crate) unqueued: bool,
    /// Others lock the key too, who poll and stand in no line: a release frees it for them.
    pub(crate) coexist: bool,
}

impl Spec {
    /// In which way the key is wanted.
    pub(crate) const fn claim(&self) -> Claim {
        if self.unqueued && !self.fencing { Claim::Plain } else { Claim::Exclusive }
    }

    /// Whether an ask for this fares as one for `other` does. For how long an answer is waited for
    /// follows from the ttl, and which rights it takes from what is written down.
    pub(crate) fn fares_as(&self, other: &Self) -> bool {
        let asked = |spec: &Self| {
            (spec.kept_ttl(), spec.claim(), spec.fencing, spec.unqueued, spec.why.is_some())
        };
        asked(self) == asked(other)
    }

    /// What becomes of the key that is released.
    pub(crate) const fn otherwise(&self) -> Otherwise {
        if self.coexist { Otherwise::Wake } else { Otherwise::Free }
    }

    /// Whether others may wait of whom the store does not know.
    pub(crate) const fn others_wait_unseen(&self) -> bool {
        self.unqueued || self.coexist
    }

    /// What the store is asked to keep.
    pub(crate) fn kept_ttl(&self) -> Ttl {
        self.ttl.with_delay(self.lock_delay)
    }
}

/// How long to wait for one's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Until(Moment),
    ForEver,
}
