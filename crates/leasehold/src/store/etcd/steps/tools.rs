//! The steps of tools: show a lock, list the locks in use, end a lease, ask a holder to let go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, ROUNDS_MAX};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::store::errors::{holder_cannot_be_asked, holder_writes_again_and_again};
use crate::store::etcd::entry::{Entry, tokens};
use crate::store::etcd::error::Fault;
use crate::store::etcd::leases::{Lease, Taken};
use crate::store::etcd::rpc::{KEYS_MAX, Range, Reading, range};
use crate::store::{Evicted, PAGE_KEYS_MAX, Page, Revocation, Revoked, Snapshot, matches_pattern};

/// How many keys one read of a listing has.
const READ_MAX: i64 = KEYS_MAX as i64;

/// How many reads one page takes at most.
const READS_MAX: usize = 10;

impl Core {
    pub(in crate::store::etcd) async fn inspect(&self, key: Key) -> Result<Snapshot, Error> {
        let state = self.look(&key).await?;
        let mut snapshot = Snapshot::default();
        if let Some(held) = &state.held {
            let left = match held.kv.lease {
                0 => None,
                lease => self.wire.seconds_left(lease).await?.or(Some(0)),
            };
            let left = left.map(|left| Duration::from_secs(left.unsigned_abs()));
            snapshot.holders.push(held.holder(left));
            // The change number rises for all keys, so a lock that is free has no counter.
            let block = held.block();
            let last = block.and_then(|block| block.nth(block.count - 1));
            snapshot.fencing = last;
        }
        let shown = state.line.iter().take(Snapshot::WAITERS_SHOWN_MAX);
        snapshot.waiters = shown.map(|place| place.waiter()).collect();
        snapshot.waiting = state.count;
        Ok(snapshot)
    }

    /// One page of the names in use. Each read shows the holders and the places after the last
    /// name that was seen.
    pub(in crate::store::etcd) async fn list(
        &self,
        pattern: &str,
        cursor: Option<Key>,
    ) -> Result<Page, Error> {
        let (mut names, mut after) = (Vec::new(), cursor);
        for _ in 0..READS_MAX {
            let held = self.names(&self.keys.all_held(after.as_ref())).await?;
            let waited = self.names(&self.keys.all_places(after.as_ref())).await?;
            // Beyond the end of the shorter read, names may be missing.
            let end = match (held.1, waited.1) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let all: BTreeSet<Key> = held.0.into_iter().chain(waited.0).collect();
            for name in all {
                if end.as_ref().is_some_and(|end| name > *end) {
                    break;
                }
                if matches_pattern(pattern, name.as_str()) {
                    if names.len() == PAGE_KEYS_MAX {
                        let last = names.last().cloned();
                        return Ok(Page::new(names, last));
                    }
                    names.push(name);
                }
            }
            match end {
                Some(end) => after = Some(end),
                None => return Ok(Page::new(names, None)),
            }
        }
        Ok(Page::new(names, after))
    }

    /// The names of some keys, in order, and the last one if there are more keys.
    async fn names(&self, keys: &Range) -> Result<(BTreeSet<Key>, Option<Key>), Error> {
        let reading = Reading { limit: READ_MAX, by_age: false, keys_only: true };
        let mut keys = keys.clone();
        loop {
            let read = self.wire.range(&range(&keys, reading)).await?;
            let has_more = read.count > READ_MAX;
            let names: BTreeSet<_> =
                read.kvs.iter().filter_map(|kv| self.keys.name_of(&kv.key)).collect();
            let last = names.last().cloned().filter(|_| has_more);
            match read.kvs.last() {
                // Others may have written any number of keys that belong to no lock.
                Some(key) if has_more && last.is_none() => {
                    keys.from = [&key.key[..], &[0]].concat();
                }
                _ => return Ok((names, last)),
            }
        }
    }

    pub(in crate::store::etcd) async fn evict(
        &self,
        key: Key,
        seen: Vec<u8>,
        reason: String,
    ) -> Result<Evicted, Error> {
        if !self.end_of(&key, &seen).await? {
            return Ok(Evicted::Changed);
        }
        tracing::warn!(key = %key, reason, "a lease was ended by an operator");
        Ok(Evicted::Evicted)
    }

    pub(in crate::store::etcd) async fn revoke(
        &self,
        key: Key,
        seen: Vec<u8>,
        (by, reason): (String, String),
    ) -> Result<Revoked, Error> {
        for _ in 0..ROUNDS_MAX {
            let state = self.look(&key).await?;
            let Some(held) = state.held.filter(|held| held.token() == seen) else {
                return Ok(Revoked::Changed);
            };
            let Some(entry) = &held.entry else { return Err(holder_cannot_be_asked()) };
            if entry.revoked.is_some() {
                return Ok(Revoked::Asked);
            }
            let request = Revocation::new(by.clone(), reason.clone(), self.wire.host.wall());
            let kept = entry.clone().kept(tokens(held.kv.modified));
            let asked = Entry { revoked: Some(Arc::new(request)), ..kept };
            // The lease stays as it is. Only the holder renews it.
            let lease = Lease { id: held.kv.lease, seconds: entry.lasts };
            let taken = Taken { lease, is_new: true, since: self.wire.host.now() };
            match self.rewrite(&key, (&held, &asked), taken).await {
                Ok(Some(_)) => return Ok(Revoked::Asked),
                Ok(None) | Err(Fault::NoLease) => {}
                Err(Fault::Error(error)) => return Err(error),
            }
        }
        Err(holder_writes_again_and_again())
    }
}
