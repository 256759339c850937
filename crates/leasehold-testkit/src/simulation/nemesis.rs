//! Carries out the faults of a plan.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::host::Host;

use super::client::Life;
use super::fault::Fault;
use super::network::{Mischief, Network};
use super::planned::PlannedFault;
use super::world::World;
use super::worlds::start_foreign;
use crate::history::event::What;
use crate::virtual_host::SeededRandom;

/// All clients of a world, and the faults that happen to them.
pub(super) struct Nemesis {
    world: Arc<World>,
    lives: Mutex<Vec<Life>>,
    random: Mutex<SeededRandom>,
}

impl Nemesis {
    /// Starts all clients.
    pub(super) fn new(world: &Arc<World>, mut random: SeededRandom) -> Arc<Self> {
        let clients = 0..world.plan.clients.len();
        let lives = clients.map(|number| Life::start(world, number, &mut random)).collect();
        start_foreign(world, &mut random);
        let (lives, random) = (Mutex::new(lives), Mutex::new(random));
        Arc::new(Self { world: Arc::clone(world), lives, random })
    }

    fn lives(&self) -> MutexGuard<'_, Vec<Life>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no client takes locks any more.
    pub(super) fn is_over(&self) -> bool {
        self.lives().iter().all(Life::is_over)
    }

    pub(super) fn kill_all(&self) {
        for number in 0..self.world.plan.clients.len() {
            self.kill(number);
        }
    }

    /// Carries out one fault from its beginning to its end.
    pub(super) async fn carry_out(self: Arc<Self>, planned: PlannedFault) {
        let host = &self.world.host;
        host.sleep_until(host.now() + planned.at).await;
        let number = self.world.number();
        let kind = Arc::from(planned.fault.name_in(self.world.plan.strict.is_some()));
        self.world.log.push(What::FaultBegan { fault: number, kind });
        self.begin(&planned);
        host.sleep_until(host.now() + planned.lasts).await;
        self.end(&planned);
        self.world.log.push(What::FaultEnded { fault: number });
    }

    fn begin(&self, planned: &PlannedFault) {
        match planned.fault {
            Fault::ClientStop | Fault::ClientSuspend => self.each(planned, |life, _| {
                self.world.look_at(&life.process);
                self.world.log.push(What::Stopped { process: life.process.id() });
                match planned.fault {
                    Fault::ClientStop => life.process.stop(),
                    _ => life.process.suspend(),
                }
            }),
            Fault::ClientCrash => self.each_number(planned, |number| self.kill(number)),
            Fault::DroppedFuture => self.dropping(planned, true),
            Fault::ClockDrift => {}
            Fault::FileLocked => self.lock_file(true),
            _ => self.networks(planned).for_each(|network| self.begin_at(network, planned)),
        }
    }

    fn lock_file(&self, is_locked: bool) {
        if let Some(local) = self.world.backend.local() {
            local.lock_file(is_locked);
        }
    }

    /// The networks of the nodes that a fault concerns.
    fn networks(&self, planned: &PlannedFault) -> impl Iterator<Item = &Network> {
        let networks = self.world.backend.networks().iter().enumerate();
        let nodes = planned.nodes;
        networks.filter(move |(node, _)| nodes.has(*node)).map(|(_, network)| network)
    }

    /// Begins a fault of one node, or of the network to it.
    fn begin_at(&self, network: &Network, planned: &PlannedFault) {
        match planned.fault {
            Fault::Reset => self.each(planned, |life, _| network.reset(&life.process)),
            Fault::SubscriberKill => network.kill_subscribers(),
            Fault::ScriptFlush => network.with_server(super::server::Server::flush_scripts),
            Fault::OutOfMemory => network.with_server(|server| server.set_full(true)),
            Fault::ScriptsRefused => {
                network.with_server(|server| server.refuse_scripts(planned.much));
            }
            Fault::ScriptsDenied => network.with_server(|server| server.deny_scripts(planned.much)),
            Fault::ServerStop => network.stop_server(),
            Fault::ServerRestart
            | Fault::RestartEmpty
            | Fault::RestartOld
            | Fault::Failover
            | Fault::FailoverCopies
            | Fault::PowerCut => network.kill_server(),
            Fault::ReplicaAway => network.cut_replicas_off(planned.much),
            Fault::ReplicaLag => {
                network.with_server(|server| server.replicas.lag_ms = planned.much);
            }
            Fault::Eviction => {
                let seed = self.random.lock().unwrap_or_else(PoisonError::into_inner).next_u64();
                network.with_server(|server| server.evict(planned.much, seed));
            }
            Fault::Flushall => network.with_server(|server| server.forget(None)),
            Fault::FailoverBack => {
                let tenths = usize::try_from(planned.much % 20).expect("small");
                network.with_server(|server| server.fail_over_and_back(tenths));
            }
            Fault::ClockStepForward => network.with_server(|server| server.step(planned.much)),
            Fault::ClockStepBack => network.with_server(|server| server.step_back(planned.much)),
            _ => self.trouble(network, planned),
        }
    }

    /// Begins a fault in the network of a client.
    fn trouble(&self, network: &Network, planned: &PlannedFault) {
        self.each(planned, |life, random| {
            network.trouble(&life.process, |trouble| match planned.fault {
                Fault::Delay => trouble.delay_max = Duration::from_millis(planned.much),
                Fault::Loss => {
                    let one_in = usize::try_from(planned.much).expect("drawn small");
                    trouble.loses_one_in = Some(one_in);
                }
                Fault::Partition => (trouble.to_server, trouble.to_client) = (true, true),
                Fault::PartitionToServer => trouble.to_server = true,
                Fault::PartitionToClient => trouble.to_client = true,
                fault => trouble.mischief.extend((0..planned.much).map(|_| {
                    let later = Duration::from_millis(random.next_u64() % 3_000);
                    match fault {
                        Fault::ReplyLost => Mischief::LoseReply(later / 10),
                        Fault::LateRequest => Mischief::Late(later),
                        // Soon, while the effect of the first request is still in use, or much
                        // later.
                        _ if random.once_in(2) => Mischief::Twice(later / 100),
                        _ => Mischief::Twice(later),
                    }
                })),
            });
        });
    }

    fn end(&self, planned: &PlannedFault) {
        match planned.fault {
            Fault::ClientStop | Fault::ClientSuspend => self.each(planned, |life, _| {
                if !life.process.is_dead() {
                    self.world.log.push(What::Resumed { process: life.process.id() });
                }
                life.process.resume();
            }),
            Fault::ClientCrash => self.each_number(planned, |number| self.start_again(number)),
            Fault::DroppedFuture => self.dropping(planned, false),
            Fault::FileLocked => self.lock_file(false),
            _ => self.networks(planned).for_each(|network| self.end_at(network, planned)),
        }
    }

    fn end_at(&self, network: &Network, planned: &PlannedFault) {
        match planned.fault {
            Fault::Delay => self.each(planned, |life, _| {
                network.trouble(&life.process, |trouble| trouble.delay_max = Duration::ZERO);
            }),
            Fault::Loss => self.each(planned, |life, _| {
                network.trouble(&life.process, |trouble| trouble.loses_one_in = None);
            }),
            Fault::Partition | Fault::PartitionToServer | Fault::PartitionToClient => {
                self.each(planned, |life, random| network.heal(&life.process, random.once_in(2)));
            }
            Fault::ReplyLost | Fault::LateRequest | Fault::Duplicate => {
                self.each(planned, |life, _| {
                    network.trouble(&life.process, |trouble| trouble.mischief.clear());
                });
            }
            Fault::OutOfMemory => network.with_server(|server| server.set_full(false)),
            Fault::ScriptsRefused | Fault::ScriptsDenied => {
                network.with_server(super::server::Server::take_scripts_again);
            }
            Fault::Eviction => network.with_server(super::server::Server::evict_no_more),
            Fault::ServerStop => network.resume_server(),
            Fault::ServerRestart => network.restart_server(|_| {}),
            Fault::RestartEmpty => network.restart_server(|server| server.forget(None)),
            Fault::RestartOld | Fault::Failover => {
                let tenths = usize::try_from(planned.much % 20).expect("small");
                network.restart_server(|server| server.forget(Some(tenths)));
            }
            Fault::FailoverCopies => {
                network.restart_server(|server| server.fail_over(planned.much));
            }
            Fault::PowerCut => network.restart_server(super::server::Server::lose_power),
            Fault::ReplicaAway => network.join_replicas(planned.much),
            Fault::ReplicaLag => network.with_server(|server| server.replicas.lag_ms = 0),
            _ => {}
        }
    }

    fn each(&self, planned: &PlannedFault, act: impl Fn(&Life, &mut SeededRandom)) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, life) in self.lives().iter().enumerate() {
            if planned.client.is_none_or(|client| client == number) {
                act(life, &mut random);
            }
        }
    }

    fn each_number(&self, planned: &PlannedFault, act: impl Fn(usize)) {
        match planned.client {
            Some(number) => act(number),
            None => (0..self.world.plan.clients.len()).for_each(act),
        }
    }

    fn dropping(&self, planned: &PlannedFault, dropping: bool) {
        self.each_number(planned, |number| {
            self.world.dropping[number].store(dropping, Ordering::Relaxed);
        });
    }

    fn kill(&self, number: usize) {
        let process = self.lives()[number].process.clone();
        if process.is_dead() {
            return;
        }
        self.world.look_at(&process);
        self.world.died(&process);
        process.kill();
        for network in self.world.backend.networks() {
            network.closed_by_death(&process);
        }
    }

    fn start_again(&self, number: usize) {
        if !self.lives()[number].process.is_dead() {
            return;
        }
        let life = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            Life::start(&self.world, number, &mut random)
        };
        let before = std::mem::replace(&mut self.lives()[number], life);
        drop(before);
    }
}
