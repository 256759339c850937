//! The end of a guard: its lease is passed on, kept idle or released.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::asker::Asker;
use super::held::{Held, Hold};
use super::leaving::{Leaving, Left};
use super::local_line::Told;
use super::story::Ending;
use super::{LISTENS_FOR, ReleaseInFlight, Session};
use crate::core::key::Key;
use crate::core::lease::{Lost, Parting};
use crate::core::passing::given_way;
use crate::host::random_u32;
use crate::store::Store;

/// The outcome for the lease.
pub(crate) enum Parted {
    /// Another task of this client has it now.
    Passed,
    /// This client keeps it idle.
    Idle,
    /// Its release was submitted.
    Releasing(ReleaseInFlight),
    /// Its release was submitted, and the next task of this client also waits for the answer.
    Leaving(Left),
    /// It was lost before.
    Lost(Lost),
    /// It was released before.
    Over,
}

impl Session {
    /// Ends a guard's turn with a lease.
    pub(super) fn part(self: &Arc<Self>, held: &Arc<Held>, turn: u64, ending: Ending) -> Parted {
        // The next guard begins a story of its own as soon as it has the lease.
        let story = held.take_story();
        let parted = self.end_turn(held, turn);
        self.tell_end(held, story, ending, &parted);
        parted
    }

    fn end_turn(self: &Arc<Self>, held: &Arc<Held>, mut turn: u64) -> Parted {
        let key = &held.id.key;
        loop {
            let now = self.now();
            let (parting, heir) = self.lines.with(key, |line| {
                let is_ours = line.is_lease(held);
                let has_heir = is_ours && !line.has_asker && line.has_heir(&held.spec);
                let is_wanted_here = line.has_asker || line.has_tasks();
                let keep_idle =
                    if is_ours && !is_wanted_here { self.keep_idle(held) } else { Duration::ZERO };
                let parting = held.life().part(now, turn, has_heir, keep_idle);
                let heir = match parting {
                    Parting::Pass(_) | Parting::Leave => line.next(),
                    Parting::Idle => None,
                    Parting::Free | Parting::Lost(_) | Parting::Over => None,
                };
                if !matches!(parting, Parting::Pass(_) | Parting::Idle) {
                    line.forget(held);
                }
                line.has_asker |= parting == Parting::Leave;
                (parting, heir)
            });
            match (parting, heir) {
                (Parting::Pass(next), Some(heir)) => {
                    let hold = Hold::new(Arc::clone(self), Arc::clone(held), next);
                    match heir.tell.send(Told::Passed(hold)) {
                        Ok(()) => return Parted::Passed,
                        // Its future was dropped meanwhile: try the next task.
                        Err(Told::Passed(hold)) => turn = hold.disarm(),
                        Err(_) => unreachable!("what comes back is what was sent"),
                    }
                }
                (Parting::Leave, Some(heir)) => {
                    let (leaving, parted) = self.leave(held);
                    let asker = Asker::next(self, Arc::clone(&held.spec), leaving);
                    // If that task is gone, the asker goes to the next one by itself.
                    drop(heir.tell.send(Told::Ask(asker)));
                    return parted;
                }
                (Parting::Pass(_) | Parting::Leave, None) => {
                    unreachable!("it is passed on to who waits")
                }
                (Parting::Idle, _) => {
                    self.registry.hurry(held);
                    self.listen();
                    return Parted::Idle;
                }
                (Parting::Free, _) => {
                    // Submit it before the lease is forgotten, so that a shutdown always sees one
                    // of the two.
                    let release = self.release(held).by_holder();
                    self.registry.forget(held);
                    self.settle(key);
                    return Parted::Releasing(release);
                }
                (Parting::Lost(lost), _) => {
                    if lost == Lost::Deadline {
                        // The driver may not have noticed yet. A second release is harmless.
                        drop(self.release(held));
                    }
                    held.tell();
                    self.registry.forget(held);
                    self.settle(key);
                    return Parted::Lost(lost);
                }
                (Parting::Over, _) => return Parted::Over,
            }
        }
    }

    /// Releases a lease that the next task will ask for again. If clients may wait that do not
    /// queue, the store cannot decide whether this client may keep it.
    fn leave(self: &Arc<Self>, held: &Arc<Held>) -> (Option<Leaving>, Parted) {
        if !held.spec.others_wait_unseen() {
            let leaving = Leaving::submit(self, held);
            let answer = leaving.answer();
            return (Some(leaving), Parted::Leaving(answer));
        }
        let release = self.release(held).by_holder();
        self.rest(held);
        self.registry.forget(held);
        (None, Parted::Releasing(release))
    }

    /// Stays away for a while from a key that others should get a chance at.
    fn rest(&self, held: &Held) {
        if held.spec.coexist {
            let now = self.now();
            let until = now + given_way(random_u32(&*self.host));
            self.rests.begin(&held.id.key, now, until);
        }
    }

    /// How long a lease may be kept idle.
    fn keep_idle(&self, held: &Held) -> Duration {
        // Nobody could take it any more.
        let is_of_no_use = self.unused.load(Ordering::Acquire) || self.check_open().is_err();
        if is_of_no_use { Duration::ZERO } else { held.spec.keep_idle }
    }

    /// Submits the release of a lease.
    fn release(self: &Arc<Self>, held: &Held) -> ReleaseInFlight {
        if held.was_wanted() {
            self.rest(held);
        }
        let (lease, on_release) = (held.id.clone(), held.spec.on_release());
        ReleaseInFlight::submit(Arc::clone(self), lease, on_release, held.keeps_at_most())
    }

    /// Releases a lease whose life has ended here.
    pub(super) fn end(self: &Arc<Self>, held: &Arc<Held>) {
        // Submit it before the lease is forgotten, so that a shutdown always sees one of the two.
        drop(self.release(held));
        self.registry.forget(held);
        self.forget_lease(held);
    }

    /// Releases a lease if no guard uses it.
    pub(super) fn end_if_idle(self: &Arc<Self>, held: &Arc<Held>) {
        let now = self.now();
        let ended = self.lines.with(&held.id.key, |line| {
            let mut life = held.life();
            let is_idle = life.is_idle();
            if is_idle {
                // The driver notices a passed deadline. A release is harmless.
                let _was_ours = life.release(now);
                line.forget(held);
            }
            is_idle
        });
        if ended {
            self.end(held);
        }
    }

    /// Releases every lease that no guard uses.
    pub(super) fn end_all_idle(self: &Arc<Self>) {
        let mut leases = Vec::new();
        self.lines.with_each(|line| leases.extend(line.lease.clone()));
        for lease in leases {
            self.end_if_idle(&lease);
        }
    }

    /// Adds a lease that the tasks of this client may pass on from now on.
    pub(super) fn enter_lease(&self, held: &Arc<Held>) {
        let now = self.now();
        self.lines.with(&held.id.key, |line| {
            if std::mem::take(&mut line.was_wanted) {
                held.want(now);
            }
            line.lease = Some(Arc::clone(held));
        });
    }

    /// Removes a lease that cannot be passed on any more: waiting tasks must ask.
    pub(super) fn forget_lease(self: &Arc<Self>, held: &Arc<Held>) {
        self.lines.with(&held.id.key, |line| line.forget(held));
        self.settle(&held.id.key);
    }

    /// Makes the first task of a line ask, if it must.
    pub(super) fn settle(self: &Arc<Self>, key: &Key) {
        while let Some(task) = self.lines.with(key, |line| line.next_asker()) {
            let asker = Asker::next(self, task.spec, None);
            match task.tell.send(Told::Ask(asker)) {
                Ok(()) => return,
                Err(Told::Ask(asker)) => {
                    // It has not asked yet, so only the right to ask is passed on.
                    asker.discard();
                    self.lines.with(key, |line| line.has_asker = false);
                }
                Err(_) => unreachable!("what comes back is what was sent"),
            }
        }
    }

    /// Asks the store to report other clients that wait.
    pub(super) fn listen(&self) {
        let now = self.now();
        if now.as_nanos() >= self.listens_again_at.load(Ordering::Relaxed) {
            self.listens_again_at.store((now + LISTENS_FOR).as_nanos(), Ordering::Relaxed);
            self.store.listen(&self.id);
        }
    }
}
