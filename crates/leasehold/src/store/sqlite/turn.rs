//! The context of a step, and its effects after the commit.

use std::collections::HashMap;

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, params};

use super::bells::Bells;
use super::numbers::{sql_moment, sql_wall};
use crate::core::key::Key;
use crate::core::line::Stance;
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{ClientId, OwnerToken};
use crate::store::{ClientRecord, FENCE_IDLE, Hint, Note};

/// Statements that are prepared once.
pub(super) trait Prepared {
    /// Carries out a statement. Returns how many rows it changed.
    fn run(&self, sql: &str, arguments: impl Params) -> rusqlite::Result<usize>;
    /// The first value of the first row.
    fn one<T: FromSql>(&self, sql: &str, arguments: impl Params) -> rusqlite::Result<T>;
}

impl Prepared for Connection {
    fn run(&self, sql: &str, arguments: impl Params) -> rusqlite::Result<usize> {
        self.prepare_cached(sql)?.execute(arguments)
    }

    fn one<T: FromSql>(&self, sql: &str, arguments: impl Params) -> rusqlite::Result<T> {
        self.prepare_cached(sql)?.query_row(arguments, |row| row.get(0))
    }
}

/// The context of a step.
pub(super) struct Turn<'a> {
    pub(super) conn: &'a Connection,
    pub(super) now: Moment,
    pub(super) wall: WallTime,
    pub(super) records: &'a Records,
    pub(super) effects: &'a mut Vec<Effect>,
    pub(super) bells: &'a mut Bells,
}

/// An effect of a step. It happens after the commit, and never if the step is rolled back.
#[derive(Debug)]
pub(super) enum Effect {
    /// Send a hint to this inbox.
    Mail(ClientId, Hint),
    /// A client of this process waits in line. The lock was in this state when it was answered.
    Waits(Key, OwnerToken, Place, Seen),
    /// This owner no longer waits.
    Settled(Key, OwnerToken),
    /// An operator ended a lease, for this reason.
    Evicted(Key, Option<OwnerToken>, String),
    /// The record of a client was written.
    Recorded(ClientId),
}

/// A place in line whose client is in this process.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) inbox: ClientId,
    pub(super) stance: Stance,
    pub(super) ask_no: u32,
    pub(super) until: Moment,
    /// Whether the place is so far back that the store tells its client when it comes near.
    pub(super) is_far: bool,
}

/// A summary of a lock's state: enough to see whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) version: i64,
    pub(super) owner: Option<String>,
}

impl Turn<'_> {
    pub(super) fn now_sql(&self) -> i64 {
        sql_moment(self.now)
    }

    pub(super) fn wall_sql(&self) -> i64 {
        sql_wall(self.wall)
    }

    /// The client record of an ask, if it is due to be written.
    pub(super) fn due_record<'n>(&self, note: Option<&'n Note>) -> Option<&'n ClientRecord> {
        note?.client.as_deref().filter(|record| self.records.is_due(&record.id, self.now))
    }

    /// Writes the record of a client. This happens now and then, not with each grant.
    pub(super) fn record(&mut self, record: &ClientRecord) -> rusqlite::Result<()> {
        const SQL: &str = "INSERT INTO clients (id, host, pid, user, command, seen)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)
            ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid,
                user = excluded.user, command = excluded.command, seen = excluded.seen";
        let now = self.now_sql();
        let ClientRecord { id, host, pid, user, command, .. } = record;
        self.conn.run(SQL, params![id.as_str(), host, pid, user, command, now])?;
        self.effects.push(Effect::Recorded(id.clone()));
        Ok(())
    }
}

/// When this process last wrote the record of each client.
#[derive(Debug, Default)]
pub(super) struct Records(HashMap<ClientId, Moment>);

impl Records {
    /// Whether the record of `client` is new or half-way to being forgotten.
    fn is_due(&self, client: &ClientId, now: Moment) -> bool {
        self.0.get(client).is_none_or(|written| now.since(*written) >= FENCE_IDLE / 2)
    }

    pub(super) fn written(&mut self, client: ClientId, now: Moment) {
        self.0.insert(client, now);
    }

    /// Forgets entries that are due anyway, so that dead clients take no memory.
    pub(super) fn prune(&mut self, now: Moment) {
        self.0.retain(|_, written| now.since(*written) < FENCE_IDLE / 2);
    }
}
