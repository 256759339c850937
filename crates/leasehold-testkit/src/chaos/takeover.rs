//! Faults of deployments with several servers: a server takes over, or a slot moves.

use std::sync::Arc;

use super::kind::Kind;
use super::server::Server;
use super::servers::Servers;
use super::world::World;
use crate::history::event::{Event, What};
use crate::servers::{Cluster, RedisServer, Sentinels};

/// The numbers of faults that happened without being injected begin here.
const OWN_FAULTS: u32 = 1_000_000;

/// How a primary ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    Stopped,
    Told,
}

impl World {
    /// Makes another server take over, because the primary was killed or stopped, or by a command.
    /// The replicas often lack the last grants of the primary.
    pub(super) fn fail_over(&mut self) {
        let ends = [End::Killed, End::Stopped, End::Told];
        let end = ends[self.random.below(ends.len())];
        let (servers, key) = (Arc::clone(&self.servers), self.some_key());
        let before = servers.victim(0, key).redis();
        if self.random.once_in(2) {
            before.cut_replicas_off();
            let lasts = self.some(5, 40);
            self.wait(lasts);
        }
        self.journal.tell(What::Forgot);
        match end {
            End::Killed => before.kill(),
            End::Stopped => before.pause(),
            End::Told => match &*servers {
                Servers::Sentinels(all) => all.ask_to_fail_over(),
                Servers::Cluster(all) => all.ask_to_fail_over(key, true),
                _ => nobody(),
            },
        }
        match &*servers {
            Servers::Sentinels(all) => {
                all.until_one_names_another(before);
                self.mend(before, end, || Sentinels::repair(all));
            }
            Servers::Cluster(all) => {
                all.until_one_names_another(key, before);
                self.mend(before, end, || Cluster::repair(all));
            }
            _ => nobody(),
        }
        // The new primary does not have what the old one granted meanwhile.
        self.journal.tell(What::Forgot);
    }

    /// Chooses another member of etcd than the leader, if the leader must not stand still. Older
    /// versions of etcd would then end leases that others have renewed, as GUARANTEES.md says.
    pub(super) fn spare_a_faulty_leader(&mut self) {
        let servers = Arc::clone(&self.servers);
        let Servers::Etcd(all) = &*servers else { return };
        if all.leader_may_stand_still() {
            return;
        }
        let leader = all.leader();
        while matches!(self.server(), Server::Etcd(_, member) if member == leader) {
            self.victim += 1;
        }
    }

    /// Forgets the failovers so far. Call this after an injected failover.
    pub(super) fn read_epoch(&mut self) {
        self.epoch = (self.servers.epoch(), self.now());
    }

    /// Notes a failover that sentinels began on their own since the epoch was read. On a busy
    /// machine, a server may be silent for too long.
    pub(super) fn note_own_failover(&mut self, fault: u32) {
        let (before, read) = self.epoch;
        self.read_epoch();
        if self.epoch.0 == before {
            return;
        }
        let (fault, kind) = (OWN_FAULTS + fault, Kind::Failover.name().into());
        self.journal.push(Event { at: read, what: What::FaultBegan { fault, kind } });
        self.journal.push(Event { at: read, what: What::Forgot });
        self.journal.tell(What::Forgot);
        self.journal.tell(What::FaultEnded { fault });
    }

    fn mend(&self, before: &RedisServer, end: End, repair: impl FnOnce()) {
        self.journal.tell(What::Forgot);
        if end == End::Stopped {
            before.resume();
        }
        if end != End::Killed {
            before.let_replicas_in();
        }
        repair();
    }

    /// Makes a primary hand over to its replica, which has everything.
    pub(super) fn hand_over(&mut self) {
        let (servers, key) = (Arc::clone(&self.servers), self.some_key());
        let Servers::Cluster(all) = &*servers else { nobody() };
        all.fail_over_by_command(key);
        all.until_whole();
    }

    /// Moves the slot of a lock to another node, with its locks.
    pub(super) fn move_slot(&mut self) {
        let (servers, key) = (Arc::clone(&self.servers), self.some_key());
        let Servers::Cluster(all) = &*servers else { nobody() };
        let to = all.begin_to_move(key);
        let lasts = self.some(0, 50);
        self.wait(lasts);
        all.move_keys(key, to);
        let lasts = self.some(0, 50);
        self.wait(lasts);
        // More keys may have come meanwhile.
        all.move_keys(key, to);
        all.end_to_move(key, to);
        all.until_whole();
    }

    /// Makes a sentinel stop or die, and come back.
    pub(super) fn stop_sentinel(&mut self) {
        let servers = Arc::clone(&self.servers);
        let Servers::Sentinels(all) = &*servers else { nobody() };
        let sentinels = all.sentinels();
        let sentinel = &sentinels[self.random.below(sentinels.len())];
        let (dies, lasts) = (self.random.once_in(2), self.some(20, 200));
        if dies {
            sentinel.kill();
        } else {
            sentinel.pause();
        }
        self.wait(lasts);
        if dies {
            sentinel.restart();
        } else {
            sentinel.resume();
        }
        all.until_known();
    }
}

fn nobody() -> ! {
    unreachable!("this deployment has no such fault")
}
