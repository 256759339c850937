//! The settings of an acquisition.

use std::sync::Arc;
use std::time::Duration;

use crate::core::coexist::Coexist;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::store::{Acquired, Claim, OnRelease};

/// The settings of an acquisition. Tasks with equal settings pass a lease on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) key: Key,
    pub(crate) ttl: Ttl,
    pub(crate) lock_delay: Duration,
    pub(crate) why: Option<Arc<str>>,
    pub(crate) fencing: bool,
    /// How the client claims the key.
    pub(crate) claim: Claim,
    /// How long the key stays taken after a grant, at least.
    pub(crate) min_hold: Duration,
    /// How long a guard holds the key at most.
    pub(crate) max_hold: Option<Duration>,
    /// Half of the usual validity of a grant is enough, because only the request that ends the hold
    /// relies on it.
    pub(crate) half_validity: bool,
    /// How long a released lease is kept for the next task.
    pub(crate) keep_idle: Duration,
    /// Every task has its own place in the store's line, and leases are not passed on.
    pub(crate) strict_fifo: bool,
    /// Waiters poll and have no place in the store's line. Also set if the store has no line.
    pub(crate) unqueued: bool,
    /// The lock has no companion keys if it has no fencing tokens.
    pub(crate) bare: bool,
    /// How the lock treats clients that poll. Never `Auto` at a store that does not open keys.
    pub(crate) coexist: Coexist,
}

impl Spec {
    /// How the client claims the key.
    pub(crate) const fn claim(&self) -> Claim {
        match self.claim {
            Claim::Exclusive if self.bare && !self.fencing => Claim::Plain,
            claim => claim,
        }
    }

    /// Whether each task has its own place in the store's line and a lease of its own. It has them
    /// with `strict_fifo`, if tasks of one client may have the key together, or if the time of a
    /// hold is limited.
    pub(crate) const fn asks_alone(&self) -> bool {
        let is_limited = !self.min_hold.is_zero() || self.max_hold.is_some();
        self.strict_fifo || !self.claim.is_alone() || is_limited
    }

    /// The settings of a lease that shares the key instead of having it alone.
    pub(crate) fn shared(&self) -> Self {
        let keep_idle = Duration::ZERO;
        Self { claim: Claim::Shared, fencing: false, keep_idle, ..self.clone() }
    }

    /// Whether an ask with these settings would fail just like one with `other`. The ttl decides
    /// how long an answer may take. The data that is written decides which rights are needed.
    pub(crate) fn fares_as(&self, other: &Self) -> bool {
        let asked = |spec: &Self| {
            (spec.kept_ttl(), spec.claim(), spec.fencing, spec.unqueued, spec.why.is_some())
        };
        asked(self) == asked(other)
    }

    /// Removes fencing tokens that were not asked for. A server that lost its record of a grant
    /// without fencing may answer with the last token of all, which belongs to another grant.
    pub(super) fn as_wanted(&self, answer: Acquired) -> Acquired {
        match answer {
            Acquired::Granted { .. } if !self.fencing => Acquired::Granted { fencing: None },
            answer => answer,
        }
    }

    /// The limit of a waiter's ask. `None` without a lock delay: then the store's own limit ends
    /// while the place still lives. With a lock delay, the store's limit may outlive the place, so
    /// this one is shorter.
    pub(super) fn ask_limit(&self) -> Option<Duration> {
        let limit = || (self.ttl.waiter_ttl().get() / 3).max(command_limit(self.ttl));
        (!self.lock_delay.is_zero()).then(limit)
    }

    /// How a release treats the key.
    pub(crate) const fn on_release(&self) -> OnRelease {
        match self.coexist {
            Coexist::On => OnRelease::FreeAndWake,
            Coexist::Auto if self.opens() => OnRelease::Open,
            Coexist::Auto | Coexist::Off => OnRelease::Free,
        }
    }

    /// Whether the store opens the line now and then. A lock without companion keys has no line.
    pub(crate) const fn opens(&self) -> bool {
        matches!(self.coexist, Coexist::Auto) && !matches!(self.claim(), Claim::Plain)
    }

    /// Whether a release never hands the key over.
    pub(crate) const fn gives_way(&self) -> bool {
        matches!(self.coexist, Coexist::On)
    }

    /// Whether clients may wait without the knowledge of the store.
    pub(crate) const fn others_wait_unseen(&self) -> bool {
        self.unqueued || self.gives_way()
    }

    /// The ttl at the store, which includes the lock delay.
    pub(crate) fn kept_ttl(&self) -> Ttl {
        self.ttl.with_delay(self.lock_delay)
    }
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Until(Moment),
    ForEver,
}
