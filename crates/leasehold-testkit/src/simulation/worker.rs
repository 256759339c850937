//! One task of a client, with the tools that every use of a lock needs.

mod work;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host, Sleep, Task};
use leasehold::{Client, Error, ErrorKind, Release};

use super::process::Process;
use super::world::World;
use crate::history::event::{CallId, CallKind, Name, Outcome};
use crate::virtual_host::SeededRandom;

/// How long one request may take: the time to connect, and the limit of an answer.
const REQUEST_LIMIT: Duration = Duration::from_millis(3_250);

/// How often a holder without a guard checks its clock for the deadline.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// One task of a client.
pub(super) struct Worker {
    world: Arc<World>,
    /// The number of its client.
    number: usize,
    process: Process,
    client: Client,
    random: SeededRandom,
    /// The server's names for the keys that it takes locks of.
    keys: Vec<Name>,
}

impl Worker {
    pub(super) fn new(
        world: Arc<World>,
        number: usize,
        process: Process,
        client: Client,
        random: SeededRandom,
    ) -> Self {
        let keys = world.keys();
        let mut worker = Self { world, number, process, client, random, keys: Vec::new() };
        worker.keys = keys.iter().map(|name| worker.key_named(name)).collect();
        worker
    }

    /// The server's name for a key of its client.
    pub(super) fn key_named(&self, name: &str) -> Name {
        match self.world.plan.clients[self.number].namespace {
            Some(namespace) => Arc::from(format!("{namespace}:{name}")),
            None => Arc::from(name),
        }
    }

    /// Whether it takes locks at this moment: until `until`, or until the run ends.
    pub(super) fn goes_on(&self, until: Option<Moment>) -> bool {
        self.world.goes_on() && until.is_none_or(|until| self.process.now() < until)
    }

    /// The usual ttl of its client.
    pub(super) fn ttl(&self) -> Duration {
        self.world.plan.clients[self.number].ttl
    }

    /// Another task of the same client.
    pub(super) fn another(&self, random: SeededRandom) -> Self {
        let (world, process) = (Arc::clone(&self.world), self.process.clone());
        Self::new(world, self.number, process, self.client.clone(), random)
    }

    pub(super) const fn world(&self) -> &Arc<World> {
        &self.world
    }

    pub(super) fn now(&self) -> Moment {
        self.process.now()
    }

    pub(super) fn sleep_until(&self, at: Moment) -> Sleep {
        self.process.sleep_until(at)
    }

    pub(super) fn spawn(&self, task: Task) {
        self.process.spawn(task);
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Makes its process crash soon.
    pub(super) fn dies_soon(&self) {
        self.world.dies_soon(self.number);
    }

    /// Waits for a moment of its own clock. It checks the clock again and again, because timers
    /// stand still while a machine sleeps.
    pub(super) async fn watch_until(&self, end: Moment) {
        while self.process.now() < end {
            self.process.sleep_until((self.process.now() + LOOKS_EVERY).min(end)).await;
        }
    }

    /// The output of a future if it ends before `end` on its own clock.
    pub(super) async fn before<T>(
        &self,
        end: Moment,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut future, mut timer) = (pin!(future), pin!(self.watch_until(end)));
        std::future::poll_fn(|context| {
            use std::task::Poll;
            match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => timer.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }

    /// Some of its keys, two at least, in any order.
    pub(super) fn some_keys(&mut self) -> Vec<Name> {
        let mut left = self.keys.clone();
        let wanted = 2 + self.below(left.len() - 1);
        (0..wanted).map(|_| left.swap_remove(self.random.below(left.len()))).collect()
    }

    /// How locks are taken together: after how many polls the call is dropped, how long it waits
    /// (`None` if it only tries), and how long it may take.
    pub(super) fn draw_wait(&mut self, names: usize) -> (usize, Option<Duration>, Duration) {
        let (polls, wait) = (self.cut(), self.ms(2_500));
        let wait = self.random.once_in(2).then_some(wait);
        // One request after the other in the worst case.
        let names = u32::try_from(names).expect("a few");
        (polls, wait, wait.unwrap_or_default() + 2 * names * self.request_limit())
    }

    /// A random time up to `most`.
    pub(super) fn span_up_to(&mut self, most: Duration) -> Duration {
        self.ms(u64::try_from(most.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    /// The client's name for a key. The server's name has the namespace in front.
    pub(super) fn name_of<'k>(&self, key: &'k str) -> &'k str {
        let namespace = self.world.plan.clients[self.number].namespace;
        let within = namespace.and_then(|namespace| key.strip_prefix(namespace)?.strip_prefix(':'));
        within.unwrap_or(key)
    }

    /// How long one request may take. A quorum sends one request to each node, and a second one to
    /// nodes whose fencing counters are behind.
    pub(super) fn request_limit(&self) -> Duration {
        if self.world.plan.is_quorum() { 2 * REQUEST_LIMIT } else { REQUEST_LIMIT }
    }

    /// Pauses for a random time up to `most`, but not beyond `end`.
    pub(super) async fn pause_until(&mut self, end: Moment, most: Duration) {
        let span = self.span_up_to(most);
        self.watch_until((self.process.now() + span).min(end)).await;
    }

    pub(super) fn called(&self, key: &Name, kind: CallKind) -> CallId {
        self.world.called(&self.process, key, kind, Some(self.request_limit()))
    }

    /// A call that may take `longer` than a request.
    pub(super) fn called_for(&self, key: &Name, kind: CallKind, longer: Duration) -> CallId {
        let limit = longer + self.world.plan.lock_delay + 2 * self.request_limit();
        self.world.called(&self.process, key, kind, Some(limit))
    }

    /// After how many polls the next call is dropped.
    pub(super) fn cut(&mut self) -> usize {
        let is_dropping = self.world.dropping[self.number].load(Ordering::Relaxed);
        if is_dropping && self.random.once_in(2) { self.random.below(6) } else { usize::MAX }
    }

    pub(super) async fn pause(&mut self, most_ms: u64) {
        let span = self.ms(most_ms);
        self.process.sleep_until(self.process.now() + span).await;
    }

    /// A random time up to that many milliseconds.
    pub(super) fn ms(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.random.next_u64() % (most_ms * 1_000 + 1))
    }
}

pub(super) fn outcome_of(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::WaitElapsed => Outcome::WaitElapsed,
        ErrorKind::Unavailable => Outcome::Unavailable,
        ErrorKind::Unknown => Outcome::Unknown,
        ErrorKind::Lost => Outcome::Lost,
        _ => Outcome::Failed,
    }
}

/// How a release ended. `None` if its future was dropped.
pub(super) fn outcome_of_release(released: Option<Result<Release, Error>>) -> Outcome {
    match released {
        None => Outcome::Dropped,
        Some(Ok(Release::Released)) => Outcome::Released,
        Some(Ok(Release::NotHeld)) => Outcome::NotHeld,
        Some(Err(error)) => outcome_of(&error),
    }
}
