//! The part that a store and its clones share: terms, quarantines, and the copies of a grant.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Shared;
use super::scripts::reply;
use super::scripts::scripted::Scripted;
use super::scripts::step::Step;
use super::terms::copies::Shortfall;
use super::terms::{Terms, quarantine};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::store::{Acquired, LeaseId, OnRelease, Quarantine, Refusal};

impl Shared {
    /// The terms as far as they are known.
    pub(super) fn terms(&self) -> Terms {
        self.access.terms()
    }

    /// Refuses to work in a forked copy of the process. Refuses terms and names that a cluster
    /// cannot keep.
    pub(super) fn check_here(&self, key: &Key) -> Result<(), Error> {
        let here = self.process.check().and_then(|()| self.servers.check_terms(&self.access.terms));
        here.map_err(|error| error.with_name(key.as_str()))?;
        self.servers.check(key)
    }

    /// Looks whether the server is quarantined. Only a strict server can be.
    pub(super) fn quarantine(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Option<Quarantine>, Error>> + use<> {
        let shared = Arc::clone(self);
        let look = move || {
            let strict = shared.terms().strict.strict();
            // On the heap, because it is large and rarely needed.
            strict.map(|strict| Box::pin(quarantine::look(strict, shared.servers.asks())))
        };
        let looking = look();
        async move {
            // The first connection may have found out meanwhile that the database is strict.
            match looking.or_else(look) {
                Some(looking) => looking.await,
                None => Ok(None),
            }
        }
    }

    /// Returns the answer. A grant without enough copies is released, and becomes a refusal. Any
    /// other grant is noted, because it shows that reports of changes of the key are useful.
    pub(super) async fn confirmed(
        &self,
        answer: Acquired,
        confirmed: Result<(), Shortfall>,
        lease: LeaseId,
        limit: Duration,
    ) -> Result<Acquired, Error> {
        if !matches!(answer, Acquired::Granted { .. }) {
            return Ok(answer);
        }
        let Err(shortfall) = confirmed else {
            self.servers.granted(&lease.key);
            return Ok(answer);
        };
        let key = lease.key.clone();
        self.spent.add(&key, &lease.owner);
        let release = Scripted::new(Step::Release(lease, OnRelease::Free)).on(&self.access.terms);
        let released = self.servers.asks().submit(limit, release).await;
        match released.and_then(|answer| reply::released(&key, &answer)) {
            Ok(_) => {
                let error = shortfall.granted().with_name(key.as_str());
                Ok(Refusal::too_few_copies(error).into())
            }
            Err(cause) => Err(shortfall.left_behind(cause).with_name(key.as_str())),
        }
    }

    /// Logs once that this user has no right to publish. Its releases wake no waiters.
    pub(super) fn notice_muteness(&self, mute: bool) {
        if mute && !self.told_of_mute.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.label,
                "no right to publish; clients that wait for this client's locks must poll"
            );
        }
    }
}
