//! All leases that are held, ordered by when they need attention, and all releases without
//! confirmation.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::Session;
use super::held::{Held, Slot};
use super::release::FollowUp;
use crate::core::lease::Duty;
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::unpoisoned::Unpoisoned;

/// How often the driver reads the clock while a lease is held. Runtime timers stop during suspend;
/// the clock does not.
const TICK: Duration = Duration::from_millis(100);

/// How long the driver stays after its last work. A loop of lock and release then does not start it
/// each time.
const LINGER: Duration = Duration::from_secs(1);

/// For how long a detached token is remembered. Late hints arrive sooner: MySQL deletes hints after
/// 30 s (`OLD_AFTER`).
const LET_GO_FOR: Duration = Duration::from_secs(60);

/// How many detached tokens are remembered even if they are old, and how many in all at most.
const LET_GO_MIN: usize = 1_024;
const LET_GO_MAX: usize = 65_536;

/// How many finished releases one acquisition handles, so that the releases of others do not delay
/// it.
const SETTLED_MAX: usize = 4;

/// How many releases of a shard run in the background at a time. After an outage that cost many
/// leases, the remaining leases have priority.
pub(super) const RELEASES_MAX: usize = 1_024;

/// The state that the driver shares with everybody else.
#[derive(Default)]
pub(super) struct Registry {
    state: Unpoisoned<State>,
    /// Wakes the driver.
    wake: Notify,
    /// Wakes a shutdown after the last release.
    drained: Notify,
}

#[derive(Default)]
struct State {
    /// Every lease that is held, by the time of its next duty: see [`Held::slot`].
    leases: BTreeMap<Slot, Arc<Held>>,
    adopted: u64,
    /// Tokens of detached leases, with the time when each was detached, latest last. The leases
    /// belong to others now, so a late hint must not release them.
    let_go: VecDeque<(Moment, OwnerToken)>,
    /// Releases that the driver has not taken over yet, by shard, latest last. A silent shard keeps
    /// back no release of another one.
    follow_ups: BTreeMap<u64, VecDeque<FollowUp>>,
    /// Acquisitions under way, whose leases and releases are not registered yet.
    asking: usize,
    /// Releases without confirmation, including those that the driver follows up.
    unconfirmed: usize,
    released: usize,
    driver: Driver,
}

impl State {
    fn outstanding(&self) -> usize {
        self.leases.len() + self.unconfirmed + self.asking
    }
}

/// The state of the driver.
#[derive(Clone, Copy, Default)]
enum Driver {
    #[default]
    Absent,
    SleepsUntil(Moment),
}

/// The work that is due now.
pub(super) struct Plan {
    pub(super) duties: Vec<(Arc<Held>, Due)>,
    /// Each with the shard under which it is counted. The lock may move to another one meanwhile.
    pub(super) follow_ups: Vec<(u64, FollowUp)>,
    /// When to look again. `None` if the driver may end; it counts as absent from then on.
    pub(super) next: Option<Moment>,
}

/// A duty that is due for a lease.
pub(super) enum Due {
    Renew,
    Lost(Lost),
    GiveUp,
}

impl State {
    fn forget(&mut self, held: &Held) {
        if let Some(slot) = held.slot() {
            self.leases.remove(&slot);
            held.set_slot(None);
        }
    }
}

impl Registry {
    /// Takes care of a lease from now on.
    pub(super) fn adopt(&self, session: &Arc<Session>, held: Arc<Held>) {
        let mut state = self.state.lock();
        let at = held.life().due();
        state.adopted += 1;
        let slot = (at, state.adopted);
        held.set_slot(Some(slot));
        state.leases.insert(slot, held);
        self.rouse(session, state, at);
    }

    /// Plans the next check of a lease for when its duty is due, unless it was forgotten meanwhile.
    /// Returns that moment.
    pub(super) fn reschedule(&self, held: &Held) -> Moment {
        let mut state = self.state.lock();
        // Read under the lock, because another task may just have made it earlier.
        let life = held.life();
        let at = life.due();
        let Some((before, number)) = held.slot() else { return at };
        if let Some(lease) = state.leases.remove(&(before, number)) {
            held.set_slot(Some((at, number)));
            state.leases.insert((at, number), lease);
        }
        drop(life);
        at
    }

    /// Looks at a lease when its duty is due, if that is earlier than planned.
    pub(super) fn hurry(&self, held: &Held) {
        let due = held.life().due();
        if held.slot().is_some_and(|(at, _)| at <= due) {
            return;
        }
        let due = self.reschedule(held);
        let is_late = match self.state.lock().driver {
            Driver::SleepsUntil(until) => due < until,
            Driver::Absent => false,
        };
        if is_late {
            self.look_now();
        }
    }

    /// Stops taking care of a lease.
    pub(super) fn forget(&self, held: &Held) {
        let mut state = self.state.lock();
        state.forget(held);
        self.tell_if_drained(state);
    }

    /// Stops taking care of a detached lease.
    pub(super) fn let_go(&self, held: &Held, now: Moment) {
        let mut state = self.state.lock();
        state.forget(held);
        let is_old = |(at, _): &(Moment, OwnerToken)| now.since(*at) > LET_GO_FOR;
        while state.let_go.len() >= LET_GO_MAX
            || state.let_go.len() >= LET_GO_MIN && state.let_go.front().is_some_and(is_old)
        {
            state.let_go.pop_front();
        }
        state.let_go.push_back((now, held.owner().clone()));
        self.tell_if_drained(state);
    }

    /// Whether the lease of `owner` is held here or was detached. This looks at all leases, so it
    /// is for rare cases only.
    pub(super) fn knows(&self, owner: &OwnerToken) -> bool {
        let state = self.state.lock();
        state.let_go.iter().any(|(_, it)| it == owner)
            || state.leases.values().any(|held| held.owner() == owner)
    }

    /// Notes that an acquisition begins.
    pub(super) fn asking_began(&self) {
        self.state.lock().asking += 1;
    }

    /// Notes that an acquisition has ended. Its lease or release is registered by now.
    pub(super) fn asking_ended(&self) {
        let mut state = self.state.lock();
        state.asking -= 1;
        self.tell_if_drained(state);
    }

    /// Notes that a release was submitted.
    pub(super) fn release_submitted(&self) {
        self.state.lock().unconfirmed += 1;
    }

    /// Notes that a release was answered or abandoned. `released` tells whether it ended a lease.
    pub(super) fn release_ended(&self, released: bool) {
        let mut state = self.state.lock();
        state.unconfirmed -= 1;
        state.released += usize::from(released);
        self.tell_if_drained(state);
    }

    /// How many releases are not confirmed.
    pub(super) fn unconfirmed(&self) -> usize {
        self.state.lock().unconfirmed
    }

    /// Leaves a release to the driver, which looks at it at its next tick.
    pub(super) fn follow_up(&self, session: &Arc<Session>, follow_up: FollowUp) {
        let shard = follow_up.shard();
        let mut state = self.state.lock();
        state.follow_ups.entry(shard).or_default().push_back(follow_up);
        let soon = session.now() + TICK;
        self.rouse(session, state, soon);
    }

    /// Handles releases of a shard that are answered already, the earliest first. When an answer
    /// arrives, earlier answers on the same connection have arrived too. This saves the driver
    /// later work on another thread.
    pub(super) fn settle(&self, session: &Arc<Session>, shard: u64) {
        for _ in 0..SETTLED_MAX {
            let first = self.state.lock().follow_ups.get_mut(&shard).and_then(VecDeque::pop_front);
            let Some(mut follow_up) = first else { return };
            if !follow_up.settle() {
                let mut state = self.state.lock();
                state.follow_ups.entry(shard).or_default().push_front(follow_up);
                // The driver may have ended meanwhile.
                let soon = session.now() + TICK;
                return self.rouse(session, state, soon);
            }
        }
    }

    /// Makes the driver look now.
    pub(super) fn look_now(&self) {
        self.wake.notify_one();
    }

    /// Makes sure that the driver looks at `at` or earlier.
    fn rouse(&self, session: &Arc<Session>, mut state: MutexGuard<'_, State>, at: Moment) {
        match state.driver {
            Driver::SleepsUntil(until) if until <= at => {}
            Driver::SleepsUntil(_) => {
                drop(state);
                self.look_now();
            }
            Driver::Absent => {
                state.driver = Driver::SleepsUntil(at.min(session.now() + TICK));
                drop(state);
                session.start_driver();
            }
        }
    }

    /// Handles the end of a driver that was dropped or panicked while at work. Its renewals count
    /// as unanswered, and another driver must continue.
    pub(super) fn driver_is_gone(&self, session: &Arc<Session>, had_begun: bool) {
        let now = session.now();
        let mut state = self.state.lock();
        state.driver = Driver::Absent;
        let leases = std::mem::take(&mut state.leases);
        for ((at, number), held) in leases {
            let mut life = held.life();
            life.abandon_renewal(now);
            // The next driver tells a loss again, but not at once, since it may panic every time.
            let slot = (if life.is_ours() { life.due() } else { at }, number);
            drop(life);
            held.set_slot(Some(slot));
            state.leases.insert(slot, held);
        }
        if !had_begun {
            // The host refused this driver and would refuse the next. The releases were submitted;
            // keeping them here would keep the session alive for ever.
            let abandoned = std::mem::take(&mut state.follow_ups);
            drop(state);
            drop(abandoned);
        } else if !state.leases.is_empty() || !state.follow_ups.is_empty() {
            self.rouse(session, state, now);
        }
    }

    /// The work that is due at `now`. `releasing` counts the releases of each shard that are under
    /// way, and those that the plan begins. The others stay here, in case the driver panics. `busy`
    /// tells whether the driver waits for answers, `idle_since` when it last had work.
    pub(super) fn plan(
        &self,
        now: Moment,
        releasing: &mut BTreeMap<u64, usize>,
        busy: bool,
        idle_since: &mut Moment,
    ) -> Plan {
        let mut state = self.state.lock();
        let mut duties = Vec::new();
        while let Some(entry) = state.leases.first_entry().filter(|entry| entry.key().0 <= now) {
            let (_, number) = *entry.key();
            let held = entry.remove();
            let mut life = held.life();
            let next = match life.duty(now) {
                Duty::WaitUntil(next) => Some(next),
                Duty::Renew => {
                    duties.push((Arc::clone(&held), Due::Renew));
                    Some(life.due())
                }
                Duty::GiveUp => {
                    duties.push((Arc::clone(&held), Due::GiveUp));
                    // A task may take the lease first. Then the lease gets its next duties like any
                    // other.
                    Some(now + TICK)
                }
                Duty::TellLost(lost) => {
                    duties.push((Arc::clone(&held), Due::Lost(lost)));
                    // A shutdown sees the lease until its release is submitted.
                    Some(now + TICK)
                }
                Duty::Forget => None,
            };
            let slot = next.map(|next| (next, number));
            held.set_slot(slot);
            // Unlock the life only now. Other code may make its next duty earlier, and must then
            // see this slot.
            drop(life);
            if let Some(slot) = slot {
                state.leases.insert(slot, held);
            }
        }
        let mut follow_ups = Vec::new();
        for (shard, waiting) in &mut state.follow_ups {
            let under_way = releasing.entry(*shard).or_default();
            let taken = waiting.len().min(RELEASES_MAX - *under_way);
            *under_way += taken;
            follow_ups.extend(waiting.drain(..taken).map(|follow_up| (*shard, follow_up)));
        }
        state.follow_ups.retain(|_, waiting| !waiting.is_empty());
        if busy || !duties.is_empty() || !follow_ups.is_empty() || !state.leases.is_empty() {
            *idle_since = now;
        }
        let next = if now.since(*idle_since) < LINGER {
            let tick = now + TICK;
            let first = state.leases.first_key_value();
            let earliest = first.map_or(tick, |((at, _), _)| tick.min(*at));
            state.driver = Driver::SleepsUntil(earliest);
            Some(earliest)
        } else {
            state.driver = Driver::Absent;
            None
        };
        self.tell_if_drained(state);
        Plan { duties, follow_ups, next }
    }

    pub(super) fn wake(&self) -> Notified<'_> {
        self.wake.notified()
    }

    pub(super) fn drained(&self) -> Notified<'_> {
        self.drained.notified()
    }

    /// Wakes a shutdown if nothing is outstanding. Unlocks the state first, since a waker may run
    /// any code.
    fn tell_if_drained(&self, state: MutexGuard<'_, State>) {
        let outstanding = state.outstanding();
        drop(state);
        if outstanding == 0 {
            self.drained.notify_waiters();
        }
    }

    /// How many leases are held, asked for, or released without confirmation.
    pub(super) fn outstanding(&self) -> usize {
        self.state.lock().outstanding()
    }

    pub(super) fn released(&self) -> usize {
        self.state.lock().released
    }
}

/// Counts an acquisition as under way while it exists.
pub(super) struct Counted(Arc<Session>);

impl Counted {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        session.registry.asking_began();
        Self(Arc::clone(session))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // In a copy of a fork, the mutex may be locked for ever.
        if self.0.is_here() {
            self.0.registry.asking_ended();
        }
    }
}
