//! What takes locks: tries, waits, holds, renews, gives back, and drops futures where it should.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::{Client, Error, ErrorKind, Guard, Release};

use super::process::Process;
use super::terms::Terms;
use super::world::World;
use crate::history::event::{CallId, CallKind, Name, Outcome, WindowId};
use crate::virtual_host::SeededRandom;
use crate::{cut_after, cut_when_woken};

/// How long one request may keep its caller: a connection that does not come about, and the limit
/// of an answer.
const REQUEST_LIMIT: Duration = Duration::from_millis(3_250);

/// How often the tasks of a hot client rush for their lock, and how often each takes it at most.
const RUSHES_EVERY: Duration = Duration::from_secs(3);
const RUSH_MAX: usize = 60;

/// The way of who locks without a limit.
const LOCKS: usize = 9;

/// One task.
pub(super) struct Worker {
    world: Arc<World>,
    /// Which client it belongs to.
    number: usize,
    process: Process,
    client: Client,
    random: SeededRandom,
    keys: Vec<Name>,
}

/// What a holder does at the end.
enum Parting {
    Drop,
    Release,
    ReleaseUnheard,
}

impl Worker {
    pub(super) fn new(
        world: Arc<World>,
        number: usize,
        process: Process,
        client: Client,
        random: SeededRandom,
    ) -> Self {
        // The second has a hash tag of its own, whose companions are called differently.
        let names = ["stock", "cart:{42}", "report", "a b%"];
        let keys = names.iter().take(world.plan.keys).map(|name| Arc::from(*name)).collect();
        Self { world, number, process, client, random, keys }
    }

    /// Takes locks until then, or as long as the run goes on.
    pub(super) async fn work(mut self, until: Option<Moment>) {
        while self.world.goes_on() && until.is_none_or(|until| self.process.now() < until) {
            let key = Arc::clone(&self.keys[self.random.below(self.keys.len())]);
            let terms = Terms::draw(&self.world.plan, self.number, &mut self.random);
            let way = self.random.below(10);
            if let Some((window, guard)) = self.lock(&key, &terms, way).await {
                let span = self.span();
                self.hold(&key, window, guard, span, terms.keep_idle).await;
            }
            if self.random.once_in(30) {
                // Whoever looks may be told anything, and changes nothing.
                let _looked = cut_after(50, self.client.inspect(&key)).await;
            }
            self.pause(self.world.plan.pause_ms()).await;
            if self.world.plan.clients[self.number].is_hot {
                self.rush().await;
            }
        }
    }

    /// Takes one lock again and again, at the same time as the other tasks of its client.
    async fn rush(&mut self) {
        let now = self.process.now().as_nanos();
        let begins = now.next_multiple_of(u64::try_from(RUSHES_EVERY.as_nanos()).expect("small"));
        self.process.sleep_until(Moment::from_nanos(begins)).await;
        let key = Arc::clone(&self.keys[self.number % self.keys.len()]);
        for _ in 0..self.random.below(RUSH_MAX) {
            let terms = Terms::draw(&self.world.plan, self.number, &mut self.random);
            let Some((window, guard)) = self.lock(&key, &terms, LOCKS).await else { return };
            let span = Duration::from_nanos(self.random.next_u64() % 200_000);
            self.hold(&key, window, guard, span, terms.keep_idle).await;
        }
    }

    /// One way to take the lock, cut off in the middle now and then.
    async fn lock(
        &mut self,
        key: &Name,
        terms: &Terms,
        way: usize,
    ) -> Option<(WindowId, Arc<Guard>)> {
        let mutex = terms.mutex(&self.client, key);
        let (polls, is_woken) = (self.cut(), self.random.once_in(2));
        let wait = self.ms(2_500);
        let (kind, limit) = match way {
            0..3 => (CallKind::TryLock, Some(2 * self.request_limit())),
            3..6 => (CallKind::Lock, Some(wait + self.request_limit())),
            _ => (CallKind::Lock, None),
        };
        let call = self.world.called(&self.process, key, kind, limit);
        let locking = async {
            match way {
                0..3 => mutex.try_lock().await,
                3..6 => mutex.lock_timeout(wait).await.map(Some),
                _ => mutex.lock().await.map(Some),
            }
        };
        let locking = self.world.log.during(call, locking);
        let locked = if is_woken {
            cut_when_woken(polls, locking).await
        } else {
            cut_after(polls, locking).await
        };
        match locked {
            None => self.world.returned(call, Outcome::Dropped),
            Some(Ok(None)) => self.world.returned(call, Outcome::Taken),
            Some(Err(error)) => self.world.returned(call, outcome_of(&error)),
            Some(Ok(Some(guard))) => {
                let guard = Arc::new(guard);
                let window = self.world.granted(call, &self.process, key, &guard);
                self.world.returned(call, Outcome::Granted);
                return Some((window, guard));
            }
        }
        None
    }

    /// Holds the lock for a while, or until it is told that it is lost, and gives it up.
    async fn hold(
        &mut self,
        key: &Name,
        window: WindowId,
        guard: Arc<Guard>,
        span: Duration,
        keep_idle: Duration,
    ) {
        let until = self.process.now() + span;
        let renews = self.random.once_in(8);
        let lost = {
            let mut lost = pin!(guard.lost());
            let mut working = pin!(self.busy(key, &guard, until, renews));
            std::future::poll_fn(|context| {
                use std::task::Poll;
                if lost.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                working.as_mut().poll(context).map(|()| false)
            })
            .await
        };
        if lost {
            self.world.told_lost(window);
            // It takes a while to stop what one does, and once lost it must stay lost.
            self.pause(100).await;
            self.world.looks_again(&self.process, window, &guard);
        } else {
            self.world.gives_up(window, keep_idle);
        }
        let Some(guard) = Arc::into_inner(guard) else { unreachable!("nobody keeps a guard") };
        self.part(key, guard).await;
    }

    /// For how long it holds the lock.
    fn span(&mut self) -> Duration {
        let ttl_ms = self.world.plan.clients[self.number].ttl.as_millis();
        let ttl_ms = u64::try_from(ttl_ms).unwrap_or(u64::MAX);
        // What a failover forgets, and what is renewed too late, shows in leases that last.
        let lasting_one_in = if self.world.plan.copies.is_some() { 8 } else { 20 };
        match self.random.below(lasting_one_in) {
            // Long enough to be renewed.
            0 => self.ms(ttl_ms * 2),
            1..4 => self.ms(200),
            _ => self.ms(25),
        }
    }

    /// Works under the lock.
    async fn busy(&self, key: &Name, guard: &Guard, until: Moment, renews: bool) {
        if renews {
            let renewing = Renewing { worker: self, call: self.called(key, CallKind::Renew) };
            let renewed = guard.renew().await;
            renewing.returned(renewed.map_or_else(|e| outcome_of(&e), |()| Outcome::Renewed));
        }
        self.process.sleep_until(until).await;
    }

    async fn part(&mut self, key: &Name, guard: Guard) {
        let parting = match self.random.below(5) {
            0 => Parting::ReleaseUnheard,
            1 | 2 => Parting::Drop,
            _ => Parting::Release,
        };
        match parting {
            Parting::Drop => drop(guard),
            Parting::ReleaseUnheard => drop(guard.release()),
            Parting::Release => {
                let polls = self.cut();
                let call = self.called(key, CallKind::Release);
                let outcome = match cut_after(polls, guard.release()).await {
                    None => Outcome::Dropped,
                    Some(Ok(Release::Released)) => Outcome::Released,
                    Some(Ok(Release::NotHeld)) => Outcome::NotHeld,
                    Some(Err(error)) => outcome_of(&error),
                };
                self.world.returned(call, outcome);
            }
        }
    }

    /// How long one request may take: in a quorum one to each node, and one more to those whose
    /// fencing counters are behind.
    fn request_limit(&self) -> Duration {
        if self.world.plan.is_quorum() { 2 * REQUEST_LIMIT } else { REQUEST_LIMIT }
    }

    fn called(&self, key: &Name, kind: CallKind) -> CallId {
        self.world.called(&self.process, key, kind, Some(self.request_limit()))
    }

    /// After how many polls the next call is dropped.
    fn cut(&mut self) -> usize {
        let is_dropping = self.world.dropping[self.number].load(Ordering::Relaxed);
        if is_dropping && self.random.once_in(2) { self.random.below(6) } else { usize::MAX }
    }

    async fn pause(&mut self, most_ms: u64) {
        let span = self.ms(most_ms);
        self.process.sleep_until(self.process.now() + span).await;
    }

    /// Up to that many milliseconds.
    fn ms(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.random.next_u64() % (most_ms * 1_000 + 1))
    }
}

/// A renewal that is dropped when its lease is lost meanwhile.
struct Renewing<'a> {
    worker: &'a Worker,
    call: CallId,
}

impl Renewing<'_> {
    fn returned(self, outcome: Outcome) {
        self.worker.world.returned(self.call, outcome);
        std::mem::forget(self);
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        // A process that is killed drops it too, and that is seen by nobody.
        if !self.worker.process.is_dead() {
            self.worker.world.returned(self.call, Outcome::Dropped);
        }
    }
}

fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::WaitElapsed => Outcome::WaitElapsed,
        ErrorKind::Unavailable => Outcome::Unavailable,
        ErrorKind::Unknown => Outcome::Unknown,
        ErrorKind::Lost => Outcome::Lost,
        _ => Outcome::Failed,
    }
}
