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
            let taken = self.lease_for(key, &wanted, held, sent).await.map_err(after_a_change)?;
            let wanted = Entry { lasts: taken.lease.seconds, ..wanted };
            let is_another = taken.lease.id != held.kv.lease;
            match self.rewrite(key, (held, &wanted), taken).await {
                Ok(Some(done)) => {
                    if is_another {
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
                ended @ (Ok(None) | Err(Fault::NoLease)) => {
                    if is_another && ended.is_ok() {
                        self.give_back(taken.lease, Some(taken.since));
                    }
                    let prolonged = self.prolong(key, owner, held.kv.lease).await;
                    state = prolonged.map_err(after_a_change)?;
                }
                Err(Fault::Error(error)) => {
                    let error =
                        if is_another { self.doubted((key, owner), taken, error) } else { error };
                    return Err(after_a_change(error));
                }
            }
        }
        let message = "other clients write to this lock again and again; the lease was renewed for \
                       the time that it had before; try again";
        Err(Error::new(ErrorKind::Unknown, message))
    }

    /// No release follows, so the leases in doubt end here. A request that is still under way can
    /// then write no key with them.
    fn lost(&self, renewal: &Renewal) -> Renewed {
        let doubts = self.mine.forget(&renewal.lease.key, &renewal.lease.owner);
        if self.leases.end(doubts) {
            self.revoke_surplus();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::claim::Claim;
    use crate::core::moment::WallTime;
    use crate::core::token::{FencingToken, OwnerToken};
    use crate::core::ttl::Ttl;
    use crate::store::Ask;
    use crate::store::etcd::rpc::Kv;

    /// A lock with the tokens 700 to 702, for 10 s, that change 7 wrote.
    fn held() -> (Seen, Renewal) {
        let (key, ttl) = (Key::new("k").expect("a name"), ttl(10));
        let owner = OwnerToken::new("x").expect("printable");
        let ask = Ask { reserve: 3, ..Ask::new(key, owner, Claim::Exclusive, ttl) };
        let value = Entry::of(&ask, 10, WallTime::from_unix_micros(0)).write();
        let seen = Seen::new(Kv { value, modified: 7, ..Kv::default() });
        (seen, Renewal::new(ask.lease(), ttl))
    }

    fn ttl(seconds: u64) -> Ttl {
        Ttl::new(std::time::Duration::from_secs(seconds)).expect("within bounds")
    }

    /// The seconds, the first token and the idleness that a renewal writes, if it writes.
    type Written = Option<(i64, Option<u64>, bool)>;

    #[test]
    fn a_renewal_writes_what_has_changed_and_never_shortens_a_lease() {
        let (seen, plain) = held();
        let entry = seen.entry.clone().expect("of Leasehold");
        let of = |change: fn(&mut Renewal)| {
            let mut renewal = plain.clone();
            change(&mut renewal);
            let wanted = changed(&entry, &seen, &renewal).map_err(|error| error.kind());
            let first = |it: &Entry| it.fence.map(FencingToken::get);
            wanted.map(|it| it.map(|it| (it.lasts, first(&it), it.is_idle)))
        };
        type Case = (&'static str, fn(&mut Renewal), Result<Written, ErrorKind>);
        let cases: [Case; 7] = [
            ("nothing", |_| {}, Ok(None)),
            ("a shorter ttl", |it| it.ttl = ttl(4), Ok(None)),
            ("a longer ttl", |it| it.ttl = ttl(11), Ok(Some((11, Some(700), false)))),
            ("idle", |it| it.idle = true, Ok(Some((10, Some(700), true)))),
            // The number of the change that writes it makes the new tokens.
            ("new tokens", |it| it.reserve = 2, Ok(Some((10, None, false)))),
            ("its last token", |it| it.at_least = FencingToken::new(702), Ok(None)),
            (
                "a higher token",
                |it| it.at_least = FencingToken::new(703),
                Err(ErrorKind::Unsupported),
            ),
        ];
        assert_eq!(seen.block().map(FencingBlock::last), Some(702));
        for (what, change, expected) in cases {
            assert_eq!(of(change), expected, "{what}");
        }
    }
}
