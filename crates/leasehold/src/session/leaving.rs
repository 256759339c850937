//! A lease that leaves its client, and perhaps comes back. The store was told to hand it over if
//! another client waits, and otherwise to let this client have it again. Or the client asked the
//! store to share the key from now on.
//!
//! The old lease ends in any case, and its token must not be used again. A new lease of this client
//! has a new token.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::Shared;

use super::Session;
use super::held::Held;
use super::registry::Counted;
use super::spec::Spec;
use crate::core::lease::{LeaseLife, Turn};
use crate::core::moment::Moment;
use crate::core::passing::KEPT_BLOCK;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;
use crate::store::{BoxAnswer, LeaseId, OnRelease, Released, Store};

/// The answer of the store, shared by the task that leaves and the next one.
pub(crate) type Left = Shared<BoxAnswer<Released>>;

/// A request for a lease to leave this client. If dropped before the answer, it releases both
/// tokens.
pub(super) struct Leaving {
    session: Arc<Session>,
    spec: Arc<Spec>,
    left: LeaseId,
    heir: LeaseId,
    sent: Moment,
    answer: Option<Left>,
    /// Dropped last, so that a shutdown waits for the new lease or the releases.
    _counted: Counted,
}

impl Leaving {
    /// Submits the request. From now on, this client does not have the lease.
    pub(super) fn submit(session: &Arc<Session>, held: &Held) -> Self {
        let reserve = if held.spec.fencing { KEPT_BLOCK } else { 0 };
        let opens = held.spec.opens();
        let keep = |owner, ttl| OnRelease::KeepIfAlone { owner, ttl, reserve, opens };
        Self::submit_as(session, held, Arc::clone(&held.spec), keep)
    }

    /// Submits the request to share the key from now on. This client does not have the old lease
    /// then.
    pub(super) fn downgrade(session: &Arc<Session>, held: &Held) -> Self {
        let share = |owner, ttl| OnRelease::Downgrade { owner, ttl };
        Self::submit_as(session, held, Arc::new(held.spec.shared()), share)
    }

    fn submit_as(
        session: &Arc<Session>,
        held: &Held,
        spec: Arc<Spec>,
        on_release: impl FnOnce(OwnerToken, Ttl) -> OnRelease,
    ) -> Self {
        let counted = Counted::new(session);
        let owner = session.fresh_token();
        let on_release = on_release(owner.clone(), spec.kept_ttl());
        let sent = session.now();
        let left = held.id.clone();
        let answer = session.store.release(left.clone(), on_release);
        session.registry.forget(held);
        Self {
            session: Arc::clone(session),
            heir: LeaseId { owner, claim: spec.claim(), ..left.clone() },
            spec,
            left,
            sent,
            answer: Some(answer.shared()),
            _counted: counted,
        }
    }

    /// The answer of the store, for any number of waiters.
    pub(super) fn answer(&self) -> Left {
        self.answer.clone().expect("it was just submitted")
    }

    /// Whether the store has answered, so that neither token can hold a lease that nobody knows of.
    pub(super) const fn is_answered(&self) -> bool {
        self.answer.is_none()
    }

    /// Waits for the answer. Returns the first turn of the new lease, if this client got it.
    ///
    /// # Cancel safety
    ///
    /// You may drop the future and call this again.
    pub(super) async fn answered(&mut self) -> Option<(Arc<Held>, Turn)> {
        let answer = self.answer.clone()?.await;
        match answer {
            Ok(Released::Kept { fencing }) => {
                let (now, ttl) = (self.session.now(), self.spec.ttl);
                if valid_until(self.sent, ttl).since(now) < ttl.min_validity() {
                    // The new lease came too late to be useful. It is released before the next ask.
                    return None;
                }
                self.answer = None;
                let (mut life, turn) = LeaseLife::granted(self.sent, ttl, fencing);
                if self.spec.opens() {
                    life.end_passing(now);
                }
                let held = Held::new(self.heir.clone(), Arc::clone(&self.spec), life);
                self.session.take_over(&held);
                Some((held, turn))
            }
            Ok(Released::Freed | Released::HandedOver | Released::NotHeld) => {
                self.answer = None;
                None
            }
            // Both tokens may hold a lease.
            Err(_) => None,
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if self.answer.is_none() {
            return;
        }
        if !self.session.is_here() {
            // After a fork, a mutex of the parent may stay locked in the child.
            return std::mem::forget(self.answer.take());
        }
        for lease in [&self.left, &self.heir] {
            self.session.release_in_background(lease.clone(), &self.spec);
        }
    }
}
