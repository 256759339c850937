//! What must hold in every history, and what breaks it.

use std::fmt;
use std::str::FromStr;

use leasehold::core::Moment;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// The validity windows of one key never overlap.
    NoOverlap,
    /// A holder relies on no more than the server keeps for it.
    WindowInsideLease,
    /// Fencing tokens are unique and rise.
    FencingRises,
    /// Fencing tokens are used by whom they were reserved for.
    FenceReserved,
    /// While somebody waits and nothing is wrong, a key is soon held.
    NoLostWakeUp,
    /// Nothing is left behind once everybody is gone.
    NoOrphan,
    /// The living are served in the order of the line.
    LineOrder,
    /// A lease is passed on within a client only for a short while once another waits.
    PassesBounded,
    /// A lease with no guard is given up once another waits, and when its time is over.
    WantedAnswered,
    /// A holder is told that its lease is lost by its own deadline.
    ToldBeforeDeadline,
    /// Every call ends within its limit.
    CallsReturn,
    /// A release by anybody but the owner leaves the owner alone.
    ReleaseRemovesNothing,
    /// A renewal makes nobody the owner.
    RenewalNeverResurrects,
    /// A token whose release was sent, or whose lease was lost, is not used again.
    SpentToken,
    /// Everything that is written ends by itself.
    NothingImmortal,
    /// Who is told *taken* was not alone.
    TakenIsTrue,
    /// Errors and losses have a cause.
    OutcomeExplained,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::NoOverlap,
        Self::WindowInsideLease,
        Self::FencingRises,
        Self::FenceReserved,
        Self::NoLostWakeUp,
        Self::NoOrphan,
        Self::LineOrder,
        Self::PassesBounded,
        Self::WantedAnswered,
        Self::ToldBeforeDeadline,
        Self::CallsReturn,
        Self::ReleaseRemovesNothing,
        Self::RenewalNeverResurrects,
        Self::SpentToken,
        Self::NothingImmortal,
        Self::TakenIsTrue,
        Self::OutcomeExplained,
    ];

    /// Its name in records, on the command line and in the names of planted bugs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoOverlap => "no-overlap",
            Self::WindowInsideLease => "window-inside-lease",
            Self::FencingRises => "fencing-rises",
            Self::FenceReserved => "fence-reserved",
            Self::NoLostWakeUp => "no-lost-wake-up",
            Self::NoOrphan => "no-orphan",
            Self::LineOrder => "line-order",
            Self::PassesBounded => "passes-bounded",
            Self::WantedAnswered => "wanted-answered",
            Self::ToldBeforeDeadline => "told-before-deadline",
            Self::CallsReturn => "calls-return",
            Self::ReleaseRemovesNothing => "release-removes-nothing",
            Self::RenewalNeverResurrects => "renewal-never-resurrects",
            Self::SpentToken => "spent-token",
            Self::NothingImmortal => "nothing-immortal",
            Self::TakenIsTrue => "taken-is-true",
            Self::OutcomeExplained => "outcome-explained",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Invariant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|invariant| invariant.name() == name);
        found.ok_or_else(|| format!("`{name}` is no invariant"))
    }
}

/// Something that must not happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What does not hold.
    pub invariant: Invariant,
    /// When that shows.
    pub at: Moment,
    /// What happened.
    pub text: String,
    /// Whether it was promised not to happen. `false` where a fault could be the cause that
    /// GUARANTEES.md does not cover: such a violation is counted and fails nothing.
    pub promised: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let covered = if self.promised { "" } else { " (not covered)" };
        write!(f, "{}{covered} at {:?}: {}", self.invariant, self.at, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_is_found_by_its_name() {
        for invariant in Invariant::ALL {
            assert_eq!(invariant.name().parse(), Ok(invariant));
        }
        assert!("no-overlaps".parse::<Invariant>().is_err());
    }
}
