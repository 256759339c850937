//! The values of the keys: who has a lock, and who waits for it.

use std::time::Duration;

use super::leases::Lease;
use super::rpc::Kv;
use crate::core::token::{FencingBlock, FencingToken, OwnerToken};
pub(super) use crate::store::entry::Entry;
use crate::store::{Holder, Waiter};

/// How many fencing tokens belong to each revision of the cluster. So each grant has a block of
/// tokens.
const TOKENS_EACH: u32 = 100;

/// The fencing tokens that belong to a revision of the cluster.
pub(super) fn tokens(change: i64) -> Option<FencingBlock> {
    let first = change.unsigned_abs().saturating_mul(u64::from(TOKENS_EACH));
    Some(FencingBlock { first: FencingToken::new(first)?, count: TOKENS_EACH })
}

/// A key with what its value says.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) kv: Kv,
    /// `None` if the value was not written by Leasehold.
    pub(super) entry: Option<Entry>,
}

impl Seen {
    pub(super) fn new(kv: Kv) -> Self {
        let entry = Entry::read(&kv.value);
        Self { kv, entry }
    }

    pub(super) fn is_of(&self, owner: &OwnerToken) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.owner == *owner)
    }

    /// The lease of etcd behind the key, if Leasehold wrote the key.
    pub(super) fn lease(&self) -> Option<Lease> {
        let seconds = self.entry.as_ref().filter(|_| self.kv.lease != 0)?.lasts;
        Some(Lease { id: self.kv.lease, seconds })
    }

    /// The owner token; or the whole value, if Leasehold did not write it.
    pub(super) fn token(&self) -> &[u8] {
        let of_entry = self.entry.as_ref().map(|entry| entry.owner.as_str().as_bytes());
        of_entry.unwrap_or(&self.kv.value)
    }

    pub(super) fn block(&self) -> Option<FencingBlock> {
        self.entry.as_ref()?.block(tokens(self.kv.modified))
    }

    /// The holder, for people.
    pub(super) fn holder(&self, ttl_left: Option<Duration>) -> Holder {
        let mut holder = Holder::new(self.token());
        holder.ttl_left = ttl_left;
        if let Some(entry) = &self.entry {
            entry.show(&mut holder, tokens(self.kv.modified));
            holder.ttl = Some(Duration::from_secs(entry.lasts.unsigned_abs()));
        }
        holder
    }

    /// The waiter, for people.
    pub(super) fn waiter(&self) -> Waiter {
        self.entry.as_ref().map_or_else(|| Waiter::new(None), Entry::waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_somebody_else_wrote_is_its_own_token() {
        let seen = Seen::new(Kv { value: b"x".to_vec(), ..Kv::default() });
        assert_eq!((seen.token(), seen.block()), (&b"x"[..], None));
    }

    #[test]
    fn no_two_changes_share_a_fencing_token() {
        let [one, next] = [41, 42].map(|change| tokens(change).expect("within bounds"));
        assert_eq!((one.first.get(), one.count), (4_100, 100));
        assert_eq!(next.first.get(), one.first.get() + u64::from(one.count));
    }
}
