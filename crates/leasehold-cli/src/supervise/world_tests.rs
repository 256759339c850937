//! Tests the machine in the worlds of the simulation: every client holds its locks as `leasehold
//! run` does. Commands and keepers are models on the common clock. They go on while the process of
//! their holder is stopped, and after it was killed.
//!
//! The promises: when a lock is granted, no process works under an earlier grant of it. A holder is
//! told of a loss in time, and by then no process works under its lock.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold_testkit::VirtualHost;
use leasehold_testkit::history::check;
use leasehold_testkit::simulation::{Plan, Supervised, Supervisor, run_supervised};
use leasehold_testkit::virtual_host::SeededRandom;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::tests::sent;
use super::*;

/// How many worlds a usual run tries.
const SEEDS: u64 = 40;

const TIME: Duration = Duration::from_secs(15);

/// The longest time that a process lives after it was killed or asked to end.
const ENDS_WITHIN_US: usize = 300;

/// How often the keeper looks for processes to kill.
const ROUND: Duration = Duration::from_micros(300);

/// A command that has started this many processes starts no more.
const PROCESSES_MAX: usize = 12;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn after(now: Moment, random: &mut SeededRandom, most_us: usize) -> Moment {
    now + Duration::from_micros(random.below(most_us + 1) as u64)
}

/// All processes of one command.
struct Tree(Mutex<Processes>);

struct Processes {
    /// The first is the command itself.
    all: Vec<Process>,
    random: SeededRandom,
    ttl: Duration,
    /// When the world stops waiting. Processes that last for long end by then.
    until: Moment,
}

struct Process {
    ends: Moment,
    forks: Option<Moment>,
    ignores_requests: bool,
    lives: bool,
    is_killed: bool,
}

impl Tree {
    fn start(held: &Supervised, random: SeededRandom) -> Arc<Self> {
        let (ttl, until) = (held.ttl, held.until);
        let mut processes = Processes { all: Vec::new(), random, ttl, until };
        processes.start(held.machine().now());
        Arc::new(Self(Mutex::new(processes)))
    }

    fn lives(&self) -> bool {
        lock(&self.0).all.iter().any(|process| process.lives)
    }
}

impl Processes {
    fn start(&mut self, now: Moment) {
        let (short, long) = (self.ttl / 20, self.ttl * 3);
        let long = long.min(self.until.since(now)).max(short);
        let span = if self.random.once_in(3) { long } else { short };
        let most_us = usize::try_from(span.as_micros()).expect("some seconds");
        let ends = after(now, &mut self.random, most_us);
        let forks = self.random.once_in(3).then(|| after(now, &mut self.random, most_us));
        let ignores_requests = self.random.once_in(3);
        self.all.push(Process { ends, forks, ignores_requests, lives: true, is_killed: false });
    }

    /// Brings all processes up to `now`.
    fn pass(&mut self, now: Moment) {
        let mut forks = 0;
        for process in self.all.iter_mut().filter(|process| process.lives) {
            forks += usize::from(process.forks.take_if(|at| *at <= now).is_some());
            process.lives = process.ends > now;
        }
        let room = PROCESSES_MAX.saturating_sub(self.all.len());
        (0..forks.min(room)).for_each(|_| self.start(now));
    }

    fn next(&self) -> Option<Moment> {
        let living = self.all.iter().filter(|process| process.lives);
        living.flat_map(|process| process.forks.into_iter().chain([process.ends])).min()
    }

    /// Asks the command, or all its processes, to end.
    fn request(&mut self, now: Moment, all: bool) {
        let asked = if all { self.all.len() } else { 1 };
        for process in self.all.iter_mut().take(asked).filter(|one| !one.ignores_requests) {
            process.ends = process.ends.min(after(now, &mut self.random, ENDS_WITHIN_US));
        }
    }

    /// Kills the processes that one scan finds. It misses some now and then.
    fn kill(&mut self, now: Moment) {
        for process in self.all.iter_mut().filter(|process| process.lives && !process.is_killed) {
            if !self.random.once_in(4) {
                process.ends = process.ends.min(after(now, &mut self.random, ENDS_WITHIN_US));
                (process.forks, process.is_killed) = (None, true);
            }
        }
    }
}

/// An order to the keeper.
enum Order {
    KillAt(Moment),
    Kill,
    Stop,
    Forward,
}

/// The keeper and the kernel. They go on even if the holder dies.
struct Keeper {
    machine: Arc<VirtualHost>,
    /// The clock of the holder.
    clock: Arc<dyn Host>,
    tree: Arc<Tree>,
    news: UnboundedSender<Input>,
    kill_at: Option<Moment>,
    kills_at: Option<Moment>,
}

impl Keeper {
    async fn keep(mut self, mut orders: UnboundedReceiver<Order>) {
        let (mut is_told, mut is_closed) = (false, false);
        loop {
            let now = self.machine.now();
            lock(&self.tree.0).pass(now);
            if !is_told && !lock(&self.tree.0).all[0].lives {
                is_told = true;
                let _dead = self.news.send(Input::Ended(Exit::OK));
            }
            if !self.tree.lives() {
                let _dead = self.news.send(Input::AllGone);
                return;
            }
            let wakes_at = self.kill_in_time(now);
            let mut timer = pin!(self.machine.sleep_until(wakes_at));
            let order = tokio::select! {
                biased;
                order = orders.recv(), if !is_closed => order,
                () = &mut timer => continue,
            };
            is_closed = order.is_none();
            match order {
                Some(Order::KillAt(at)) => self.kill_at = Some(at),
                Some(Order::Kill) | None => drop(self.kills_at.get_or_insert(now)),
                Some(Order::Stop) => lock(&self.tree.0).request(now, true),
                Some(Order::Forward) => lock(&self.tree.0).request(now, false),
            }
        }
    }

    /// Kills if it is time, and returns when to look again.
    fn kill_in_time(&mut self, now: Moment) -> Moment {
        if self.kill_at.take_if(|at| *at <= self.clock.now()).is_some() && self.kills_at.is_none() {
            let _dead = self.news.send(Input::KilledInTime);
            self.kills_at = Some(now);
        }
        if let Some(at) = self.kills_at.as_mut().filter(|at| **at <= now) {
            *at = now + ROUND;
            lock(&self.tree.0).kill(now);
        }
        let in_time = self.kill_at.map(|at| now + at.since(self.clock.now()));
        let next = lock(&self.tree.0).next();
        let next = [next, in_time, self.kills_at].into_iter().flatten().min();
        // If the clock of the holder is slow, it has not reached that moment, and the keeper looks
        // a second time.
        next.expect("a process that lives ends").max(now + Duration::from_micros(1))
    }
}

/// Runs a command under each lock.
#[derive(Default)]
struct Runs {
    trees: Mutex<BTreeMap<String, Vec<Arc<Tree>>>>,
    ended: Arc<Mutex<BTreeMap<&'static str, u32>>>,
}

impl Supervisor for Runs {
    fn granted(&self, key: &str) {
        let mut trees = lock(&self.trees);
        let trees = trees.entry(key.to_owned()).or_default();
        trees.retain(|tree| tree.lives());
        assert!(trees.is_empty(), "`{key}` is granted while somebody works under it");
    }

    fn hold(&self, held: Supervised) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (machine, clock) = (held.machine(), held.process());
        let mut random = SeededRandom::new(held.seed);
        let tree = Tree::start(&held, SeededRandom::new(random.next_u64()));
        lock(&self.trees).entry(held.key.to_string()).or_default().push(Arc::clone(&tree));
        let (news, hears) = unbounded_channel();
        let (orders, ordered) = unbounded_channel();
        let left = held.guard().remaining();
        let first = policy(held.ttl).keeper_kills_at(clock.now(), left, Duration::ZERO);
        let (kill_at, kills_at) = (Some(first), None);
        let on = Arc::clone(&machine);
        let keeper = Keeper { machine: on, clock, tree, news, kill_at, kills_at };
        machine.spawn(Box::pin(keeper.keep(ordered)));
        let supervision = Supervision::new(policy(held.ttl), Terminal::Apart, first);
        let (talk, ended) = ((orders, hears), Arc::clone(&self.ended));
        Box::pin(watch_over(held, random, supervision, talk, ended))
    }
}

fn policy(ttl: Duration) -> Policy {
    let grace = (ttl / 4).min(Duration::from_secs(5));
    Policy { ttl, grace, stop: Signal::TERM, limit: None }
}

/// When a user sends a signal to stop: never, once, or three times.
fn signals(now: Moment, ttl: Duration, random: &mut SeededRandom) -> Vec<Moment> {
    if !random.once_in(12) {
        return Vec::new();
    }
    let most_us = usize::try_from(ttl.as_micros()).expect("some seconds");
    let first = after(now, random, most_us);
    let times = [1, 1, 3][random.below(3)];
    (0..times).rev().map(|number| first + Duration::from_micros(50) * number).collect()
}

/// Does what `drive` does with a real command.
async fn watch_over(
    held: Supervised,
    mut random: SeededRandom,
    mut supervision: Supervision,
    (orders, mut hears): (UnboundedSender<Order>, UnboundedReceiver<Input>),
    ended: Arc<Mutex<BTreeMap<&'static str, u32>>>,
) {
    let clock = held.process();
    let mut signals = signals(clock.now(), held.ttl, &mut random);
    let mut lost = pin!(held.guard().lost());
    let mut told = false;
    let verdict = 'over: loop {
        let (now, left) = (clock.now(), held.guard().remaining());
        if let Some(at) = supervision.kill_at(now, left) {
            let _gone = orders.send(Order::KillAt(at));
        }
        let signal = signals.last().copied();
        let look = now + supervision.next_look(now, left);
        let look = signal.map_or(look, |signal| look.min(signal));
        let input = tokio::select! {
            biased;
            reason = &mut lost, if !told => Input::Lost(reason),
            Some(input) = hears.recv() => input,
            () = clock.sleep_until(look) => match signal.filter(|at| *at <= clock.now()) {
                Some(_) => {
                    signals.pop();
                    // A signal that the same sender repeats at once would count once.
                    sent([Signal::TERM, Signal::INT, Signal::QUIT][signals.len()])
                },
                None => Input::Timer,
            },
        };
        told |= matches!(input, Input::Lost(_));
        for action in supervision.on(clock.now(), held.guard().remaining(), input) {
            let order = match action {
                Action::Forward(_) => Order::Forward,
                Action::SignalAll(_) => Order::Stop,
                Action::Kill => Order::Kill,
                Action::ForwardOutside(_) | Action::Suspend | Action::Say(_) => continue,
                Action::Finish(verdict) => break 'over verdict,
            };
            let _gone = orders.send(order);
        }
    };
    let how = match (verdict.lease, verdict.exit) {
        (Lease::Release, Exit::LOST) => "stopped in time",
        (Lease::Release, _) => "released",
        (Lease::Lost, _) => "lost",
        (Lease::LeaveToExpire, _) => "left",
    };
    *lock(&ended).entry(how).or_default() += 1;
    match verdict.lease {
        Lease::Lost => held.is_lost(),
        Lease::LeaveToExpire => {
            // Our end of the channel closes, and the keeper sees that.
            drop(orders);
            held.leave().await;
        }
        Lease::Release => drop(held.give_up().release().await),
    }
}

/// A number from the environment: `LEASEHOLD_SUPERVISION_SEED` is the first seed, and
/// `LEASEHOLD_SUPERVISION_SEEDS` how many to try.
fn wanted(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |number| number.parse().expect("a number"))
}

fn keeps_all_promises(seed: u64, runs: &Arc<Runs>) {
    let plan = Plan::new(seed, TIME).supervised();
    lock(&runs.trees).clear();
    let ran = std::panic::catch_unwind(|| run_supervised(&plan, runs.clone()));
    let ran = ran.unwrap_or_else(|_| panic!("seed {seed}"));
    let mut broken = check(&ran.events, &plan.bounds());
    broken.retain(|one| one.promised);
    assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
}

#[test]
fn a_lease_that_is_left_stays_for_its_lock_delay() {
    [438, 462].into_iter().for_each(|seed| keeps_all_promises(seed, &Arc::default()));
}

#[test]
fn a_command_whose_processes_last_for_hours_ends_with_its_world() {
    keeps_all_promises(664, &Arc::default());
}

#[test]
fn no_command_works_in_any_world_under_a_lock_that_another_client_has() {
    let runs = Arc::new(Runs::default());
    let first = wanted("LEASEHOLD_SUPERVISION_SEED", 0);
    let seeds = wanted("LEASEHOLD_SUPERVISION_SEEDS", SEEDS);
    for seed in first..first + seeds {
        keeps_all_promises(seed, &runs);
    }
    let ended = lock(&runs.ended).clone();
    println!("{seeds} worlds from seed {first} on: {ended:?}");
    if seeds < SEEDS {
        return;
    }
    // The test proves nothing about outcomes that never happen, so each must happen a few times.
    for how in ["released", "stopped in time", "lost", "left"] {
        assert!(ended.get(how).is_some_and(|times| *times >= 5), "{how}: {ended:?}");
    }
}
