//! The faults that are injected into real servers, with their names from GUARANTEES.md.

use std::fmt;

/// A fault. The table in GUARANTEES.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the table says it")]
pub enum Kind {
    Delay,
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
    DiskFull,
    ServerStop,
    ServerRestart,
    ClientStop,
    ClientCrash,
    RunStop,
    ClockStepBack,
    ClockStepForward,
    RestartEmpty,
    RestartOld,
    Flushall,
    Failover,
    Handover,
    SlotMove,
    SentinelStop,
    QuotaFull,
}

impl Kind {
    /// All faults.
    pub const ALL: [Self; 27] = {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = Self::OF_ONE;
        let [w, x, y, z] = [Self::Failover, Self::Handover, Self::SlotMove, Self::SentinelStop];
        let last = Self::QuotaFull;
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, last]
    };

    /// The faults of one server, in the order of the table.
    pub const OF_ONE: [Self; 22] = [
        Self::Delay,
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
        Self::DiskFull,
        Self::ServerStop,
        Self::ServerRestart,
        Self::ClientStop,
        Self::ClientCrash,
        Self::RunStop,
        Self::ClockStepBack,
        Self::ClockStepForward,
        Self::RestartEmpty,
        Self::RestartOld,
        Self::Flushall,
    ];

    /// Faults of the table that cannot be injected into real servers and processes here, and the
    /// reason.
    pub const SIMULATED_ONLY: [(&'static str, &'static str); 17] = [
        ("loss", "packets of this machine to itself are not lost; `delay` shows the same"),
        ("clock-drift", "no clock of one machine drifts from itself"),
        ("client-suspend", "the machine that would sleep is the one that watches"),
        ("dropped-future", "the workers drop futures all the time, whatever else happens"),
        ("eviction", "no server here evicts keys"),
        ("restart-empty-strict", "a quarantine takes longer than a run"),
        ("restart-old-strict", "the same"),
        ("failover-strict", "the same"),
        ("failover-back-strict", "the same"),
        ("flushall-strict", "the same"),
        ("failover-copies", "no client wants copies"),
        ("replica-away", "the same"),
        ("replica-lag", "the same"),
        ("power-cut", "the machine that would lose power is the one that watches"),
        ("file-locked", "there is a server, and no file"),
        ("scripts-refused", "a server that refuses scripts would also refuse other commands"),
        ("scripts-denied", "the workers count a missing right as a failure"),
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Partition => "partition",
            Self::PartitionToServer => "partition-to-server",
            Self::PartitionToClient => "partition-to-client",
            Self::Reset => "reset",
            Self::ReplyLost => "reply-lost",
            Self::LateRequest => "late-request",
            Self::Duplicate => "duplicate",
            Self::SubscriberKill => "subscriber-kill",
            Self::ScriptFlush => "script-flush",
            Self::OutOfMemory => "out-of-memory",
            Self::DiskFull => "disk-full",
            Self::ServerStop => "server-stop",
            Self::ServerRestart => "server-restart",
            Self::ClientStop => "client-stop",
            Self::ClientCrash => "client-crash",
            Self::RunStop => "run-stop",
            Self::ClockStepBack => "clock-step-back",
            Self::ClockStepForward => "clock-step-forward",
            Self::RestartEmpty => "restart-empty",
            Self::RestartOld => "restart-old",
            Self::Flushall => "flushall",
            Self::Failover => "failover",
            Self::Handover => "handover",
            Self::SlotMove => "slot-move",
            Self::SentinelStop => "sentinel-stop",
            Self::QuotaFull => "quota-full",
        }
    }

    /// The fault with that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::model::kinds;

    #[test]
    fn every_fault_of_the_table_is_done_here_or_left_out_for_a_reason() {
        let mut ours: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        ours.extend(Kind::SIMULATED_ONLY.iter().map(|(name, _)| *name));
        let mut table: Vec<_> = kinds().collect();
        ours.sort_unstable();
        table.sort_unstable();
        assert_eq!(ours, table);
    }

    #[test]
    fn a_fault_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::of_name("loss"), None);
    }
}
