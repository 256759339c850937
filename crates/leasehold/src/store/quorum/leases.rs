//! What a quorum remembers of the leases that it granted.
//!
//! The nodes count apart, so none of them can say which fencing tokens a lease has. And a
//! node that does not have a lease is asked for it only while the lease is surely valid.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::NODES_MAX;
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;

/// The leases by their owners. Those that were left to run out are dropped in passing.
#[derive(Default)]
pub(super) struct Leases(Mutex<State>);

#[derive(Default)]
struct State {
    leases: HashMap<OwnerToken, Known>,
    /// At how many those that ran out are looked for.
    swept_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) fencing: Option<FencingBlock>,
    pub(super) valid_until: Moment,
    /// Until when the nodes keep it at least that granted or renewed it last.
    pub(super) kept_until: Moment,
    /// The nodes that are being asked for it again, a bit for each.
    filling: u16,
    /// Whether its client looks after it no longer.
    is_let_go: bool,
}

impl Known {
    /// A lease that was asked for at `sent`.
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
    fn state(&self) -> MutexGuard<'_, State> {
        // The map is whole at every moment: it is changed by single insertions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease was granted.
    pub(super) fn begin(&self, owner: OwnerToken, mut known: Known, now: Moment) {
        let mut state = self.state();
        if state.leases.len() >= state.swept_at {
            state.leases.retain(|_, known| known.valid_until > now);
            state.swept_at = (state.leases.len() * 2).max(SWEPT_AT_MIN);
        }
        // It may have been asked for again by the same token.
        known.filling = state.leases.get(&owner).map_or(0, |before| before.filling);
        state.leases.insert(owner, known);
    }

    /// A renewal that left at `sent` was granted.
    pub(super) fn extend(&self, owner: &OwnerToken, sent: Moment, ttl: Ttl) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.valid_until = known.valid_until.max(valid_until(sent, ttl));
            known.kept_until = known.kept_until.max(sent + ttl.get());
        }
    }

    /// A node is about to be asked for a lease again. `None` if the lease is not valid, or the node
    /// is being asked already.
    pub(super) fn begin_filling(
        &self,
        owner: &OwnerToken,
        node: usize,
        now: Moment,
    ) -> Option<Known> {
        let mut state = self.state();
        let is_ours = |known: &&mut Known| known.valid_until > now && !known.is_let_go;
        let known = state.leases.get_mut(owner).filter(is_ours)?;
        let is_first = known.filling & (1 << node) == 0;
        known.filling |= 1 << node;
        is_first.then_some(*known)
    }

    /// A node is not asked for a lease any more.
    pub(super) fn end_filling(&self, owner: &OwnerToken, node: usize) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.filling &= !(1 << node);
        }
    }

    /// A lease has other fencing tokens from now on.
    pub(super) fn count(&self, owner: &OwnerToken, fencing: Option<FencingBlock>) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.fencing = fencing;
        }
    }

    /// A lease ends, or may: no node is asked for it again from now on.
    pub(super) fn end(&self, owner: &OwnerToken) {
        self.state().leases.remove(owner);
    }

    /// The client looks after a lease no longer: no node is asked for it again from now on. It goes
    /// on without its client, so what was asked for is not given back either.
    pub(super) fn let_go(&self, owner: &OwnerToken) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.is_let_go = true;
        }
    }

    /// Whether the client has let a lease go that may be valid.
    pub(super) fn is_let_go(&self, owner: &OwnerToken) -> bool {
        self.state().leases.get(owner).is_some_and(|known| known.is_let_go)
    }

    /// What is known of a lease that the client looks after, whether it is still valid or not.
    pub(super) fn known(&self, owner: &OwnerToken) -> Option<Known> {
        self.state().leases.get(owner).copied().filter(|known| !known.is_let_go)
    }

    /// What is known of a lease that is valid.
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
        assert!(leases.state().leases.len() <= SWEPT_AT_MIN);
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
}
