//! Many clients and tasks, and a store that fails now and then. For every seed, no two tasks hold a
//! lock at the same time, every waiter is served, and nothing is left.

use std::sync::Arc;

use leasehold::host::Host;
use leasehold::{Client, ErrorKind, Guard};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Setup;
use leasehold_testkit::faults::{Fault, Faults, Hints};
use leasehold_testkit::history::event::{CallKind, Event, Outcome, ProcessId, What};
use leasehold_testkit::history::{Bounds, History, InUse, check};
use leasehold_testkit::virtual_host::SeededRandom;

use super::{Scene, ms, play_on};
use crate::stores;

/// How long a soak lasts before the faults end.
const TROUBLE: u64 = 60_000;

/// One task that locks, holds, gives up and tries again.
struct Worker {
    host: Arc<VirtualHost>,
    client: Client,
    process: ProcessId,
    history: History,
    random: SeededRandom,
}

fn outcome(tried: Option<Result<Option<Guard>, leasehold::Error>>) -> Result<Guard, Outcome> {
    match tried {
        None => Err(Outcome::Dropped),
        Some(Ok(Some(guard))) => Ok(guard),
        Some(Ok(None)) => Err(Outcome::Taken),
        Some(Err(error)) => Err(match error.kind() {
            ErrorKind::WaitElapsed => Outcome::WaitElapsed,
            ErrorKind::Unavailable => Outcome::Unavailable,
            ErrorKind::Unknown => Outcome::Unknown,
            _ => Outcome::Failed,
        }),
    }
}

impl Worker {
    async fn work(mut self) {
        let end = self.host.now() + ms(TROUBLE);
        while self.host.now() < end {
            let mutex = self.client.mutex("a");
            let (way, patience) = (self.random.below(3), ms(self.random.next_u64() % 5_000));
            let locking = async {
                match way {
                    0 => mutex.try_lock().await,
                    1 => mutex.lock_timeout(ms(2_000)).await.map(Some),
                    _ => mutex.lock().await.map(Some),
                }
            };
            let kind = if way == 0 { CallKind::TryLock } else { CallKind::Lock };
            let call = self.history.called(&self.host, self.process, "a", kind);
            // Errors and cancelled futures are normal here.
            let guard = match outcome(self.host.within(patience, locking).await) {
                Ok(guard) => guard,
                Err(outcome) => {
                    self.history.returned(&self.host, call, outcome);
                    self.pause(100).await;
                    continue;
                }
            };
            let in_use = self.history.granted(&self.host, call, &guard);
            self.hold(&in_use, &guard).await;
            in_use.end(&guard);
            match self.random.below(3) {
                0 => drop(guard),
                1 => drop(guard.release()),
                _ => drop(guard.release().await),
            }
            self.pause(20).await;
        }
    }

    /// Often holds past the end of an unrenewed lease, since only such a holder notices a loss.
    async fn hold(&mut self, in_use: &InUse, guard: &Guard) {
        let most = if self.random.once_in(3) { 6_000 } else { 300 };
        let end = self.host.now() + ms(self.random.next_u64() % most);
        while self.host.now() < end {
            in_use.seen(guard);
            self.host.sleep_until(end.min(self.host.now() + ms(10))).await;
        }
    }

    async fn pause(&mut self, most: u64) {
        let span = ms(self.random.next_u64() % most);
        self.host.sleep_until(self.host.now() + span).await;
    }
}

/// Cuts one client off now and then, while the others go on.
async fn weather(host: Arc<VirtualHost>, faults: Faults, mut random: SeededRandom) {
    let end = host.now() + ms(TROUBLE);
    while host.now() < end {
        host.advance(ms(random.next_u64() % 6_000)).await;
        let fault = [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply][random.below(3)];
        faults.all_from_now_on(fault);
        host.advance(ms(random.next_u64() % 4_000)).await;
        faults.end_outage();
    }
    faults.heal();
}

/// The number of grants, and a fingerprint of the run.
async fn soak(scene: &Scene) -> (usize, u64) {
    let history = History::default();
    // Faults happen all the time, so the promises under faults are checked.
    let began = What::FaultBegan { fault: 0, kind: "loss".into() };
    history.push(Event { at: scene.host.now(), what: began });
    let mut seeds = SeededRandom::new(scene.host.seed());
    let mut tasks = Vec::new();
    let hints = [Hints::Arrive, Hints::AreLost, Hints::AreDoubled][seeds.below(3)];
    let (delay, one_in) = (ms(seeds.next_u64() % 300), 3 + seeds.below(20));
    let failing = !seeds.once_in(4);
    for number in 0..4 {
        let ttl = ms([200, 1_000, 3_000][seeds.below(3)]);
        let faults = Faults::new(scene.host.clone());
        faults.delay_up_to(delay);
        faults.hints(hints);
        if failing {
            faults.one_in(one_in);
        }
        let client = scene.client_with(&faults, ttl).await;
        let random = SeededRandom::new(seeds.next_u64());
        tasks.push(scene.host.task(weather(scene.host.clone(), faults, random)));
        for _ in 0..3 {
            let worker = Worker {
                host: scene.host.clone(),
                client: client.clone(),
                process: ProcessId(number),
                history: history.clone(),
                random: SeededRandom::new(seeds.next_u64()),
            };
            tasks.push(scene.host.task(worker.work()));
        }
    }
    for task in tasks {
        task.await;
    }
    assert_eq!(check(&history.events(), &Bounds::of_ttl(ms(3_000))), []);
    // After the longest lease, every unknown outcome has been cleaned up or has expired.
    scene.pass(ms(3_000 + 1_000)).await;
    let other = scene.calm_client().await;
    let snapshot = other.inspect("a").await.expect("asked");
    assert_eq!((snapshot.holders.len(), snapshot.waiting), (0, 0), "{snapshot:?}");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    (grants(&history), scene.host.fingerprint())
}

fn grants(history: &History) -> usize {
    let is_grant = |event: &&Event| matches!(event.what, What::Granted { .. });
    history.events().iter().filter(is_grant).count()
}

fn soak_all(setup: Setup, seeds: std::ops::Range<u64>) {
    let runs = seeds.clone().count();
    let grants: usize = seeds.map(|seed| play_on(setup, seed, soak).0).sum();
    assert!(grants >= 20 * runs, "{grants} grants in {runs} runs: trouble is all there was");
}

#[test]
fn no_two_hold_a_lock_at_once_in_memory() {
    soak_all(stores::memory, 0..100);
}

#[test]
fn no_two_hold_a_lock_at_once_in_a_file() {
    soak_all(stores::sqlite, 0..15);
}

/// A failure can be played again by its seed.
#[test]
fn the_same_seed_gives_the_same_soak() {
    for seed in 0..3 {
        let once = play_on(stores::memory, seed, soak);
        assert_eq!(play_on(stores::memory, seed, soak), once, "seed {seed}");
    }
}
