//! Injects and ends each fault.

use std::path::Path;
use std::time::Duration;

use super::kind::Kind;
use super::server::Server;
use super::world::{Role, World};
use super::{part_of, span};
use crate::history::event::What;
use crate::servers::{Then, Way};

/// After a stopped `leasehold run` goes on, its child may live for this long before it is killed.
/// Its reports do not count meanwhile.
const NOTICED_WITHIN: Duration = Duration::from_millis(500);

impl World {
    /// Injects a fault and ends it. When this returns, the fault has no more effects of its own.
    ///
    /// # Panics
    ///
    /// If the server does not work as needed.
    pub fn inject(&mut self, kind: Kind) {
        self.victim = self.random.below(usize::MAX);
        match kind {
            Kind::Delay => self.delay(),
            Kind::Partition => self.partition(Way::Both),
            Kind::PartitionToServer => self.partition(Way::ToServer),
            Kind::PartitionToClient => self.partition(Way::ToClient),
            Kind::Reset => self.reset(),
            Kind::ReplyLost => self.lose_replies(),
            Kind::LateRequest => self.be_late(),
            Kind::Duplicate => self.duplicate(),
            Kind::SubscriberKill => self.often(|server| server.end_listening()),
            Kind::ScriptFlush => self.often(|server| {
                server.redis().command(&["SCRIPT", "FLUSH"]);
            }),
            Kind::OutOfMemory => self.fill(),
            Kind::DiskFull => self.fill_disk(),
            Kind::QuotaFull => self.raise_quota_alarm(),
            Kind::ServerStop => self.stop_server(),
            Kind::ServerRestart => self.restart(|_| {}),
            Kind::ClientStop => self.stop_clients(),
            Kind::ClientCrash => self.crash_client(),
            Kind::RunStop => self.stop_run(),
            Kind::ClockStepBack => self.step_back(),
            Kind::ClockStepForward => self.step_forward(),
            Kind::RestartEmpty => self.restart(|world| {
                remove(&world.data());
                world.journal.tell(What::Forgot);
            }),
            Kind::RestartOld => self.restart_old(),
            Kind::Failover => self.fail_over(),
            Kind::Handover => self.hand_over(),
            Kind::SlotMove => self.move_slot(),
            Kind::SentinelStop => self.stop_sentinel(),
            Kind::Flushall => {
                self.servers.granting().into_iter().for_each(Server::flush);
                self.journal.tell(What::Forgot);
            }
        }
    }

    /// A random part of the ttl, between two numbers in hundredths.
    pub(super) fn some(&mut self, least: u32, most: u32) -> Duration {
        let ttl = self.ttl();
        part_of(&mut self.random, ttl, least, most)
    }

    /// Some of the slots with a bad network, at least one. In a quorum, the fault hits the networks
    /// of these slots to one node.
    fn victims(&mut self) -> Vec<usize> {
        let slots = (0..self.slots.len()).filter(|slot| !self.slots[*slot].proxies.is_empty());
        let slots: Vec<_> = slots.collect();
        let always = slots[self.random.below(slots.len())];
        let chosen = slots.into_iter().filter(|slot| *slot == always || self.random.once_in(2));
        chosen.collect()
    }

    fn delay(&mut self) {
        let (victims, most) = (self.victims(), span(&mut self.random, 10, 150));
        for slot in &victims {
            let least = most / 20;
            self.proxy(*slot).delay_between(Way::Both, least, most);
        }
        let lasts = self.some(40, 120);
        self.wait(lasts);
        for slot in victims {
            self.proxy(slot).delay(Way::Both, Duration::ZERO);
        }
    }

    fn partition(&mut self, way: Way) {
        let (victims, lasts) = (self.victims(), self.some(15, 180));
        victims.iter().for_each(|slot| self.proxy(*slot).hold(way));
        self.wait(lasts);
        // The bytes that were held back arrive now, or never.
        let arrives = self.random.once_in(2);
        for slot in victims {
            let proxy = self.proxy(slot);
            if !arrives {
                proxy.close_all();
            }
            proxy.go_on(way);
        }
    }

    fn reset(&mut self) {
        let victims = self.victims();
        for _ in 0..=self.random.below(5) {
            victims.iter().for_each(|slot| self.proxy(*slot).close_all());
            let next = span(&mut self.random, 0, 80);
            self.wait(next);
        }
    }

    fn lose_replies(&mut self) {
        let victims = self.victims();
        for _ in 0..4 {
            for slot in &victims {
                let nth = u64::try_from(self.random.below(8)).expect("below eight");
                let then = if self.random.once_in(3) { Then::Silent } else { Then::Closed };
                self.proxy(*slot).lose_reply_after(nth, then);
            }
            let next = span(&mut self.random, 50, 200);
            self.wait(next);
        }
        victims.iter().for_each(|slot| self.proxy(*slot).be_faithful());
    }

    /// Holds the requests on open connections back until their clients have given those connections
    /// up and made new ones. Clients do so after the limits of a request and of a probe.
    fn be_late(&mut self) {
        let (victims, lasts) = (self.victims(), self.some(60, 200));
        victims.iter().for_each(|slot| self.proxy(*slot).strand());
        self.wait(lasts);
        victims.iter().for_each(|slot| self.proxy(*slot).land());
    }

    fn duplicate(&mut self) {
        let (victims, later) = (self.victims(), self.some(0, 120));
        for slot in &victims {
            let requests = 5 + self.random.below(30);
            let requests = u64::try_from(requests).expect("a few");
            self.proxy(*slot).repeat_scripts(requests, later);
        }
        let lasts = self.some(30, 60);
        self.wait(lasts);
        victims.iter().for_each(|slot| self.proxy(*slot).be_faithful());
        self.wait(later);
    }

    fn often(&mut self, disturb: impl Fn(Server<'_>)) {
        for _ in 0..=self.random.below(3) {
            disturb(self.server());
            let next = span(&mut self.random, 0, 100);
            self.wait(next);
        }
    }

    fn fill(&mut self) {
        let lasts = self.some(30, 120);
        self.server().redis().command(&["CONFIG", "SET", "maxmemory", "1"]);
        self.wait(lasts);
        self.server().redis().command(&["CONFIG", "SET", "maxmemory", "0"]);
    }

    fn stop_server(&mut self) {
        let lasts = self.some(10, 200);
        self.spare_a_faulty_leader();
        self.server().pause();
        self.wait(lasts);
        self.server().resume();
    }

    fn restart(&mut self, meanwhile: impl FnOnce(&Self)) {
        let away = self.some(0, 80);
        self.server().kill();
        meanwhile(self);
        self.wait(away);
        self.server().restart();
    }

    fn restart_old(&mut self) {
        let (kept, old) = (self.data(), self.server().redis().data("old"));
        remove(&old);
        copy(&kept, &old);
        let age = self.some(10, 60);
        self.wait(age);
        self.restart(|world| {
            remove(&kept);
            std::fs::rename(&old, &kept).expect("they lie in one directory");
            world.journal.tell(What::Forgot);
        });
    }

    fn data(&self) -> std::path::PathBuf {
        self.server().redis().data("appendonlydir")
    }

    fn step_forward(&mut self) {
        let step = self.some(20, 250);
        self.server().step_clock_by(micros(step));
    }

    /// Steps the server's clock back. Returns when the clock shows the old time again.
    fn step_back(&mut self) {
        let step = self.some(20, 100);
        self.server().step_clock_by(-micros(step));
        self.wait(step);
    }

    fn stop_clients(&mut self) {
        let workers = self.of_role(Role::Worker);
        let all_but = self.random.below(workers.len());
        let mut stopped = Vec::new();
        for (number, slot) in workers.into_iter().enumerate() {
            // At least one worker goes on, because somebody must use the locks.
            let is_victim = number != all_but && (stopped.is_empty() || self.random.once_in(2));
            if is_victim && self.stop(slot) {
                stopped.push(slot);
            }
        }
        let lasts = self.some(10, 200);
        self.wait(lasts);
        stopped.into_iter().for_each(|slot| self.resume(slot));
    }

    fn crash_client(&mut self) {
        let runs = self.of_role(Role::Run);
        let is_run = !runs.is_empty() && self.random.once_in(2);
        let slots = if is_run { runs } else { self.of_role(Role::Worker) };
        let slot = slots[self.random.below(slots.len())];
        if is_run {
            self.until_it_holds(slot);
        }
        self.crash(slot);
    }

    fn stop_run(&mut self) {
        let runs = self.of_role(Role::Run);
        let slot = runs[self.random.below(runs.len())];
        self.until_it_holds(slot);
        let lasts = self.some(10, 200);
        if self.stop(slot) {
            // No other process replaces it while it stands still, because it has not ended.
            self.wait(lasts);
            self.resume(slot);
            self.wait(NOTICED_WITHIN);
            self.watch(slot);
        }
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).expect("a few seconds")
}

fn remove(dir: &Path) {
    if dir.exists() {
        std::fs::remove_dir_all(dir).expect("the server's directory is ours");
    }
}

/// Copies the log of a server that goes on writing. The copy lacks only the end.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("the server's directory is ours");
    for entry in std::fs::read_dir(from).expect("the server has a log") {
        let name = entry.expect("a readable directory").file_name();
        std::fs::copy(from.join(&name), to.join(&name)).expect("the server's directory is ours");
    }
}
