//! Servers, their processes, and their history.

use std::fs::File;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};

use super::journal::Journal;
use super::reader::{Reader, Watch};
use super::run_plan::RunPlan;
use super::server::Server;
use super::servers::{Deployment, Servers};
use super::teller::first_number;
use super::{shares, worker};
use crate::history::event::{CallId, CallKind, Outcome, ProcessId, Share, What};
use crate::servers::process::Process;
use crate::servers::{PATIENCE, Proxy};
use crate::virtual_host::SeededRandom;

/// How often a waiting world checks its processes.
const TEND_EVERY: Duration = Duration::from_millis(20);

/// The shortest time between two process starts in one slot. Without a server, processes end at
/// once.
const BEGIN_EVERY: Duration = Duration::from_millis(200);

/// How long a process may take to end after it was told to.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// The names of the mutexes. The first is the most contended one.
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// The settings of the worlds of a run.
#[derive(Clone, Debug)]
pub struct Make {
    /// The program of workers and children, which is this program.
    pub chaos: PathBuf,
    /// The program `leasehold`; `None` for worlds without it.
    pub leasehold: Option<PathBuf>,
    /// The servers of each world.
    pub deployment: Deployment,
    /// Whether each server has its data on a disk of its own, which can be filled.
    pub on_disks: bool,
    /// The ttl of every lock.
    pub ttl: Duration,
    /// The number of workers.
    pub workers: usize,
    /// The number of tasks of each worker.
    pub tasks: u32,
    /// The number of `leasehold run` processes.
    pub runs: usize,
}

/// The use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A process that uses the library.
    Worker,
    /// `leasehold run`.
    Run,
}

/// A sequence of processes, one after the other, behind the same bad network.
#[derive(Debug)]
pub struct Slot {
    /// The use of the slot.
    pub role: Role,
    /// The bad networks of the slot, one to each server; none if there can be none.
    pub proxies: Vec<Proxy>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    id: ProcessId,
    began: Moment,
    stdin: Option<ChildStdin>,
    /// Returns whether a lock was granted.
    reader: Option<JoinHandle<bool>>,
    /// Tells the reader which reports of its child count.
    watch: Arc<Watch>,
    /// Whether its child runs.
    holds: Arc<AtomicBool>,
}

/// Servers, their processes, and their history.
#[derive(Debug)]
pub struct World {
    /// The servers.
    pub(super) servers: Arc<Servers>,
    /// Chooses the server that a fault hits, where there are several.
    pub(super) victim: usize,
    /// The servers' epoch, and when it was read.
    pub(super) epoch: (u64, Moment),
    /// The processes.
    pub slots: Vec<Slot>,
    /// The events.
    pub journal: Arc<Journal>,
    /// The seed of the choices of this world.
    pub random: SeededRandom,
    make: Make,
    log: File,
    processes: u32,
    /// How many `leasehold run` were killed while their child ran.
    killed_runs: u64,
    /// The faults that were seen.
    wrong: Vec<String>,
}

impl World {
    /// Starts new servers, and the processes.
    ///
    /// # Panics
    ///
    /// If the server or a process does not start.
    #[must_use]
    pub fn start(make: &Make, seed: u64) -> Self {
        let servers = Arc::new(make.deployment.start(make.on_disks));
        let workers = (0..make.workers).map(|_| Role::Worker);
        let roles = workers.chain((0..make.runs).map(|_| Role::Run)).enumerate();
        let slot = |(number, role)| Slot { role, proxies: servers.proxies(number), running: None };
        let slots = roles.map(slot).collect();
        let log = tempfile::tempfile().expect("a temporary file");
        let mut world = Self {
            servers,
            victim: 0,
            epoch: (0, SystemHost.now()),
            slots,
            journal: Arc::default(),
            random: SeededRandom::new(seed),
            make: make.clone(),
            log,
            processes: 0,
            killed_runs: 0,
            wrong: Vec::new(),
        };
        world.read_epoch();
        world.tend();
        world
    }

    /// The server that a fault hits.
    pub(super) fn server(&self) -> Server<'_> {
        let keys = self.keys();
        self.servers.victim(self.victim, keys[self.victim % keys.len()])
    }

    /// The network of a slot to the server that a fault hits.
    ///
    /// # Panics
    ///
    /// If the slot has no bad network.
    pub(super) fn proxy(&self, slot: usize) -> &Proxy {
        let proxies = &self.slots[slot].proxies;
        assert!(!proxies.is_empty(), "the deployment has no bad network");
        &proxies[self.victim % proxies.len()]
    }

    /// The name of a lock.
    pub(super) fn some_key(&mut self) -> &'static str {
        let keys = self.keys();
        keys[self.random.below(keys.len())]
    }

    /// The names of all locks.
    fn keys(&self) -> Vec<&'static str> {
        let shared: &[_] = if self.make.deployment.shares() { &shares::NAMES } else { &[] };
        [&KEYS, shared].concat()
    }

    /// How many `leasehold run` were killed while their child ran.
    #[must_use]
    pub const fn killed_runs(&self) -> u64 {
        self.killed_runs
    }

    /// The faults that were seen since the last call.
    pub fn take_wrong(&mut self) -> Vec<String> {
        std::mem::take(&mut self.wrong)
    }

    /// The ttl of every lock.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.make.ttl
    }

    /// How long a lease may stay after a crash of its client.
    #[must_use]
    pub const fn stays_after_crash(&self) -> Duration {
        self.make.deployment.stays_after_crash(self.make.ttl)
    }

    /// The current moment, on the clock that all processes share.
    #[must_use]
    pub fn now(&self) -> Moment {
        SystemHost.now()
    }

    /// Waits, and tends the processes meanwhile.
    pub fn wait(&mut self, span: Duration) {
        let ends = self.now() + span;
        loop {
            self.tend();
            let left = ends.since(self.now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left.min(TEND_EVERY));
        }
    }

    /// Starts a process in every free slot.
    pub fn tend(&mut self) {
        for number in 0..self.slots.len() {
            let running = self.slots[number].running.as_ref();
            let stays = |running: &Running| {
                !running.process.ends_within(Duration::ZERO)
                    || self.now().since(running.began) < BEGIN_EVERY
            };
            if running.is_some_and(stays) {
                continue;
            }
            if let Some(ended) = self.slots[number].running.take() {
                self.bury(self.slots[number].role, ended);
            }
            let started = self.begin(number);
            self.slots[number].running = Some(started);
        }
    }

    /// The slots with that role.
    #[must_use]
    pub fn of_role(&self, role: Role) -> Vec<usize> {
        (0..self.slots.len()).filter(|slot| self.slots[*slot].role == role).collect()
    }

    /// Waits until a child runs in a slot, for at most one ttl.
    pub fn until_it_holds(&mut self, slot: usize) {
        let ends = self.now() + self.make.ttl;
        while self.now() < ends {
            self.wait(TEND_EVERY);
            let Some(running) = &self.slots[slot].running else { continue };
            if running.holds.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Stops the process of a slot by SIGSTOP. Returns false if it has ended.
    #[must_use]
    pub fn stop(&mut self, slot: usize) -> bool {
        let Some(running) = &self.slots[slot].running else { return false };
        let is_run = self.slots[slot].role == Role::Run;
        if is_run {
            running.watch.stop();
        }
        let stopped = running.process.stop();
        if stopped && is_run {
            // A worker notices and reports this by itself.
            self.journal.tell(What::Stopped { process: running.id });
        }
        stopped
    }

    /// Lets the process of a slot go on.
    pub fn resume(&mut self, slot: usize) {
        let Some(running) = &self.slots[slot].running else { return };
        if self.slots[slot].role == Role::Run {
            self.journal.tell(What::Resumed { process: running.id });
        }
        running.process.go_on();
    }

    /// From now on, the reports of the slot's child count again.
    pub fn watch(&mut self, slot: usize) {
        if let Some(running) = &self.slots[slot].running {
            running.watch.go_on(self.now());
        }
    }

    /// Kills the process of a slot by SIGKILL. Another one starts at once.
    pub fn crash(&mut self, slot: usize) {
        let Some(mut running) = self.slots[slot].running.take() else { return };
        let had_child = running.holds.load(Ordering::Acquire);
        let killed = self.now();
        running.process.signal(rustix::process::Signal::KILL);
        running.process.ends_within(PATIENCE);
        let is_run = self.slots[slot].role == Role::Run;
        if !is_run {
            self.journal.tell(What::Crashed { process: running.id });
        }
        running.join();
        if is_run {
            // The window of a child goes on until its last report. So a child that outlives the
            // lease overlaps with the next holder.
            self.journal.tell(What::Crashed { process: running.id });
            self.killed_runs += u64::from(had_child);
            self.judge_death(running.id, self.now().since(killed));
        }
        self.tend();
    }

    /// Nobody renews the lease of a killed `leasehold run`. So its child is dead after one ttl.
    fn judge_death(&mut self, run: ProcessId, lived: Duration) {
        if lived > self.make.ttl {
            let run = run.0;
            self.wrong.push(format!("the child of process {run} outlived its kill by {lived:?}"));
        }
    }

    /// Tells every process to end, and waits for it.
    ///
    /// # Errors
    ///
    /// If a process does not end.
    pub fn end(&mut self) -> Result<(), String> {
        for slot in &mut self.slots {
            slot.proxies.iter().for_each(Proxy::be_faithful);
            let Some(running) = &mut slot.running else { continue };
            match slot.role {
                Role::Worker => drop(running.stdin.take()),
                Role::Run => running.process.signal(rustix::process::Signal::TERM),
            }
        }
        for number in 0..self.slots.len() {
            let Some(running) = self.slots[number].running.take() else { continue };
            if !running.process.ends_within(ENDS_WITHIN) {
                return Err(format!("process {} does not end", running.id.0));
            }
            self.bury(self.slots[number].role, running);
        }
        Ok(())
    }

    /// The last part of what the processes wrote to standard error.
    #[must_use]
    pub fn complaints(&self) -> String {
        crate::servers::process::tail(&self.log)
    }

    fn begin(&mut self, number: usize) -> Running {
        self.processes += 1;
        let id = ProcessId(self.processes);
        let urls = self.servers.urls(&self.slots[number].proxies);
        let (args, share) = match self.slots[number].role {
            Role::Worker => (self.worker_args(id, &urls), None),
            Role::Run => self.run_args(id, &urls),
        };
        let program = match (self.slots[number].role, &self.make.leasehold) {
            (Role::Run, Some(leasehold)) => leasehold,
            _ => &self.make.chaos,
        };
        let program = program.to_str().expect("a path in UTF-8");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let started = Process::start_piped(program, &args, &self.log);
        let (process, stdin, stdout) = started.expect("a process can be started");
        let began = self.now();
        let (watch, holds) = (Arc::new(Watch::from(began)), Arc::default());
        let reader = Reader {
            process: id,
            share,
            journal: Arc::clone(&self.journal),
            watch: Arc::clone(&watch),
            holds: Arc::clone(&holds),
        };
        let reader = Some(std::thread::spawn(move || reader.read(stdout)));
        Running { process, id, began, stdin: Some(stdin), reader, watch, holds }
    }

    fn worker_args(&mut self, id: ProcessId, urls: &[String]) -> Vec<String> {
        let seed = self.random.next_u64();
        let words = format!(
            "worker --process {} --url {} --ttl-ms {} --tasks {} --seed {seed} --keys {}{}",
            id.0,
            urls.join(worker::BETWEEN_URLS),
            self.make.ttl.as_millis(),
            self.make.tasks,
            KEYS.join(","),
            if self.make.deployment.shares() { " --shares" } else { "" },
        );
        words.split(' ').map(str::to_owned).collect()
    }

    /// Draws a `leasehold run` and logs its call. Returns its arguments and its share of the lock.
    fn run_args(&mut self, id: ProcessId, urls: &[String]) -> (Vec<String>, Option<Share>) {
        let shares = self.make.deployment.shares();
        let plan = RunPlan::draw(&mut self.random, self.make.ttl, shares);
        let (call, key) = (CallId(first_number(id)), plan.key.into());
        let kind = CallKind::Lock;
        self.journal.tell(What::Called { call, process: id, key, kind, limit: None });
        (plan.args(&self.make.chaos, id, urls, self.make.ttl), plan.share)
    }

    /// Logs the end of a process that ended by itself or as it was told.
    fn bury(&self, role: Role, mut running: Running) {
        let granted = running.join();
        if role == Role::Run && !granted {
            let call = CallId(first_number(running.id));
            let outcome = outcome(running.process.exit_code());
            self.journal.tell(What::Returned { call, outcome });
        }
    }
}

/// The outcome of a `leasehold run` whose child reported nothing.
const fn outcome(code: Option<i32>) -> Outcome {
    match code {
        Some(69) => Outcome::Unavailable,
        // `leasehold run` was told to end, or killed its child before the child reported anything.
        Some(79 | 130 | 143) | None => Outcome::Dropped,
        Some(_) => Outcome::Failed,
    }
}

impl Running {
    /// Waits until all reports of the process and its children were read. Returns whether a lock
    /// was granted to them.
    fn join(&mut self) -> bool {
        drop(self.stdin.take());
        let reader = self.reader.take().expect("it is joined once");
        reader.join().expect("reading lines does not panic")
    }
}
