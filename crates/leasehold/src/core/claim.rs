//! How a key is claimed, and which claims can be granted while others hold it.

use std::fmt;

/// The most permits of a key.
pub const PERMITS_MAX: u32 = 1_000_000;

/// How a key is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Claim {
    /// By one owner alone.
    #[default]
    Exclusive,
    /// By one owner alone, with nothing but the lock: no line, no note, no fencing tokens. Its
    /// requests have [`Line::None`](crate::store::Line::None) and a `reserve` of 0, so a store may
    /// implement it as simply as possible. The store need not check whether others wait in line
    /// with another claim.
    Plain,
    /// By many owners at a time. They exclude only an exclusive owner.
    Shared,
    /// By an owner of `want` of the `of` permits of the key.
    Permits {
        /// How many permits, from 1 to `of`.
        want: u32,
        /// How many permits exist in all, at most [`PERMITS_MAX`].
        of: u32,
    },
}

impl Claim {
    /// The use of the key that this claim belongs to.
    #[must_use]
    pub const fn usage(self) -> Usage {
        match self {
            Self::Exclusive | Self::Plain | Self::Shared => Usage::Lock,
            Self::Permits { of, .. } => Usage::Permits { of },
        }
    }

    /// Whether one owner has the key alone.
    #[must_use]
    pub const fn is_alone(self) -> bool {
        matches!(self, Self::Exclusive | Self::Plain)
    }

    /// Whether the numbers of permits make sense. A store refuses other claims with `Config`.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        match self {
            Self::Permits { want, of } => 0 < want && want <= of && of <= PERMITS_MAX,
            _ => true,
        }
    }
}

/// The use of a key. All its holders and waiters agree on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// A lock, exclusive or shared.
    Lock,
    /// A semaphore.
    Permits {
        /// How many permits exist in all.
        of: u32,
    },
}

impl fmt::Display for Usage {
    /// Writes the use as in "for 5 permits". A rate limit and a latch take permits, too.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock => f.write_str("a lock"),
            Self::Permits { of: 1 } => f.write_str("1 permit"),
            Self::Permits { of } => write!(f, "{of} permits"),
        }
    }
}

/// The part of a key that its living holders have, all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Taken {
    /// Nothing: the key is free.
    #[default]
    Nothing,
    /// One owner has it alone.
    Alone,
    /// Some owners share it.
    Shared,
    /// This many permits are taken, at least one.
    Permits(u32),
}

impl Taken {
    /// Whether a claim can be granted in addition to the holders.
    ///
    /// | holders | exclusive | shared | permits |
    /// |---|---|---|---|
    /// | none | yes | yes | unless the number was lowered below what is wanted |
    /// | one alone | no | no | no |
    /// | shared | no | yes | no |
    /// | permits | no | no | if enough are left |
    #[must_use]
    pub const fn admits(self, claim: Claim) -> bool {
        match (self, claim) {
            (Self::Nothing, claim) => claim.is_possible(),
            (Self::Shared, Claim::Shared) => true,
            (Self::Permits(taken), Claim::Permits { want, of }) => want <= of.saturating_sub(taken),
            _ => false,
        }
    }

    /// The state of the key after this claim, which it admits, was granted.
    #[must_use]
    pub const fn with(self, claim: Claim) -> Self {
        match (self, claim) {
            (_, Claim::Exclusive | Claim::Plain) => Self::Alone,
            (_, Claim::Shared) => Self::Shared,
            (Self::Permits(taken), Claim::Permits { want, .. }) => {
                Self::Permits(taken.saturating_add(want))
            }
            (_, Claim::Permits { want, .. }) => Self::Permits(want),
        }
    }

    /// The state of a key whose living holders have these claims.
    pub fn by(claims: impl IntoIterator<Item = Claim>) -> Self {
        claims.into_iter().fold(Self::Nothing, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Claim::{Exclusive, Plain, Shared};

    const fn permits(want: u32, of: u32) -> Claim {
        Claim::Permits { want, of }
    }

    #[test]
    fn a_claim_is_admitted_only_beside_holders_that_leave_room_for_it() {
        for (taken, claim, admits) in [
            (Taken::Nothing, Exclusive, true),
            (Taken::Nothing, Plain, true),
            (Taken::Nothing, Shared, true),
            (Taken::Nothing, permits(3, 3), true),
            (Taken::Alone, Exclusive, false),
            (Taken::Alone, Plain, false),
            (Taken::Alone, Shared, false),
            (Taken::Alone, permits(1, 9), false),
            (Taken::Shared, Exclusive, false),
            (Taken::Shared, Plain, false),
            (Taken::Shared, Shared, true),
            (Taken::Shared, permits(1, 9), false),
            (Taken::Permits(2), permits(1, 3), true),
            (Taken::Permits(2), permits(2, 3), false),
            // The limit was lowered below the wanted permits, or below the permits that are taken.
            (Taken::Nothing, permits(4, 3), false),
            (Taken::Permits(5), permits(1, 3), false),
            (Taken::Permits(1), Exclusive, false),
            (Taken::Permits(1), Shared, false),
        ] {
            assert_eq!(taken.admits(claim), admits, "{taken:?} {claim:?}");
        }
    }

    #[test]
    fn holders_have_the_sum_of_their_claims() {
        for (claims, taken) in [
            (vec![], Taken::Nothing),
            (vec![Exclusive], Taken::Alone),
            (vec![Plain], Taken::Alone),
            (vec![Shared, Shared], Taken::Shared),
            (vec![permits(2, 9), permits(3, 9)], Taken::Permits(5)),
        ] {
            assert_eq!(Taken::by(claims.clone()), taken, "{claims:?}");
        }
    }

    #[test]
    fn permits_are_wanted_within_their_number() {
        for (want, of, is_possible) in [
            (1, 1, true),
            (5, 5, true),
            (0, 5, false),
            (6, 5, false),
            (0, 0, false),
            (1, PERMITS_MAX, true),
            (1, PERMITS_MAX + 1, false),
        ] {
            assert_eq!(permits(want, of).is_possible(), is_possible, "{want} of {of}");
        }
        assert!(Shared.is_possible());
    }

    #[test]
    fn a_use_reads_well_in_a_message() {
        for claim in [Exclusive, Plain, Shared] {
            assert_eq!(claim.usage().to_string(), "a lock", "{claim:?}");
        }
        assert_eq!(permits(1, 1).usage().to_string(), "1 permit");
        assert_eq!(permits(1, 5).usage().to_string(), "5 permits");
    }
}
