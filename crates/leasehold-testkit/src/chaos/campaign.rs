//! A whole run: several worlds side by side, then the black holes, and the result.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::black_hole;
use super::board::{Board, missing, owed};
use super::calm;
use super::kind::Kind;
use super::record::{BlackHoles, Record, WakeUps};
use super::verdict::{Verdict, bounds};
use super::world::{Make, World};
use crate::history::event::What;
use crate::virtual_host::SeededRandom;

/// How long the server may still carry out requests after the last process has ended.
const ALL_GONE: Duration = Duration::from_millis(500);

/// A run with this many faults of each kind has surely seen everything once, such as the crash of a
/// `leasehold run` with a child.
const ALL_SEEN: u64 = 10;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The settings of its worlds.
    pub make: Make,
    /// How many worlds run side by side.
    pub worlds: usize,
    /// How many minutes of faults each world has.
    pub minutes: f64,
    /// The seed of its choices.
    pub seed: u64,
    /// The faults to inject.
    pub kinds: Vec<Kind>,
    /// The faults that cannot be injected on this machine, and the reason for each.
    pub left_out: BTreeMap<String, String>,
    /// How many black holes to test.
    pub black_holes: u64,
    /// The directory for histories with violations.
    pub histories: PathBuf,
    /// The commit that is tested.
    pub commit: String,
}

impl Campaign {
    /// Runs. Returns its record, and a list of problems.
    ///
    /// # Panics
    ///
    /// If a server or a process does not work as needed.
    #[must_use]
    pub fn run(&self) -> (Record, Vec<String>) {
        let round = Round {
            board: Board::new(&self.kinds),
            began: Instant::now(),
            faults: AtomicU32::new(0),
        };
        let mut wrong = Vec::new();
        let (mut verdict, mut server, mut killed_runs) = (Verdict::default(), String::new(), 0);
        std::thread::scope(|scope| {
            let worlds = if self.minutes > 0.0 { self.worlds } else { 0 };
            let worlds: Vec<_> = (0..worlds)
                .map(|number| {
                    let round = &round;
                    scope.spawn(move || self.run_world(number, round))
                })
                .collect();
            for (number, world) in worlds.into_iter().enumerate() {
                match world.join() {
                    Ok(ended) => {
                        verdict.add(ended.verdict);
                        wrong.extend(ended.wrong);
                        server = ended.server;
                        killed_runs += ended.killed_runs;
                    }
                    Err(_) => wrong.push(format!("world {number} broke, see above")),
                }
            }
        });
        let minutes = round.began.elapsed().as_secs_f64() / 60.0;
        let black_holes = self.run_black_holes(&mut wrong);
        wrong.extend(verdict.texts.iter().cloned());
        wrong.extend(missing(&round.board.injected(), owed(self.minutes)));
        wrong.extend(self.unjudged(&verdict, killed_runs));
        let record = Record {
            schema: "leasehold.trust.chaos.v1".to_owned(),
            commit: self.commit.clone(),
            deployment: self.make.deployment.name().to_owned(),
            server,
            minutes: (minutes * 10.0).round() / 10.0,
            seed: self.seed,
            acquisitions: verdict.attempted,
            granted: verdict.granted,
            faults: round.board.injected(),
            left_out: self.left_out.clone(),
            violations_in_model: verdict.in_model,
            violations_out_of_model: verdict.out_of_model,
            black_holes,
            wake_up_ms: WakeUps::of(verdict.wake_ups_ms),
            calm_s: verdict.calm.as_secs(),
            calm_wake_up_ms: WakeUps::of(verdict.calm_wake_ups_ms),
            shares_granted: verdict.shares,
            hand_overs_compared: verdict.hand_overs,
            killed_runs,
        };
        (record, wrong)
    }

    /// The promises that the run did not test, because nothing of the kind happened.
    fn unjudged(&self, verdict: &Verdict, killed_runs: u64) -> Vec<String> {
        let has_worlds = self.minutes > 0.0 && self.worlds > 0;
        let shares = has_worlds && self.make.deployment.shares();
        let crashes = self.make.runs > 0 && self.kinds.contains(&Kind::ClientCrash);
        // A short run may happen to compare no hand-over, and to kill only workers.
        let is_long = has_worlds && owed(self.minutes) >= ALL_SEEN;
        let calm_s = verdict.calm.as_secs();
        let needs = [
            // A busy machine may disturb a short run all the time.
            (owed(self.minutes) > 0 && calm_s == 0, "no world was calm after its last fault"),
            (shares && verdict.shares == 0, "nobody shared a lock"),
            (
                is_long && verdict.hand_overs == 0,
                "the fencing tokens of no hand-over were compared",
            ),
            (
                is_long && crashes && killed_runs == 0,
                "no `leasehold run` was killed while its child ran",
            ),
        ];
        let missing = needs.into_iter().filter(|(is_missing, _)| *is_missing);
        missing.map(|(_, text)| text.to_owned()).collect()
    }

    fn run_black_holes(&self, wrong: &mut Vec<String>) -> BlackHoles {
        let (Some(leasehold), 1..) = (&self.make.leasehold, self.black_holes) else {
            return BlackHoles::default();
        };
        let seen = black_hole::run(&self.make.chaos, leasehold, self.black_holes, self.seed);
        println!("black holes: {} of {}", seen.child_dead_in_time, seen.tried);
        if seen.child_dead_in_time < seen.tried {
            let late = seen.tried - seen.child_dead_in_time;
            wrong.push(format!("{late} children were not dead before the key was free"));
        }
        seen
    }

    fn run_world(&self, number: usize, round: &Round) -> Ended {
        let mut seeds = SeededRandom::new(self.seed);
        let seed = (0..=number).map(|_| seeds.next_u64()).last().expect("one at least");
        let mut world = World::start(&self.make, seed);
        let server = world.server().version();
        let lasts = Duration::from_secs_f64(self.minutes * 60.0);
        // Faults begin at once and follow each other without a pause. A machine that starts all
        // these processes is not calm, so no error needs another cause than the faults.
        while round.began.elapsed() < lasts {
            let kind = round.board.next(&mut world.random);
            let fault = round.faults.fetch_add(1, Ordering::Relaxed);
            let attempts = one_fault(&mut world, fault, kind);
            let counts = round.board.done(kind, attempts);
            let mark = if counts { "" } else { ": too few, does not count" };
            let at = round.began.elapsed().as_secs_f64();
            println!("{at:7.1} s world {number} fault {fault:4} {kind:20} {attempts:4}{mark}");
        }
        let bounds = bounds(world.ttl(), world.stays_after_crash());
        world.wait(calm::lasts(&bounds));
        world.note_own_failover(2 * round.faults.fetch_add(1, Ordering::Relaxed));
        let mut wrong = Vec::new();
        wrong.extend(world.take_wrong().iter().map(|text| format!("world {number}: {text}")));
        if let Err(complaint) = see_it_end(&mut world) {
            wrong.push(format!("world {number}: {complaint}"));
        }
        let events = world.journal.in_order();
        let verdict = Verdict::on(&events, world.ttl(), world.stays_after_crash());
        if !verdict.texts.is_empty() {
            let path = self.histories.join(format!("chaos-{}-{number}.jsonl", self.seed));
            let lines = events.iter().map(|event| crate::history::to_line(event) + "\n");
            let kept = std::fs::write(&path, lines.collect::<String>());
            wrong.push(match kept {
                Ok(()) => format!("the history of world {number} is in {}", path.display()),
                Err(error) => format!("the history of world {number} is lost: {error}"),
            });
            eprintln!("what world {number} complained of:\n{}", world.complaints());
        }
        Ended { verdict, wrong, server, killed_runs: world.killed_runs() }
    }
}

/// The state that the worlds of a run share.
struct Round {
    board: Board,
    began: Instant,
    /// How many faults have begun.
    faults: AtomicU32,
}

/// The result of one world.
struct Ended {
    verdict: Verdict,
    wrong: Vec<String>,
    server: String,
    killed_runs: u64,
}

/// Injects a fault and waits for one ttl. Returns how many acquisitions were attempted meanwhile.
fn one_fault(world: &mut World, fault: u32, kind: Kind) -> usize {
    let first = world.journal.len();
    let began = world.now();
    world.journal.tell(What::FaultBegan { fault, kind: kind.name().into() });
    world.note_own_failover(2 * fault);
    world.inject(kind);
    world.journal.tell(What::FaultEnded { fault });
    if kind == Kind::Failover {
        world.read_epoch();
    }
    let ended = world.now();
    let ttl = world.ttl();
    world.wait(ttl);
    world.note_own_failover(2 * fault + 1);
    world.look_at_keys();
    world.journal.attempts(first, began, ended + ttl)
}

/// Ends all processes. They end in order, so they leave no lock behind. The leases of processes
/// that were killed have ended in the calm.
fn see_it_end(world: &mut World) -> Result<(), String> {
    world.end()?;
    world.journal.tell(What::Over);
    world.look_at_keys();
    let left = world.left_behind();
    std::thread::park_timeout(ALL_GONE);
    world.look_at_keys();
    if left.is_empty() { Ok(()) } else { Err(format!("{} are left behind", left.join(", "))) }
}
