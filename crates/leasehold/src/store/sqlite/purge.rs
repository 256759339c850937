//! Forgets idle locks and clients, a few at a time.

use std::time::Duration;

use rusqlite::{Connection, params};

use super::numbers::{sql_count, sql_moment, sql_span};
use super::turn::Prepared as _;
use crate::core::moment::Moment;
use crate::store::FENCE_IDLE;

/// How many locks one run looks at: about a millisecond of work.
const ROWS_MAX: usize = 1_000;

/// The pause after a run that reached the end.
const PASS_EVERY: Duration = Duration::from_secs(60);

/// The pause after a run that did not reach the end.
const RUN_EVERY: Duration = Duration::from_secs(1);

/// How long a process waits before it checks whether a run is due.
pub(super) const LOOK_EVERY: Duration = RUN_EVERY;

/// Deletes locks that have been idle for [`FENCE_IDLE`], with the dead places in their lines. Also
/// deletes clients that have been silent for as long and that no lock or place names. The highest
/// deleted counter becomes the floor for new counters.
///
/// The file records where the last run ended, so all processes share the work. Returns whether a
/// run was due.
pub(super) fn run_if_due(conn: &mut Connection, now: Moment) -> rusqlite::Result<bool> {
    if Pass::due(conn, now)?.is_none() {
        return Ok(false);
    }
    let transaction = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if let Some(pass) = Pass::due(&transaction, now)? {
        let next = pass.go_on(&transaction, now)?;
        let pause = if next == Pass::BEGIN { PASS_EVERY } else { RUN_EVERY };
        next.store(&transaction, now + pause)?;
    }
    transaction.commit().map(|()| true)
}

/// The position of a pass: it goes through all locks, then through all clients.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    Locks { after: String },
    Clients { after: String },
}

impl Pass {
    const BEGIN: Self = Self::Locks { after: String::new() };

    /// Reads where the last run stopped, if the next is due.
    fn due(conn: &Connection, now: Moment) -> rusqlite::Result<Option<Self>> {
        const SQL: &str = "SELECT purge_after, clients_after FROM meta WHERE purge_due <= ?1";
        let mut statement = conn.prepare_cached(SQL)?;
        let mut rows = statement.query([sql_moment(now)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(match row.get(1)? {
            Some(after) => Self::Clients { after },
            None => Self::Locks { after: row.get(0)? },
        }))
    }

    /// Does one run. Returns where the next one begins.
    fn go_on(self, conn: &Connection, now: Moment) -> rusqlite::Result<Self> {
        let clients_after = match self {
            Self::Locks { after } => {
                const LAST: &str =
                    "SELECT key FROM locks WHERE key > ?1 ORDER BY key LIMIT 1 OFFSET ?2";
                let last = text(conn, LAST, params![after, sql_count(ROWS_MAX - 1)])?;
                forget_locks(conn, &after, last.as_deref(), now)?;
                refresh_clients(conn, &after, last.as_deref(), now)?;
                if let Some(after) = last {
                    return Ok(Self::Locks { after });
                }
                String::new()
            }
            Self::Clients { after } => after,
        };
        let last = forget_clients(conn, &clients_after, now)?;
        Ok(last.map_or(Self::BEGIN, |after| Self::Clients { after }))
    }

    fn store(&self, conn: &Connection, due: Moment) -> rusqlite::Result<()> {
        const SQL: &str = "UPDATE meta SET purge_after = ?1, clients_after = ?2, purge_due = ?3";
        let (locks, clients) = match self {
            Self::Locks { after } => (after.as_str(), None),
            Self::Clients { after } => ("", Some(after.as_str())),
        };
        conn.run(SQL, params![locks, clients, sql_moment(due)])?;
        Ok(())
    }
}

/// Refreshes the clients that the locks of this run name, so that they do not count as silent.
fn refresh_clients(
    conn: &Connection,
    after: &str,
    last: Option<&str>,
    now: Moment,
) -> rusqlite::Result<()> {
    // The client id follows the first 23 characters of a token.
    const SQL: &str = "UPDATE clients SET seen = ?3 WHERE seen <= ?3 - ?4 AND id IN (
        SELECT substr(owner, 24) FROM locks
            WHERE owner IS NOT NULL AND key > ?1 AND (?2 IS NULL OR key <= ?2)
        UNION SELECT substr(owner, 24) FROM shares
            WHERE key > ?1 AND (?2 IS NULL OR key <= ?2)
        UNION SELECT substr(owner, 24) FROM places
            WHERE key > ?1 AND (?2 IS NULL OR key <= ?2))";
    let arguments = params![after, last, sql_moment(now), sql_span(FENCE_IDLE / 2)];
    conn.run(SQL, arguments)?;
    Ok(())
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
    // A row of a share without its lock would be subtracted from what the next owners take.
    const SHARES: &str = "DELETE FROM shares WHERE key > ?1 AND (?2 IS NULL OR key <= ?2)
        AND NOT EXISTS (SELECT 1 FROM locks WHERE locks.key = shares.key)";
    let arguments = params![after, last, sql_moment(now), sql_span(FENCE_IDLE)];
    conn.run(PLACES, arguments)?;
    let mut statement = conn.prepare_cached(LOCKS)?;
    let mut highest: Option<i64> = None;
    for counter in statement.query_map(arguments, |row| row.get(0))? {
        highest = highest.max(Some(counter?));
    }
    conn.run(SHARES, params![after, last])?;
    if let Some(highest) = highest {
        conn.run(FLOOR, [highest])?;
    }
    Ok(())
}

/// Forgets silent clients among those after `after`. A pass over the locks has just refreshed every
/// client that a lock or place names. Returns where to continue; `None` at the end.
fn forget_clients(conn: &Connection, after: &str, now: Moment) -> rusqlite::Result<Option<String>> {
    const LAST: &str = "SELECT id FROM clients WHERE id > ?1 ORDER BY id LIMIT 1 OFFSET ?2";
    const SQL: &str = "DELETE FROM clients WHERE id > ?1 AND (?2 IS NULL OR id <= ?2)
        AND seen <= ?3 - ?4";
    let last = text(conn, LAST, params![after, sql_count(ROWS_MAX - 1)])?;
    conn.run(SQL, params![after, last, sql_moment(now), sql_span(FENCE_IDLE)])?;
    Ok(last)
}

/// The text in the first row of a result, if there is one.
fn text(
    conn: &Connection,
    sql: &str,
    arguments: impl rusqlite::Params,
) -> rusqlite::Result<Option<String>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(arguments)?;
    rows.next()?.map(|row| row.get(0)).transpose()
}
