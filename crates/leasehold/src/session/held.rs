//! One lease that is held, shared by its guard and the driver.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::registry::Slot;
use super::{ReleaseInFlight, Session};
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::{LeaseLife, LeaseState, Lost};
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::store::{LeaseId, Renewal, Store};

/// One lease.
pub(crate) struct Held {
    pub(crate) id: LeaseId,
    /// What the store is asked to keep: the ttl and the lock delay.
    pub(crate) kept_ttl: Ttl,
    life: Mutex<LeaseLife>,
    /// Where it stands in the registry, which alone reads and writes this.
    slot: Mutex<Option<Slot>>,
    over: Notify,
}

impl Held {
    pub(super) fn new(id: LeaseId, kept_ttl: Ttl, life: LeaseLife) -> Arc<Self> {
        Arc::new(Self {
            id,
            kept_ttl,
            life: Mutex::new(life),
            slot: Mutex::default(),
            over: Notify::new(),
        })
    }

    pub(crate) fn owner(&self) -> &OwnerToken {
        &self.id.owner
    }

    pub(super) fn renewal(&self) -> Renewal {
        Renewal { lease: self.id.clone(), ttl: self.kept_ttl, at_least: None, reserve: 0 }
    }

    pub(super) fn slot(&self) -> Option<Slot> {
        *self.slot.lock().expect("a slot is only copied")
    }

    pub(super) fn set_slot(&self, slot: Option<Slot>) {
        *self.slot.lock().expect("a slot is only copied") = slot;
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

    /// Why it is not held: the deadline, unless the store said otherwise.
    pub(crate) fn why_lost(&self) -> Lost {
        match self.life().state() {
            LeaseState::Lost(lost) => lost,
            LeaseState::Held | LeaseState::Released => Lost::Deadline,
        }
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

    /// Asks the store now whether a lease is held, and restarts its ttl. A lease that is over is
    /// never asked for again.
    ///
    /// # Errors
    ///
    /// `Lost` if it is not held any more; else why the store could not be asked.
    pub(crate) async fn renew(self: &Arc<Self>, held: &Arc<Held>) -> Result<(), Error> {
        let sent = self.now();
        if !held.is_held(sent) {
            return Err(lost_error(held.why_lost()));
        }
        let answer = self.store.renew(held.renewal()).await;
        let counted = self.on_renewal(held, sent, answer.as_ref());
        match answer {
            Ok(_) if counted => Ok(()),
            _ if !held.is_held(self.now()) => Err(lost_error(held.why_lost())),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(
                ErrorKind::Unknown,
                "the store answered about another grant; the lock is held until its deadline",
            )),
        }
    }

    /// Stops renewing a lease, and watching its deadline, without releasing it.
    pub(crate) fn let_go(&self, held: &Held) {
        // Whether it was lost already makes no difference to one who lets go.
        let _was_held = held.life().release(self.now());
        self.registry.let_go(held);
    }
}

/// What a holder is told that goes on with a lease that is lost.
pub(crate) fn lost_error(lost: Lost) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the lock was lost: {lost}; another may hold it now, stop the protected work"),
    )
}
