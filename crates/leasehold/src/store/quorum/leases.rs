//! The leases that a quorum granted.
//!
//! Each node counts by itself, so no node knows the fencing tokens of a lease. A node that lacks a
//! lease is asked for it only while the lease is certainly valid.

use std::collections::HashMap;

use super::NODES_MAX;
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;
use crate::unpoisoned::Unpoisoned;

/// The leases by owner. Leases that expired are dropped in passing.
#[derive(Default)]
pub(super) struct Leases(Unpoisoned<State>);

#[derive(Default)]
struct State {
    leases: HashMap<OwnerToken, Known>,
    /// The number of leases at which expired ones are removed.
    swept_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) fencing: Option<FencingBlock>,
    pub(super) valid_until: Moment,
    /// The nodes that granted or renewed it last keep it at least until then.
    pub(super) kept_until: Moment,
    /// The nodes that are being asked for it again, one bit each.
    filling: u16,
    /// Whether the client no longer looks after it.
    is_let_go: bool,
}

impl Known {
    /// A lease whose request was sent at `sent`.
    pub(super) fn new(fencing: Option<FencingBlock>, sent: Moment, ttl: Ttl) -> Self {
        Self {
            fencing,
            valid_until: valid_until(sent, ttl),
            kept_until: sent + ttl.get(),
            filling: 0,
            is_let_go: false,
        }
    }
}

const _: () = assert!(NODES_MAX <= u16::BITS as usize, "each node has a bit");

const SWEPT_AT_MIN: usize = 1_024;

impl Leases {
    /// Notes a grant.
    pub(super) fn begin(&self, owner: OwnerToken, mut known: Known, now: Moment) {
        let mut state = self.0.lock();
        if state.leases.len() >= state.swept_at {
            // A lease is kept while a node is asked for it. The answer must still find out whether
            // the lease was let go, because another process may have renewed it.
            state.leases.retain(|_, known| known.valid_until > now || known.filling != 0);
            state.swept_at = (state.leases.len() * 2).max(SWEPT_AT_MIN);
        }
        // A repeated request with the same token may have begun the filling.
        known.filling = state.leases.get(&owner).map_or(0, |before| before.filling);
        state.leases.insert(owner, known);
    }

    /// Notes a renewal that was sent at `sent`.
    pub(super) fn extend(&self, owner: &OwnerToken, sent: Moment, ttl: Ttl) {
        if let Some(known) = self.0.lock().leases.get_mut(owner) {
            known.valid_until = known.valid_until.max(valid_until(sent, ttl));
            known.kept_until = known.kept_until.max(sent + ttl.get());
        }
    }

    /// Notes that a node is about to be asked for a lease again. `None` if the node is already
    /// being asked, or if the lease is unknown, detached or no longer valid.
    pub(super) fn begin_filling(
        &self,
        owner: &OwnerToken,
        node: usize,
        now: Moment,
    ) -> Option<Known> {
        let mut state = self.0.lock();
        let is_ours = |known: &&mut Known| known.valid_until > now && !known.is_let_go;
        let known = state.leases.get_mut(owner).filter(is_ours)?;
        let is_first = known.filling & (1 << node) == 0;
        known.filling |= 1 << node;
        is_first.then_some(*known)
    }

    /// Notes that a node is no longer being asked for a lease.
    pub(super) fn end_filling(&self, owner: &OwnerToken, node: usize) {
        if let Some(known) = self.0.lock().leases.get_mut(owner) {
            known.filling &= !(1 << node);
        }
    }

    /// Notes the new fencing tokens of a lease.
    pub(super) fn count(&self, owner: &OwnerToken, fencing: Option<FencingBlock>) {
        if let Some(known) = self.0.lock().leases.get_mut(owner) {
            known.fencing = fencing;
        }
    }

    /// Notes that a lease ends, or may end. From now on, no node is asked for it again.
    pub(super) fn end(&self, owner: &OwnerToken) {
        self.0.lock().leases.remove(owner);
    }

    /// Notes that the client no longer looks after a lease. From now on, no node is asked for it
    /// again. The lease goes on, so late grants of it are not released either.
    pub(super) fn let_go(&self, owner: &OwnerToken) {
        if let Some(known) = self.0.lock().leases.get_mut(owner) {
            known.is_let_go = true;
        }
    }

    /// Whether the client has given up a lease that may still be valid.
    pub(super) fn is_let_go(&self, owner: &OwnerToken) -> bool {
        self.0.lock().leases.get(owner).is_some_and(|known| known.is_let_go)
    }

    /// The lease, valid or not, if the client looks after it.
    pub(super) fn known(&self, owner: &OwnerToken) -> Option<Known> {
        self.0.lock().leases.get(owner).copied().filter(|known| !known.is_let_go)
    }

    /// The lease, if it is valid and the client looks after it.
    pub(super) fn valid(&self, owner: &OwnerToken, now: Moment) -> Option<Known> {
        self.known(owner).filter(|known| known.valid_until > now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::token::ClientId;

    #[test]
    fn leases_that_ran_out_are_forgotten() {
        let leases = Leases::default();
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let ttl = Ttl::new(Duration::from_millis(100)).expect("within bounds");
        for ms in 0..10_000_u64 {
            let mut random = [0; OwnerToken::RANDOM_BYTES];
            random[..8].copy_from_slice(&ms.to_le_bytes().map(|byte| byte % 64));
            let owner = OwnerToken::from_random(random, &client);
            leases.begin(owner, Known::new(None, at(ms), ttl), at(ms));
        }
        assert!(leases.0.lock().leases.len() <= SWEPT_AT_MIN);
    }

    #[test]
    fn a_lease_that_a_node_is_being_asked_for_is_remembered_after_its_end() {
        let leases = Leases::default();
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let owner = OwnerToken::from_random([63; OwnerToken::RANDOM_BYTES], &client);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let ttl = Ttl::new(Duration::from_millis(100)).expect("within bounds");
        let begin_many = |from: u64| {
            for ms in from..from + 5_000 {
                let mut random = [0; OwnerToken::RANDOM_BYTES];
                let digits = [ms % 64, ms / 64 % 64, ms / 4_096];
                for (byte, digit) in random.iter_mut().zip(digits) {
                    *byte = u8::try_from(digit).expect("it is below 64");
                }
                let other = OwnerToken::from_random(random, &client);
                leases.begin(other, Known::new(None, at(ms), ttl), at(ms));
            }
        };
        leases.begin(owner.clone(), Known::new(None, at(0), ttl), at(0));
        assert!(leases.begin_filling(&owner, 1, at(1)).is_some());
        leases.let_go(&owner);
        begin_many(1_000);
        assert!(leases.is_let_go(&owner), "its answer must not be followed by a release");
        leases.end_filling(&owner, 1);
        begin_many(10_000);
        assert!(!leases.is_let_go(&owner), "it is forgotten now");
    }

    #[test]
    fn a_node_is_asked_by_one_at_a_time_and_only_for_a_lease_that_is_valid() {
        let leases = Leases::default();
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let owner = OwnerToken::from_random([1; OwnerToken::RANDOM_BYTES], &client);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let ttl = Ttl::new(Duration::from_millis(100)).expect("within bounds");
        assert_eq!(leases.begin_filling(&owner, 1, at(0)), None, "nothing is known of it");
        leases.begin(owner.clone(), Known::new(None, at(0), ttl), at(0));
        assert!(leases.begin_filling(&owner, 1, at(1)).is_some());
        assert_eq!(leases.begin_filling(&owner, 1, at(2)), None, "it is being asked");
        assert!(leases.begin_filling(&owner, NODES_MAX - 1, at(2)).is_some());
        leases.begin(owner.clone(), Known::new(None, at(3), ttl), at(3));
        assert_eq!(leases.begin_filling(&owner, 1, at(4)), None, "it still is");
        leases.end_filling(&owner, 1);
        assert!(leases.begin_filling(&owner, 1, at(5)).is_some());
        leases.end_filling(&owner, 1);
        assert_eq!(leases.begin_filling(&owner, 1, at(103)), None, "it may have ended");
        leases.extend(&owner, at(50), ttl);
        assert!(leases.begin_filling(&owner, 1, at(103)).is_some());
        leases.end(&owner);
        leases.end_filling(&owner, 1);
        assert_eq!(leases.begin_filling(&owner, 1, at(104)), None, "it was released");
    }

    #[test]
    fn a_renewal_that_was_sent_earlier_or_is_shorter_ends_no_lease_sooner() {
        let leases = Leases::default();
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let owner = OwnerToken::from_random([1; OwnerToken::RANDOM_BYTES], &client);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let ttl = |ms| Ttl::new(Duration::from_millis(ms)).expect("within bounds");
        leases.begin(owner.clone(), Known::new(None, at(50), ttl(100)), at(50));
        let before = leases.known(&owner);
        leases.extend(&owner, at(20), ttl(100));
        leases.extend(&owner, at(60), ttl(10));
        assert_eq!(leases.known(&owner), before);
        leases.extend(&owner, at(60), ttl(100));
        assert_eq!(leases.known(&owner).map(|known| known.kept_until), Some(at(160)));
    }
}
