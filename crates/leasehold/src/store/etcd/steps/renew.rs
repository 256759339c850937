//! Renew: restart the time of a lease. Never brings one back.

use super::{Core, ROUNDS_MAX};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::FencingBlock;
use crate::store::errors::after_a_change;
use crate::store::etcd::entry::{Entry, Seen, tokens};
use crate::store::etcd::error::Fault;
use crate::store::etcd::leases::{Lease, Taken, seconds};
use crate::store::etcd::rpc::{Do, If, Txn, TxnDone};
use crate::store::etcd::state::State;
use crate::store::{Renewal, Renewed};

impl Core {
    pub(in crate::store::etcd) async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error> {
        let (key, owner) = (&renewal.lease.key, &renewal.lease.owner);
        let lease = match self.mine.of(key, owner).held {
            Some((lease, _)) => lease.id,
            None => match self.look(key).await?.held_by(owner) {
                Some(held) => held.kv.lease,
                None => return Ok(Renewed::Lost),
            },
        };
        let sent = self.wire.host.now();
        // The lease is renewed before anything is written, so it never becomes shorter.
        let mut state = self.prolong(key, owner, lease).await?;
        for _ in 0..ROUNDS_MAX {
            let Some(now) = state else { return Ok(self.lost(&renewal)) };
            let Some(held) = now.held_by(owner) else { return Ok(self.lost(&renewal)) };
            let Some(entry) = &held.entry else { return Ok(self.lost(&renewal)) };
            let Some(wanted) = changed(entry, held, &renewal)? else {
                self.remember(&renewal, held, sent);
                return Ok(renewed(entry, held.kv.modified, &now));
            };
            let taken = self.lease_for(key, &wanted, held, sent).await?;
            let wanted = Entry { lasts: taken.lease.seconds, ..wanted };
            match self.rewrite(key, (held, &wanted), taken).await {
                Ok(Some(done)) => {
                    if taken.lease.id != held.kv.lease {
                        held.lease().into_iter().for_each(|it| self.give_back(it, Some(sent)));
                    }
                    // Prolong again, to see that the lease lasts and who waits.
                    tracing::trace!(revision = done.header.revision, "a lease was written again");
                    let prolonged = self.prolong(key, owner, taken.lease.id).await;
                    state = prolonged.map_err(after_a_change)?;
                    let Some(now) = &state else { continue };
                    let Some(held) = now.held_by(owner) else { continue };
                    self.remember(&renewal, held, sent);
                    return Ok(renewed(&wanted, done.header.revision, now));
                }
                // Another step of this client may have given the lock another lease.
                Ok(None) | Err(Fault::NoLease) => {
                    state = self.prolong(key, owner, held.kv.lease).await?;
                }
                Err(Fault::Error(error)) => return Err(error),
            }
        }
        let message = "other clients write to this lock again and again; the lease was renewed for \
                       the time that it had before; try again";
        Err(Error::new(ErrorKind::Unknown, message))
    }

    fn lost(&self, renewal: &Renewal) -> Renewed {
        self.mine.forget(&renewal.lease.key, &renewal.lease.owner);
        Renewed::Lost
    }

    fn remember(&self, renewal: &Renewal, held: &Seen, sent: Moment) {
        let of = (&renewal.lease.key, &renewal.lease.owner);
        let seconds = held.entry.as_ref().map_or(0, |entry| entry.lasts);
        let lease = Lease { id: held.kv.lease, seconds };
        let modified = held.kv.modified;
        self.mine.note(self.wire.host.now(), of, |known| {
            (known.held, known.place) = (Some((lease, modified)), None);
            known.since = Some(sent);
        });
    }

    /// The lease of etcd for an entry: the one that it has, or another one that lasts longer. The
    /// lease that it has was certainly renewed at `since`.
    async fn lease_for(
        &self,
        key: &Key,
        wanted: &Entry,
        held: &Seen,
        since: Moment,
    ) -> Result<Taken, Error> {
        let has = held.entry.as_ref().map_or(0, |entry| entry.lasts);
        if wanted.lasts > has {
            return self.lasting(key, wanted.lasts).await;
        }
        let lease = Lease { id: held.kv.lease, seconds: has };
        Ok(Taken { lease, is_new: false, since })
    }

    /// Writes the key of a lock again, if it has not changed. `None` if the key has changed.
    pub(super) async fn rewrite(
        &self,
        key: &Key,
        (held, entry): (&Seen, &Entry),
        taken: Taken,
    ) -> Result<Option<TxnDone>, Fault> {
        let name = self.keys.held(key);
        let when = vec![If::Modified(name.clone(), held.kv.modified)];
        let put = Do::Put { key: name, value: entry.write(), lease: taken.lease.id };
        let txn = Txn { when, then: vec![put], or_else: Vec::new() };
        let (done, _lasts) = self.write(taken, &txn).await?;
        Ok(done.succeeded.then_some(done))
    }
}

/// The entry that a renewal wants. `None` if the key need not be written again.
fn changed(entry: &Entry, held: &Seen, renewal: &Renewal) -> Result<Option<Entry>, Error> {
    let modified = held.kv.modified;
    if let Some(at_least) = renewal.at_least {
        let last = entry.block(tokens(modified)).map(FencingBlock::last);
        if last.is_none_or(|last| last < at_least.get()) {
            let message = "the cluster counts fencing tokens by itself, so nobody can raise them; \
                           the lease was renewed; an etcd cluster cannot be a node of a quorum";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let wanted = seconds(renewal.ttl).max(entry.lasts);
    let is_same = wanted == entry.lasts && renewal.idle == entry.is_idle && renewal.reserve == 0;
    if is_same {
        return Ok(None);
    }
    let mut kept = if renewal.reserve > 0 {
        // The change itself makes the new tokens.
        Entry { fence: None, reserve: renewal.reserve, ..entry.clone() }
    } else {
        entry.clone().kept(tokens(modified))
    };
    (kept.lasts, kept.is_idle) = (wanted, renewal.idle);
    Ok(Some(kept))
}

fn renewed(entry: &Entry, modified: i64, state: &State) -> Renewed {
    Renewed::Renewed {
        fencing: entry.block(tokens(modified)),
        raised_from: None,
        wanted: state.count > 0,
        revoked: entry.revoked.clone(),
    }
}
