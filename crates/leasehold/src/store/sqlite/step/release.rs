//! Release: ends a lease and a place, and hands the key on.

use std::time::Duration;

use rusqlite::params;

use super::{BUSY_LIMIT_MAX, Step};
use crate::core::claim::Taken;
use crate::core::key::Key;
use crate::core::line::{Front, GIVES_WAY_FOR, Head, ReleaseDecision, decide_release};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::line_rows;
use crate::store::sqlite::lock_row::LockRow;
use crate::store::sqlite::turn::{Effect, Turn};
use crate::store::{Keep, LeaseId, OnRelease, Released};

/// The step of [`Store::release`](crate::store::Store::release).
pub(in crate::store::sqlite) struct Release {
    pub(in crate::store::sqlite) lease: LeaseId,
    pub(in crate::store::sqlite) on_release: OnRelease,
}

impl Step for Release {
    type Answer = Released;
    const AT_ONCE: bool = true;

    fn busy_limit(&self) -> Duration {
        BUSY_LIMIT_MAX
    }

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Released>> {
        if matches!(self.on_release, OnRelease::KeepIfAlone { .. }) {
            return Ok(None);
        }
        const SQL: &str = "UPDATE locks SET version = version + 1, owner = NULL, expires = 0,
                fence_first = NULL, fence_count = NULL, why = NULL, idle = 0, touched = ?3
            WHERE key = ?1 AND owner = ?2 AND expires > ?3
                AND NOT EXISTS (SELECT 1 FROM places WHERE places.key = ?1)";
        let LeaseId { key, owner, .. } = &self.lease;
        let freed = turn.conn.prepare_cached(SQL)?.execute(params![
            key.as_str(),
            owner.as_str(),
            turn.now_sql()
        ])?;
        Ok((freed == 1).then_some(Released::Freed))
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Released, Failure> {
        let LeaseId { key, owner, .. } = &self.lease;
        let mut row = LockRow::find(turn.conn, key)?;
        if row.has_line {
            line_rows::leave(turn, key, owner.as_str())?;
            turn.effects.push(Effect::Settled(key.clone(), owner.clone()));
        }
        match &row.held {
            Some(held) if held.owner != owner.as_str() => Ok(Released::NotHeld),
            None => Ok(Released::NotHeld),
            Some(held) if held.expires <= turn.now => {
                // The key is free already. Clear the rest, which only looks like a holder.
                row.held = None;
                row.store(turn, key)?;
                Ok(Released::NotHeld)
            }
            Some(_) => Ok(end_lease(turn, &mut row, key, &self.on_release)?),
        }
    }
}

/// Ends a living lease: hands the key to the head of the line, frees it, or keeps it.
pub(super) fn end_lease(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    on_release: &OnRelease,
) -> rusqlite::Result<Released> {
    let (front, first) = if row.has_line {
        let rows = line_rows::drop_dead(turn, key)?;
        (rows.front, rows.first)
    } else {
        (Front::EMPTY, None)
    };
    match decide_release(Taken::Nothing, front, on_release.wish()) {
        ReleaseDecision::HandOver => {
            let (seq, _) = first.expect("a living head has a row");
            line_rows::hand_over(turn, row, key, seq)?;
            Ok(Released::HandedOver)
        }
        ReleaseDecision::Keep(Keep { owner, ttl, reserve }) => {
            let fencing = row.reserve(turn, reserve)?;
            let held = row.held.as_mut().expect("a lease that ends is held");
            held.expires = held.expires.max(turn.now + ttl.get());
            held.ttl = ttl.get();
            owner.as_str().clone_into(&mut held.owner);
            held.fencing = fencing;
            held.idle = false;
            row.store(turn, key)?;
            Ok(Released::Kept { fencing })
        }
        ReleaseDecision::Free => {
            row.held = None;
            let is_awaited = matches!(front.head, Head::Alive { .. });
            row.awaits_until = if is_awaited { turn.now + GIVES_WAY_FOR } else { turn.now };
            row.store(turn, key)?;
            if let Some((seq, _)) = first {
                line_rows::tell(turn, key, seq)?;
            }
            Ok(Released::Freed)
        }
    }
}
