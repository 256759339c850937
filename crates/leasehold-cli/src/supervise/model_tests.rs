//! Tests the machine against a model of its world, drawn from a seed. In the model the store fails,
//! and a tree of processes forks and ignores requests. The keeper may miss processes, and we may be
//! stopped, killed or told to leave. Time is virtual.
//!
//! The promises: no process works beyond the lease, the lock is released only when no process is
//! left, and an undisturbed command is left alone.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Lost;
use leasehold::core::Moment;
use rustix::process::Signal;

use super::tests::sent;
use super::*;

const SEEDS: u64 = 10_000;

/// Microseconds.
type Time = u64;

/// The longest time for a message, and for a killed process to end.
const LATENCY: Time = 300;

/// How often the keeper looks for processes to kill.
const ROUND: Time = 300;

/// Extra time for killing: a scan may miss some processes, so several scans are needed.
const SLACK: Time = 20_000;

struct Random(u64);

impl Random {
    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Renew,
    StoreIsUp(bool),
    NotOurs,
    Fork(usize),
    End(usize),
    ToUs(Input),
    ToKeeper(Action),
    KillAt(Time),
    KeeperLooks,
    KeeperDies,
    WeStop,
    WeGoOn,
    WeDie,
    Look,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    alive: bool,
    /// Whether the process was killed, so that it starts no other process.
    doomed: bool,
    ignores_requests: bool,
    /// How often it forks and then ends itself: a hop.
    hops_every: Option<Time>,
}

struct World {
    random: Random,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    serial: u64,
    policy: Policy,
    supervision: Supervision,
    deadline: Time,
    store_is_up: bool,
    not_ours_since: Option<Time>,
    processes: Vec<Process>,
    living: usize,
    we_stand_still: bool,
    we_are_dead: bool,
    keeper_is_dead: bool,
    keeper_kills: bool,
    keeper_kill_at: Option<Time>,
    told_all_gone: bool,
    waiting: Vec<Input>,
    /// Whether anything happened that may end the command.
    disturbed: bool,
    verdict: Option<Verdict>,
}

fn moment(time: Time) -> Moment {
    Moment::from_nanos(time * 1_000)
}

/// How long a lease is valid: the ttl minus the margin for clocks.
fn valid_for(ttl: Duration) -> Duration {
    ttl - ttl / 100 - Duration::from_millis(2)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let ttl = [100_000, 300_000, 1_000_000, 10_000_000][random.below(4) as usize];
        let ttl = Duration::from_micros(ttl);
        let grace = if random.one_in(4) { ttl * 2 / 5 } else { ttl / 4 };
        let terminal = if random.one_in(3) { Terminal::Shared } else { Terminal::Apart };
        let policy = Policy { ttl, grace, stop: Signal::TERM, limit: None };
        let kill_at = policy.keeper_kills_at(moment(0), valid_for(ttl), Duration::ZERO);
        let mut world = Self {
            random,
            now: 0,
            events: BTreeMap::new(),
            serial: 0,
            policy,
            supervision: Supervision::new(policy, terminal, kill_at),
            deadline: valid_for(ttl).as_micros() as Time,
            store_is_up: true,
            not_ours_since: None,
            processes: Vec::new(),
            living: 0,
            we_stand_still: false,
            we_are_dead: false,
            keeper_is_dead: false,
            keeper_kills: false,
            keeper_kill_at: Some(kill_at.as_nanos() / 1_000),
            told_all_gone: false,
            waiting: Vec::new(),
            disturbed: false,
            verdict: None,
        };
        world.spawn();
        world.after(world.ttl() / 3, Event::Renew);
        world.after(0, Event::Look);
        world.draw_trouble();
        world
    }

    fn ttl(&self) -> Time {
        self.policy.ttl.as_micros() as Time
    }

    fn after(&mut self, span: Time, event: Event) {
        self.serial += 1;
        self.events.insert((self.now + span, self.serial), event);
    }

    fn soon(&mut self, event: Event) {
        let span = self.random.below(LATENCY);
        self.after(span, event);
    }

    fn draw_trouble(&mut self) {
        let ttl = self.ttl();
        for _ in 0..self.random.below(4) {
            self.disturbed = true;
            let at = self.random.below(3 * ttl);
            let event = match self.random.below(10) {
                0..=2 => Event::StoreIsUp(false),
                3 => Event::NotOurs,
                4 => Event::WeStop,
                5 => Event::WeDie,
                6 | 7 => Event::KeeperDies,
                8 => {
                    // A user who does not want to wait.
                    self.after(at + 1, Event::ToUs(sent(Signal::INT)));
                    self.after(at + 2, Event::ToUs(sent(Signal::QUIT)));
                    Event::ToUs(sent(Signal::TERM))
                }
                _ => {
                    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1];
                    Event::ToUs(sent(signals[self.random.below(4) as usize]))
                }
            };
            self.after(at, event);
            match event {
                Event::StoreIsUp(_) => {
                    let span = self.random.below(3 * ttl);
                    self.after(at + span, Event::StoreIsUp(true));
                }
                Event::WeStop => {
                    let span = self.random.below(2 * ttl);
                    self.after(at + span, Event::WeGoOn);
                }
                _ => {}
            }
        }
    }

    fn spawn(&mut self) -> usize {
        let hops_every = self.random.one_in(6).then(|| 500 + self.random.below(5_000));
        let process = Process {
            alive: true,
            doomed: false,
            ignores_requests: self.random.one_in(3),
            hops_every,
        };
        self.processes.push(process);
        self.living += 1;
        let id = self.processes.len() - 1;
        match hops_every {
            // The number of hops is bounded, or the search would take too long.
            Some(every) if id < 400 => self.after(every, Event::Fork(id)),
            _ => {
                let ttl = self.ttl();
                let lives = self.random.below(4 * ttl);
                self.after(lives, Event::End(id));
                if id < 8 && self.random.one_in(2) {
                    let at = self.random.below(lives);
                    self.after(at, Event::Fork(id));
                }
            }
        }
        id
    }

    fn end(&mut self, id: usize, exit: Exit) {
        if !std::mem::replace(&mut self.processes[id].alive, false) {
            return;
        }
        self.living -= 1;
        if id == 0 && !self.keeper_is_dead {
            self.soon_in_order(Input::Ended(exit));
        }
        self.tell_if_all_gone();
    }

    fn tell_if_all_gone(&mut self) {
        if self.living == 0 && !self.told_all_gone {
            self.told_all_gone = true;
            self.soon_in_order(Input::AllGone);
        }
    }

    /// Messages of the keeper arrive in the order in which they were sent.
    fn soon_in_order(&mut self, input: Input) {
        self.after(LATENCY, Event::ToUs(input));
    }

    /// Kills the processes that one scan finds. It may miss some.
    fn kill_whom_a_look_names(&mut self) {
        for id in 0..self.processes.len() {
            let process = &mut self.processes[id];
            if process.alive && !process.doomed && !self.random.one_in(4) {
                process.doomed = true;
                self.soon(Event::End(id));
            }
        }
    }

    fn request(&mut self, all: bool) {
        let count = if all { self.processes.len() } else { 1 };
        for id in 0..count {
            if self.processes[id].alive && !self.processes[id].ignores_requests {
                self.soon(Event::End(id));
            }
        }
    }

    fn keeper_begins_to_kill(&mut self) {
        if !self.keeper_is_dead && !std::mem::replace(&mut self.keeper_kills, true) {
            self.after(0, Event::KeeperLooks);
        }
    }

    fn left(&self) -> Duration {
        let left =
            if self.not_ours_since.is_some() { 0 } else { self.deadline.saturating_sub(self.now) };
        Duration::from_micros(left)
    }

    fn feed(&mut self, input: Input) {
        if self.we_are_dead || self.verdict.is_some() {
            return;
        }
        if self.we_stand_still {
            return self.waiting.push(input);
        }
        let left = self.left();
        for action in self.supervision.on(moment(self.now), left, input) {
            self.act(action);
        }
        if let Some(at) = self.supervision.kill_at(moment(self.now), self.left()) {
            self.after(LATENCY, Event::KillAt(at.as_nanos() / 1_000));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Kill if self.keeper_is_dead => self.kill_whom_a_look_names(),
            Action::SignalAll(_) if self.keeper_is_dead => self.request(true),
            Action::Forward(_) if self.keeper_is_dead => self.request(false),
            Action::Kill | Action::SignalAll(_) | Action::Forward(_) => {
                self.after(LATENCY, Event::ToKeeper(action));
            }
            Action::Finish(verdict) => self.finish(verdict),
            Action::ForwardOutside(_) | Action::Suspend | Action::Say(_) => {}
        }
    }

    fn finish(&mut self, verdict: Verdict) {
        self.verdict = Some(verdict);
        if verdict.lease == Lease::Release {
            assert_eq!(self.living, 0, "released while something lives");
        }
        assert_eq!(verdict.lease == Lease::Lost, self.supervision.lost.is_some(), "{verdict:?}");
        if !self.disturbed {
            assert_eq!((verdict.exit, verdict.lease), (Exit::Code(0), Lease::Release));
        }
        // Our end closes the socket.
        self.keeper_begins_to_kill();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Renew => self.renew(),
            Event::StoreIsUp(is_up) => self.store_is_up = is_up,
            Event::NotOurs => {
                self.not_ours_since.get_or_insert(self.now);
                self.feed(Input::Lost(Lost::NotOurs));
            }
            Event::Fork(id) => {
                let Process { alive, doomed, hops_every, .. } = self.processes[id];
                if alive && !doomed {
                    self.spawn();
                    if hops_every.is_some() {
                        self.end(id, Exit::Code(0));
                    }
                }
            }
            Event::End(id) => {
                let killed = self.processes[id].doomed;
                self.end(id, if killed { Exit::Signal(9) } else { Exit::Code(0) });
            }
            Event::ToUs(input) => self.feed(input),
            Event::KillAt(at) => self.keeper_kill_at = Some(at),
            Event::ToKeeper(_) | Event::KeeperLooks | Event::KeeperDies => self.keeper(event),
            Event::WeStop => self.we_stand_still = true,
            Event::WeGoOn => {
                self.we_stand_still = false;
                let waiting = std::mem::take(&mut self.waiting);
                waiting.into_iter().for_each(|input| self.feed(input));
            }
            Event::WeDie => {
                self.we_are_dead = true;
                self.keeper_begins_to_kill();
            }
            Event::Look => {
                if !self.we_stand_still {
                    self.feed(Input::Timer);
                }
                let next = self.supervision.next_look(moment(self.now), self.left());
                self.after(next.as_micros() as Time, Event::Look);
            }
        }
    }

    fn keeper(&mut self, event: Event) {
        if self.keeper_is_dead {
            return;
        }
        match event {
            Event::ToKeeper(Action::Kill) => self.keeper_begins_to_kill(),
            Event::ToKeeper(Action::SignalAll(_)) => self.request(true),
            Event::ToKeeper(_) => self.request(false),
            Event::KeeperLooks if self.living > 0 => {
                self.kill_whom_a_look_names();
                self.after(ROUND, Event::KeeperLooks);
            }
            // If both of us are gone, nobody can act, and no promise is made. The same holds if the
            // survivor stands still.
            Event::KeeperDies
                if !self.we_are_dead && !self.told_all_gone && self.verdict.is_none() =>
            {
                self.keeper_is_dead = true;
                self.events.retain(|_, event| *event != Event::WeStop && *event != Event::WeDie);
                self.happen(Event::WeGoOn);
                self.soon_in_order(Input::KeeperGone);
            }
            _ => {}
        }
    }

    fn renew(&mut self) {
        if self.we_are_dead || self.verdict.is_some() || self.not_ours_since.is_some() {
            return;
        }
        let ttl = self.ttl();
        if self.store_is_up && !self.we_stand_still && self.now < self.deadline {
            self.deadline = self.now + valid_for(self.policy.ttl).as_micros() as Time;
            self.after(ttl / 3, Event::Renew);
        } else {
            self.after(ttl / 20, Event::Renew);
        }
    }

    /// Kills when the keeper's own clock says so.
    fn keeper_looks_at_the_time(&mut self) {
        if self.keeper_kill_at.is_some_and(|at| self.now >= at) && !self.keeper_is_dead {
            self.keeper_kill_at = None;
            if self.living > 0 {
                self.soon_in_order(Input::KilledInTime);
            }
            self.keeper_begins_to_kill();
        }
    }

    fn check(&self) {
        if self.living == 0 {
            return;
        }
        let end = match self.not_ours_since {
            None => self.deadline,
            Some(since) => {
                let grace = self.policy.grace.min(LOST_GRACE_MAX).as_micros() as Time;
                self.deadline.max(since + grace + SLACK)
            }
        };
        assert!(
            self.now <= end,
            "{} processes work beyond the lease, at {}",
            self.living,
            self.now
        );
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            let keeper_at = self.keeper_kill_at.filter(|keeper_at| *keeper_at < at);
            if let Some(keeper_at) = keeper_at.filter(|_| !self.keeper_is_dead) {
                self.serial += 1;
                self.events.insert((at, 0), event);
                self.now = self.now.max(keeper_at);
                self.keeper_looks_at_the_time();
                continue;
            }
            self.now = at;
            self.check();
            self.happen(event);
            let over = self.living == 0 && (self.verdict.is_some() || self.we_are_dead);
            if over {
                return;
            }
        }
        panic!("nothing more happens, and it is not over");
    }
}

#[test]
fn no_process_works_beyond_its_lease_and_none_is_left_at_a_release() {
    let mut met = BTreeMap::new();
    for seed in 0..SEEDS {
        let ended = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            let what = match world.verdict {
                None => "dead",
                Some(Verdict { lease: Lease::Release, exit: Exit::LOST, .. }) => "stopped in time",
                Some(Verdict { lease: Lease::Release, .. }) => "released",
                Some(Verdict { lease: Lease::Lost, .. }) => "lost",
                Some(Verdict { lease: Lease::LeaveToExpire, .. }) => "left",
            };
            (what, world.keeper_is_dead)
        });
        let ended = ended.unwrap_or_else(|_| panic!("seed {seed}"));
        *met.entry(ended).or_insert(0) += 1;
    }
    // The test proves nothing about outcomes that never happen, so each must happen a few times.
    for what in ["dead", "stopped in time", "released", "lost", "left"] {
        for keeper_is_dead in [false, true] {
            let excused = keeper_is_dead && ["dead", "left"].contains(&what);
            let count = met.get(&(what, keeper_is_dead)).copied().unwrap_or(0);
            assert!(excused || count >= 5, "{what}, keeper dead: {keeper_is_dead}: {met:?}");
        }
    }
}
