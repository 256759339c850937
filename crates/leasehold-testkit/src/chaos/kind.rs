//! The faults that are injected into real servers, with their names from GUARANTEES.md.

/// A fault. The table in GUARANTEES.md explains each.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
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
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::history::model::kinds;

    #[test]
    fn every_fault_of_the_table_is_done_here_or_left_out_for_a_reason() {
        let mut ours: Vec<_> = Kind::VARIANTS.iter().map(|kind| kind.name()).collect();
        ours.extend(Kind::SIMULATED_ONLY.iter().map(|(name, _)| *name));
        let mut table: Vec<_> = kinds().collect();
        ours.sort_unstable();
        table.sort_unstable();
        assert_eq!(ours, table);
    }
}
