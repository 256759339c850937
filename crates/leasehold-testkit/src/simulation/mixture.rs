//! Measures who gets a lock that our clients and clients of another library, which poll, want all
//! the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::Release;
use leasehold::core::Moment;
use leasehold::host::Host;
use tokio::sync::oneshot;

use super::backend::connect;
use super::clock::ServerClock;
use super::log::Log;
use super::network::{Network, SimulatedConnector};
use super::process::Process;
use super::server::Server;
use super::worlds::DELETE_OWN;
use crate::VirtualHost;
use crate::history::event::ProcessId;
use crate::protocol::{Client, Command, Connection, Value};
use crate::virtual_host::SeededRandom;

/// A world without faults. Each client holds one lock of one server for a moment, and wants it
/// again at once.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// The seed of every random choice.
    pub seed: u64,
    /// How many processes use Leasehold.
    pub clients: usize,
    /// How many tasks of each process that uses Leasehold want the lock.
    pub tasks: usize,
    /// How many processes of another library want the lock.
    pub foreigners: usize,
    /// How long after our processes the foreign ones begin.
    pub begin_after: Duration,
    /// The shortest and the longest pause between two polls, in milliseconds.
    pub poll_ms: (u64, u64),
    /// How long each holder has the lock.
    pub hold: Duration,
    /// How long the run takes.
    pub span: Duration,
    /// The shortest and the longest delay of one message, in microseconds.
    pub delay_us: (u64, u64),
}

/// One side of a mixture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// How often each member got the lock.
    pub turns: Vec<u64>,
    /// How long it took until a member first had the lock.
    pub first: Duration,
    /// The longest time in which no member got the lock.
    pub longest_gap: Duration,
    /// The longest time that one member went without a grant.
    pub longest_wait: Duration,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// Our tasks.
    pub ours: Side,
    /// The other library.
    pub foreign: Side,
    /// How often a holder had the lock while another holder had it.
    pub overlaps: usize,
    /// Whether each opening is long enough to meet a poll of each foreign client.
    is_quick: bool,
}

/// The longest time without the lock for one of our tasks, and for the other library as a whole.
/// How a library divides its share among its own clients is not judged.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The length of an opening while no foreign client was seen.
const OPENS_FOR_MS: u64 = 30;

/// One time with the lock.
#[derive(Clone, Copy, Debug)]
struct Turn {
    who: usize,
    from: Moment,
    to: Moment,
}

type Turns = Arc<Mutex<Vec<Turn>>>;

impl Side {
    /// How often any member got the lock.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.turns.iter().sum()
    }

    fn of(members: std::ops::Range<usize>, turns: &[Turn], from: Moment, to: Moment) -> Self {
        let longest = |turns: &[Turn]| {
            let ends = std::iter::once(from).chain(turns.iter().map(|turn| turn.to));
            let begins = turns.iter().map(|turn| turn.from).chain([to]);
            ends.zip(begins).map(|(end, begin)| begin.since(end)).max().unwrap_or_default()
        };
        let among: Vec<_> =
            turns.iter().filter(|turn| members.contains(&turn.who)).copied().collect();
        let of = |who| among.iter().filter(|turn| turn.who == who).copied().collect();
        let each: Vec<Vec<Turn>> = members.map(of).collect();
        Self {
            turns: each.iter().map(|turns| turns.len() as u64).collect(),
            first: among.first().map_or(to, |turn| turn.from).since(from),
            longest_gap: longest(&among),
            longest_wait: each.iter().map(|turns| longest(turns)).max().unwrap_or_default(),
        }
    }

    /// Whether this side has at least a tenth of an equal share of all grants.
    fn has_its_share(&self, other: &Self) -> bool {
        let (all, members) = (self.grants() + other.grants(), self.turns.len() as u64);
        self.grants() * 10 * (members + other.turns.len() as u64) >= all * members
    }
}

impl Mixed {
    /// A description of the result if it breaks a promise.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        let Self { ours, foreign, overlaps, is_quick } = self;
        let complaint = if *overlaps > 0 {
            "two had the lock at once"
        } else if ours.longest_wait > WAIT_MAX {
            "one of our tasks waited for too long"
        } else if foreign.longest_gap.max(foreign.first) > WAIT_MAX && *is_quick {
            "the other library waited for too long"
        } else if !ours.has_its_share(foreign) {
            "we have too small a share"
        } else if !foreign.has_its_share(ours) {
            "the other library has too small a share"
        } else {
            return None;
        };
        Some(format!("{complaint}: {self:?}"))
    }
}

impl Mixture {
    /// A world of a seed: how many there are on each side, how they poll, and the network.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed ^ 0x0a11_0fd1_ff05);
        let (clients, tasks) = [(2, 2), (3, 1), (1, 4), (4, 2)][random.below(4)];
        // The last two are the pauses of redsync, and of bsm/redislock and redis-py.
        let polls = [(1, 1), (2, 10), (10, 10), (10, 30), (50, 250), (100, 100)];
        Self {
            seed,
            clients,
            tasks,
            foreigners: 2 + random.below(4),
            begin_after: Duration::from_millis(random.next_u64() % 2_000),
            poll_ms: polls[random.below(polls.len())],
            hold: Duration::from_millis([1, 2, 10][random.below(3)]),
            span: Duration::from_secs(20),
            delay_us: [(20, 50), (50, 200), (100, 1_000)][random.below(3)],
        }
    }

    /// Runs the world.
    ///
    /// # Panics
    ///
    /// If a call fails, since nothing in this world can make a call fail.
    #[must_use]
    pub fn run(self) -> Mixed {
        let host = VirtualHost::new(self.seed);
        let mut seeds = SeededRandom::new(self.seed ^ 0x0111_7432);
        let log = Log::new(&host);
        let server = Server::new(ServerClock::default(), log.clone());
        let network = Network::new(&host, server, self.delay_us, seeds.next_u64(), log);
        let (turns, began) = (Turns::default(), host.now());
        for number in 0..self.clients + self.foreigners {
            let id = ProcessId(u32::try_from(number).expect("some processes"));
            let process = Process::new(id, &host, 0, seeds.next_u64());
            let player = Player {
                mixture: self,
                connector: network.connector(&process),
                process: process.clone(),
                host: Arc::clone(&host),
                turns: Arc::clone(&turns),
                random: SeededRandom::new(seeds.next_u64()),
            };
            process.spawn(if number < self.clients {
                Box::pin(player.queues(number * self.tasks))
            } else {
                Box::pin(player.polls(self.clients * self.tasks + number - self.clients))
            });
        }
        host.run(host.sleep_until(began + self.span));
        let ended = host.now();
        host.drop_tasks();
        let turns = std::mem::take(&mut *turns.lock().unwrap_or_else(PoisonError::into_inner));
        self.judged(turns, began, ended)
    }

    fn judged(self, mut turns: Vec<Turn>, began: Moment, ended: Moment) -> Mixed {
        turns.sort_by_key(|turn| turn.from);
        let ours = self.clients * self.tasks;
        let foreign = began + self.begin_after;
        Mixed {
            ours: Side::of(0..ours, &turns, began, ended),
            foreign: Side::of(ours..ours + self.foreigners, &turns, foreign, ended),
            overlaps: turns.windows(2).filter(|two| two[1].from < two[0].to).count(),
            is_quick: self.poll_ms.1 <= OPENS_FOR_MS,
        }
    }
}

/// A process of either kind.
struct Player {
    mixture: Mixture,
    connector: SimulatedConnector,
    process: Process,
    host: Arc<VirtualHost>,
    turns: Turns,
    random: SeededRandom,
}

impl Player {
    /// Runs the tasks of one of our clients. The first task has the number `first`.
    async fn queues(self, first: usize) {
        let own = Arc::new(self.process.clone());
        let builder = connect(std::slice::from_ref(&self.connector), &own).await;
        let builder = builder.expect("the server is there");
        let client = builder.host(own).connect().await.expect("connected");
        for who in first..first + self.mixture.tasks {
            let (mutex, host, turns) =
                (client.mutex("hot"), Arc::clone(&self.host), Arc::clone(&self.turns));
            let (process, hold) = (self.process.clone(), self.mixture.hold);
            self.process.spawn(Box::pin(async move {
                loop {
                    let guard = mutex.lock().await.expect("nothing is wrong");
                    let from = host.now();
                    process.sleep_until(process.now() + hold).await;
                    turned(&turns, Turn { who, from, to: host.now() });
                    let released = guard.release().await.expect("nothing is wrong");
                    assert_eq!(released, Release::Released);
                }
            }));
        }
        std::future::pending::<()>().await;
    }

    /// Runs a foreign client.
    async fn polls(mut self, who: usize) {
        self.process.sleep_until(self.process.now() + self.mixture.begin_after).await;
        let connected = Client::connect(&self.connector).await.expect("the server is there");
        let (_open, closed) = oneshot::channel::<()>();
        let Connection { client, io, .. } = connected;
        self.process.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                _closed = closed => {}
                () = io => {}
            }
        }));
        loop {
            let token = format!("foreign{:016x}", self.random.next_u64());
            let set = Command::new("SET").arg("hot").arg(&token).arg("NX").arg("PX");
            let answer = client.ask(&set.number(4_000)).await.expect("an answer");
            if answer.expect("no error") == Value::Nil {
                let (least, most) = self.mixture.poll_ms;
                let span = least * 1_000 + self.random.next_u64() % ((most - least) * 1_000 + 1);
                let until = self.process.now() + Duration::from_micros(span);
                self.process.sleep_until(until).await;
                continue;
            }
            let from = self.host.now();
            self.process.sleep_until(self.process.now() + self.mixture.hold).await;
            turned(&self.turns, Turn { who, from, to: self.host.now() });
            let delete = Command::new("EVAL").arg(DELETE_OWN).arg("1").arg("hot").arg(&token);
            let deleted = client.ask(&delete).await.expect("an answer").expect("no error");
            assert_eq!(deleted, Value::Int(1), "nobody took it away");
        }
    }
}

fn turned(turns: &Turns, turn: Turn) {
    turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::default() + Duration::from_millis(ms)
    }

    /// Two of our tasks and two foreign clients, with a turn of 10 ms at each of these moments.
    fn mixed(turns: &[(usize, u64)]) -> Mixed {
        let mixture = Mixture { clients: 1, tasks: 2, foreigners: 2, ..Mixture::of_seed(0) };
        let mixture = Mixture { poll_ms: (1, 1), begin_after: Duration::ZERO, ..mixture };
        let turn = |(who, ms): &(usize, u64)| Turn { who: *who, from: at(*ms), to: at(ms + 10) };
        mixture.judged(turns.iter().map(turn).collect(), at(0), at(4_000))
    }

    #[test]
    fn a_broken_promise_is_named() {
        let even: Vec<_> = (0..40).map(|turn| (turn % 4, turn as u64 * 100)).collect();
        let with = |change: fn(&mut (usize, u64))| {
            let mut turns = even.clone();
            turns.iter_mut().for_each(change);
            mixed(&turns).broken().unwrap_or_default()
        };
        assert_eq!(mixed(&even).broken(), None);
        assert!(with(|turn| turn.1 /= 20).contains("at once"));
        assert!(
            with(|turn| turn.0 = if turn.1 < 3_200 { 2 } else { turn.0 }).contains("our tasks")
        );
        assert!(with(|turn| turn.0 = if turn.1 < 3_200 { 0 } else { turn.0 }).contains("waited"));
        let few =
            (0..400).map(|turn| (if turn % 100 == 99 { 2 } else { turn % 2 }, turn as u64 * 10));
        let few = mixed(&few.collect::<Vec<_>>());
        assert!(few.broken().expect("a hundredth").contains("library has too small a share"));
    }
}
