//! Measures who gets the lock of a quorum that many clients want all the time, and at what cost.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold::Release;
use leasehold::core::Moment;
use leasehold::host::Host;
use tokio::sync::Notify;

use super::backend::connect;
use super::clock::ServerClock;
use super::log::Log;
use super::network::Network;
use super::process::Process;
use super::server::Server;
use crate::VirtualHost;
use crate::history::event::{ProcessId, What};
use crate::virtual_host::SeededRandom;

/// A world without faults. Every client acquires one lock, releases it at once, and acquires it
/// again at once.
#[derive(Clone, Copy, Debug)]
pub struct Contention {
    /// The seed of every random choice.
    pub seed: u64,
    /// How many independent servers there are.
    pub nodes: usize,
    /// How many clients want the lock. Each is a process of its own.
    pub contenders: usize,
    /// The longest time that the run may take.
    pub span: Duration,
    /// The run ends after this many grants.
    pub grants_max: usize,
    /// The shortest and the longest delay of one message, in microseconds.
    pub delay_us: (u64, u64),
}

/// The result of a contention run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contended {
    /// How often each client got the lock.
    pub turns: Vec<u64>,
    /// How many lock requests the first node received: acquires, renewals and releases.
    pub requests: u64,
    /// The longest time that one client went without a grant.
    pub longest_wait: Duration,
    /// The longest time without any grant.
    pub longest_gap: Duration,
}

/// Upper bounds: requests for each grant, the wait of one client, and the time without a grant.
const REQUESTS_MAX: f64 = 7.0;
const WAIT_MAX: Duration = Duration::from_millis(1_500);
const GAP_MAX: Duration = Duration::from_millis(250);

impl Contended {
    /// How often any client got the lock.
    #[must_use]
    pub fn grants(&self) -> u64 {
        self.turns.iter().sum()
    }

    /// How many requests one node receives for each grant.
    #[must_use]
    pub fn requests_per_grant(&self) -> f64 {
        self.requests as f64 / self.grants().max(1) as f64
    }

    /// A description of the result if it exceeds a bound.
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
    /// Ten clients that want one lock of five nodes. The seed draws the delays of the network.
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

    /// Runs the world.
    ///
    /// # Panics
    ///
    /// If a call fails, since nothing in this world can make a call fail.
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
