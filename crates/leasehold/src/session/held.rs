//! A lease of this client, shared by its guard, the driver and the local line.

use std::future::pending;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use super::registry::Counted;
use super::spec::Spec;
use super::story::Story;
use crate::core::lease::{LeaseLife, LeaseState};
use crate::core::local_line::SharedLease;
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::process::Process;
use crate::store::{LeaseId, Renewal, Revocation};

/// The position of a lease in the registry: the time of its next duty, and a unique number.
pub(super) type Slot = (Moment, u64);

/// One lease.
pub(crate) struct Held {
    pub(crate) id: LeaseId,
    pub(super) spec: Arc<Spec>,
    life: Mutex<LeaseLife>,
    /// Whether another client is known to have waited in line.
    was_wanted: AtomicBool,
    /// Its position in the registry. Only the registry reads and writes this.
    slot: Mutex<Option<Slot>>,
    over: Notify,
    /// The first request to let go that a renewal reported.
    revoked: OnceLock<Arc<Revocation>>,
    /// The story of the guard that uses it, if a subscriber listens.
    story: Mutex<Option<Arc<Story>>>,
    loss_is_told: AtomicBool,
    /// Counts the lease as outstanding while the store keeps it for the lock delay and a guard is
    /// there. A shutdown waits for the release that the end of the guard sends.
    kept: Mutex<Kept>,
}

/// See [`Held::note_kept`].
#[derive(Default)]
struct Kept {
    counted: Option<Counted>,
    /// Whether the guard has ended, perhaps on another thread before the loss was noted.
    has_ended: bool,
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
            revoked: OnceLock::new(),
            story: Mutex::default(),
            loss_is_told: AtomicBool::new(false),
            kept: Mutex::default(),
        })
    }

    pub(super) fn owner(&self) -> &OwnerToken {
        &self.id.owner
    }

    /// How long the store keeps the lease at most if nobody does anything.
    pub(super) fn keeps_at_most(&self) -> Duration {
        self.spec.kept_ttl().get()
    }

    /// A renewal that leaves at `sent`.
    pub(super) fn renewal(&self, sent: Moment) -> Renewal {
        let mut life = self.life();
        let idle = life.show();
        let (lease, ttl) = (self.id.clone(), life.ttl_at(sent).with_delay(self.spec.lock_delay));
        drop(life);
        Renewal { lease, ttl, at_least: None, reserve: 0, idle }
    }

    /// Whether the store keeps the key for the lock delay, although the client could free it. The
    /// guard may still be at work, as after a pause of the process, and the delay is for that.
    pub(super) fn stays_for_delay(&self, lost: Lost) -> bool {
        lost == Lost::Deadline && !self.spec.lock_delay.is_zero() && self.life().is_in_use()
    }

    /// Notes that the lease [stays](Self::stays_for_delay).
    pub(super) fn note_kept(&self, counted: Counted) {
        let mut kept = self.kept.lock().expect("a count is only moved");
        if !kept.has_ended {
            kept.counted = Some(counted);
        }
    }

    /// Notes that the guard has ended. Futures that it made may still have this lease.
    pub(super) fn end_kept(&self) {
        let mut kept = self.kept.lock().expect("a count is only moved");
        kept.has_ended = true;
        let counted = kept.counted.take();
        drop(kept);
        drop(counted);
    }

    pub(super) fn slot(&self) -> Option<Slot> {
        *self.slot.lock().expect("a slot is only copied")
    }

    pub(super) fn set_slot(&self, slot: Option<Slot>) {
        *self.slot.lock().expect("a slot is only copied") = slot;
    }

    /// Notes that another client waits in line.
    pub(super) fn want(&self, now: Moment) {
        self.note_wanted(true);
        self.life().want(now);
    }

    /// Notes what the store said about another client in line. Once noted, it stays true, since
    /// staying away needlessly costs little.
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

    /// Takes the story of a guard that ends.
    pub(super) fn take_story(&self) -> Option<Arc<Story>> {
        self.story.lock().expect("a story is only moved").take()
    }

    /// Tells that the lease was lost, unless that was told before. Both the driver and the end of a
    /// guard notice a loss.
    pub(super) fn tell_loss(&self, story: Option<&Story>, now: Moment, lost: Lost) {
        let is_news = !self.loss_is_told.swap(true, Ordering::Relaxed);
        Story::lost(story, &self.id, now, lost, is_news);
    }

    pub(super) fn revocation(&self) -> Option<&Arc<Revocation>> {
        self.revoked.get()
    }

    /// Notes a request to let go that a renewal reported. Returns whether it is news, which the
    /// caller must tell.
    pub(super) fn revoke(&self, revoked: &Arc<Revocation>) -> bool {
        self.revoked.set(Arc::clone(revoked)).is_ok()
    }

    /// Wakes the tasks that wait for the loss or for a request to let go, after the state changed.
    pub(super) fn tell(&self) {
        self.over.notify_waiters();
    }

    /// Ends when the lease is lost during that turn. Never ends if the turn ends first.
    pub(super) async fn lost(self: Arc<Self>, turn: u64, process: Process) -> Lost {
        if !process.is_this() {
            return Lost::NotOurs;
        }
        loop {
            // Create this before the state is read, so that no change in between is missed.
            let over = self.over.notified();
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

    /// Ends when the holder is asked to let go during that turn. Never ends if the turn ends first
    /// or the lease is lost.
    pub(super) async fn revoked(self: Arc<Self>, turn: u64, process: Process) -> Arc<Revocation> {
        if !process.is_this() {
            return pending().await;
        }
        loop {
            // Create this before the state is read, so that no change in between is missed.
            let over = self.over.notified();
            let is_on = {
                let life = self.life();
                life.is_turn(turn) && life.state() == LeaseState::Held
            };
            match self.revoked.get() {
                _ if !is_on => pending().await,
                Some(revoked) => return Arc::clone(revoked),
                None => over.await,
            }
        }
    }
}

impl SharedLease for Arc<Held> {
    type Settings = Arc<Spec>;

    fn settings(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn life(&self) -> impl DerefMut<Target = LeaseLife> + '_ {
        Held::life(self)
    }

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}
