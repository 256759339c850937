//! A lease of this client, and the turns of the guards that use it one after another.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;

use super::Session;
use super::part::Parted;
use super::registry::Slot;
use super::spec::Spec;
use super::story::{Ending, Story};
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::{LeaseLife, LeaseState, Lost, Turn};
use crate::core::moment::Moment;
use crate::core::token::{FencingToken, OwnerToken};
use crate::process::Process;
use crate::store::{LeaseId, Renewal, Store};

/// One lease, shared by its guard, the driver and the local line.
pub(crate) struct Held {
    pub(crate) id: LeaseId,
    pub(super) spec: Arc<Spec>,
    life: Mutex<LeaseLife>,
    /// Whether another client is known to have waited in line.
    was_wanted: AtomicBool,
    /// Its position in the registry. Only the registry reads and writes this.
    slot: Mutex<Option<Slot>>,
    over: Notify,
    /// The story of the guard that uses it, if a subscriber listens.
    story: Mutex<Option<Arc<Story>>>,
    loss_is_told: AtomicBool,
}

impl Held {
    pub(super) fn new(id: LeaseId, spec: Arc<Spec>, life: LeaseLife) -> Arc<Self> {
        Arc::new(Self {
            id,
            spec,
            life: Mutex::new(life),
            was_wanted: AtomicBool::new(false),
            slot: Mutex::default(),
            over: Notify::new(),
            story: Mutex::default(),
            loss_is_told: AtomicBool::new(false),
        })
    }

    pub(super) fn owner(&self) -> &OwnerToken {
        &self.id.owner
    }

    /// How long the store keeps the lease at most if nobody does anything.
    pub(super) fn keeps_at_most(&self) -> Duration {
        self.spec.kept_ttl().get()
    }

    /// A renewal that leaves now.
    pub(super) fn renewal(&self) -> Renewal {
        let idle = self.life().show();
        let (lease, ttl) = (self.id.clone(), self.spec.kept_ttl());
        Renewal { lease, ttl, at_least: None, reserve: 0, idle }
    }

    pub(super) fn slot(&self) -> Option<Slot> {
        *self.slot.lock().expect("a slot is only copied")
    }

    pub(super) fn set_slot(&self, slot: Option<Slot>) {
        *self.slot.lock().expect("a slot is only copied") = slot;
    }

    /// Another client waits in line.
    pub(super) fn want(&self, now: Moment) {
        self.note_wanted(true);
        self.life().want(now);
    }

    /// The store said whether another client waits in line. Earlier news stays true: staying away
    /// needlessly costs little.
    pub(super) fn note_wanted(&self, wanted: bool) {
        self.was_wanted.fetch_or(wanted, Ordering::Relaxed);
    }

    /// Whether another client is known to have waited in line.
    pub(super) fn was_wanted(&self) -> bool {
        self.was_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn life(&self) -> MutexGuard<'_, LeaseLife> {
        self.life.lock().expect("no decision about a lease panics")
    }

    pub(super) fn story(&self) -> Option<Arc<Story>> {
        self.story.lock().expect("a story is only moved").clone()
    }

    pub(super) fn begin_story(&self, story: Arc<Story>) {
        *self.story.lock().expect("a story is only moved") = Some(story);
    }

    /// The story of a guard that ends.
    pub(super) fn take_story(&self) -> Option<Arc<Story>> {
        self.story.lock().expect("a story is only moved").take()
    }

    /// Notes that the loss is told. Returns whether this is news.
    pub(super) fn note_loss_told(&self) -> bool {
        !self.loss_is_told.swap(true, Ordering::Relaxed)
    }

    /// Wakes the tasks that wait for the loss, after the state changed.
    pub(super) fn tell(&self) {
        self.over.notify_waiters();
    }

    /// Ends when the lease is lost during that turn. Never ends if the turn ends first.
    async fn lost(self: Arc<Self>, turn: u64, process: Process) -> Lost {
        if !process.is_this() {
            return Lost::NotOurs;
        }
        loop {
            let mut over = pin!(self.over.notified());
            // Registered before the state is read, so that no change in between is missed.
            over.as_mut().enable();
            let (state, is_on) = {
                let life = self.life();
                (life.state(), life.is_turn(turn))
            };
            match state {
                _ if !is_on => pending().await,
                LeaseState::Lost(lost) => return lost,
                LeaseState::Held => over.await,
                LeaseState::Idle { .. } | LeaseState::Released => pending().await,
            }
        }
    }
}

/// The turn of a guard with a lease. Dropping it ends the turn.
pub(crate) struct Hold {
    session: Arc<Session>,
    held: Arc<Held>,
    turn: Turn,
    has_ended: bool,
}

impl Hold {
    pub(super) fn new(session: Arc<Session>, held: Arc<Held>, turn: Turn) -> Self {
        Self { session, held, turn, has_ended: false }
    }

    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn id(&self) -> &LeaseId {
        &self.held.id
    }

    pub(crate) fn fencing(&self) -> Option<FencingToken> {
        self.turn.fencing
    }

    /// Whether the store granted the lease to this very guard.
    pub(super) const fn is_first_turn(&self) -> bool {
        self.turn.number == 0
    }

    pub(crate) fn is_held(&self) -> bool {
        self.session.is_here() && self.held.life().is_held(self.turn.number, self.session.now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        if !self.session.is_here() {
            return Duration::ZERO;
        }
        self.held.life().remaining(self.turn.number, self.session.now())
    }

    /// Why the lease is not held: the deadline, unless the store said otherwise.
    pub(crate) fn why_lost(&self) -> Lost {
        if !self.session.is_here() {
            return Lost::NotOurs;
        }
        match self.held.life().state() {
            LeaseState::Lost(lost) => lost,
            _ => Lost::Deadline,
        }
    }

    /// Ends when the lease is lost. Never ends if this turn ends first.
    pub(crate) fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        Arc::clone(&self.held).lost(self.turn.number, self.session.process)
    }

    /// Asks the store whether the lease is held, and restarts its ttl. Sends nothing if the lease
    /// is over.
    ///
    /// # Errors
    ///
    /// `Lost` if it is no longer held. `Config` in a copy of a fork. Otherwise the error of the
    /// store if it gives no answer.
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        self.session.check_here()?;
        let sent = self.session.now();
        if !self.is_held() {
            return Err(lost_error(self.why_lost()));
        }
        let answer = self.session.store.renew(self.held.renewal()).await;
        let counted = self.session.on_renewal(&self.held, sent, answer.as_ref());
        match answer {
            Ok(_) if counted => Ok(()),
            _ if !self.is_held() => Err(lost_error(self.why_lost())),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(
                ErrorKind::Unknown,
                "the store answered about another grant; the lock is held until its deadline",
            )),
        }
    }

    /// Ends this turn. If the lease is not passed on or kept, its release is submitted before this
    /// returns.
    ///
    /// # Errors
    ///
    /// `Config` in a copy of a fork.
    pub(crate) fn part(mut self) -> Result<Parted, Error> {
        // On failure, the drop leaves the copy as it is.
        self.session.check_here()?;
        self.has_ended = true;
        Ok(self.session.part(&self.held, self.turn.number, Ending::Released))
    }

    /// Stops renewing the lease and watching its deadline, without releasing it. Stops nothing in a
    /// copy of a fork.
    pub(crate) fn let_go(mut self) -> OwnerToken {
        if !self.session.is_here() {
            return self.held.owner().clone();
        }
        self.has_ended = true;
        // It makes no difference to the caller whether the lease was lost already.
        let was_held = self.held.life().release(self.session.now());
        self.session.store.let_go(&self.held.id);
        self.session.registry.let_go(&self.held);
        self.session.forget_lease(&self.held);
        let story = self.held.take_story();
        match was_held {
            Ok(()) => self.session.tell_detached(&self.held, story),
            Err(lost) => self.session.tell_loss(&self.held, story, lost),
        }
        self.held.owner().clone()
    }

    /// The next task did not take it: the caller keeps the lease. Returns the turn.
    pub(super) fn disarm(mut self) -> u64 {
        self.has_ended = true;
        self.turn.number
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if !self.session.is_here() {
            std::mem::forget(Arc::clone(&self.held));
            return self.session.leave_copy();
        }
        drop(self.session.part(&self.held, self.turn.number, Ending::Dropped));
    }
}

/// The error for a holder that continues with a lost lease.
pub(crate) fn lost_error(lost: Lost) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("the lock was lost: {lost}; another may hold it now, stop the protected work"),
    )
}
