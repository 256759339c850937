//! Leases that a client gave up but may still have at the store. Their release failed, and is
//! repeated.
//!
//! The next request of this client for the key must not come first. It would find a lease of its
//! own client, and take it for another client's.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{Shared, WeakShared};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::Session;
use super::release::may_be_repeated;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::store::{BoxAnswer, LeaseId, OnRelease, Store};
use crate::unpoisoned::Unpoisoned;

/// The leases whose release is repeated, by their keys.
#[derive(Debug, Default)]
pub(super) struct LeftOver(Unpoisoned<HashMap<Key, Leases>>);

/// The left-over leases of one key.
#[derive(Debug, Default)]
struct Leases {
    /// The leases, and how each release treats the key.
    leases: Vec<(LeaseId, OnRelease)>,
    /// The requests under way to end these leases.
    ending: Option<WeakShared<BoxAnswer<()>>>,
}

/// A future that ends leases, shared by all tasks that wait for it.
type Ending = Shared<BoxAnswer<()>>;

/// Keeps a lease in [`LeftOver`] for as long as this exists.
pub(super) struct Noted {
    session: Arc<Session>,
    lease: LeaseId,
}

impl Noted {
    pub(super) fn new(session: &Arc<Session>, lease: &LeaseId, on_release: &OnRelease) -> Self {
        let note = |all: &mut HashMap<Key, Leases>| {
            let of_key = all.entry(lease.key.clone()).or_default();
            of_key.leases.push((lease.clone(), on_release.clone()));
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

    /// Removes a lease whose release the store has answered.
    fn forget(&self, lease: &LeaseId) {
        self.with(|all| {
            let Some(of_key) = all.get_mut(&lease.key) else { return };
            if let Some(at) = of_key.leases.iter().position(|(left, _)| left == lease) {
                of_key.leases.swap_remove(at);
            }
            if of_key.leases.is_empty() {
                all.remove(&lease.key);
            }
        });
    }
}

impl Session {
    /// Whether earlier requests may have left a lease of this key.
    pub(super) fn has_left_over(&self, key: &Key) -> bool {
        self.left_over.with(|all| all.contains_key(key))
    }

    /// Ends the leases of this key that earlier requests may have left. Their releases are repeated
    /// anyway, so this only makes sure of the order.
    pub(super) async fn end_left_over(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        // More may be left meanwhile.
        while let Some(ending) = self.ending(key) {
            ending.await?;
        }
        Ok(())
    }

    /// Ends all leases that are left of a key. All tasks that ask for the key share the answers,
    /// since there may be as many leases as tasks after an outage.
    fn ending(self: &Arc<Self>, key: &Key) -> Option<Ending> {
        self.left_over.with(|all| {
            let Leases { leases, ending } = all.get_mut(key)?;
            // Share it only while a task waits for it. Later, its answers would be old, and it
            // would keep the session alive.
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

async fn end_all(session: Arc<Session>, leases: Vec<(LeaseId, OnRelease)>) -> Result<(), Error> {
    let end = |(lease, on_release): (LeaseId, OnRelease)| {
        let answer = session.store.release(lease.clone(), on_release);
        async move { (lease, answer.await) }
    };
    let mut answers: FuturesUnordered<_> = leases.into_iter().map(end).collect();
    let mut ended = Ok(());
    while let Some((lease, answer)) = answers.next().await {
        match answer {
            Err(error) if may_be_repeated(&error) => {
                let kind = match error.kind() {
                    ErrorKind::Denied => ErrorKind::Denied,
                    _ => ErrorKind::Unknown,
                };
                let message = "an earlier request for this lock may have left a grant, which could \
                               not be released yet; nothing was acquired; try again";
                ended = Err(Error::new(kind, message).with_source(error));
            }
            _ => session.left_over.forget(&lease),
        }
    }
    ended
}
