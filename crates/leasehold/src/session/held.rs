//! One lease that is held, shared by its guard and the driver.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::registry::Place;
use super::{ReleaseInFlight, Session};
use crate::core::lease::{LeaseLife, LeaseState, Lost};
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::store::{LeaseId, Renewal};

/// One lease.
pub(crate) struct Held {
    pub(crate) id: LeaseId,
    /// What the store is asked to keep: the ttl and the lock delay.
    pub(crate) kept_ttl: Ttl,
    life: Mutex<LeaseLife>,
    /// Where it stands in the registry, which alone reads and writes this.
    place: Mutex<Option<Place>>,
    over: Notify,
}

impl Held {
    pub(super) fn new(id: LeaseId, kept_ttl: Ttl, life: LeaseLife) -> Arc<Self> {
        Arc::new(Self {
            id,
            kept_ttl,
            life: Mutex::new(life),
            place: Mutex::default(),
            over: Notify::new(),
        })
    }

    pub(crate) fn owner(&self) -> &OwnerToken {
        &self.id.owner
    }

    pub(crate) fn renewal(&self) -> Renewal {
        Renewal { lease: self.id.clone(), ttl: self.kept_ttl, at_least: None, reserve: 0 }
    }

    pub(super) fn place(&self) -> Option<Place> {
        *self.place.lock().expect("a place is only copied")
    }

    pub(super) fn set_place(&self, place: Option<Place>) {
        *self.place.lock().expect("a place is only copied") = place;
    }

    pub(super) fn life(&self) -> MutexGuard<'_, LeaseLife> {
        self.life.lock().expect("no decision about a lease panics")
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        self.life().is_held(now)
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.life().remaining(now)
    }

    pub(crate) fn state(&self) -> LeaseState {
        self.life().state()
    }

    pub(crate) fn fencing(&self) -> Option<FencingBlock> {
        self.life().fencing()
    }

    /// Wakes who waits in [`lost`](Self::lost), after the state changed.
    pub(super) fn tell(&self) {
        self.over.notify_waiters();
    }

    /// Ends when the lease is lost. Never, if it was released.
    pub(crate) async fn lost(self: Arc<Self>) -> Lost {
        loop {
            let mut over = pin!(self.over.notified());
            // Enabled before the state is read: a change between the two is not missed.
            over.as_mut().enable();
            let state = self.life().state();
            match state {
                LeaseState::Lost(lost) => return lost,
                LeaseState::Released => pending().await,
                LeaseState::Held => over.await,
            }
        }
    }
}

impl Session {
    /// Gives a lease up: from here on it is not held. Submits its release, unless it was lost
    /// already.
    pub(crate) fn give_up(self: &Arc<Self>, held: &Arc<Held>) -> Option<ReleaseInFlight> {
        let given_up = held.life().release(self.now());
        let release = match given_up {
            // Submitted before it is forgotten, so that a shutdown sees one or the other at every
            // moment.
            Ok(()) => Some(ReleaseInFlight::submit(
                Arc::clone(self),
                held.id.clone(),
                held.kept_ttl.get(),
            )),
            Err(lost) => {
                if lost == Lost::Deadline {
                    // The driver may not have noticed yet. A second release does no harm.
                    self.release_in_background(held.id.clone(), held.kept_ttl.get());
                }
                held.tell();
                None
            }
        };
        self.registry.forget(held);
        release
    }

    /// Stops renewing a lease, and watching its deadline, without releasing it.
    pub(crate) fn let_go(&self, held: &Held) {
        // Whether it was lost already makes no difference to one who lets go.
        let _was_held = held.life().release(self.now());
        self.registry.forget(held);
    }
}
