//! The settings of an acquisition.

use std::sync::Arc;
use std::time::Duration;

use crate::core::coexist::Coexist;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::store::{Acquired, Claim, OnRelease};

/// The settings of an acquisition. Tasks with equal settings pass a lease on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) key: Key,
    pub(crate) ttl: Ttl,
    pub(crate) lock_delay: Duration,
    pub(crate) why: Option<Arc<str>>,
    pub(crate) fencing: bool,
    /// How the client claims the key.
    pub(crate) claim: Claim,
    /// How long the key stays taken after a grant, at least.
    pub(crate) min_hold: Duration,
    /// How long a guard holds the key at most.
    pub(crate) max_hold: Option<Duration>,
    /// Half of the usual validity of a grant is enough, because only the request that ends the hold
    /// relies on it.
    pub(crate) half_validity: bool,
    /// How long a released lease is kept for the next task.
    pub(crate) keep_idle: Duration,
    /// Every task has its own place in the store's line, and leases are not passed on.
    pub(crate) strict_fifo: bool,
    /// Waiters poll and have no place in the store's line. Also set if the store has no line.
    pub(crate) unqueued: bool,
    /// The lock has no companion keys if it has no fencing tokens.
    pub(crate) bare: bool,
    /// How the lock treats clients that poll. Never `Auto` at a store that does not open keys.
    pub(crate) coexist: Coexist,
}

impl Spec {
    /// The settings of a lock that nobody has changed, at a store that queues and opens keys.
    pub(crate) const fn plain(key: Key, ttl: Ttl, lock_delay: Duration) -> Self {
        Self {
            key,
            ttl,
            lock_delay,
            why: None,
            fencing: true,
            claim: Claim::Exclusive,
            min_hold: Duration::ZERO,
            max_hold: None,
            half_validity: false,
            keep_idle: Duration::ZERO,
            strict_fifo: false,
            unqueued: false,
            bare: false,
            coexist: Coexist::Auto,
        }
    }

    /// How the client claims the key.
    pub(crate) const fn claim(&self) -> Claim {
        match self.claim {
            Claim::Exclusive if self.bare && !self.fencing => Claim::Plain,
            claim => claim,
        }
    }

    /// Whether each task has its own place in the store's line and a lease of its own. It has them
    /// with `strict_fifo`, if tasks of one client may have the key together, or if the time of a
    /// hold is limited.
    pub(crate) const fn asks_alone(&self) -> bool {
        let is_limited = !self.min_hold.is_zero() || self.max_hold.is_some();
        self.strict_fifo || !self.claim.is_alone() || is_limited
    }

    /// The settings of a lease that shares the key instead of having it alone.
    pub(crate) fn shared(&self) -> Self {
        let keep_idle = Duration::ZERO;
        Self { claim: Claim::Shared, fencing: false, keep_idle, ..self.clone() }
    }

    /// Whether an ask with these settings would fail just like one with `other`. The ttl decides
    /// how long an answer may take. The data that is written decides which rights are needed.
    pub(crate) fn fares_as(&self, other: &Self) -> bool {
        let asked = |spec: &Self| {
            (spec.kept_ttl(), spec.claim(), spec.fencing, spec.unqueued, spec.why.is_some())
        };
        asked(self) == asked(other)
    }

    /// Removes fencing tokens that were not asked for. A server that lost its record of a grant
    /// without fencing may answer with the last token of all, which belongs to another grant.
    pub(super) fn as_wanted(&self, answer: Acquired) -> Acquired {
        match answer {
            Acquired::Granted { .. } if !self.fencing => Acquired::Granted { fencing: None },
            answer => answer,
        }
    }

    /// The limit of a waiter's ask. `None` without a lock delay: then the store's own limit ends
    /// while the place still lives. With a lock delay, the store's limit may outlive the place, so
    /// this one is shorter.
    pub(super) fn ask_limit(&self) -> Option<Duration> {
        let limit = || (self.ttl.waiter_ttl().get() / 3).max(command_limit(self.ttl));
        (!self.lock_delay.is_zero()).then(limit)
    }

    /// How a release treats the key.
    pub(crate) const fn on_release(&self) -> OnRelease {
        match self.coexist {
            Coexist::On => OnRelease::FreeAndWake,
            Coexist::Auto if self.opens() => OnRelease::Open,
            Coexist::Auto | Coexist::Off => OnRelease::Free,
        }
    }

    /// Whether the store opens the line now and then. A lock without companion keys has no line.
    pub(crate) const fn opens(&self) -> bool {
        matches!(self.coexist, Coexist::Auto) && !matches!(self.claim(), Claim::Plain)
    }

    /// Whether a release never hands the key over.
    pub(crate) const fn gives_way(&self) -> bool {
        matches!(self.coexist, Coexist::On)
    }

    /// Whether clients may wait without the knowledge of the store.
    pub(crate) const fn others_wait_unseen(&self) -> bool {
        self.unqueued || self.gives_way()
    }

    /// The ttl at the store, which includes the lock delay.
    pub(crate) fn kept_ttl(&self) -> Ttl {
        self.ttl.with_delay(self.lock_delay)
    }

    /// How long the store keeps a key at most for an ask that was sent before now. The ask may have
    /// got a place in line only, and the store may hand the key over when that place is about to
    /// end.
    pub(crate) fn kept_for_an_ask(&self) -> Duration {
        let place = self.ttl.waiter_ttl();
        let handed_over = place.with_delay(self.lock_delay);
        self.kept_ttl().get().max(place.get() + handed_over.get())
    }
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Until(Moment),
    ForEver,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::FencingBlock;

    const SECOND: Duration = Duration::from_secs(1);

    /// The settings of a plain mutex at a store that opens keys, after a change.
    fn spec(change: impl FnOnce(&mut Spec)) -> Spec {
        let mut spec = Spec::plain(Key::new("a").expect("a name"), Ttl::DEFAULT, Duration::ZERO);
        change(&mut spec);
        spec
    }

    type Change = fn(&mut Spec);

    #[test]
    fn a_failure_is_told_to_tasks_whose_requests_need_the_same() {
        let table: [(Change, bool); 10] = [
            (|it| it.ttl = Ttl::MAX, false),
            (|it| it.lock_delay = SECOND, false),
            (|it| it.fencing = false, false),
            (|it| it.unqueued = true, false),
            (|it| it.claim = Claim::Shared, false),
            // A note needs the right to write one.
            (|it| it.why = Some("nightly".into()), false),
            // Without companion keys, it needs fewer rights.
            (|it| (it.bare, it.fencing) = (true, false), false),
            (|it| it.keep_idle = SECOND, true),
            (|it| it.coexist = Coexist::Off, true),
            (|it| it.bare = true, true),
        ];
        for (number, (change, fares_alike)) in table.into_iter().enumerate() {
            let (one, other) = (spec(|_| ()), spec(change));
            assert_eq!(one.fares_as(&other), fares_alike, "{number}: {other:?}");
            assert_eq!(other.fares_as(&one), fares_alike, "{number}: {other:?}");
        }
        let noted = |why: &str| spec(|it| it.why = Some(why.into()));
        assert!(noted("nightly").fares_as(&noted("hourly")), "the words make no difference");
    }

    #[test]
    fn tasks_share_a_lease_only_if_each_may_have_it_for_as_long_as_it_likes() {
        let table: [(Change, bool); 8] = [
            (|_| (), false),
            (|it| it.keep_idle = SECOND, false),
            (|it| (it.bare, it.fencing) = (true, false), false),
            (|it| it.strict_fifo = true, true),
            (|it| it.claim = Claim::Shared, true),
            (|it| it.claim = Claim::Permits { want: 1, of: 2 }, true),
            (|it| it.min_hold = SECOND, true),
            (|it| it.max_hold = Some(SECOND), true),
        ];
        for (number, (change, asks_alone)) in table.into_iter().enumerate() {
            assert_eq!(spec(change).asks_alone(), asks_alone, "{number}");
        }
    }

    #[test]
    fn a_release_treats_clients_that_poll_as_the_settings_say() {
        let bare: Change = |it| (it.bare, it.fencing) = (true, false);
        let (open, free, wake) = (OnRelease::Open, OnRelease::Free, OnRelease::FreeAndWake);
        // Columns: settings, release, whether the line opens, whether others may wait unseen.
        let table: [(Change, OnRelease, bool, bool); 7] = [
            (|_| (), open.clone(), true, false),
            (|it| it.unqueued = true, open.clone(), true, true),
            (|it| it.bare = true, open, true, false),
            (bare, free.clone(), false, false),
            (|it| it.coexist = Coexist::Off, free, false, false),
            (|it| it.coexist = Coexist::On, wake.clone(), false, true),
            (|it| (it.coexist, it.unqueued) = (Coexist::On, true), wake, false, true),
        ];
        for (number, (change, on_release, opens, others_wait_unseen)) in
            table.into_iter().enumerate()
        {
            let spec = spec(change);
            assert_eq!(spec.on_release(), on_release, "{number}");
            assert_eq!(spec.opens(), opens, "{number}");
            assert_eq!(spec.others_wait_unseen(), others_wait_unseen, "{number}");
        }
    }

    #[test]
    fn a_claim_is_plain_only_without_companion_keys_and_without_fencing_tokens() {
        let permits = Claim::Permits { want: 1, of: 2 };
        // Columns: what is claimed, whether it is bare, whether it is fenced, the claim.
        for (wanted, bare, fencing, claim) in [
            (Claim::Exclusive, false, false, Claim::Exclusive),
            (Claim::Exclusive, true, true, Claim::Exclusive),
            (Claim::Exclusive, true, false, Claim::Plain),
            (Claim::Shared, true, false, Claim::Shared),
            (permits, true, false, permits),
        ] {
            let change = |it: &mut Spec| (it.claim, it.bare, it.fencing) = (wanted, bare, fencing);
            assert_eq!(spec(change).claim(), claim, "{wanted:?} {bare} {fencing}");
        }
    }

    #[test]
    fn a_reader_has_no_fencing_token_and_the_lock_delay_of_its_writer() {
        let writer = spec(|it| (it.lock_delay, it.keep_idle) = (SECOND, SECOND));
        let reader = writer.shared();
        assert_eq!((reader.claim(), reader.fencing), (Claim::Shared, false));
        assert_eq!((reader.keep_idle, reader.kept_ttl()), (Duration::ZERO, writer.kept_ttl()));
    }

    #[test]
    fn a_fencing_token_that_nobody_asked_for_is_left_out() {
        let fencing = FencingBlock::after(6, 1).map(|(block, _)| block);
        for (is_asked_for, kept) in [(true, fencing), (false, None)] {
            let answer =
                spec(|it| it.fencing = is_asked_for).as_wanted(Acquired::Granted { fencing });
            assert!(matches!(answer, Acquired::Granted { fencing } if fencing == kept));
        }
    }

    #[test]
    fn only_with_a_lock_delay_an_ask_has_a_limit_of_its_own() {
        // Columns: ttl, lock delay, limit, all in ms.
        for (ttl, delay, limit) in
            [(3_000, 0, None), (3_000, 1, Some(1_000)), (900, 1, Some(300)), (60, 1, Some(25))]
        {
            let spec = spec(|it| {
                it.ttl = Ttl::new(Duration::from_millis(ttl)).expect("within bounds");
                it.lock_delay = Duration::from_millis(delay);
            });
            assert_eq!(spec.ask_limit(), limit.map(Duration::from_millis), "{ttl} {delay}");
        }
    }
}
