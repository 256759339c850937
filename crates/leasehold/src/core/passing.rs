//! Passing a lease on among the tasks of one client, and when to stop.
//!
//! A client that releases a lease for which another of its tasks waits passes it on without asking
//! the store (cohort locking, <https://doi.org/10.1145/2145816.2145848>). That goes on for as long
//! as no other client waits. Once one does, it has to end soon.

use std::time::Duration;

use crate::core::backoff::Backoff;
use crate::core::moment::Moment;

/// How often a lease is passed on at most once another client waits.
pub(crate) const PASSES_MAX: u32 = 64;

/// For how long it is passed on at most once another client waits.
pub(crate) const PASSING_MAX: Duration = Duration::from_millis(20);

/// How many fencing tokens an ask reserves that has tasks behind it: those of all passes of which
/// it may be sure, and its own.
pub(crate) const TURN_BLOCK: u32 = PASSES_MAX + 1;

/// How many fencing tokens are reserved where a lease is kept because nobody else waits.
pub(crate) const KEPT_BLOCK: u32 = 1_024;

/// For how long at most a key is left alone that somebody else may want who stands in no line.
const GIVEN_WAY: Duration = Duration::from_millis(10);

/// For how long: between the half and all of it, so that clients do not march in step. Whoever
/// polls more often than that has the key, whoever polls less often has it sometimes; one round
/// trip, which is what a hint takes, would be as good as nothing.
pub(crate) fn given_way(random: u32) -> Duration {
    Backoff { first: GIVEN_WAY, longest: GIVEN_WAY }.delays().next(random)
}

/// Whether another client waits, as far as is known, and what was passed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passing {
    wanted: Option<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    since: Moment,
    /// When it was heard of last.
    heard: Moment,
    passes: u32,
}

impl Passing {
    /// Whether another client waits.
    pub(crate) fn is_wanted(self) -> bool {
        self.wanted.is_some()
    }

    /// Another client waits, or may. What is left to pass counts from when that was heard first.
    pub(crate) fn want(&mut self, now: Moment) {
        let wanted = self.wanted.get_or_insert(Wanted { since: now, heard: now, passes: 0 });
        wanted.heard = wanted.heard.max(now);
    }

    /// The store answers a request that left at `sent`: nobody else waits. One who was heard of
    /// since then does.
    pub(crate) fn not_wanted(&mut self, sent: Moment) {
        self.wanted = self.wanted.filter(|wanted| wanted.heard >= sent);
    }

    /// Whether the lease may be passed on at `now`.
    pub(crate) fn may_pass(self, now: Moment) -> bool {
        self.wanted.is_none_or(|wanted| {
            wanted.passes < PASSES_MAX && now.since(wanted.since) < PASSING_MAX
        })
    }

    /// It is passed on.
    pub(crate) fn count(&mut self) {
        if let Some(wanted) = &mut self.wanted {
            wanted.passes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_key_is_left_alone_for_5_to_10_ms() {
        assert_eq!(given_way(0), Duration::from_millis(5));
        assert_eq!(given_way(u32::MAX), Duration::from_millis(10));
    }

    #[test]
    fn unwanted_a_lease_is_passed_on_without_end() {
        let mut passing = Passing::default();
        for pass in 0..10_000 {
            assert!(passing.may_pass(at(pass)));
            passing.count();
        }
    }

    #[test]
    fn once_wanted_it_is_passed_on_64_times_more_and_for_20_ms() {
        let mut passing = Passing::default();
        passing.want(at(100));
        passing.want(at(119));
        for _ in 0..PASSES_MAX {
            assert!(passing.may_pass(at(119)));
            passing.count();
        }
        assert!(!passing.may_pass(at(119)));
        let mut passing = Passing::default();
        passing.want(at(100));
        passing.want(at(119));
        assert!(!passing.may_pass(at(120)), "heard again, known already");
    }

    #[test]
    fn nobody_waits_is_said_of_the_time_before_the_answer() {
        let mut passing = Passing::default();
        passing.want(at(100));
        passing.not_wanted(at(99));
        assert!(passing.is_wanted(), "somebody came after the request had left");
        passing.want(at(110));
        passing.not_wanted(at(101));
        assert!(passing.is_wanted(), "somebody else came, and was heard of only as one more");
        passing.not_wanted(at(111));
        assert!(!passing.is_wanted());
    }
}
