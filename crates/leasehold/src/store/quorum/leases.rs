//! What a quorum remembers of the leases that it granted.
//!
//! The nodes count apart, so none of them can say which fencing tokens a lease has. And what a node
//! has lost is put back only while the lease is surely valid.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, OwnerToken};

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
}

const SWEPT_AT_MIN: usize = 1_024;

impl Leases {
    fn state(&self) -> MutexGuard<'_, State> {
        // The map is whole at every moment: it is changed by single insertions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease was granted.
    pub(super) fn begin(&self, owner: OwnerToken, known: Known, now: Moment) {
        let mut state = self.state();
        if state.leases.len() >= state.swept_at {
            state.leases.retain(|_, known| known.valid_until > now);
            state.swept_at = (state.leases.len() * 2).max(SWEPT_AT_MIN);
        }
        state.leases.insert(owner, known);
    }

    /// A lease was renewed.
    pub(super) fn extend(&self, owner: &OwnerToken, valid_until: Moment) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.valid_until = known.valid_until.max(valid_until);
        }
    }

    /// A lease has other fencing tokens from now on.
    pub(super) fn count(&self, owner: &OwnerToken, fencing: Option<FencingBlock>) {
        if let Some(known) = self.state().leases.get_mut(owner) {
            known.fencing = fencing;
        }
    }

    /// A lease ends, or may: nothing is put back from now on.
    pub(super) fn end(&self, owner: &OwnerToken) {
        self.state().leases.remove(owner);
    }

    /// What is known of a lease, whether it is still valid or not.
    pub(super) fn known(&self, owner: &OwnerToken) -> Option<Known> {
        self.state().leases.get(owner).copied()
    }

    /// What is known of a lease that is valid.
    pub(super) fn valid(&self, owner: &OwnerToken, now: Moment) -> Option<Known> {
        self.known(owner).filter(|known| known.valid_until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::ClientId;

    #[test]
    fn leases_that_ran_out_are_forgotten() {
        let leases = Leases::default();
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        for ms in 0..10_000_u64 {
            let mut random = [0; OwnerToken::RANDOM_BYTES];
            random[..8].copy_from_slice(&ms.to_le_bytes().map(|byte| byte % 64));
            let owner = OwnerToken::from_random(random, &client);
            leases.begin(owner, Known { fencing: None, valid_until: at(ms + 100) }, at(ms));
        }
        assert!(leases.state().leases.len() <= SWEPT_AT_MIN);
    }
}
