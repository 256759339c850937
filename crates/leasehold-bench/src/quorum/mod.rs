//! A lock over five servers: the cost to acquire it, with all servers healthy and with some silent.

mod bare;
mod counted;
mod healthy;
mod silent;

use std::time::{Duration, Instant};

use leasehold::{Client, Error, ErrorKind, Guard, Mutex};
use leasehold_testkit::servers::RedisServer;

use crate::figure::Report;

/// How many servers there are.
pub(crate) const NODES: usize = 5;

/// How many servers must grant a lock.
const MAJORITY: usize = NODES / 2 + 1;

/// How many keys are locked, one after another.
const KEYS: u64 = 16;

/// The time until every server has received and answered everything that was sent, counted from the
/// last awaited answer.
const SETTLE: Duration = Duration::from_millis(100);

/// The size of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) rounds: usize,
    /// Per kind and round.
    pub(crate) acquires: usize,
    /// How long after a server falls silent the client should have noticed.
    pub(crate) noticed_in: Duration,
}

/// Whether a lock has fencing tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Without fencing tokens and line: on each server one `SET`.
    Unfenced,
    /// With default settings.
    Fenced,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Unfenced, Self::Fenced];

    const fn name(self) -> &'static str {
        match self {
            Self::Unfenced => "unfenced",
            Self::Fenced => "fenced",
        }
    }
}

/// Locks of one kind that nobody else wants, used one after another.
struct Locks {
    mutexes: Vec<Mutex>,
    next: usize,
}

impl Locks {
    fn new(client: &Client, kind: Kind, count: u64) -> Self {
        let mutex = |number| {
            let mutex = client.mutex(format!("bench:quorum:{}:{number:03}", kind.name()));
            match kind {
                Kind::Unfenced => mutex.fencing(false).unqueued(),
                Kind::Fenced => mutex,
            }
        };
        Self { mutexes: (0..count).map(mutex).collect(), next: 0 }
    }

    /// The time to acquire the next lock. Also releases it, which does not count.
    async fn acquire(&mut self) -> Result<Duration, Error> {
        let mutex = &self.mutexes[self.next];
        self.next = (self.next + 1) % self.mutexes.len();
        let started = Instant::now();
        let guard = mutex.lock().await?;
        let took = started.elapsed();
        let _released = guard.release().await?;
        Ok(took)
    }

    /// Acquires all of them, one after another, and holds them.
    async fn acquire_all(&self) -> Result<Vec<Guard>, Error> {
        let mut guards = Vec::with_capacity(self.mutexes.len());
        for mutex in &self.mutexes {
            guards.push(mutex.lock().await?);
        }
        tokio::time::sleep(SETTLE).await;
        Ok(guards)
    }

    /// Locks each of them a few times. Then the servers know scripts and keys, and their counters
    /// are equal, since late nodes catch up while a lock is held.
    async fn warm_up(&self) -> Result<(), Error> {
        for _ in 0..3 {
            release_all(self.acquire_all().await?).await?;
        }
        Ok(())
    }
}

async fn release_all(guards: Vec<Guard>) -> Result<(), Error> {
    for guard in guards {
        let _released = guard.release().await?;
    }
    tokio::time::sleep(SETTLE).await;
    Ok(())
}

pub(crate) async fn measure(servers: &[RedisServer], extent: Extent) -> Result<Report, Error> {
    if servers.len() != NODES {
        let message = "this scenario needs private servers: add --redis";
        return Err(Error::new(ErrorKind::Config, message));
    }
    let mut report = Report::new("quorum");
    healthy::measure(&mut report, servers, extent).await?;
    silent::measure(&mut report, servers, extent).await?;
    counted::measure(&mut report, servers).await?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_run_has_every_figure() {
        let servers: Vec<_> = (0..NODES).map(|_| RedisServer::start()).collect();
        let noticed_in = Duration::from_millis(20);
        let extent = Extent { rounds: 1, acquires: 20, noticed_in };
        let report = measure(&servers, extent).await.expect("measured");
        let goals = report.figures().iter().filter(|figure| figure.has_goal()).count();
        // Fenced, unfenced, one silent, two silent, and requests.
        assert_eq!(goals, 5, "{report:?}");
    }

    #[tokio::test]
    async fn on_one_server_there_is_no_quorum_to_measure() {
        let extent = Extent { rounds: 1, acquires: 1, noticed_in: Duration::ZERO };
        let error = measure(&[], extent).await.expect_err("no servers");
        assert!(error.to_string().contains("--redis"), "{error}");
    }
}
