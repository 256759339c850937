//! The server, the programs that contend on it, and what they are made to do.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};

use super::contender::{Contender, Turns};
use super::faults::{self, Begins, Fault, Key, endure};
use super::judge::{Verdict, judge};
use super::pairs::{On, Pair, has_turns};
use crate::bench::PROGRAM;
use crate::rivals::{By, Process, Program, Server, Subject, now_ns};
use crate::step;

/// How long one pair may take for each acquisition of the slower side, and at least.
const SPAN_OF_ONE: Duration = Duration::from_millis(300);
const SPAN_MIN: Duration = Duration::from_secs(30);

/// How often the counts are looked at.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// How many processes and tasks each side has, how long they hold the lock, and its ttl.
const PROCESSES: usize = 2;
const TASKS: usize = 2;
const HOLD: Duration = Duration::from_millis(2);
const TTL: Duration = Duration::from_secs(4);

/// The ttl of our locks on ZooKeeper. The shortest session that the server allows is four seconds,
/// and a lease must be shorter.
const ZOOKEEPER_TTL: Duration = Duration::from_millis(1_500);
const ZOOKEEPER_SESSION: Duration = Duration::from_secs(4);

/// How often to try a fault if its end was not seen.
const TRIES_MAX: usize = 3;

/// The exit code of the command for a key that is not a lock.
const NO_LOCK: i32 = 78;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Theirs,
}

pub(super) struct Contest {
    server: Server,
    /// The process of the server, and its address.
    zookeeper: Option<(Process, String)>,
    ours: Program,
    /// The programs of the other libraries, or why there is none.
    theirs: HashMap<By, Result<Program, String>>,
}

impl Contest {
    /// Builds our own programs, as the tests use them. The other programs are built when they are
    /// needed.
    pub(super) fn new() -> Result<Self, String> {
        let mut build = step::cargo();
        // Build the tests too, so that nothing is built twice with other features.
        step::run(build.args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--tests",
            "--bins",
        ]))?;
        let ours = vec![step::built("debug", PROGRAM).into()];
        Ok(Self { server: Server::start()?, zookeeper: None, ours, theirs: HashMap::new() })
    }

    /// Builds the program of another library. Returns whether that is possible here.
    pub(super) fn can_run(&mut self, theirs: &Subject) -> bool {
        let built = self.theirs.entry(theirs.by).or_insert_with(|| match theirs.by {
            By::Us => Ok(self.ours.clone()),
            By::Others(language) => {
                eprintln!("== building the programs in {}", language.name());
                let built = language.build();
                built.map_err(|error| format!("libraries in {}: {error}", language.name()))
            }
        });
        built.is_ok()
    }

    /// Gives a pair a server that holds no locks yet.
    pub(super) fn serve(&mut self, on: On) -> Result<(), String> {
        if on == On::Redis {
            return self.server.flush();
        }
        let mut process = Process::start(&self.ours, &["zookeeper".to_owned()])?;
        let address = process.hear("at")?.concat();
        self.zookeeper = Some((process, address));
        Ok(())
    }

    /// Says why some programs cannot run here.
    pub(super) fn not_built(&self) -> Vec<String> {
        self.theirs.values().filter_map(|built| built.clone().err()).collect()
    }

    /// Runs both sides until each has had the lock often enough.
    pub(super) fn contend(&self, pair: &Pair, acquisitions: usize) -> Result<Verdict, String> {
        let start = |side| -> Result<Vec<Process>, String> {
            (0..PROCESSES).map(|_| self.process(pair, side, TTL)).collect()
        };
        let (ours, theirs) = (start(Side::Ours)?, start(Side::Theirs)?);
        let from = now_ns();
        let contend = |side, processes: Vec<Process>| -> Result<Vec<Contender>, String> {
            let order = order(pair, side, "shared", TASKS, HOLD);
            let contender = |process| {
                let mut contender = Contender::new(process, order.clone());
                contender.begin().map(|()| contender)
            };
            processes.into_iter().map(contender).collect()
        };
        let mut all = contend(Side::Ours, ours)?;
        all.extend(contend(Side::Theirs, theirs)?);
        let most = SPAN_OF_ONE.saturating_mul(u32::try_from(acquisitions).unwrap_or(u32::MAX));
        let until = Instant::now() + most.max(SPAN_MIN);
        let had = |side: &[Contender]| side.iter().map(|it| it.turns().0.len()).sum::<usize>();
        loop {
            all.iter_mut().try_for_each(Contender::read)?;
            let (ours, theirs) = all.split_at(PROCESSES);
            let theirs_had = if has_turns(pair.theirs) { had(theirs) } else { acquisitions };
            if had(ours).min(theirs_had) >= acquisitions || Instant::now() >= until {
                break;
            }
            std::thread::sleep(LOOKS_EVERY);
        }
        Contender::end(&mut all.iter_mut().collect::<Vec<_>>());
        let turns: Vec<Turns> = all.iter().map(|it| it.turns().clone()).collect();
        let (ours, theirs) = turns.split_at(PROCESSES);
        judge(ours, theirs, from, acquisitions)
    }

    /// Kills and stops holders of both sides. Returns what went wrong.
    pub(super) fn faults(&self, pair: &Pair) -> Vec<String> {
        let faults = [Fault::Killed, Fault::Stopped];
        let cases = faults.map(|fault| [Side::Ours, Side::Theirs].map(|victim| (fault, victim)));
        let mut cases: Vec<_> = cases.concat();
        cases.retain(|(_, victim)| *victim == Side::Theirs || pair.lock_outlasts_its_program());
        let mut wrong = Vec::new();
        for _ in 0..TRIES_MAX {
            for (case, endured) in cases.clone().into_iter().zip(self.endure_all(pair, &cases)) {
                if endured != Ok(false) {
                    cases.retain(|it| *it != case);
                }
                let (fault, victim) = case;
                let of_case = |what| format!("{victim:?} {fault:?}: {what}");
                wrong.extend(endured.err().map(of_case));
            }
        }
        if !cases.is_empty() {
            wrong.push(format!("the machine was too slow to see what follows {cases:?}"));
        }
        wrong
    }

    /// Runs all cases at the same time, each on a key of its own.
    fn endure_all(&self, pair: &Pair, cases: &[(Fault, Side)]) -> Vec<Result<bool, String>> {
        let start = |fault: Fault, victim: Side| {
            let name = format!("{fault:?}-{victim:?}-{}", now_ns()).to_lowercase();
            let contender = |side| {
                let process = self.process(pair, side, faults::TTL)?;
                // A single task would lock again at once. Then no Leasehold client waits, so
                // Leasehold does not pause for foreign clients.
                let tasks = if side == Side::Ours { 2 } else { 1 };
                let order = order(pair, side, &name, tasks, faults::HOLD);
                Ok::<_, String>(Contender::new(process, order))
            };
            let other = if victim == Side::Ours { Side::Theirs } else { Side::Ours };
            let key = OnServer { server: &self.server, key: pair.theirs.key(&name), on: pair.on };
            Ok::<_, String>((contender(victim)?, contender(other)?, key))
        };
        std::thread::scope(|scope| {
            let running = cases.iter().map(|&(fault, side)| {
                let started = start(fault, side);
                scope.spawn(move || {
                    let (mut victim, mut other, key) = started?;
                    let victim_has_turns = match side {
                        // The single task of the other side locks again at once. It may win each
                        // race for the key, so our side might never have it.
                        Side::Ours => false,
                        Side::Theirs => has_turns(pair.theirs),
                    };
                    let later = !victim_has_turns || pair.both_poll();
                    let begins = if later { Begins::Later } else { Begins::AtOnce };
                    endure(fault, &mut victim, (&mut other, begins), &key)
                })
            });
            let running: Vec<_> = running.collect();
            let joined = running.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// Checks that Leasehold names locks of another type as such, and leaves them as they are.
    pub(super) fn leaves_another_type_alone(&self, theirs: &Subject) -> Result<(), String> {
        let mut holder = self.other(theirs, &self.server.address(), TTL)?;
        holder.tell("lock other")?;
        holder.moment("held")?;
        let mut ours = Command::new(step::built("debug", "leasehold"));
        ours.args(["--url", &format!("redis://{}", self.server.address())]);
        ours.args(["run", "other", "-n", "--", "true"]);
        let done = ours.output().map_err(|error| format!("cannot start leasehold: {error}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.code() != Some(NO_LOCK) || !said.contains("not a lock of this kind") {
            return Err(format!("leasehold ended with {}, and said: {said}", done.status));
        }
        // The holder fails if its lock is gone.
        holder.tell("unlock other")?;
        holder.moment("freed").map(|_| ())
    }

    /// Starts a process of a side.
    fn process(&self, pair: &Pair, side: Side, ttl: Duration) -> Result<Process, String> {
        let zookeeper = || {
            let (_, address) = self.zookeeper.as_ref().ok_or("no server was started")?;
            Ok::<_, String>(address.clone())
        };
        let (address, ttl) = match (pair.on, side) {
            (On::Redis, _) => (self.server.address(), ttl),
            (On::Zookeeper, Side::Ours) => {
                let session = ZOOKEEPER_SESSION.as_secs();
                let url = format!("zookeeper://{}/?session_timeout={session}s", zookeeper()?);
                (url, ZOOKEEPER_TTL)
            }
            (On::Zookeeper, Side::Theirs) => (zookeeper()?, ZOOKEEPER_SESSION),
        };
        if side == Side::Theirs {
            return self.other(pair.theirs, &address, ttl);
        }
        let (library, ttl_ms) = (pair.ours.library().to_owned(), ttl.as_millis().to_string());
        Process::start(&self.ours, &["rival".to_owned(), library, address, ttl_ms, "0".to_owned()])
    }

    fn other(&self, theirs: &Subject, address: &str, ttl: Duration) -> Result<Process, String> {
        let program = self.theirs.get(&theirs.by).ok_or("it was not built")?;
        let program = program.as_ref().map_err(String::clone)?;
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Process::start(program, &theirs.arguments(address, ttl_ms))
    }
}

impl Drop for Contest {
    fn drop(&mut self) {
        if let Some((process, _)) = &mut self.zookeeper {
            process.close();
        }
    }
}

/// A key of a pair.
struct OnServer<'a> {
    server: &'a Server,
    key: String,
    on: On,
}

impl Key for OnServer<'_> {
    fn lasts(&self) -> Result<Duration, String> {
        match self.on {
            On::Redis => self.server.time_left_ms(&self.key).map(Duration::from_millis),
            // A session that falls silent lasts at least this long: its last ping is not old.
            On::Zookeeper => Ok(ZOOKEEPER_SESSION / 2),
        }
    }

    fn value(&self) -> Result<String, String> {
        match self.on {
            On::Redis => self.server.text(&self.key),
            On::Zookeeper => Ok(String::new()),
        }
    }
}

/// The order for a process of a side. Some libraries put a prefix before the name. Then our side
/// has to name the whole key.
fn order(pair: &Pair, side: Side, name: &str, tasks: usize, hold: Duration) -> String {
    let name = match side {
        Side::Ours => pair.theirs.key(name),
        Side::Theirs => name.to_owned(),
    };
    format!("contend {name} {tasks} {}", hold.as_millis())
}
