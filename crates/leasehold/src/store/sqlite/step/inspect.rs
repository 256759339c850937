//! Inspect: the state of a key, for people and tools.

use rusqlite::{OptionalExtension, params};
use std::sync::Arc;

use super::Step;
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingToken, client_of};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::lock_row::{Held, LockRow, number};
use crate::store::sqlite::numbers::sql_count;
use crate::store::sqlite::shares;
use crate::store::sqlite::turn::{Prepared as _, Turn};
use crate::store::{ClientRecord, Holder, PermitsTaken, Revocation, Snapshot, Waiter};

/// The step of [`Store::inspect`](crate::store::Store::inspect).
pub(in crate::store::sqlite) struct Inspect(pub(in crate::store::sqlite) Key);

impl Step for Inspect {
    type Answer = Snapshot;

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Snapshot>> {
        if !turn.conn.is_autocommit() {
            return self.snapshot(turn).map(Some);
        }
        // All reads see one state of the file, and writers are not blocked.
        let transaction = turn.conn.unchecked_transaction()?;
        let snapshot = self.snapshot(turn)?;
        transaction.commit()?;
        Ok(Some(snapshot))
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Snapshot, Failure> {
        Ok(self.snapshot(turn)?)
    }
}

impl Inspect {
    fn snapshot(&self, turn: &Turn<'_>) -> rusqlite::Result<Snapshot> {
        let row = LockRow::find(turn.conn, &self.0)?;
        let most = sql_count(Snapshot::HOLDERS_SHOWN_MAX);
        let holders = match row.living(turn.now) {
            Some(held) => vec![holder(turn, held)?],
            None => shares::list(turn, &row, &self.0, most)?
                .iter()
                .map(|share| holder(turn, share))
                .collect::<rusqlite::Result<_>>()?,
        };
        let mut snapshot = Snapshot::default();
        snapshot.holders.extend(holders);
        snapshot.waiters = self.waiters(turn, &row)?;
        snapshot.waiting = self.waiting(turn)?;
        snapshot.fencing = FencingToken::new(row.counter);
        if let Some(of) = row.limit {
            let taken = shares::taken_of(turn, &row, &self.0)?;
            snapshot.permits = Some(PermitsTaken::new(taken, of));
        }
        Ok(snapshot)
    }

    fn waiters(&self, turn: &Turn<'_>, lock: &LockRow) -> rusqlite::Result<Vec<Waiter>> {
        const SQL: &str =
            "SELECT owner, since_wall, claim FROM places WHERE key = ?1 AND expires > ?2
            ORDER BY seq LIMIT ?3";
        let mut statement = turn.conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![
            self.0.as_str(),
            turn.now_sql(),
            sql_count(Snapshot::WAITERS_SHOWN_MAX)
        ])?;
        let mut waiters = Vec::new();
        while let Some(row) = rows.next()? {
            let id = client_of(row.get::<_, String>(0)?.as_bytes());
            let mut waiter = Waiter::new(id);
            waiter.since = Some(WallTime::from_unix_micros(number(row.get(1)?)));
            waiter.client = client(turn, waiter.id.as_ref())?;
            waiter.claim = shares::claim_of(row.get(2)?, lock.limit);
            waiters.push(waiter);
        }
        Ok(waiters)
    }

    fn waiting(&self, turn: &Turn<'_>) -> rusqlite::Result<u32> {
        const SQL: &str = "SELECT count(*) FROM places WHERE key = ?1 AND expires > ?2";
        turn.conn.one(SQL, params![self.0.as_str(), turn.now_sql()])
    }
}

fn holder(turn: &Turn<'_>, held: &Held) -> rusqlite::Result<Holder> {
    let mut holder = Holder::new(held.owner.as_bytes());
    holder.client = client(turn, client_of(&holder.token).as_ref())?;
    holder.why = held.why.as_deref().map(str::to_owned);
    holder.since = Some(held.since);
    holder.ttl = Some(held.ttl);
    holder.ttl_left = Some(held.expires.since(turn.now));
    holder.fencing = held.fencing;
    holder.idle = held.idle;
    holder.claim = held.claim;
    holder.revoked = revocation(held.revoked.as_deref());
    Ok(holder)
}

/// A request to let go that is stored beside a lease.
pub(super) fn revocation(text: Option<&str>) -> Option<Arc<Revocation>> {
    text.and_then(Revocation::read).map(Arc::new)
}

/// The record of a client.
fn client(turn: &Turn<'_>, id: Option<&ClientId>) -> rusqlite::Result<Option<ClientRecord>> {
    const SQL: &str = "SELECT host, pid, user, command FROM clients WHERE id = ?1";
    let Some(id) = id else { return Ok(None) };
    turn.conn
        .prepare_cached(SQL)?
        .query_row([id.as_str()], |row| {
            let mut record = ClientRecord::new(id.clone());
            (record.host, record.pid) = (row.get(0)?, row.get(1)?);
            (record.user, record.command) = (row.get(2)?, row.get(3)?);
            Ok(record)
        })
        .optional()
}
