//! The invariants of every history, and their violations.

use std::fmt;

use leasehold::core::Moment;

/// A rule that must hold in every history.
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
pub enum Invariant {
    /// The validity windows of one key never overlap.
    NoOverlap,
    /// A holder relies on no more than the server keeps for it.
    WindowInsideLease,
    /// Fencing tokens are unique and rise.
    FencingRises,
    /// Each fencing token is used by the owner for which it was reserved.
    FenceReserved,
    /// While nothing is wrong, a key that has a waiter is soon held.
    NoLostWakeUp,
    /// Nothing is left behind once all clients are gone.
    NoOrphan,
    /// Living waiters are served in the order of the line.
    LineOrder,
    /// A line that hands a key on stands aside now and then, for clients that take no place in it.
    LineOpens,
    /// Once another client waits, a client passes a lease among its tasks only for a short while.
    PassesBounded,
    /// A lease without a guard is given up once another client waits, and when its time is over.
    WantedAnswered,
    /// A holder is told that its lease is lost before its own deadline.
    ToldBeforeDeadline,
    /// Every call ends within its limit.
    CallsReturn,
    /// A release with another token leaves the owner alone.
    ReleaseRemovesNothing,
    /// A renewal makes no client the owner.
    RenewalNeverResurrects,
    /// A token whose release was sent, or whose lease was lost, is not used again.
    SpentToken,
    /// Every key that is written expires by itself.
    NothingImmortal,
    /// A client that is told *taken* was not alone.
    TakenIsTrue,
    /// Errors and losses have a cause, and the answer to a release says whether there was a lease.
    OutcomeExplained,
    /// The shares of a key that a server has granted fit together.
    SharesFit,
    /// A writer that becomes a reader leaves no gap.
    NoGap,
    /// In each period, no more starts are allowed than the limit.
    StartsLimited,
    /// A latch counts each count once, and opens with the last one.
    LatchCounts,
    /// A task that waits for a latch soon sees that it is open.
    LatchOpens,
    /// No party passes a barrier before all have arrived.
    BarrierHolds,
    /// All parties pass a barrier soon after the last one has arrived.
    BarrierOpens,
    /// An observer of an election sees rising terms, and none that is over.
    SeenTermsRise,
    /// After a resignation, the next candidate leads at once.
    ResignationHandsOver,
    /// After the crash of a leader, the next candidate leads within the ttl and the lock delay.
    CrashIsTakenOver,
    /// A hold with a limit ends at its limit, and so does its lease.
    HoldEnds,
}

impl Invariant {
    /// Its name in records, on the command line and in the names of planted bugs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// When the violation shows.
    pub at: Moment,
    /// The description for people.
    pub text: String,
    /// Whether GUARANTEES.md promises that this does not happen. `false` if the cause may be a
    /// fault that GUARANTEES.md does not cover. Such a violation is counted, but the run does not
    /// fail.
    pub promised: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let covered = if self.promised { "" } else { " (not covered)" };
        write!(f, "{}{covered} at {:?}: {}", self.invariant, self.at, self.text)
    }
}
