//! Release: ends a lease and a place, and hands the key on.

use std::time::Duration;

use rusqlite::params;

use super::Step;
use crate::core::claim::{Claim, Taken};
use crate::core::key::Key;
use crate::core::line::{GIVES_WAY_FOR, Head, ReleaseDecision, Wish, decide_release, wakes_next};
use crate::core::token::OwnerToken;
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::line_rows::{self, FrontRows};
use crate::store::sqlite::lock_row::{Held, LockRow};
use crate::store::sqlite::shares;
use crate::store::sqlite::turn::{Effect, Prepared as _, Turn};
use crate::store::{Keep, LeaseId, OnRelease, Released};

/// The step of [`Store::release`](crate::store::Store::release).
pub(in crate::store::sqlite) struct Release {
    pub(in crate::store::sqlite) lease: LeaseId,
    pub(in crate::store::sqlite) on_release: OnRelease,
}

impl Step for Release {
    type Answer = Released;
    const AT_ONCE: bool = true;

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Released>> {
        let is_end =
            matches!(self.on_release, OnRelease::Free | OnRelease::Open | OnRelease::FreeAndWake);
        if !is_end || !self.lease.claim.is_alone() {
            return Ok(None);
        }
        const SQL: &str = "UPDATE locks SET version = version + 1, owner = NULL, expires = 0,
                fence_first = NULL, fence_count = NULL, why = NULL, idle = 0, touched = ?3
            WHERE key = ?1 AND owner = ?2 AND expires > ?3
                AND NOT EXISTS (SELECT 1 FROM places WHERE places.key = ?1)";
        let LeaseId { key, owner, .. } = &self.lease;
        let freed = turn.conn.run(SQL, params![key.as_str(), owner.as_str(), turn.now_sql()])?;
        Ok((freed == 1).then_some(Released::Freed))
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Released, Failure> {
        let LeaseId { key, owner, .. } = &self.lease;
        let mut row = LockRow::find(turn.conn, key)?;
        let was_head = is_head_of_free(turn, &row, key, owner.as_str())?;
        if row.has_line {
            line_rows::leave(turn, key, owner.as_str())?;
            turn.effects.push(Effect::Settled(key.clone(), owner.clone()));
        }
        let answer = end_lease(turn, &mut row, key, owner.as_str(), &self.on_release)?;
        wake_next(turn, &mut row, key, was_head)?;
        row.settle(turn, key)?;
        Ok(answer)
    }
}

/// Whether the key is free, and the first living place of its line is that of `owner`.
fn is_head_of_free(
    turn: &mut Turn<'_>,
    row: &LockRow,
    key: &Key,
    owner: &str,
) -> rusqlite::Result<bool> {
    if row.taken(turn.now) != Taken::Nothing {
        return Ok(false);
    }
    let FrontRows { front, first } = line_rows::drop_dead(turn, row, key)?;
    let is_alive = matches!(front.head, Head::Alive { .. });
    Ok(is_alive && first.is_some_and(|(_, first)| first == owner))
}

/// Tells the next place that the key is free, if it still is, after the head has left the line.
fn wake_next(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    was_head: bool,
) -> rusqlite::Result<()> {
    if !was_head {
        return Ok(());
    }
    let FrontRows { front, first } = line_rows::drop_dead(turn, row, key)?;
    if wakes_next(was_head, row.taken(turn.now), front)
        && let Some((seq, _)) = first
    {
        row.awaits_until = turn.now + GIVES_WAY_FOR;
        row.is_changed = true;
        line_rows::tell(turn, key, seq)?;
    }
    Ok(())
}

/// Ends the lease of an owner whose place has left the line. Hands the key to the waiters whose
/// turn it is, frees it, or keeps it. The row is still to be settled.
pub(super) fn end_lease(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    owner: &str,
    on_release: &OnRelease,
) -> rusqlite::Result<Released> {
    let is_alone = row.living(turn.now).is_some_and(|held| held.owner == owner);
    if let OnRelease::Downgrade { owner, ttl } = on_release
        && is_alone
    {
        return share(turn, row, key, owner, ttl.get());
    }
    let is_share = shares::leave(turn, row, key, owner)?;
    if !is_alone && !is_share {
        if row.living(turn.now).is_none() {
            // The row may still name the holder of a lease that has ended.
            row.is_changed |= row.held.take().is_some();
            // Others may have waited behind the place that left, although there is room for them.
            if *on_release != OnRelease::FreeAndWake {
                line_rows::hand_over_run(turn, row, key)?;
            }
        }
        return Ok(Released::NotHeld);
    }
    let FrontRows { front, first } = line_rows::drop_dead(turn, row, key)?;
    let others = if is_alone { Taken::Nothing } else { row.taken(turn.now) };
    // Only a holder that has the key alone can keep it.
    let wish = match on_release.wish() {
        Wish::Keep(_) if !is_alone => Wish::Free,
        wish => wish,
    };
    match decide_release(others, front, wish) {
        ReleaseDecision::HandOver => {
            row.held = None;
            line_rows::hand_over_run(turn, row, key)?;
            Ok(Released::HandedOver)
        }
        ReleaseDecision::Keep(Keep { owner, ttl, reserve, .. }) => {
            let fencing = row.reserve(turn, reserve)?;
            let held = row.held.take().expect("a lease that ends is held");
            let owner = owner.as_str().to_owned();
            let mut kept = Held { owner, fencing, idle: false, revoked: None, ..held };
            kept.prolong(turn.now, ttl.get());
            row.grant(kept);
            row.is_changed = true;
            Ok(Released::Kept { fencing })
        }
        ReleaseDecision::Free => {
            row.held = None;
            row.is_changed = true;
            if others == Taken::Nothing {
                let is_awaited = matches!(front.head, Head::Alive { .. });
                row.awaits_until = if is_awaited { turn.now + GIVES_WAY_FOR } else { turn.now };
                if let Some((seq, _)) = first {
                    line_rows::tell(turn, key, seq)?;
                }
            }
            Ok(Released::Freed)
        }
    }
}

/// Turns the holder that has the key alone into one that shares it. Lets in the waiters at the
/// front of the line that want to share it, too.
fn share(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    owner: &OwnerToken,
    ttl: Duration,
) -> rusqlite::Result<Released> {
    let held = row.held.take().expect("it was just seen alive");
    let (owner, claim) = (owner.as_str().to_owned(), Claim::Shared);
    let mut heir = Held { owner, claim, fencing: None, idle: false, revoked: None, ..held };
    heir.prolong(turn.now, ttl);
    shares::add(turn, row, key, &heir)?;
    line_rows::hand_over_run(turn, row, key)?;
    Ok(Released::Kept { fencing: None })
}
