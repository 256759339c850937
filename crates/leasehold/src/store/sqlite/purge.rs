//! Forgetting what nobody has used for long, a little at a time.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::schema::{sql_count, sql_moment, sql_span};
use crate::core::moment::Moment;
use crate::store::FENCE_IDLE;

/// How many locks one run looks at: about a millisecond of work.
const ROWS_MAX: usize = 1_000;

/// How long the file is left alone after a run that came to its end.
const PASS_EVERY: Duration = Duration::from_secs(60);

/// How long it is left alone after a run that did not.
const RUN_EVERY: Duration = Duration::from_secs(1);

/// How long a process waits before it looks whether a run is due.
pub(super) const LOOK_EVERY: Duration = RUN_EVERY;

/// Deletes locks that have been idle for [`FENCE_IDLE`], with the dead places in their lines, and
/// clients that have been silent for as long and are named nowhere. The highest counter of what was
/// deleted becomes the floor under which no new counter begins.
///
/// Where the last run ended stands in the file, so that all processes together look at it once.
pub(super) fn run_if_due(conn: &mut Connection, now: Moment) -> rusqlite::Result<()> {
    const DUE: &str = "SELECT purge_after FROM meta WHERE purge_due <= ?1";
    let due = |conn: &Connection| -> rusqlite::Result<Option<String>> {
        let mut statement = conn.prepare_cached(DUE)?;
        let mut rows = statement.query([sql_moment(now)])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    };
    if due(conn)?.is_none() {
        return Ok(());
    }
    let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if let Some(after) = due(&transaction)? {
        let last = last_key(&transaction, &after)?;
        forget_locks(&transaction, &after, last.as_deref(), now)?;
        if last.is_none() {
            forget_clients(&transaction, now)?;
        }
        let pause = if last.is_some() { RUN_EVERY } else { PASS_EVERY };
        transaction.execute(
            "UPDATE meta SET purge_after = ?1, purge_due = ?2",
            params![last.unwrap_or_default(), sql_moment(now + pause)],
        )?;
    }
    transaction.commit()
}

/// The last key that a run looks at which begins after `after`; `None` if it comes to the end.
fn last_key(conn: &Connection, after: &str) -> rusqlite::Result<Option<String>> {
    const SQL: &str = "SELECT key FROM locks WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2";
    let mut statement = conn.prepare_cached(SQL)?;
    let mut rows = statement.query(params![after, sql_count(ROWS_MAX - 1)])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

fn forget_locks(
    conn: &Connection,
    after: &str,
    last: Option<&str>,
    now: Moment,
) -> rusqlite::Result<()> {
    const FLOOR: &str = "UPDATE meta SET counter_floor = max(counter_floor, ?1)";
    const PLACES: &str = "DELETE FROM places WHERE key > ?1 AND (?2 IS NULL OR key <= ?2)
        AND expires <= ?3 - ?4";
    const LOCKS: &str = "DELETE FROM locks WHERE key > ?1 AND (?2 IS NULL OR key <= ?2)
        AND touched <= ?3 - ?4 AND (owner IS NULL OR expires <= ?3)
        AND NOT EXISTS (SELECT 1 FROM places WHERE places.key = locks.key)
        RETURNING counter";
    let arguments = params![after, last, sql_moment(now), sql_span(FENCE_IDLE)];
    conn.prepare_cached(PLACES)?.execute(arguments)?;
    let mut statement = conn.prepare_cached(LOCKS)?;
    let mut highest: Option<i64> = None;
    for counter in statement.query_map(arguments, |row| row.get(0))? {
        highest = highest.max(Some(counter?));
    }
    if let Some(highest) = highest {
        conn.prepare_cached(FLOOR)?.execute([highest])?;
    }
    Ok(())
}

fn forget_clients(conn: &Connection, now: Moment) -> rusqlite::Result<()> {
    // The id of a client stands behind the first 23 characters of its tokens.
    const SQL: &str = "DELETE FROM clients WHERE seen <= ?1 - ?2 AND id NOT IN (
        SELECT substr(owner, 24) FROM locks WHERE owner IS NOT NULL
        UNION SELECT substr(owner, 24) FROM places)";
    conn.prepare_cached(SQL)?.execute(params![sql_moment(now), sql_span(FENCE_IDLE)])?;
    Ok(())
}
