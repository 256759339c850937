//! Passing a lease on among the tasks of one client, and when to stop.
//!
//! If another task of the same client waits, a release passes the lease on without asking the store
//! (cohort locking, <https://doi.org/10.1145/2145816.2145848>). This goes on as long as no other
//! client waits. Once another client waits, it must end soon.

use std::time::Duration;

use crate::core::backoff::Backoff;
use crate::core::moment::Moment;

/// How often a lease is passed on at most once another client waits.
pub(crate) const PASSES_MAX: u32 = 64;

/// How long a lease is passed on at most once another client waits.
pub(crate) const PASSING_MAX: Duration = Duration::from_millis(20);

/// How long a lease is passed on at most if the store opens its line for clients that it does not
/// see. The store decides to open it only when it gets a request. So this limit is as long as the
/// shortest time that a line has the key between two openings.
pub(crate) const ASKS_EVERY: Duration = Duration::from_millis(100);

/// Tokens to reserve when tasks queue locally: one per allowed pass, plus one for this holder.
pub(crate) const TURN_BLOCK: u32 = PASSES_MAX + 1;

/// Tokens to reserve when this client keeps a lease because nobody else waits.
pub(crate) const KEPT_BLOCK: u32 = 1_024;

/// The longest time a client leaves a key to clients that do not queue.
const GIVEN_WAY_MAX: Duration = Duration::from_millis(10);

/// A random time between half of the maximum and all of it, so that clients do not act in step. A
/// client that polls more often than this pause gets the key. A client that polls less often gets
/// it sometimes. One round trip, the time of a hint, would be too short for both.
pub(crate) fn given_way(random: u32) -> Duration {
    Backoff { first: GIVEN_WAY_MAX, longest: GIVEN_WAY_MAX }.delays().next(random)
}

/// Whether another client is known to wait, and how often the lease was passed on since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passing {
    wanted: Option<Wanted>,
    /// When passing ends even if nobody is known to wait.
    ends: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    since: Moment,
    /// When the client last heard of a waiter.
    heard: Moment,
    passes: u32,
}

impl Passing {
    /// Whether another client waits.
    pub(crate) fn is_wanted(self) -> bool {
        self.wanted.is_some()
    }

    /// Notes that another client waits, or may wait. The limits of passing count from the first of
    /// these notes.
    pub(crate) fn want(&mut self, now: Moment) {
        let wanted = self.wanted.get_or_insert(Wanted { since: now, heard: now, passes: 0 });
        wanted.heard = wanted.heard.max(now);
    }

    /// Notes that nobody else waits, as the store answered to a request that left at `sent`. A
    /// waiter that was reported after that still counts.
    pub(crate) fn not_wanted(&mut self, sent: Moment) {
        self.wanted = self.wanted.filter(|wanted| wanted.heard >= sent);
    }

    /// Ends passing at this moment, even if no other client waits.
    pub(crate) const fn end_at(&mut self, at: Moment) {
        self.ends = Some(at);
    }

    /// Whether the lease may be passed on at `now`.
    pub(crate) fn may_pass(self, now: Moment) -> bool {
        let is_early = self.ends.is_none_or(|ends| now < ends);
        is_early
            && self.wanted.is_none_or(|wanted| {
                wanted.passes < PASSES_MAX && now.since(wanted.since) < PASSING_MAX
            })
    }

    /// Counts a pass.
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
    fn an_unwanted_lease_is_passed_on_without_end() {
        let mut passing = Passing::default();
        for pass in 0..10_000 {
            assert!(passing.may_pass(at(pass)));
            passing.count();
        }
    }

    #[test]
    fn a_wanted_lease_is_passed_on_64_more_times_and_for_20_ms() {
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
    fn a_lease_that_the_store_must_decide_about_is_passed_on_until_then() {
        let mut passing = Passing::default();
        passing.end_at(at(1_000));
        for ms in 0..1_000 {
            assert!(passing.may_pass(at(ms)));
            passing.count();
        }
        assert!(!passing.may_pass(at(1_000)));
        passing.want(at(5));
        assert!(!passing.may_pass(at(25)), "others still wait for 20 ms");
    }

    #[test]
    fn nobody_waits_is_said_of_the_time_before_the_answer() {
        let mut passing = Passing::default();
        passing.want(at(100));
        passing.not_wanted(at(99));
        assert!(passing.is_wanted(), "somebody came after the request had left");
        passing.not_wanted(at(100));
        assert!(passing.is_wanted(), "somebody came at the same moment");
        passing.want(at(110));
        passing.not_wanted(at(101));
        assert!(passing.is_wanted(), "somebody else came, and was heard of only as one more");
        passing.not_wanted(at(111));
        assert!(!passing.is_wanted());
    }
}
