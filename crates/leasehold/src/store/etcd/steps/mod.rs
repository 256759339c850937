//! The steps of the contract. Each is one transaction of the cluster, with conditions on what was
//! read before. If the conditions fail, the answer has the new state, and the step starts again.

mod acquire;
mod release;
mod renew;
mod tools;

use std::sync::Arc;

use super::connect::EtcdConnector;
use super::error::Fault;
use super::hints::Hints;
use super::keys::Keys;
use super::leases::{Lease, Leases, Taken};
use super::mine::Mine;
use super::rpc::{Do, If, Range, Txn, TxnDone};
use super::state::{State, glance, look};
use super::wire::Wire;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::host::Host;
use crate::store::Sinks;
use crate::store::errors::after_a_change;
use crate::store::net::Home;

/// How often a step starts again before it gives up. Each time, another client was faster.
const ROUNDS_MAX: usize = 16;

/// How often one step renews a lease, until one leader certainly gave both answers.
const CONFIRM_MAX: usize = 4;

/// The part that all steps of a store share.
pub(super) struct Core {
    pub(super) wire: Arc<Wire>,
    pub(super) keys: Keys,
    leases: Arc<Leases>,
    mine: Mine,
    pub(super) hints: Arc<Hints>,
    pub(super) sinks: Arc<Sinks>,
}

impl Core {
    pub(super) fn new(connector: EtcdConnector, host: Arc<dyn Host>) -> Self {
        let (keys, sinks) = (connector.keys(), Arc::<Sinks>::default());
        let wire = Arc::new(Wire::new(connector, host));
        let hints = Hints::new(Arc::clone(&wire), keys.clone(), Arc::clone(&sinks));
        let (leases, mine) = (Arc::default(), Mine::default());
        Self { wire, keys, leases, mine, hints, sinks }
    }

    /// Reads the state of a lock. A majority confirms that it is the newest one.
    pub(super) async fn look(&self, key: &Key) -> Result<State, Error> {
        self.read(look(&self.keys, key)).await
    }

    async fn read(&self, reads: Vec<Do>) -> Result<State, Error> {
        let txn = Txn { then: reads, ..Txn::default() };
        Ok(State::of(sure(self.wire.txn(&txn).await)?))
    }

    /// Carries out a transaction that writes a key with a lease of etcd. Renews the lease at the
    /// same time, unless it is new. Returns whether the lease certainly lasts from now on.
    ///
    /// A leader that was replaced may still answer a renewal for about a second, but the renewal
    /// has no effect. If a member carries out a transaction in the same term, it had the rightful
    /// leader when the transaction was sent. A later leader restarts all leases when it takes over.
    async fn write(&self, taken: Taken, txn: &Txn) -> Result<(TxnDone, bool), Fault> {
        if taken.is_new {
            return Ok((self.wire.txn(txn).await?, true));
        }
        let renewal = self.wire.keep_alive(taken.lease.id);
        let (renewed, done) = tokio::join!(renewal, self.wire.txn(txn));
        let done = done?;
        let lasts = renewed.is_ok_and(|it| it.is_confirmed_in(done.header.term));
        Ok((done, lasts))
    }

    /// Takes a lease of this many seconds for a lock that somebody has. The lease certainly lasts
    /// from now on. A kept lease that is about to end would take the lock along.
    async fn lasting(&self, key: &Key, asked: i64) -> Result<Taken, Error> {
        let taken = self.leases.take(&self.wire, asked).await?;
        if taken.is_new {
            return Ok(taken);
        }
        let since = self.wire.host.now();
        let reads = Txn { then: glance(&self.keys, key), ..Txn::default() };
        let renewal = self.wire.keep_alive(taken.lease.id);
        let (renewed, seen) = tokio::join!(renewal, self.wire.txn(&reads));
        let seen = sure(seen);
        let is_confirmed =
            |seen: &TxnDone| renewed.is_ok_and(|it| it.is_confirmed_in(seen.header.term));
        if seen.as_ref().is_ok_and(is_confirmed) {
            return Ok(Taken { is_new: true, since, ..taken });
        }
        // Nobody knows how long it lasts.
        self.give_back(taken.lease, None);
        seen?;
        self.leases.make(&self.wire, asked).await
    }

    /// Renews the lease of etcd behind a lock, and makes sure that the lock is still the owner's.
    /// Returns the state without the line, or `None` if the lock is not the owner's.
    async fn prolong(
        &self,
        key: &Key,
        owner: &OwnerToken,
        mut lease: i64,
    ) -> Result<Option<State>, Error> {
        let reads = Txn { then: glance(&self.keys, key), ..Txn::default() };
        for _ in 0..CONFIRM_MAX {
            let (renewed, seen) = tokio::join!(self.wire.keep_alive(lease), self.wire.txn(&reads));
            let seen = sure(seen).map_err(|error| match renewed {
                Ok(_) => after_a_change(error),
                Err(_) => error,
            });
            let state = State::glanced(seen?);
            let Some(held) = state.held_by(owner) else { return Ok(None) };
            // A new leader may not know the lease yet, so its answer alone ends nothing.
            let is_same = held.kv.lease == lease;
            if is_same && renewed?.is_confirmed_in(state.term) {
                return Ok(Some(state));
            }
            lease = held.kv.lease;
        }
        let message =
            "the leader of the cluster changes; the lease may have been renewed; try again";
        Err(Error::new(ErrorKind::Unknown, message))
    }

    /// Remembers a lease if the error leaves open whether a key of this owner is written with it.
    /// Otherwise keeps the lease for later. Returns the error.
    fn doubted(&self, of: (&Key, &OwnerToken), taken: Taken, error: Error) -> Error {
        if error.kind() == ErrorKind::Unknown {
            self.mine.doubt(self.wire.host.now(), of, taken.lease.id);
        } else {
            self.give_back(taken.lease, Some(taken.since));
        }
        error
    }

    /// Hands a free or released lock to the front of its line. `when` says what must hold of the
    /// lock. Returns the new state, and whether the lock was handed over.
    async fn hand_over(&self, key: &Key, when: If, state: &State) -> Result<(State, bool), Error> {
        let Some(front) = state.line.first() else { return Ok((state.clone(), false)) };
        let delete = Do::Delete(front.kv.key.clone());
        // If the place was written again, it has another lease by now.
        let as_seen = If::Modified(front.kv.key.clone(), front.kv.modified);
        let mut then = vec![delete];
        let entry = front.entry.as_ref().filter(|_| front.kv.lease != 0);
        if let Some(entry) = entry {
            let value = entry.clone().handed(self.wire.host.wall()).write();
            then.insert(0, Do::Put { key: self.keys.held(key), value, lease: front.kv.lease });
        } else {
            // Nobody could tell whose place it is, so it must not block the others.
            tracing::warn!(key = %key, "a place that Leasehold did not write is removed");
        }
        let is_ours = entry.is_some();
        then.extend(look(&self.keys, key));
        let when = if is_ours { vec![when, as_seen] } else { vec![as_seen] };
        let txn = Txn { when, then, or_else: look(&self.keys, key) };
        let done = match self.wire.txn(&txn).await {
            // The place ended just now.
            Err(Fault::NoLease) => return Ok((self.look(key).await?, false)),
            done => sure(done)?,
        };
        let is_handed = done.succeeded && is_ours;
        if is_handed {
            // Restart the time of the lease, so that the new holder has as long as its place had at
            // first.
            drop(self.wire.keep_alive(front.kv.lease).await);
        }
        Ok((State::of(done), is_handed))
    }

    /// The shortest lease that the cluster makes, in seconds. Makes one, and ends it.
    pub(super) async fn shortest_lease(&self) -> Result<i64, Error> {
        let lease = self.leases.make(&self.wire, 1).await?.lease;
        self.wire.revoke(lease.id).await?;
        Ok(lease.seconds)
    }

    /// The condition that a lock is free.
    fn is_free(&self, key: &Key) -> If {
        If::Absent(Range::one(self.keys.held(key)))
    }

    /// Keeps a lease of etcd for later if no key has it any more, or revokes it, see
    /// [`Leases::give_back`]. Does nothing with a lease in doubt, because the release of its owner
    /// ends it.
    fn give_back(&self, lease: Lease, since: Option<Moment>) {
        if self.mine.is_in_doubt(lease.id) {
            return;
        }
        if self.leases.give_back(self.wire.host.now(), lease, since) {
            self.revoke_surplus();
        }
    }

    fn revoke_surplus(&self) {
        let (leases, wire) = (Arc::clone(&self.leases), Arc::clone(&self.wire));
        let revoking = async move { leases.revoke_surplus(&wire).await };
        Home::Host.spawn(&self.wire.host, Box::pin(revoking));
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.hints.close();
        if self.leases.close() {
            self.revoke_surplus();
        }
    }
}

/// The result of a transaction that writes no key with a lease of its own.
fn sure(done: Result<TxnDone, Fault>) -> Result<TxnDone, Error> {
    done.map_err(|fault| match fault {
        Fault::Error(error) => error,
        Fault::NoLease => {
            let message = "the cluster says that a lease has ended; nothing was changed; try again";
            Error::new(ErrorKind::Unavailable, message)
        }
    })
}

#[cfg(test)]
mod tests;
