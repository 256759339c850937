//! Leases that a client may still have at the store although it gave them up: their release failed,
//! and is repeated.
//!
//! The next request of this client for the key must not come first. It would meet what its own
//! client left, and take it for another client's.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::Session;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::store::{BoxAnswer, LeaseId, OnRelease, Store};
use crate::unpoisoned::Unpoisoned;

/// The leases whose release is repeated, by their keys.
#[derive(Debug, Default)]
pub(super) struct LeftOver(Unpoisoned<HashMap<Key, Leases>>);

/// Those of one key.
#[derive(Debug, Default)]
struct Leases {
    leases: Vec<LeaseId>,
    /// The requests to end them that are under way.
    ending: Option<WeakShared<BoxAnswer<()>>>,
}

/// Ends leases, for all tasks that wait for it.
type Ending = Shared<BoxAnswer<()>>;

/// A lease in [`LeftOver`] for as long as this exists.
pub(super) struct Noted {
    session: Arc<Session>,
    lease: LeaseId,
}

impl Noted {
    pub(super) fn new(session: &Arc<Session>, lease: &LeaseId) -> Self {
        let note = |all: &mut HashMap<Key, Leases>| {
            all.entry(lease.key.clone()).or_default().leases.push(lease.clone());
        };
        session.left_over.with(note);
        Self { session: Arc::clone(session), lease: lease.clone() }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.session.left_over.forget(&self.lease);
    }
}

impl LeftOver {
    fn with<T>(&self, step: impl FnOnce(&mut HashMap<Key, Leases>) -> T) -> T {
        step(&mut self.0.lock())
    }

    /// The store has answered: the lease is not left any more.
    fn forget(&self, lease: &LeaseId) {
        self.with(|all| {
            let Some(of_key) = all.get_mut(&lease.key) else { return };
            if let Some(at) = of_key.leases.iter().position(|left| left == lease) {
                of_key.leases.swap_remove(at);
            }
            if of_key.leases.is_empty() {
                all.remove(&lease.key);
            }
        });
    }
}

impl Session {
    /// Whether earlier requests may have left something of this key.
    pub(super) fn has_left_over(&self, key: &Key) -> bool {
        self.left_over.with(|all| all.contains_key(key))
    }

    /// Ends what earlier requests may have left of this key. Their releases are repeated anyway, so
    /// this only makes sure of the order.
    pub(super) async fn end_left_over(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        // More may be left meanwhile.
        while let Some(ending) = self.ending(key) {
            ending.await?;
        }
        Ok(())
    }

    /// Ends all leases that are left of a key. All tasks that ask for it share the answers: after
    /// an outage, there may be as many leases as tasks.
    fn ending(self: &Arc<Self>, key: &Key) -> Option<Ending> {
        self.left_over.with(|all| {
            let Leases { leases, ending } = all.get_mut(key)?;
            // Only while a task waits for it: its answers would be old, and it keeps the session.
            let shared = ending.as_ref().and_then(WeakShared::upgrade);
            if let Some(shared) = shared.filter(|shared| shared.peek().is_none()) {
                return Some(shared);
            }
            let shared = end_all(Arc::clone(self), leases.clone()).boxed().shared();
            *ending = shared.downgrade();
            Some(shared)
        })
    }
}

async fn end_all(session: Arc<Session>, leases: Vec<LeaseId>) -> Result<(), Error> {
    let end = |lease: LeaseId| {
        let answer = session.store.release(lease.clone(), OnRelease::Free);
        async move { (lease, answer.await) }
    };
    let mut answers: FuturesUnordered<_> = leases.into_iter().map(end).collect();
    let mut ended = Ok(());
    while let Some((lease, answer)) = answers.next().await {
        match answer {
            Err(error) if error.is_retryable() => {
                let message = "an earlier request for this lock may have left a grant, which could \
                               not be released yet; nothing was acquired; try again";
                ended = Err(Error::new(ErrorKind::Unknown, message).with_source(error));
            }
            _ => session.left_over.forget(&lease),
        }
    }
    ended
}
