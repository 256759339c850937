//! Leases that a client may still have at the store although it gave them up: their release failed,
//! and is repeated.
//!
//! The next request of this client for the key must not come first. It would meet what its own
//! client left, and take it for another client's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Session;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::store::{LeaseId, OnRelease, Store};

/// The leases whose release is repeated.
#[derive(Debug, Default)]
pub(super) struct LeftOver(Mutex<HashMap<Key, Vec<LeaseId>>>);

/// A lease in [`LeftOver`] for as long as this exists.
pub(super) struct Noted {
    session: Arc<Session>,
    lease: LeaseId,
}

impl Noted {
    pub(super) fn new(session: &Arc<Session>, lease: &LeaseId) -> Self {
        session.left_over.with(|all| all.entry(lease.key.clone()).or_default().push(lease.clone()));
        Self { session: Arc::clone(session), lease: lease.clone() }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.session.left_over.with(|all| {
            let Some(leases) = all.get_mut(&self.lease.key) else { return };
            if let Some(at) = leases.iter().position(|lease| *lease == self.lease) {
                leases.swap_remove(at);
            }
            if leases.is_empty() {
                all.remove(&self.lease.key);
            }
        });
    }
}

impl LeftOver {
    fn with<T>(&self, step: impl FnOnce(&mut HashMap<Key, Vec<LeaseId>>) -> T) -> T {
        step(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Session {
    /// Ends what earlier requests may have left of this key. Their releases are repeated anyway, so
    /// this only makes sure of the order.
    pub(super) async fn end_left_over(&self, key: &Key) -> Result<(), Error> {
        let leases = self.left_over.with(|all| all.get(key).cloned()).unwrap_or_default();
        for lease in leases {
            match self.store.release(lease, OnRelease::Free).await {
                Err(error) if error.is_retryable() => {
                    let message = "an earlier request for this lock may have left a grant, which \
                                   could not be released yet; nothing was acquired; try again";
                    return Err(Error::new(ErrorKind::Unknown, message).with_source(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
