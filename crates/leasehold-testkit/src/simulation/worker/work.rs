//! Takes locks: tries, waits, holds, renews, releases, and drops futures where the plan says so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::{ErrorKind, Guard, Lost};

use super::{Worker, outcome_of};
use crate::history::event::{CallKind, Name, Outcome, Share, WindowId};
use crate::simulation::parting::part;
use crate::simulation::plan::Sharing;
use crate::simulation::renewing::Renewing;
use crate::simulation::terms::Terms;
use crate::simulation::world::Supervised;
use crate::simulation::worlds::{
    COUNTER_KEPT_FOR, Detached, Kept, downgrade, goes_over, hand_on, learn, leave_early,
    leave_guard, long_span, operate, resize, run_once, share, take_several,
};
use crate::{cut_after, cut_when_woken};

/// How often the tasks of a hot client rush for their lock, and how often each takes it at most.
const RUSHES_EVERY: Duration = Duration::from_secs(3);
const RUSH_MAX: usize = 60;

/// The number of the way that tries once, and of the way that waits without a limit.
const TRIES: usize = 0;
const LOCKS: usize = 9;

/// How many ways end by themselves.
const LIMITED: usize = 6;

impl Worker {
    /// Tries to take one lock of a crowd. Holds it until `until`, or until it is lost.
    pub(in crate::simulation) async fn hold_one_of_many(mut self, key: Name, until: Moment) {
        let terms = Terms::of_one_of_many(&self.world.plan, self.number);
        let Some((window, guard)) = self.lock(&key, &terms, TRIES).await else { return };
        let span = until.since(self.now());
        self.hold(&key, window, guard, span, &terms).await;
        self.world.did("held in a crowd");
    }

    /// Takes locks until `until`, or until the run ends.
    pub(in crate::simulation) async fn work(mut self, until: Option<Moment>) {
        while self.goes_on(until) {
            let key = Arc::clone(&self.keys[self.random.below(self.keys.len())]);
            let terms = self.terms(&key).await;
            if self.world.plan.takes_several && self.random.once_in(4) {
                take_several(&mut self, &terms).await;
            }
            if self.world.plan.runs_once && self.random.once_in(6) {
                run_once(&mut self, &key).await;
            }
            if self.world.plan.is_operated && self.random.once_in(12) {
                operate(&mut self, &key).await;
            }
            // A waiter asks every second, which would be too much for hours.
            let ways = if self.world.plan.pace > 1 { LIMITED } else { LOCKS + 1 };
            let way = self.random.below(ways);
            if let Some((window, guard)) = self.lock(&key, &terms, way).await {
                self.use_lock(&key, window, guard, &terms).await;
            }
            if self.random.once_in(30) {
                // An inspection may return anything, but changes nothing.
                let _looked = cut_after(50, self.client.inspect(self.name_of(&key))).await;
            }
            self.pause(self.world.plan.pause_ms()).await;
            if self.world.plan.clients[self.number].is_hot {
                self.rush().await;
            }
        }
    }

    /// Holds a lock for a while: by itself, or as the world's supervisor says.
    async fn use_lock(&mut self, key: &Name, window: WindowId, guard: Arc<Guard>, terms: &Terms) {
        if let Some(supervisor) = self.world.supervisor.clone() {
            let (world, process) = (Arc::clone(&self.world), self.process.clone());
            let about = (Arc::clone(key), terms.ttl, self.random.next_u64());
            let lock = Supervised::new(world, window, process, guard, about);
            return supervisor.hold(lock).await;
        }
        let span = self.span();
        let span = goes_over(self, (terms.max_hold, terms.ttl), span);
        self.hold(key, window, guard, span, terms).await;
    }

    /// Takes one lock again and again, at the same time as the other tasks of its client.
    async fn rush(&mut self) {
        let now = self.process.now().as_nanos();
        let begins = now.next_multiple_of(u64::try_from(RUSHES_EVERY.as_nanos()).expect("small"));
        self.process.sleep_until(Moment::from_nanos(begins)).await;
        let key = Arc::clone(&self.keys[self.number % self.keys.len()]);
        for _ in 0..self.random.below(RUSH_MAX) {
            // Slow acquisitions would let a rush go on for minutes after the end.
            if !self.world.goes_on() {
                return;
            }
            let terms = self.terms(&key).await;
            let Some((window, guard)) = self.lock(&key, &terms, LOCKS).await else { return };
            let span = Duration::from_nanos(self.random.next_u64() % 200_000);
            self.hold(&key, window, guard, span, &terms).await;
        }
    }

    /// Draws the terms of the next lock.
    async fn terms(&mut self, key: &Name) -> Terms {
        let mut terms = Terms::draw(&self.world.plan, self.number, &mut self.random);
        if self.world.supervisor.is_some() {
            // A supervised holder counts its lock as free when it has ended.
            (terms.min_hold, terms.max_hold) = (Duration::ZERO, None);
        }
        let Some(sharing) = self.world.plan.sharing else { return terms };
        let is_resized = matches!(sharing, Sharing::Permits { is_resized: true, .. });
        if is_resized && self.random.once_in(25) {
            resize(self, key).await;
        }
        let of = self.world.permits(key);
        terms.of_share(share(sharing, of, &mut self.random))
    }

    /// Takes the lock in one of the ways. Sometimes the call is dropped half way.
    async fn lock(
        &mut self,
        key: &Name,
        terms: &Terms,
        way: usize,
    ) -> Option<(WindowId, Arc<Guard>)> {
        let mutex = terms.lock(&self.client, self.name_of(key));
        let (polls, is_woken) = (self.cut(), self.random.once_in(2));
        let wait = self.ms(2_500);
        let (kind, limit) = match way {
            0..3 => (CallKind::TryLock, Some(2 * self.request_limit())),
            3..6 => (CallKind::Lock, Some(wait + self.request_limit())),
            _ => (CallKind::Lock, None),
        };
        let call = self.world.called(&self.process, key, kind, limit);
        if self.world.plan.sharing.is_some() {
            self.world.wants(call, terms.share);
        }
        let locking = async {
            match way {
                0..3 => mutex.try_lock().await,
                3..6 => mutex.lock_timeout(wait).await.map(Some),
                _ => mutex.lock().await.map(Some),
            }
        };
        let locking = self.world.log.during([(Arc::clone(key), call)], locking);
        let locked = if is_woken {
            cut_when_woken(polls, locking).await
        } else {
            cut_after(polls, locking).await
        };
        match locked {
            None => self.world.returned(call, Outcome::Dropped),
            Some(Ok(None)) => self.world.returned(call, Outcome::Taken),
            Some(Err(error)) => {
                self.world.returned(call, outcome_of(&error));
                if error.kind() == ErrorKind::Config {
                    learn(self, key).await;
                }
            }
            Some(Ok(Some(guard))) => {
                let guard = Arc::new(guard);
                let window = self.world.granted(call, &self.process, key, &guard);
                if self.world.plan.sharing.is_some() {
                    self.world.shares(window, terms.share);
                }
                if let Some(span) = terms.max_hold {
                    self.world.holds_for(window, &self.process, span);
                }
                if self.world.plan.clients[self.number].namespace.is_some() {
                    self.world.did("granted in a namespace");
                }
                self.world.returned(call, Outcome::Granted);
                return Some((window, guard));
            }
        }
        None
    }

    /// Holds the lock for a while, or until its loss is reported, and gives it up.
    async fn hold(
        &mut self,
        key: &Name,
        window: WindowId,
        guard: Arc<Guard>,
        span: Duration,
        terms: &Terms,
    ) {
        // A lease that goes on without its guard has no limit.
        let may_go_on = terms.max_hold.is_none();
        let detaches = may_go_on && self.world.plan.detaches && self.random.once_in(4);
        let keeps = may_go_on && !detaches && self.world.plan.keeps;
        let leaves_taken = keeps && self.random.once_in(12);
        let keep_idle = if detaches { Duration::ZERO } else { terms.keep_idle };
        let granted = self.process.now();
        let until = granted + span;
        let renews = self.random.once_in(8);
        let lost = {
            let mut lost = pin!(guard.lost());
            let mut working = pin!(self.busy(key, &guard, until, renews));
            std::future::poll_fn(|context| {
                use std::task::Poll;
                match lost.as_mut().poll(context) {
                    Poll::Ready(why) => Poll::Ready(Some(why)),
                    Poll::Pending => working.as_mut().poll(context).map(|()| None),
                }
            })
            .await
        };
        if lost == Some(Lost::MaxHold) {
            self.world.did("held for as long as allowed");
        }
        let lost = lost.is_some();
        let is_early = !lost && self.now() < granted + terms.min_hold;
        if lost {
            self.world.told_lost(window);
            // Work takes a while to stop. Meanwhile a lost lease must stay lost.
            self.pause(100).await;
            self.world.looks_again(&self.process, window, &guard);
        } else if !detaches && !leaves_taken && !is_early {
            self.world.gives_up(window, keep_idle);
        }
        if !lost && span > COUNTER_KEPT_FOR {
            self.world.did("held for longer than a counter is kept");
        }
        let Some(guard) = Arc::into_inner(guard) else { unreachable!("nobody keeps a guard") };
        if detaches && !lost {
            let until = self.now() + guard.remaining();
            self.world.relies_until(window, until);
            let (key, token) = (Arc::clone(key), guard.detach());
            return hand_on(self, Detached { key, token, window, ttl: terms.ttl, until }).await;
        }
        if leaves_taken && !lost {
            return leave_guard(self, (key, window), guard, (granted, terms.ttl)).await;
        }
        if is_early {
            let kept = Kept { granted, ttl: terms.ttl, span: terms.min_hold };
            return leave_early(self, (key, window), guard, kept).await;
        }
        if !lost && self.may_downgrade(terms) {
            return downgrade(self, key, guard, terms).await;
        }
        part(self, key, guard).await;
    }

    fn may_downgrade(&mut self, terms: &Terms) -> bool {
        let shares = self.world.plan.sharing == Some(Sharing::Readers);
        shares && terms.share == Share::Alone && self.random.once_in(3)
    }

    /// How long it holds the lock.
    fn span(&mut self) -> Duration {
        let ttl = self.ttl();
        let pace = self.world.plan.pace;
        if pace > 1 && self.random.once_in(6) {
            return long_span(&mut self.random, ttl);
        }
        let ttl_ms = ttl.as_millis();
        let ttl_ms = u64::try_from(ttl_ms).unwrap_or(u64::MAX);
        // The effects of a failover, or of a late renewal, show only in leases that last.
        let lasting_one_in = if self.world.plan.copies.is_some() { 8 } else { 20 };
        match self.random.below(lasting_one_in) {
            // Long enough to be renewed.
            0 => self.ms(ttl_ms * 2),
            1..4 => self.ms(200 * pace),
            _ => self.ms(25 * pace),
        }
    }

    /// Works under the lock. Only in worlds with operators may somebody ask for it meanwhile.
    async fn busy(&self, key: &Name, guard: &Guard, until: Moment, renews: bool) {
        if renews {
            let renewing = Renewing::new(self, self.called(key, CallKind::Renew));
            let renewed = guard.renew().await;
            renewing.returned(renewed.map_or_else(|e| outcome_of(&e), |()| Outcome::Renewed));
        }
        if !self.world.plan.is_operated {
            return self.process.sleep_until(until).await;
        }
        if self.before(until, guard.revoked()).await.is_some() {
            self.world.did("let go when asked");
        }
    }
}
