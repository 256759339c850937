//! A whole run: several worlds side by side, then the black holes, and what they come to.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::black_hole;
use super::board::{Board, missing, owed};
use super::kind::Kind;
use super::record::{BlackHoles, Record, WakeUps};
use super::verdict::Verdict;
use super::world::{Make, World};
use crate::history::event::What;
use crate::virtual_host::SeededRandom;

/// How long after the end of everybody nothing of theirs may be left on the server.
const ALL_GONE: Duration = Duration::from_millis(500);

/// What a run is told.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What its worlds are made of.
    pub make: Make,
    /// How many worlds there are side by side.
    pub worlds: usize,
    /// How long faults are done.
    pub minutes: f64,
    /// What its choices follow from.
    pub seed: u64,
    /// Which faults are done.
    pub kinds: Vec<Kind>,
    /// How many black holes are tried.
    pub black_holes: u64,
    /// Where a history that breaks a promise is kept, for whoever looks for the cause.
    pub histories: PathBuf,
    /// The commit that is tried.
    pub commit: String,
}

impl Campaign {
    /// Runs. Returns its record, and what is wrong.
    ///
    /// # Panics
    ///
    /// If a server or a process cannot be dealt with.
    #[must_use]
    pub fn run(&self) -> (Record, Vec<String>) {
        let round = Round {
            board: Board::new(&self.kinds),
            began: Instant::now(),
            faults: AtomicU32::new(0),
        };
        let mut wrong = Vec::new();
        let (mut verdict, mut server) = (Verdict::default(), String::new());
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
                    }
                    Err(_) => wrong.push(format!("world {number} broke, see above")),
                }
            }
        });
        let minutes = round.began.elapsed().as_secs_f64() / 60.0;
        let black_holes = self.run_black_holes(&mut wrong);
        wrong.extend(verdict.texts.iter().cloned());
        wrong.extend(missing(&round.board.injected(), owed(self.minutes)));
        let record = Record {
            schema: "leasehold.trust.chaos.v1".to_owned(),
            commit: self.commit.clone(),
            server,
            minutes: (minutes * 10.0).round() / 10.0,
            seed: self.seed,
            acquisitions: verdict.attempted,
            granted: verdict.granted,
            faults: round.board.injected(),
            violations_in_model: verdict.in_model,
            violations_out_of_model: verdict.out_of_model,
            black_holes,
            wake_up_ms: WakeUps::of(verdict.wake_ups_ms),
        };
        (record, wrong)
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
        let server = version(&world);
        let lasts = Duration::from_secs_f64(self.minutes * 60.0);
        // From the first moment on: a machine that starts all of this is not calm, and one fault
        // after the other leaves no calm in which an error would need another cause.
        while round.began.elapsed() < lasts {
            let kind = round.board.next(&mut world.random);
            let fault = round.faults.fetch_add(1, Ordering::Relaxed);
            let attempts = one_fault(&mut world, fault, kind);
            let counts = round.board.done(kind, attempts);
            let mark = if counts { "" } else { ": too few, does not count" };
            let at = round.began.elapsed().as_secs_f64();
            println!("{at:7.1} s world {number} fault {fault:4} {kind:20} {attempts:4}{mark}");
        }
        let mut wrong = Vec::new();
        if let Err(complaint) = see_it_end(&mut world) {
            wrong.push(format!("world {number}: {complaint}"));
        }
        let events = world.journal.in_order();
        let verdict = Verdict::on(&events, world.ttl());
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
        Ended { verdict, wrong, server }
    }
}

/// What the worlds of a run share.
struct Round {
    board: Board,
    began: Instant,
    /// How many faults have begun.
    faults: AtomicU32,
}

/// What became of one world.
struct Ended {
    verdict: Verdict,
    wrong: Vec<String>,
    server: String,
}

/// Does a fault, and waits for one ttl. Returns how many acquisitions were attempted meanwhile.
fn one_fault(world: &mut World, fault: u32, kind: Kind) -> usize {
    let first = world.journal.len();
    let began = world.now();
    world.journal.tell(What::FaultBegan { fault, kind: kind.name().into() });
    world.inject(kind);
    world.journal.tell(What::FaultEnded { fault });
    let ended = world.now();
    let ttl = world.ttl();
    world.wait(ttl);
    world.look_at_keys();
    world.journal.attempts(first, began, ended + ttl)
}

/// Everybody ends, and what remains on the server has its time to go.
fn see_it_end(world: &mut World) -> Result<(), String> {
    let ended = world.end();
    let longest = world.ttl() * 2 + ALL_GONE;
    std::thread::park_timeout(longest);
    world.journal.tell(What::Over);
    world.look_at_keys();
    ended
}

fn version(world: &World) -> String {
    let info = world.server.command(&["INFO", "server"]).text();
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    format!("redis {}", version.unwrap_or("of no version"))
}
