//! One client of a run: its process and the tasks that take locks. A killed client comes back as
//! another process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::host::{Host, Task};
use leasehold::{Client, Identity};

use super::process::Process;
use super::worker::Worker;
use super::world::World;
use super::worlds::{campaign, hoard, meet, observe, start_work, use_latches};
use crate::history::event::ProcessId;
use crate::virtual_host::SeededRandom;

/// How long a client that could not connect waits before it tries again.
const CONNECTS_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long a client may take to be shut down.
const SHUTS_DOWN_WITHIN: Duration = Duration::from_secs(1);

/// One life of a client.
pub(super) struct Life {
    pub(super) process: Process,
    /// Zero once all tasks have finished.
    working: Arc<AtomicUsize>,
}

impl Life {
    /// Starts client `number`.
    pub(super) fn start(world: &Arc<World>, number: usize, random: &mut SeededRandom) -> Self {
        let plan = world.plan.clients[number].clone();
        let id = ProcessId(world.number());
        let process = world.backend.process(id, &world.host, plan.faster_ppm, random.next_u64());
        let working = Arc::new(AtomicUsize::new(1));
        let life = Self { process: process.clone(), working: Arc::clone(&working) };
        let seed = random.next_u64();
        let door = world.backend.door(&process);
        let (world, host) = (Arc::clone(world), Arc::new(process.clone()));
        process.spawn(Box::pin(async move {
            let mut seeds = SeededRandom::new(seed);
            loop {
                let builder = loop {
                    match door.open(&host).await {
                        Ok(builder) => break builder,
                        Err(_) => host.sleep_until(host.now() + CONNECTS_AGAIN_AFTER).await,
                    }
                };
                let identity = Identity::anonymous();
                let builder = match plan.namespace {
                    Some(namespace) => builder.namespace(namespace),
                    None => builder,
                };
                let client = builder
                    .host(host.clone())
                    .ttl(plan.ttl)
                    .lock_delay(world.plan.lock_delay)
                    .identity(if plan.is_named { Identity::process() } else { identity })
                    .connect()
                    .await
                    .expect("a store that is there, and options within bounds");
                Self::work(&world, number, &client, &host, &mut seeds).await;
                // The shutdown ends idle leases. Without it the client gives them up, because
                // nothing can renew them any more.
                if plan.shut_down_after.is_some() {
                    let _left = client.shutdown(SHUTS_DOWN_WITHIN).await;
                }
                if !world.goes_on() {
                    break;
                }
            }
            working.fetch_sub(1, Ordering::Relaxed);
        }));
        life
    }

    /// Runs the tasks of a client until all of them finish.
    async fn work(
        world: &Arc<World>,
        number: usize,
        client: &Client,
        process: &Process,
        seeds: &mut SeededRandom,
    ) {
        let plan = &world.plan.clients[number];
        let until = plan.shut_down_after.map(|span| process.now() + span);
        let (working, mut through) = tokio::sync::mpsc::channel::<()>(1);
        let another = |random| {
            let (world, process) = (Arc::clone(world), process.clone());
            Worker::new(world, number, process, client.clone(), random)
        };
        if number == 0 && world.plan.crowd > 0 {
            let random = SeededRandom::new(seeds.next_u64());
            process.spawn(Box::pin(hoard(another(random.clone()), random)));
        }
        let mut next = || another(SeededRandom::new(seeds.next_u64()));
        let mut tasks: Vec<Task> = Vec::new();
        if let Some(limit) = world.plan.limit {
            tasks.push(Box::pin(start_work(next(), limit, until)));
        }
        if let Some(count) = world.plan.latch {
            tasks.push(Box::pin(use_latches(next(), count, until)));
        }
        if let Some(parties) = world.plan.barrier {
            tasks.push(Box::pin(meet(next(), parties, until)));
        }
        if let Some(electing) = world.plan.election {
            tasks.push(Box::pin(campaign(next(), electing, until)));
            // While a lock changes hands, the nodes of a quorum disagree about the leader, and an
            // observer gets an error although nothing is wrong.
            if !world.plan.is_quorum() {
                tasks.push(Box::pin(observe(next(), until)));
            }
        }
        for _ in 0..plan.tasks {
            tasks.push(Box::pin(next().work(until)));
        }
        for task in tasks {
            let working = working.clone();
            process.spawn(Box::pin(async move {
                task.await;
                drop(working);
            }));
        }
        drop(working);
        let _none = through.recv().await;
    }

    /// Whether this client takes no locks any more.
    pub(super) fn is_over(&self) -> bool {
        self.process.is_dead() || self.working.load(Ordering::Relaxed) == 0
    }
}
