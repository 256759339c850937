//! Renew: restarts the ttl of a living lease.

use std::time::Duration;

use rusqlite::params;

use super::inspect::revocation;
use super::{Step, busy_limit};
use crate::core::token::{FencingBlock, FencingToken};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::lock_row::{Held, LockRow, number};
use crate::store::sqlite::numbers::{sql_moment, sql_span};
use crate::store::sqlite::shares;
use crate::store::sqlite::turn::{Prepared as _, Turn};
use crate::store::{Renewal, Renewed};

/// The step of [`Store::renew`](crate::store::Store::renew).
pub(in crate::store::sqlite) struct Renew(pub(in crate::store::sqlite) Renewal);

impl Step for Renew {
    type Answer = Renewed;

    fn busy_limit(&self) -> Duration {
        busy_limit(self.0.ttl)
    }

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Renewed>> {
        if self.0.reserve > 0 || self.0.at_least.is_some() || !self.0.lease.claim.is_alone() {
            return Ok(None);
        }
        const SQL: &str = "UPDATE locks SET version = version + 1, expires = max(expires, ?4),
                ttl = max(?5, expires - ?3), idle = ?6, touched = ?3
            WHERE key = ?1 AND owner = ?2 AND expires > ?3
            RETURNING fence_first, fence_count, EXISTS (
                SELECT 1 FROM places WHERE places.key = locks.key AND places.expires > ?3),
                CASE WHEN revoked_owner = owner THEN revoked END";
        let Renewal { lease, ttl, idle, .. } = &self.0;
        let mut statement = turn.conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![
            lease.key.as_str(),
            lease.owner.as_str(),
            turn.now_sql(),
            sql_moment(turn.now + ttl.get()),
            sql_span(ttl.get()),
            idle,
        ])?;
        // The lease is lost, unless the owner shares the key. A `crate::Lease`, which was made from
        // a token, does not know whether its owner shares the key.
        let Some(row) = rows.next()? else { return Ok(None) };
        let first =
            row.get::<_, Option<i64>>(0)?.and_then(|first| FencingToken::new(number(first)));
        let fencing = first.zip(row.get(1)?).map(|(first, count)| FencingBlock { first, count });
        let revoked = revocation(row.get_ref(3)?.as_str_or_null()?);
        let (raised_from, wanted) = (None, row.get(2)?);
        let renewed = Renewed::Renewed { fencing, raised_from, wanted, revoked };
        // The statement commits, or fails to commit, when it is stepped to its end.
        while rows.next()?.is_some() {}
        Ok(Some(renewed))
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Renewed, Failure> {
        let Renewal { lease, ttl, at_least, reserve, idle, .. } = &self.0;
        let mut row = LockRow::find(turn.conn, &lease.key)?;
        let owner = lease.owner.as_str();
        if let Some(share) = shares::find(turn.conn, &row, &lease.key, owner, turn.now)? {
            return Ok(self.share(turn, &mut row, share)?);
        }
        if row.living(turn.now).is_none_or(|held| held.owner != owner) {
            return Ok(Renewed::Lost);
        }
        let mut raised = None;
        if let Some(first) = *at_least
            && row.raise(turn, first)?
        {
            raised = Some(FencingBlock { first, count: 1 });
        }
        let reserved = row.reserve(turn, *reserve)?;
        let held = row.held.as_mut().expect("the owner was just seen");
        held.prolong(turn.now, ttl.get());
        held.idle = *idle;
        let raised_from = held.fencing.filter(|_| raised.is_some());
        held.fencing = reserved.or(raised).or(held.fencing);
        let (fencing, revoked) = (held.fencing, revocation(held.revoked.as_deref()));
        row.store(turn, &lease.key)?;
        let wanted = self.is_wanted(turn, &row)?;
        Ok(Renewed::Renewed { fencing, raised_from, wanted, revoked })
    }
}

impl Renew {
    /// Renews the lease of an owner that shares the key. Nothing is raised to `at_least`, because
    /// that comes from a quorum, and a quorum shares no keys.
    fn share(
        &self,
        turn: &Turn<'_>,
        row: &mut LockRow,
        mut share: Held,
    ) -> rusqlite::Result<Renewed> {
        let Renewal { lease, ttl, reserve, .. } = &self.0;
        share.prolong(turn.now, ttl.get());
        share.fencing = row.reserve(turn, *reserve)?.or(share.fencing);
        shares::write(turn, row, &lease.key, &share)?;
        row.store(turn, &lease.key)?;
        let wanted = self.is_wanted(turn, row)?;
        let (fencing, revoked) = (share.fencing, revocation(share.revoked.as_deref()));
        Ok(Renewed::Renewed { fencing, raised_from: None, wanted, revoked })
    }

    fn is_wanted(&self, turn: &Turn<'_>, row: &LockRow) -> rusqlite::Result<bool> {
        const SQL: &str = "SELECT EXISTS (SELECT 1 FROM places WHERE key = ?1 AND expires > ?2)";
        if !row.has_line {
            return Ok(false);
        }
        let key = self.0.lease.key.as_str();
        turn.conn.one(SQL, params![key, turn.now_sql()])
    }
}
