//! The rows of the holders that share a key: readers, or owners of permits. Each has a lease of its
//! own.
//!
//! The row of the lock has the end of their last lease and the sum of their permits, see `tables`.
//! A function that changes them marks that row as changed. Each function takes a few steps down an
//! index, however many holders there are. Leases that ended are removed by the next step that must
//! know what is taken.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::Failure;
use super::lock_row::{Held, LockRow, fencing, number};
use super::numbers::{sql_moment, sql_span, sql_wall};
use super::turn::{Prepared as _, Turn};
use crate::core::claim::{Claim, Usage};
use crate::core::key::Key;
use crate::core::moment::{Moment, WallTime};
use crate::store::errors::other_usage;

/// The columns that [`read`] reads.
const COLUMNS: &str =
    "owner, claim, expires, ttl, since_wall, fence_first, fence_count, why, revoked";

fn read(row: &Row<'_>, limit: Option<u32>) -> rusqlite::Result<Held> {
    Ok(Held {
        owner: row.get(0)?,
        claim: claim_of(row.get(1)?, limit),
        expires: Moment::from_nanos(number(row.get(2)?)),
        ttl: Duration::from_nanos(number(row.get(3)?)),
        since: WallTime::from_unix_micros(number(row.get(4)?)),
        fencing: fencing(row.get(5)?, row.get(6)?),
        why: row.get(7)?,
        idle: false,
        revoked: row.get(8)?,
    })
}

/// A claim as an integer of SQL.
pub(super) const fn sql_claim(claim: Claim) -> i64 {
    if let Claim::Permits { want, .. } = claim {
        return want as i64;
    }
    if matches!(claim, Claim::Shared) { -1 } else { 0 }
}

/// The claim of a row of a key with this many permits.
pub(super) fn claim_of(sql: i64, limit: Option<u32>) -> Claim {
    match u32::try_from(sql) {
        Ok(0) => Claim::Exclusive,
        Ok(want) => Claim::Permits { want, of: limit.unwrap_or(want) },
        Err(_) => Claim::Shared,
    }
}

const fn want_of(claim: Claim) -> u32 {
    match claim {
        Claim::Permits { want, .. } => want,
        _ => 0,
    }
}

/// Refuses a claim that does not fit the use of the key. A first claim decides how many permits
/// there are.
pub(super) fn use_as(
    turn: &Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    claim: Claim,
) -> Result<(), Failure> {
    let used = match (row.limit, claim.usage()) {
        (None, Usage::Lock) => return Ok(()),
        (Some(of), Usage::Permits { of: wanted }) if of == wanted => return Ok(()),
        (Some(of), Usage::Permits { .. }) => Usage::Permits { of },
        (limit, _) if is_in_use(turn, row, key)? => {
            limit.map_or(Usage::Lock, |of| Usage::Permits { of })
        }
        (_, wanted) => {
            // Rows of holders of the earlier use may be left, but their leases have ended.
            forget_all(turn, row, key)?;
            row.limit = match wanted {
                Usage::Lock => None,
                Usage::Permits { of } => Some(of),
            };
            return Ok(());
        }
    };
    Err(Failure::Refused(other_usage(key, used, claim)))
}

/// Whether the key has a living holder or waiter.
pub(super) fn is_in_use(turn: &Turn<'_>, row: &LockRow, key: &Key) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM places WHERE key = ?1 AND expires > ?2)";
    if row.living(turn.now).is_some() || row.is_shared(turn.now) {
        return Ok(true);
    }
    if !row.has_line {
        return Ok(false);
    }
    turn.conn.one(SQL, params![key.as_str(), turn.now_sql()])
}

fn forget_all(turn: &Turn<'_>, row: &mut LockRow, key: &Key) -> rusqlite::Result<()> {
    const SQL: &str = "DELETE FROM shares WHERE key = ?1";
    turn.conn.run(SQL, [key.as_str()])?;
    row.shared_until = None;
    row.taken = 0;
    row.is_changed = true;
    Ok(())
}

/// Removes the holders whose lease has ended. After that, `row` knows what is taken.
pub(super) fn bury(turn: &Turn<'_>, row: &mut LockRow, key: &Key) -> rusqlite::Result<()> {
    const SQL: &str = "DELETE FROM shares WHERE key = ?1 AND expires <= ?2 RETURNING claim";
    let Some(until) = row.shared_until else { return Ok(()) };
    if until <= turn.now {
        return forget_all(turn, row, key);
    }
    let mut statement = turn.conn.prepare_cached(SQL)?;
    let mut dead = statement.query(params![key.as_str(), turn.now_sql()])?;
    while let Some(found) = dead.next()? {
        row.taken = row.taken.saturating_sub(want_of(claim_of(found.get(0)?, None)));
        row.is_changed = true;
    }
    Ok(())
}

/// The lease of an owner that shares the key, if it lives.
pub(super) fn find(
    conn: &Connection,
    row: &LockRow,
    key: &Key,
    owner: &str,
    now: Moment,
) -> rusqlite::Result<Option<Held>> {
    let sql =
        format!("SELECT {COLUMNS} FROM shares WHERE key = ?1 AND owner = ?2 AND expires > ?3");
    if !row.is_shared(now) {
        return Ok(None);
    }
    conn.prepare_cached(&sql)?
        .query_row(params![key.as_str(), owner, sql_moment(now)], |found| read(found, row.limit))
        .optional()
}

/// How long it takes until the first of the leases ends.
pub(super) fn time_left(turn: &Turn<'_>, key: &Key) -> rusqlite::Result<Duration> {
    const SQL: &str = "SELECT ifnull((SELECT min(expires) FROM shares
        WHERE key = ?1 AND expires > ?2), ?2)";
    let first = turn
        .conn
        .one(SQL, params![key.as_str(), turn.now_sql()])
        .map(|first| Moment::from_nanos(number(first)))?;
    Ok(first.since(turn.now))
}

/// Adds a holder. Call [`bury`] before.
pub(super) fn add(
    turn: &Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    share: &Held,
) -> rusqlite::Result<()> {
    row.held = None;
    row.awaits_until = Moment::default();
    row.taken = row.taken.saturating_add(want_of(share.claim));
    write(turn, row, key, share)
}

/// Writes a known holder again, because its end, its ttl or its fencing tokens changed.
pub(super) fn write(
    turn: &Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    share: &Held,
) -> rusqlite::Result<()> {
    const SQL: &str = "INSERT OR REPLACE INTO shares (key, owner, claim, expires, ttl, since_wall,
            fence_first, fence_count, why, revoked)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    turn.conn.prepare_cached(SQL)?.execute(params![
        key.as_str(),
        share.owner,
        sql_claim(share.claim),
        sql_moment(share.expires),
        sql_span(share.ttl),
        sql_wall(share.since),
        share.fencing.map(|block| i64::from(block.first)),
        share.fencing.map(|block| block.count),
        share.why.as_deref(),
        share.revoked.as_deref(),
    ])?;
    row.shared_until = row.shared_until.max(Some(share.expires));
    row.is_changed = true;
    Ok(())
}

/// Ends the lease of a holder. Returns whether it lived.
pub(super) fn leave(
    turn: &Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    owner: &str,
) -> rusqlite::Result<bool> {
    const LEAVE: &str = "DELETE FROM shares WHERE key = ?1 AND owner = ?2 RETURNING claim";
    const LAST: &str = "SELECT max(expires) FROM shares WHERE key = ?1";
    bury(turn, row, key)?;
    if !row.is_shared(turn.now) {
        return Ok(false);
    }
    let claim: Option<i64> = turn.conn.one(LEAVE, [key.as_str(), owner]).optional()?;
    let Some(claim) = claim else { return Ok(false) };
    row.taken = row.taken.saturating_sub(want_of(claim_of(claim, None)));
    let last: Option<i64> = turn.conn.one(LAST, [key.as_str()])?;
    row.shared_until = last.map(|last| Moment::from_nanos(number(last)));
    row.is_changed = true;
    Ok(true)
}

/// Living holders, at most `most`, sorted by the end of their leases, the earliest first.
pub(super) fn list(
    turn: &Turn<'_>,
    row: &LockRow,
    key: &Key,
    most: i64,
) -> rusqlite::Result<Vec<Held>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM shares WHERE key = ?1 AND expires > ?2 ORDER BY expires LIMIT ?3"
    );
    if !row.is_shared(turn.now) {
        return Ok(Vec::new());
    }
    turn.conn
        .prepare_cached(&sql)?
        .query_map(params![key.as_str(), turn.now_sql(), most], |found| read(found, row.limit))?
        .collect()
}

/// How many permits the living holders have. For people. It only counts, and changes nothing.
pub(super) fn taken_of(turn: &Turn<'_>, row: &LockRow, key: &Key) -> rusqlite::Result<u32> {
    const SQL: &str = "SELECT ifnull(sum(claim), 0) FROM shares WHERE key = ?1 AND expires > ?2";
    if !row.is_shared(turn.now) {
        return Ok(0);
    }
    turn.conn.one(SQL, params![key.as_str(), turn.now_sql()])
}
