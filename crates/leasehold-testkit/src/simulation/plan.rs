//! What a seed stands for: the whole world of one run, drawn before it begins.

use std::time::Duration;

use leasehold::store::redis::Strict;

use super::clock::ServerClock;
use super::copies::{self, Copied};
use super::fault::Fault;
use super::nodes::{self, Nodes};
use super::strictness;
use super::worlds::{self, Draw, Kind};
use crate::history::{Bounds, model};
use crate::virtual_host::SeededRandom;

/// The world of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What everything follows from.
    pub seed: u64,
    /// How long the clients go on.
    pub span: Duration,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// How many keys they contend for.
    pub keys: usize,
    /// By how much the store keeps a lease beyond its validity.
    pub lock_delay: Duration,
    /// Whether its clients expect others who poll, so that what they release is free for anybody.
    pub coexists: bool,
    /// On which strict terms its servers are used, if they are.
    pub strict: Option<Strict>,
    /// Where its locks are.
    pub kept_in: KeptIn,
    /// Which copies its clients want, and of how many replicas, if they do.
    pub copies: Option<Copied>,
    /// How many times slower than usual everybody is: worlds of long leases last as much longer.
    pub pace: u64,
    /// How many leases one client takes at once, beside what its tasks do.
    pub crowd: usize,
    /// Whether leases go on by their token.
    pub detaches: bool,
    /// Whether nobody queues.
    pub is_unqueued: bool,
    /// How many clients of another library there are.
    pub foreigners: usize,
    /// What goes wrong, and when.
    pub faults: Vec<PlannedFault>,
    /// The clocks of the nodes: of one server, or of a quorum.
    pub(super) clocks: Vec<ServerClock>,
    pub(super) delay_us: (u64, u64),
}

/// Where the locks of a world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptIn {
    /// On a server, or on the nodes of a quorum.
    Servers,
    /// In the memory of one program.
    Memory,
    /// In a file that the processes of one machine share.
    File,
}

/// One client.
#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// How many tasks of it take locks.
    pub tasks: usize,
    /// The ttl of its leases.
    pub ttl: Duration,
    /// How much faster than the common clock its own runs, in millionths.
    pub faster_ppm: i64,
    /// For how long it keeps a lease with no guard.
    pub keep_idle: Duration,
    /// Whether its leases have fencing tokens.
    pub is_fenced: bool,
    /// Whether each of its tasks has a place of its own.
    pub is_fifo: bool,
    /// Whether its tasks do not all want the same.
    pub is_mixed: bool,
    /// Whether its tasks take one lock again and again, all at once, now and then.
    pub is_hot: bool,
    /// Whether it says who it is.
    pub is_named: bool,
    /// What for it takes locks.
    pub why: Option<&'static str>,
    /// The namespace of its keys.
    pub namespace: Option<&'static str>,
    /// After how long it is shut down and begins anew; `None`: it goes on till the end.
    pub shut_down_after: Option<Duration>,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFault {
    /// What.
    pub fault: Fault,
    /// After how long.
    pub at: Duration,
    /// For how long.
    pub lasts: Duration,
    /// Which client it concerns; `None`: all of them.
    pub client: Option<usize>,
    /// How much: what it means depends on the fault.
    pub much: u64,
    /// Which nodes it concerns, if it concerns any.
    pub nodes: Nodes,
}

/// Clocks may differ by 1 % over one ttl, so each side has a little less than half of that.
const DRIFT_PPM_MAX: u64 = 4_000;

/// How long it takes at most until hints are listened to again after a fault.
const LISTENS_AGAIN_WITHIN: Duration = Duration::from_secs(6);

/// How long what the dead have left is waited for in the shortest of worlds.
const ENDS_IN_LEAST: Duration = Duration::from_secs(3);

/// How long those who split the votes of a quorum take in all to come apart, at most.
const SPLITS_IN: Duration = Duration::from_millis(500);

/// How long those who queue nowhere rest at most before they ask again.
const POLLS_WITHIN: Duration = Duration::from_secs(1);

/// How long a node keeps what a quorum tries it by.
const PROBES_KEPT_FOR: Duration = Duration::from_secs(5);

impl Plan {
    /// The world that `seed` stands for, which goes on for `time` at least: the last seconds of it
    /// without clients, to see what they leave behind.
    #[must_use]
    pub fn new(seed: u64, time: Duration) -> Self {
        Self::asked_for(seed, time, &[])
    }

    /// As [`new`](Self::new), but of these kinds in any case, where the kinds that the seed has do
    /// not exclude them.
    #[must_use]
    pub fn asked_for(seed: u64, time: Duration, wanted: &[Kind]) -> Self {
        Self::draw(Draw { seed, known: &Kind::ALL, wanted }, time)
    }

    /// The world that `seed` would stand for if there were no other kinds than these: as it was
    /// before others were thought of.
    #[must_use]
    pub fn among(seed: u64, time: Duration, known: &[Kind]) -> Self {
        Self::draw(Draw { seed, known, wanted: &[] }, time)
    }

    fn draw(draw: Draw<'_>, time: Duration) -> Self {
        let seed = draw.seed;
        let span = time.saturating_sub(ENDS_IN_LEAST);
        // The numbers of neighbouring seeds must have nothing in common.
        let mut random = SeededRandom::new(SeededRandom::new(seed).next_u64() ^ 0x1ea5_e401_d000);
        let drifts = !random.once_in(4);
        // One is longer than any place in line, and so than what is handed over.
        let ttls: &[u64] =
            [&[300, 1_000, 3_000][..], &[1_000], &[400, 700], &[2_000, 4_000]][random.below(4)];
        let hot = random.below(6);
        let clients = (0..3 + random.below(6))
            .map(|number| {
                let ttl = Duration::from_millis(ttls[random.below(ttls.len())]);
                let faster_ppm = if drifts { drift_ppm(&mut random) } else { 0 };
                client(&mut random, ttl, faster_ppm, number == hot)
            })
            .collect::<Vec<_>>();
        let mut plan = Self {
            seed,
            span,
            keys: 1 + random.below(4),
            lock_delay: Duration::from_millis([0, 0, 0, 50, 500][random.below(5)]),
            clocks: vec![if drifts { clock(&mut random) } else { ServerClock::default() }],
            delay_us: [(50, 200), (100, 1_000), (1_000, 5_000)][random.below(3)],
            coexists: false,
            strict: None,
            kept_in: KeptIn::Servers,
            copies: None,
            pace: 1,
            crowd: 0,
            detaches: false,
            is_unqueued: false,
            foreigners: 0,
            faults: Vec::new(),
            clients,
        };
        plan.faults = faults(&mut random, &plan);
        nodes::draw(draw, &mut plan);
        worlds::draw_place(draw, &mut plan);
        plan.coexists = !plan.is_quorum() && coexists(draw);
        if worlds::draw_ttls(draw, &mut plan) {
            // In half of them nothing goes wrong: what does not hold there has no excuse.
            plan.faults = if random.once_in(2) { Vec::new() } else { faults(&mut random, &plan) };
        } else {
            strictness::draw(draw, &mut plan);
            copies::draw(draw, &mut plan);
        }
        worlds::draw(draw, &mut plan);
        plan
    }

    /// How many nodes there are: one is a server, and more are a quorum.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.clocks.len()
    }

    /// Whether a majority of several nodes has to grant a lease.
    #[must_use]
    pub const fn is_quorum(&self) -> bool {
        self.nodes() > 1
    }

    /// Whether its locks are on one machine, and not on servers.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.kept_in != KeptIn::Servers
    }

    /// Whether its world is of that kind.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        match kind {
            Kind::Quorum => self.is_quorum(),
            Kind::Coexist => self.coexists,
            Kind::Strict => self.strict.is_some(),
            Kind::Copies => self.copies.is_some(),
            Kind::Long => self.pace > 1,
            Kind::Crowd => self.crowd > 0,
            Kind::Detached => self.detaches,
            Kind::Evicting => {
                !self.is_quorum() && self.faults.iter().any(|one| one.fault == Fault::Eviction)
            }
            Kind::Namespaced => self.clients.iter().any(|client| client.namespace.is_some()),
            Kind::Bare => self.is_unqueued,
            Kind::Foreign => self.foreigners > 0,
            Kind::Fsync => self.copies.is_some_and(|copied| copied.disk_us.is_some()),
            Kind::Memory => self.kept_in == KeptIn::Memory,
            Kind::Sqlite => self.kept_in == KeptIn::File,
        }
    }

    /// How long a task rests at most before it takes the next lock: the longer the more there are,
    /// so that worlds of all sizes see about as many acquisitions.
    pub(super) fn pause_ms(&self) -> u64 {
        self.pace * self.clients.iter().map(|client| client.tasks as u64 * 60).sum::<u64>()
    }

    /// The longest ttl of all.
    #[must_use]
    pub fn ttl_max(&self) -> Duration {
        self.clients.iter().map(|client| client.ttl).max().unwrap_or_default()
    }

    /// By how much the server's clock goes back in all.
    #[must_use]
    pub fn steps_back(&self) -> Duration {
        let back = self.faults.iter().filter(|planned| planned.fault == Fault::ClockStepBack);
        back.map(|planned| Duration::from_millis(planned.much)).sum()
    }

    /// How far clocks drift apart that are right when it begins.
    pub(super) fn clocks_apart_max(&self) -> Duration {
        let apart = u32::try_from(2 * DRIFT_PPM_MAX).expect("a part of a million");
        (self.span + self.kept_for()) * apart / 1_000_000 + Duration::from_millis(2)
    }

    /// Whether everything is promised in it.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        let is_covered = |one: &PlannedFault| {
            let kind = one.fault.name_in(self.strict.is_some());
            model::promised(kind).is_some_and(|promised| promised.windows)
        };
        self.faults.iter().all(is_covered)
    }

    /// How long things may take in it.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let usual = Bounds::of_ttl(self.ttl_max());
        let message = Duration::from_micros(self.delay_us.1);
        let splits = if self.is_quorum() { SPLITS_IN } else { Duration::ZERO };
        // It begins with the first ask that finds the server there again.
        let quarantine = self.strict.map_or(Duration::ZERO, Strict::quarantine);
        Bounds {
            lock_delay: self.lock_delay + self.steps_back(),
            margin: self.lock_delay,
            // What is asked, answered and told, and a grant that comes too late and is asked for
            // again.
            slack: Duration::from_millis(50) + message * 8 + splits,
            reconnect: LISTENS_AGAIN_WITHIN + quarantine,
            poll: if self.is_unqueued { POLLS_WITHIN } else { usual.poll },
            // What was queued while the connection was made is sent once it is.
            queued: Duration::from_secs(2),
            wanted: self.wanted(),
            ..usual
        }
    }

    /// For how long the server may keep what the dead have left: a lease for nobody, and a place
    /// behind it that it is handed to.
    #[must_use]
    pub fn kept_for(&self) -> Duration {
        let kept = self.ttl_max() + self.lock_delay + self.waiter_ttl_max() + self.lock_delay;
        let kept = if self.is_quorum() { kept.max(PROBES_KEPT_FOR) } else { kept };
        kept + Bounds::drift(kept) + self.steps_back() + Duration::from_secs(1)
    }

    /// How long a client that keeps a lease with no guard may take to hear that a client of another
    /// process waits for a file: until its next renewal, a third of the ttl and the tick that
    /// renewals share.
    fn wanted(&self) -> Duration {
        let keeps = self.clients.iter().any(|client| !client.keep_idle.is_zero());
        if self.kept_in != KeptIn::File || !keeps {
            return Duration::ZERO;
        }
        let ttl = self.ttl_max();
        let span = ttl / 3 + (ttl / 30).min(Duration::from_millis(500));
        span + Bounds::drift(span)
    }

    fn waiter_ttl_max(&self) -> Duration {
        self.ttl_max().min(Duration::from_secs(3))
    }
}

/// Whether a world is one of those in which a free key is often met by whom it is not meant for:
/// a release hands nothing over there. One in eight; drawn apart, so that all other worlds are what
/// they would be without.
fn coexists(draw: Draw<'_>) -> bool {
    let mut random = SeededRandom::new(SeededRandom::new(draw.seed).next_u64() ^ 0x0c0e_7157_0b57);
    random.once_in(8) || draw.wanted.contains(&Kind::Coexist)
}

fn client(random: &mut SeededRandom, ttl: Duration, faster_ppm: i64, is_hot: bool) -> ClientPlan {
    let is_crowd = is_hot || random.once_in(3);
    let idle = [Duration::from_millis(50), Duration::from_secs(2), ttl * 2];
    ClientPlan {
        tasks: if is_crowd { 2 + random.below(5) } else { 1 + random.below(2) },
        ttl,
        faster_ppm,
        keep_idle: if random.once_in(3) { idle[random.below(3)] } else { Duration::ZERO },
        is_fenced: !random.once_in(5),
        is_fifo: random.once_in(6),
        is_mixed: random.once_in(5),
        is_hot,
        is_named: random.once_in(3),
        why: random.once_in(4).then_some("what all do"),
        namespace: None,
        shut_down_after: random
            .once_in(5)
            .then(|| Duration::from_millis(2_000 + random.next_u64() % 10_000)),
    }
}

fn drift_ppm(random: &mut SeededRandom) -> i64 {
    let drawn = random.next_u64() % (2 * DRIFT_PPM_MAX + 1);
    drawn.cast_signed() - DRIFT_PPM_MAX.cast_signed()
}

/// One of the shapes, or several at once. Wave and jitter together stay below the 2 ms that are
/// allowed beside the drift, with the whole milliseconds that the server counts in.
pub(super) fn clock(random: &mut SeededRandom) -> ServerClock {
    let mut clock = ServerClock::default();
    if random.once_in(2) {
        clock.faster_ppm = drift_ppm(random);
    }
    if random.once_in(3) {
        clock.wave_us = random.next_u64() % 200;
        clock.wave = Duration::from_millis(500 + random.next_u64() % 5_000);
    }
    if random.once_in(3) {
        clock.jitter_us = random.next_u64() % 200;
    }
    clock
}

/// How long most faults last at most, and how long nothing goes wrong at the end of a run.
const FAULT_MAX: Duration = Duration::from_secs(3);
const CALM_MIN: Duration = Duration::from_secs(4);

/// How far a clock steps at most, in milliseconds.
const STEP_MAX_MS: u64 = 40_000;

/// At least five of them, in the part of the run that leaves time to see how it recovers.
fn faults(random: &mut SeededRandom, plan: &Plan) -> Vec<PlannedFault> {
    // A third of the worlds have a server that forgets, or whose clock steps: not both, since a
    // server that forgets after its clock went back is beyond what fencing tokens can survive.
    let beyond: &[Fault] = match random.below(6) {
        0 => &Fault::FORGETTING,
        1 => &Fault::STEPS,
        _ => &[],
    };
    // At the end there is calm: what is asked then is not asked in trouble.
    let felt = plan.bounds().aftermath() + FAULT_MAX + CALM_MIN;
    let troubled = (plan.span * 3 / 5).min(plan.span.saturating_sub(felt));
    let troubled_ms = u64::try_from(troubled.as_millis()).unwrap_or(u64::MAX).max(2_000);
    let number = 5 + random.below(8);
    let mut faults = (0..number)
        .map(|_| {
            let fault = if !beyond.is_empty() && random.once_in(3) {
                beyond[random.below(beyond.len())]
            } else {
                Fault::COVERED[random.below(Fault::COVERED.len())]
            };
            let at = Duration::from_millis(500 + random.next_u64() % (troubled_ms - 500));
            planned(random, fault, at, plan)
        })
        .collect::<Vec<_>>();
    faults.sort_by_key(|planned| planned.at);
    faults
}

pub(super) fn planned(
    random: &mut SeededRandom,
    fault: Fault,
    at: Duration,
    plan: &Plan,
) -> PlannedFault {
    let ttl_ms = u64::try_from(plan.ttl_max().as_millis()).unwrap_or(u64::MAX);
    let (lasts_ms, much) = match fault {
        // For how long at most a message is on its way.
        Fault::Delay => (200 + random.next_u64() % 3_000, [20, 200, 1_000][random.below(3)]),
        Fault::Loss => (500 + random.next_u64() % 3_000, 3 + random.next_u64() % 20),
        // How many requests are met.
        Fault::ReplyLost | Fault::LateRequest | Fault::Duplicate => {
            (500 + random.next_u64() % (2 * ttl_ms), 1 + random.next_u64() % 4)
        }
        Fault::ClientCrash | Fault::ServerRestart | Fault::RestartEmpty | Fault::RestartOld => {
            (random.next_u64() % 1_000, random.next_u64())
        }
        // All of them together set a clock back by less than a counter is kept for.
        Fault::ClockStepForward | Fault::ClockStepBack => {
            (0, 1 + random.next_u64() % (2 * ttl_ms).min(STEP_MAX_MS))
        }
        Fault::Reset | Fault::SubscriberKill | Fault::ScriptFlush | Fault::Flushall => (0, 0),
        // How many tenths of a second are lost.
        Fault::Failover => (random.next_u64() % 500, random.next_u64()),
        Fault::DroppedFuture => (500 + random.next_u64() % 3_000, 0),
        _ => (50 + random.next_u64() % (ttl_ms * 3 / 2), random.next_u64()),
    };
    let all = random.once_in(4);
    let client = (!all).then(|| random.below(plan.clients.len()));
    let lasts = Duration::from_millis(lasts_ms);
    PlannedFault { fault, at, lasts, client, much, nodes: Nodes::FIRST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_world_is_as_large_and_as_troubled_as_promised() {
        let (mut quorums, mut coexisting, mut evicting, mut strict) = (0, 0, 0, 0);
        for seed in 0..2_000 {
            let plan = Plan::new(seed, Duration::from_secs(30));
            assert!((3..=8).contains(&plan.clients.len()));
            assert!((1..=4).contains(&plan.keys));
            assert!(plan.faults.len() >= 5 || plan.is(Kind::Long) || plan.is(Kind::Evicting));
            assert!([1, 3, 4, 5].contains(&plan.nodes()));
            quorums += u32::from(plan.is_quorum());
            coexisting += u32::from(plan.coexists);
            strict += u32::from(plan.strict.is_some());
            assert!(!(plan.is_quorum() && plan.coexists), "others would poll a majority");
            let hits = |node| plan.faults.iter().any(|one| one.nodes.has(node));
            assert!(plan.is_quorum() || plan.faults.is_empty() || hits(0) && !hits(1));
            let evicts = plan.faults.iter().any(|one| one.fault == Fault::Eviction);
            evicting += u32::from(evicts && plan.is_quorum());
            assert!(!plan.is_quorum() || plan.is_covered() != evicts, "it forgets: seed {seed}");
            assert!(plan.is_quorum() || plan.is(Kind::Evicting) == evicts, "seed {seed}");
            let kinds = |some: &[Fault]| plan.faults.iter().any(|one| some.contains(&one.fault));
            assert!(
                !(kinds(&Fault::FORGETTING) && kinds(&Fault::STEPS)),
                "a server that forgets and whose clock steps: seed {seed}"
            );
        }
        assert!((200..300).contains(&quorums), "{quorums} of 2 000 worlds have a quorum");
        assert!((180..300).contains(&strict), "{strict} of 2 000 worlds are strict");
        assert!((150..300).contains(&coexisting), "in {coexisting} of 2 000 others may poll");
        assert!((90..160).contains(&evicting), "in {evicting} of 2 000 worlds nodes evict");
    }
}
