//! Release: end a lease and a place, and hand the lock on.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, ROUNDS_MAX, sure};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::store::errors::after_a_change;
use crate::store::etcd::entry::{Entry, Seen, tokens};
use crate::store::etcd::error::Fault;
use crate::store::etcd::leases::{Lease, Taken, seconds};
use crate::store::etcd::rpc::{Do, If, Txn};
use crate::store::etcd::state::{State, look};
use crate::store::{Claim, Keep, LeaseId, OnRelease, Released, unsupported_claim, within};

/// How long a release that is done waits until its lease of etcd is revoked. It is much shorter
/// than the limit of the caller.
const REVOKE_LIMIT: Duration = Duration::from_millis(200);

/// Where a lock goes when its lease ends.
#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// The front of the line gets the lock; if nobody waits, the lock is free.
    Pass,
    /// As for `Pass`, but if nobody waits, the client keeps the lock on these terms.
    Keep(Keep<'a>),
    /// The lock is free, even if somebody waits.
    Free,
}

impl Core {
    pub(in crate::store::etcd) async fn release(
        &self,
        lease: LeaseId,
        on_release: OnRelease,
    ) -> Result<Released, Error> {
        let (key, owner) = (&lease.key, &lease.owner);
        let end = match &on_release {
            OnRelease::Free | OnRelease::Open => End::Pass,
            OnRelease::FreeAndWake => End::Free,
            OnRelease::KeepIfAlone { owner, ttl, reserve, .. } => {
                End::Keep(Keep { owner, ttl: *ttl, reserve: *reserve })
            }
            OnRelease::Downgrade { .. } => return Err(unsupported_claim(Claim::Shared, key)),
        };
        self.hints.done(key, owner);
        let mut known = self.mine.of(key, owner);
        let state = match (known.held, end) {
            (Some((lease, modified)), End::Pass) if known.doubts.is_empty() => {
                // The usual case: the owner still has the lock, and nobody waits.
                let held = self.keys.held(key);
                let when =
                    vec![If::Modified(held.clone(), modified), If::Absent(self.keys.line(key))];
                let (then, or_else) = (vec![Do::Delete(held)], look(&self.keys, key));
                let done = sure(self.wire.txn(&Txn { when, then, or_else }).await)?;
                if done.succeeded {
                    let _none = self.mine.forget(key, owner);
                    self.give_up(lease, known.since(lease.id)).await;
                    return Ok(Released::Freed);
                }
                State::of(done)
            }
            _ => self.look(key).await?,
        };
        let released = self.end_by(&lease, end, state).await?;
        // A request may have arrived meanwhile. The lock may be kept with its lease of etcd, or
        // another lock may have that by now.
        let mut arrived: Vec<_> = self.mine.of(key, owner).leases().collect();
        if let End::Keep(keep) = end {
            arrived.extend(self.mine.of(key, keep.owner).leases());
        }
        known.doubts.retain(|doubt| !arrived.contains(doubt));
        for doubt in known.doubts {
            // A request of this owner may still be under way. Without its lease it changes nothing.
            self.wire.revoke(doubt).await.map_err(after_a_change)?;
        }
        let _revoked = self.mine.forget(key, owner);
        Ok(released)
    }

    /// Ends the lease and the place of an owner.
    async fn end_by(
        &self,
        LeaseId { key, owner, .. }: &LeaseId,
        end: End<'_>,
        mut state: State,
    ) -> Result<Released, Error> {
        for _ in 0..ROUNDS_MAX {
            let Some(held) = state.held_by(owner).cloned() else {
                let was_front = state.place_of(owner) == Some(0);
                state = self.leave_in(key, owner, state).await?;
                if state.held_by(owner).is_some() {
                    // The lock was handed to the place before the place was removed.
                    continue;
                }
                // A release may have told the front alone that the lock is free. The watches tell
                // of the lock and not of places, so the next place gets the lock instead of a hint.
                if was_front || !matches!(end, End::Free) {
                    self.pass_on(key, state).await.map_err(after_a_change)?;
                }
                return Ok(Released::NotHeld);
            };
            match self.end_held(key, &held, end, state).await? {
                Ok(released) => {
                    // If a kept lock has ended already, another client ended it. That client may
                    // use the lock's lease of etcd again by now.
                    let is_ours = match released {
                        Released::HandedOver => true,
                        Released::Freed => !matches!(end, End::Keep(_)),
                        _ => false,
                    };
                    if let Some(lease) = held.lease().filter(|_| is_ours) {
                        self.give_up(lease, self.mine.of(key, owner).since(lease.id)).await;
                    }
                    return Ok(released);
                }
                Err(changed) => state = changed,
            }
        }
        let message = "other clients change the line of this lock again and again; it was not \
                       released; try again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// Ends a lease that was seen. Returns the new state if it has changed meanwhile.
    async fn end_held(
        &self,
        key: &Key,
        held: &Seen,
        end: End<'_>,
        state: State,
    ) -> Result<Result<Released, State>, Error> {
        if let Some(entry) = &held.entry
            && state.place_of(&entry.owner).is_some()
        {
            // A late request made this place. The lock must not be handed to the owner that gives
            // it up.
            return Ok(Err(self.leave_in(key, &entry.owner, state).await?));
        }
        let name = self.keys.held(key);
        let still = If::Modified(name.clone(), held.kv.modified);
        let mut when = vec![still.clone()];
        match end {
            End::Pass | End::Keep(_) if !state.line.is_empty() => {
                let (state, is_handed) = self.hand_over(key, still, &state).await?;
                return Ok(if is_handed { Ok(Released::HandedOver) } else { Err(state) });
            }
            End::Keep(keep) => return self.keep(key, held, keep).await,
            End::Pass => when.push(If::Absent(self.keys.line(key))),
            End::Free => {}
        }
        let txn = Txn { when, then: vec![Do::Delete(name)], or_else: look(&self.keys, key) };
        let done = sure(self.wire.txn(&txn).await)?;
        Ok(if done.succeeded { Ok(Released::Freed) } else { Err(State::of(done)) })
    }

    /// Gives the lock to its own client again, under another token.
    async fn keep(
        &self,
        key: &Key,
        held: &Seen,
        keep: Keep<'_>,
    ) -> Result<Result<Released, State>, Error> {
        let Some(before) = &held.entry else { return Ok(Err(self.look(key).await?)) };
        let (wanted, sent) = (seconds(keep.ttl), self.wire.host.now());
        let taken = if wanted > before.lasts {
            self.lasting(key, wanted).await?
        } else {
            let lease = Lease { id: held.kv.lease, seconds: before.lasts };
            Taken { lease, is_new: false, since: sent }
        };
        let entry = Entry {
            owner: keep.owner.clone(),
            lasts: taken.lease.seconds,
            reserve: keep.reserve,
            fence: None,
            is_idle: false,
            revoked: None,
            ..before.clone()
        };
        let (name, value, lease) = (self.keys.held(key), entry.write(), taken.lease.id);
        let is_another = lease != held.kv.lease;
        let when =
            vec![If::Modified(name.clone(), held.kv.modified), If::Absent(self.keys.line(key))];
        let then = vec![Do::Put { key: name, value, lease }];
        let txn = Txn { when, then, or_else: look(&self.keys, key) };
        let (done, lasts) = match self.write(taken, &txn).await {
            Ok(done) => done,
            Err(Fault::NoLease) => return Ok(Err(self.look(key).await?)),
            // The lock may still be written for the new owner. The release of that owner ends it.
            Err(Fault::Error(error)) if is_another || error.kind() == ErrorKind::Unknown => {
                return Err(self.doubted((key, keep.owner), taken, error));
            }
            Err(Fault::Error(error)) => return Err(error),
        };
        if !done.succeeded {
            if is_another {
                self.give_back(taken.lease, Some(taken.since));
            }
            return Ok(Err(State::of(done)));
        }
        if !lasts && self.prolong(key, keep.owner, lease).await.map_err(after_a_change)?.is_none() {
            // Somebody ended the lock in this very moment.
            return Ok(Ok(Released::Freed));
        }
        if is_another {
            self.give_back_of(key, held);
        }
        let (now, modified) = (self.wire.host.now(), done.header.revision);
        self.mine.note(now, (key, keep.owner), |known| {
            known.held = Some((taken.lease, modified));
            known.since = Some(sent);
        });
        Ok(Ok(Released::Kept { fencing: entry.block(tokens(modified)) }))
    }

    /// Removes the place of an owner, if it has one. Returns the state without the place. The owner
    /// may have been given the lock since `state` was read.
    pub(super) async fn leave_in(
        &self,
        key: &Key,
        owner: &OwnerToken,
        state: State,
    ) -> Result<State, Error> {
        let is_read_whole = state.line.len() >= usize::try_from(state.count).unwrap_or(usize::MAX);
        let place = state.place_of(owner).map(|at| &state.line[at]);
        if place.is_none() && is_read_whole {
            return Ok(state);
        }
        let name = self.keys.place(key, owner.as_str());
        let is_as_seen = place.map(|place| If::Modified(name.clone(), place.kv.modified));
        let removal = [vec![Do::Delete(name)], look(&self.keys, key)].concat();
        let when = is_as_seen.into_iter().collect();
        let txn = Txn { when, then: removal.clone(), or_else: removal };
        let done = sure(self.wire.txn(&txn).await)?;
        // If the place was not removed, the lock may use the lease of the place by now.
        if let Some(place) = place.filter(|_| done.succeeded) {
            self.give_back_of(key, place);
        }
        Ok(State::of(done))
    }

    /// Hands a free lock to the front of its line. Others may have waited behind a place that left.
    async fn pass_on(&self, key: &Key, mut state: State) -> Result<(), Error> {
        for _ in 0..ROUNDS_MAX {
            if state.held.is_some() || state.line.is_empty() {
                break;
            }
            state = self.hand_over(key, self.is_free(key), &state).await?.0;
        }
        Ok(())
    }

    /// Keeps the lease of etcd of an owner's lock or place that a transaction of this step has
    /// removed.
    pub(super) fn give_back_of(&self, key: &Key, seen: &Seen) {
        if let (Some(lease), Some(entry)) = (seen.lease(), &seen.entry) {
            self.give_back(lease, self.mine.of(key, &entry.owner).since(lease.id));
        }
    }

    /// Keeps the lease of etcd of a lock that was released. A lease that is not kept is revoked at
    /// once, because the process may end after the release. If the cluster is slow to revoke it,
    /// another task tries again. The lock is free, so its holder must not hear that the outcome is
    /// unknown.
    async fn give_up(&self, lease: Lease, since: Option<Moment>) {
        let revoked = within(Arc::clone(&self.wire.host), REVOKE_LIMIT, self.wire.revoke(lease.id));
        if lease.is_kept() || self.mine.is_in_doubt(lease.id) || revoked.await.is_err() {
            self.give_back(lease, since);
        }
    }

    /// Ends the lease of any holder, for an operator. Returns whether it was the one that was seen.
    pub(super) async fn end_of(&self, key: &Key, seen: &[u8]) -> Result<bool, Error> {
        let mut state = self.look(key).await?;
        for _ in 0..ROUNDS_MAX {
            let held = state.held.clone().filter(|held| held.token() == seen);
            let Some(held) = held else { return Ok(false) };
            match self.end_held(key, &held, End::Pass, state).await? {
                Ok(_) => return Ok(true),
                Err(changed) => state = changed,
            }
        }
        let message = "other clients change the line of this lock again and again; nothing was \
                       ended; try again";
        Err(Error::new(ErrorKind::Unavailable, message))
    }
}
