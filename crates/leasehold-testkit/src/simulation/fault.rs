//! The faults of a simulation, with their names from GUARANTEES.md.

/// A kind of fault: a row of the table "Which faults are covered".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs, reason = "each is a row of the table in GUARANTEES.md, which explains it")]
pub enum Fault {
    Delay,
    Loss,
    Partition,
    PartitionToServer,
    PartitionToClient,
    Reset,
    ReplyLost,
    LateRequest,
    Duplicate,
    SubscriberKill,
    ScriptFlush,
    OutOfMemory,
    ServerStop,
    ServerRestart,
    ClockDrift,
    ClientStop,
    ClientSuspend,
    ClientCrash,
    DroppedFuture,
    ClockStepBack,
    ClockStepForward,
    RestartEmpty,
    RestartOld,
    Failover,
    #[strum(serialize = "failover-back-strict")]
    FailoverBack,
    Flushall,
    Eviction,
    FailoverCopies,
    ReplicaAway,
    ReplicaLag,
    FileLocked,
    PowerCut,
    ScriptsRefused,
    ScriptsDenied,
}

impl Fault {
    /// Faults that begin at some moment and under which everything is promised.
    pub const COVERED: [Self; 18] = [
        Self::Delay,
        Self::Loss,
        Self::Partition,
        Self::PartitionToServer,
        Self::PartitionToClient,
        Self::Reset,
        Self::ReplyLost,
        Self::LateRequest,
        Self::Duplicate,
        Self::SubscriberKill,
        Self::ScriptFlush,
        Self::OutOfMemory,
        Self::ServerStop,
        Self::ServerRestart,
        Self::ClientStop,
        Self::ClientSuspend,
        Self::ClientCrash,
        Self::DroppedFuture,
    ];

    /// Faults that make a server forget something.
    pub const FORGETTING: [Self; 4] =
        [Self::RestartEmpty, Self::RestartOld, Self::Failover, Self::Flushall];

    /// Faults that happen only at a strict server, because only a strict server promises anything
    /// after them.
    pub const OF_STRICT: [Self; 1] = [Self::FailoverBack];

    /// Faults of a server without free memory: keys vanish, but fencing tokens still rise.
    pub const EVICTING: [Self; 1] = [Self::Eviction];

    /// Faults of worlds whose clients want copies of their grants. Everything is promised under
    /// them.
    pub const OF_COPIES: [Self; 3] = [Self::FailoverCopies, Self::ReplicaAway, Self::ReplicaLag];

    /// Faults of processes on one machine. They need no server.
    pub const OF_MACHINES: [Self; 4] =
        [Self::ClientStop, Self::ClientSuspend, Self::ClientCrash, Self::DroppedFuture];

    /// Faults of the file of a store. Everything is promised under them.
    pub const OF_FILES: [Self; 1] = [Self::FileLocked];

    /// Faults of worlds whose clients want grants on disk. Everything is promised under them.
    pub const OF_DISKS: [Self; 1] = [Self::PowerCut];

    /// Faults of servers that refuse scripts and carry out other commands. Everything is promised
    /// under them.
    pub const OF_SCRIPTS: [Self; 2] = [Self::ScriptsRefused, Self::ScriptsDenied];

    /// Faults that step the clock of the server.
    pub const STEPS: [Self; 2] = [Self::ClockStepForward, Self::ClockStepBack];

    /// The name that GUARANTEES.md uses, in a world whose servers are strict or not.
    #[must_use]
    pub fn name_in(self, strict: bool) -> &'static str {
        match self {
            Self::RestartEmpty if strict => "restart-empty-strict",
            Self::RestartOld if strict => "restart-old-strict",
            Self::Failover if strict => "failover-strict",
            Self::Flushall if strict => "flushall-strict",
            _ => self.name(),
        }
    }

    /// The name that GUARANTEES.md uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::model::{kinds, promised};

    #[test]
    fn every_fault_is_a_row_of_the_table_and_as_covered_as_it_says() {
        let forgetting = [&Fault::FORGETTING[..], &Fault::EVICTING, &Fault::OF_COPIES].concat();
        let forgetting = [&forgetting[..], &Fault::OF_STRICT, &Fault::OF_FILES].concat();
        let forgetting = [&forgetting[..], &Fault::OF_DISKS, &Fault::OF_SCRIPTS].concat();
        let ours = [&Fault::COVERED[..], &forgetting, &Fault::STEPS, &[Fault::ClockDrift]];
        let mut ours: Vec<_> = ours.concat().into_iter().map(Fault::name).collect();
        ours.extend(Fault::FORGETTING.map(|fault| fault.name_in(true)));
        // Only real processes have a child process to supervise.
        ours.push("run-stop");
        // Only real servers have sentinels and slots, disks and quotas.
        ours.extend(["handover", "slot-move", "sentinel-stop", "disk-full", "quota-full"]);
        let mut table: Vec<_> = kinds().collect();
        ours.sort_unstable();
        table.sort_unstable();
        assert_eq!(ours, table);
        // The faults, whether the windows are promised at an ordinary server, and at a strict one.
        let table = [
            (&Fault::COVERED[..], true, true),
            (&Fault::FORGETTING[..], false, true),
            (&Fault::EVICTING[..], false, false),
            (&Fault::OF_COPIES[..], true, true),
            (&Fault::OF_STRICT[..], true, true),
            (&Fault::OF_FILES[..], true, true),
            (&Fault::OF_DISKS[..], true, true),
            (&Fault::OF_SCRIPTS[..], true, true),
        ];
        for (faults, covered, strictly_covered) in table {
            for fault in faults {
                let windows = |name| promised(name).map(|promised| promised.windows);
                assert_eq!(windows(fault.name()), Some(covered), "{fault:?}");
                assert_eq!(windows(fault.name_in(true)), Some(strictly_covered), "{fault:?}");
            }
        }
    }
}
