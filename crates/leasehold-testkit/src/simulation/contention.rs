//! Everybody wants the same lock of a quorum, all the time: who gets it, and what it costs.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold::Release;
use leasehold::core::Moment;
use leasehold::host::Host;
use tokio::sync::Notify;

use super::client::connect;
use super::clock::ServerClock;
use super::log::Log;
use super::network::Network;
use super::process::Process;
use super::server::Server;
use crate::VirtualHost;
use crate::history::event::{ProcessId, What};
use crate::virtual_host::SeededRandom;

/// A world without faults in which every client takes one lock, gives it back at once, and asks
/// again at once.
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    /// What everything follows from.
    pub seed: u64,
    /// How many independent servers there are.
    pub nodes: usize,
    /// How many clients want the lock, each a process of its own.
    pub contenders: usize,
    /// For how long, at most.
    pub span: Duration,
    /// It ends when the lock was taken so often.
    pub grants_max: usize,
    /// What one message takes, from and to, in microseconds.
    pub delay_us: (u64, u64),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// How often each of them got the lock.
    pub turns: Vec<u64>,
    /// How many requests of locks the first node was sent: asks, renewals and releases.
    pub requests: u64,
    /// The longest that one of them went without the lock.
    pub longest_wait: Duration,
    /// The longest that nobody got it.
    pub longest_gap: Duration,
}

/// What each of them may cost and wait at most.
const REQUESTS_MAX: f64 = 7.0;
const WAIT_MAX: Duration = Duration::from_millis(1_500);
const GAP_MAX: Duration = Duration::from_millis(250);

impl Contended {
    /// How often anybody got the lock.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.turns.iter().sum()
    }

    /// How many requests one node is sent for each grant.
    #[must_use]
    pub fn requests_per_grant(&self) -> f64 {
        self.requests as f64 / self.grants().max(1) as f64
    }

    /// What of it is worse than it may be.
    #[must_use]
    pub fn broken(&self) -> Option<String> {
        let is_well = self.requests_per_grant() <= REQUESTS_MAX
            && self.longest_wait <= WAIT_MAX
            && self.longest_gap <= GAP_MAX;
        (!is_well)
            .then(|| format!("{:.2} requests for each grant; {self:?}", self.requests_per_grant()))
    }

    fn of(contenders: usize, grants: &[(Moment, usize)], from: Moment, to: Moment) -> Self {
        let longest = |turns: &[Moment]| {
            let from = std::iter::once(&from).chain(turns);
            from.zip(turns.iter().chain([&to])).map(|(a, b)| b.since(*a)).max().unwrap_or_default()
        };
        let of = |own| grants.iter().filter(move |(_, who)| *who == own).map(|(at, _)| *at);
        let each: Vec<Vec<_>> = (0..contenders).map(|own| of(own).collect()).collect();
        let all: Vec<_> = grants.iter().map(|(at, _)| *at).collect();
        Self {
            turns: each.iter().map(|turns| turns.len() as u64).collect(),
            requests: 0,
            longest_wait: each.iter().map(|turns| longest(turns)).max().unwrap_or_default(),
            longest_gap: longest(&all),
        }
    }
}

impl Contention {
    /// Ten that want one lock of five nodes, on a network that the seed draws.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let delay_us = [(50, 200), (100, 1_000), (1_000, 5_000)][SeededRandom::new(seed).below(3)];
        Self {
            seed,
            nodes: 5,
            contenders: 10,
            span: Duration::from_secs(3),
            grants_max: usize::MAX,
            delay_us,
        }
    }

    /// Runs it.
    ///
    /// # Panics
    ///
    /// If a call fails, for which there is no cause in it.
    #[must_use]
    pub fn run(self) -> Contended {
        let host = VirtualHost::new(self.seed);
        let mut seeds = SeededRandom::new(self.seed ^ 0x00c0_47e4_d000);
        let log = Log::new(&host);
        let nodes = (0..self.nodes).map(|node| {
            let log = log.of_node(node);
            let server = Server::new(ServerClock::default(), log.clone());
            Network::new(&host, server, self.delay_us, seeds.next_u64(), log)
        });
        let networks: Vec<_> = nodes.collect();
        let grants: Arc<Mutex<Vec<(Moment, usize)>>> = Arc::default();
        let enough = Arc::new(Notify::new());
        let began = host.now();
        for number in 0..self.contenders {
            let id = ProcessId(u32::try_from(number).expect("some contenders"));
            let process = Process::new(id, &host, 0, seeds.next_u64());
            let connectors: Vec<_> = networks.iter().map(|one| one.connector(&process)).collect();
            let (grants, common) = (Arc::clone(&grants), Arc::clone(&host));
            let enough = Arc::clone(&enough);
            let own: Arc<Process> = Arc::new(process.clone());
            process.spawn(Box::pin(async move {
                let builder = connect(&connectors, &own).await.expect("all nodes are there");
                let client = builder.host(own).connect().await.expect("connected");
                let mutex = client.mutex("hot");
                loop {
                    let guard = mutex.lock().await.expect("nothing is wrong");
                    let granted = (common.now(), number);
                    let so_many = {
                        let mut grants = grants.lock().unwrap_or_else(PoisonError::into_inner);
                        grants.push(granted);
                        grants.len()
                    };
                    if so_many >= self.grants_max {
                        enough.notify_one();
                    }
                    let released = guard.release().await.expect("nothing is wrong");
                    assert_eq!(released, Release::Released);
                }
            }));
        }
        let mut end = host.sleep_until(began + self.span);
        let mut enough = pin!(enough.notified());
        host.run(poll_fn(|context| match enough.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => end.as_mut().poll(context),
        }));
        let ended = host.now();
        host.drop_tasks();
        let grants = std::mem::take(&mut *grants.lock().unwrap_or_else(PoisonError::into_inner));
        let is_asked = |what: &What| matches!(what, What::SentTo { node: 0, .. });
        let requests = log.take().iter().filter(|event| is_asked(&event.what)).count() as u64;
        Contended { requests, ..Contended::of(self.contenders, &grants, began, ended) }
    }
}
