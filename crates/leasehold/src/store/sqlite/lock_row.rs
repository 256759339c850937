//! The row of one lock: its counter, and the holder that has it alone.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::numbers::{sql_moment, sql_span, sql_wall};
use super::turn::{Prepared as _, Seen, Turn};
use crate::core::claim::{Claim, Taken};
use crate::core::key::Key;
use crate::core::line::{GIVES_WAY_FOR, Holding};
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{FencingBlock, FencingToken};

/// The owner of a lock while holders share it. No owner token has such a character.
pub(super) const SHARED: &str = "\tshared";

/// The row of one lock. An idle lock keeps its row, and so its counter, for a while.
#[derive(Clone, Debug, Default)]
pub(super) struct LockRow {
    /// The version that was read, which the next write replaces. 0 if there is no row.
    version: i64,
    pub(super) counter: u64,
    /// The holder that has the key alone, even if its lease has ended.
    pub(super) held: Option<Held>,
    /// The end of the last lease of those that share the key, even if it is over. `shares` has
    /// their rows.
    pub(super) shared_until: Option<Moment>,
    /// How many permits there are, if the key is a semaphore.
    pub(super) limit: Option<u32>,
    /// How many permits are taken. Includes holders whose lease has ended.
    pub(super) taken: u32,
    /// Whether something changed that must be written, see [`settle`](Self::settle).
    pub(super) is_changed: bool,
    /// Until when newcomers give way to a head that a release has woken. Stored in `expires` while
    /// nobody holds the lock.
    pub(super) awaits_until: Moment,
    /// Whether the line has places, dead ones included.
    pub(super) has_line: bool,
    /// Whether `held` is a new grant. A request to let go that is stored for the same owner token
    /// was for an earlier lease.
    is_new_grant: bool,
}

/// A holder: one that has the key alone, or one of those that share it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) owner: String,
    pub(super) claim: Claim,
    pub(super) expires: Moment,
    pub(super) ttl: Duration,
    pub(super) since: WallTime,
    pub(super) fencing: Option<FencingBlock>,
    pub(super) why: Option<Arc<str>>,
    /// Whether the holder is idle, if it has the key alone.
    pub(super) idle: bool,
    /// The request to let go, as it is stored. [`store`](LockRow::store) does not write it.
    pub(super) revoked: Option<String>,
}

impl Held {
    /// Restarts the ttl. Never shortens the lease. After a restart of the machine, no lease lasts
    /// longer than the ttl, so a lease that lasts longer anyway keeps the time that it has left.
    pub(super) fn prolong(&mut self, now: Moment, ttl: Duration) {
        self.ttl = ttl.max(self.expires.since(now));
        self.expires = now + self.ttl;
    }
}

impl LockRow {
    /// Reads the row. Returns an empty row if there is none.
    pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Self> {
        const SQL: &str = "SELECT version, counter, owner, expires, ttl, since_wall, fence_first,
                fence_count, why, idle, EXISTS (SELECT 1 FROM places WHERE places.key = locks.key),
                permits, taken, CASE WHEN revoked_owner = owner THEN revoked END
            FROM locks WHERE key = ?1";
        let row = conn.prepare_cached(SQL)?.query_row([key.as_str()], Self::read).optional()?;
        Ok(row.unwrap_or_default())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let until = Moment::from_nanos(number(row.get(3)?));
        let owner: Option<String> = row.get(2)?;
        let is_free = owner.is_none();
        let is_shared = owner.as_deref() == Some(SHARED);
        let held = match owner.filter(|_| !is_shared) {
            None => None,
            Some(owner) => Some(Held {
                owner,
                claim: Claim::Exclusive,
                expires: until,
                ttl: Duration::from_nanos(number(row.get(4)?)),
                since: WallTime::from_unix_micros(number(row.get(5)?)),
                fencing: fencing(row.get(6)?, row.get(7)?),
                why: row.get(8)?,
                idle: row.get(9)?,
                revoked: row.get(13)?,
            }),
        };
        Ok(Self {
            version: row.get(0)?,
            counter: number(row.get(1)?),
            awaits_until: if is_free { until } else { Moment::default() },
            held,
            shared_until: is_shared.then_some(until),
            has_line: row.get(10)?,
            limit: row.get(11)?,
            taken: row.get(12)?,
            is_changed: false,
            is_new_grant: false,
        })
    }

    /// Makes this holder the only one. The row is still to be written. Each new lease must come
    /// from here, or its holder gets the request to let go of an earlier lease of its owner token.
    pub(super) fn grant(&mut self, granted: Held) {
        self.held = Some(granted);
        self.is_new_grant = true;
    }

    pub(super) fn exists(&self) -> bool {
        self.version != 0
    }

    /// The lease, if it lives.
    pub(super) fn living(&self, now: Moment) -> Option<&Held> {
        self.held.as_ref().filter(|held| held.expires > now)
    }

    /// Whether holders share the key. Some of their leases may have ended.
    pub(super) fn is_shared(&self, now: Moment) -> bool {
        self.shared_until.is_some_and(|until| until > now)
    }

    /// The part of the key that the living holders have. For holders that share the key, call
    /// `shares::bury` before.
    pub(super) fn taken(&self, now: Moment) -> Taken {
        match self.limit {
            _ if self.living(now).is_some() => Taken::Alone,
            _ if !self.is_shared(now) => Taken::Nothing,
            Some(_) => Taken::Permits(self.taken),
            None => Taken::Shared,
        }
    }

    /// The holders of the key, as `owner` sees them. Only for an `owner` that does not share the
    /// key.
    pub(super) fn holding(&self, now: Moment, owner: &str) -> Holding {
        match self.living(now) {
            Some(held) if held.owner == owner => Holding::Mine,
            _ => Holding::Others(self.taken(now)),
        }
    }

    /// The remaining time of the lease of the holder that has the key alone.
    pub(super) fn time_left(&self, now: Moment) -> Duration {
        self.held.as_ref().map_or(Duration::ZERO, |held| held.expires.since(now))
    }

    /// Whether a woken waiter is awaited. Ignores longer times, which only a damaged file has.
    pub(super) fn awaits_head(&self, now: Moment) -> bool {
        self.awaits_until > now && self.awaits_until <= now + GIVES_WAY_FOR
    }

    pub(super) fn seen(&self) -> Seen {
        let shared = self.shared_until.map(|_| SHARED);
        let owner = self.held.as_ref().map(|held| held.owner.as_str()).or(shared);
        Seen { version: self.version, owner: owner.map(str::to_owned) }
    }

    /// Whether the counter has begun, so that the next fencing token needs no other read.
    pub(super) fn is_seeded(&self) -> bool {
        self.counter != 0
    }

    /// Takes the next `reserve` fencing tokens. A new counter begins at the wall clock or at the
    /// floor of forgotten locks, whichever is higher. Both are above all earlier tokens.
    pub(super) fn reserve(
        &mut self,
        turn: &Turn<'_>,
        reserve: u32,
    ) -> rusqlite::Result<Option<FencingBlock>> {
        if reserve == 0 {
            return Ok(None);
        }
        self.seed(turn)?;
        Ok(FencingBlock::after(self.counter, reserve).map(|(block, counter)| {
            self.counter = counter;
            block
        }))
    }

    /// Begins the counter, unless it has begun.
    pub(super) fn seed(&mut self, turn: &Turn<'_>) -> rusqlite::Result<()> {
        if !self.is_seeded() {
            self.counter = turn.wall.as_unix_micros().min(FencingToken::MAX / 2).max(floor(turn)?);
        }
        Ok(())
    }

    /// Raises the counter to `at_least`. Returns whether it was lower.
    pub(super) fn raise(
        &mut self,
        turn: &Turn<'_>,
        at_least: FencingToken,
    ) -> rusqlite::Result<bool> {
        let given = if self.is_seeded() { self.counter } else { floor(turn)? };
        let raised = at_least.get() > given;
        if raised {
            self.counter = at_least.get();
        }
        Ok(raised)
    }

    /// Writes the row, unless it changed since it was read. It cannot change inside a transaction
    /// that may write.
    pub(super) fn store(&mut self, turn: &Turn<'_>, key: &Key) -> rusqlite::Result<bool> {
        self.is_changed = false;
        if !self.exists() {
            return self.insert(turn, key);
        }
        const SQL: &str = "UPDATE locks SET version = ?2 + 1, counter = ?3, owner = ?4,
                expires = ?5, ttl = ?6, since_wall = ?7, fence_first = ?8, fence_count = ?9,
                why = ?10, idle = ?11, touched = ?12, permits = ?13, taken = ?14,
                revoked_owner = CASE WHEN ?15 THEN NULL ELSE revoked_owner END
            WHERE key = ?1 AND version = ?2";
        let changed = self.write(turn, key, SQL, self.version)?;
        self.version += i64::from(changed);
        self.is_new_grant &= !changed;
        Ok(changed)
    }

    fn insert(&mut self, turn: &Turn<'_>, key: &Key) -> rusqlite::Result<bool> {
        // A new row has no request to let go. `?15` is there because `write` binds it for the
        // update.
        const SQL: &str = "INSERT INTO locks (key, version, counter, owner, expires, ttl,
                since_wall, fence_first, fence_count, why, idle, touched, permits, taken,
                revoked_owner)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
                CASE WHEN ?15 THEN NULL END)
            ON CONFLICT DO NOTHING";
        // Versions of a new row begin at the clock. So a row that was forgotten and made again is
        // never mistaken for the old one.
        let version = turn.wall_sql().max(1);
        let inserted = self.write(turn, key, SQL, version)?;
        if inserted {
            self.version = version;
            self.is_new_grant = false;
        }
        Ok(inserted)
    }

    fn write(&self, turn: &Turn<'_>, key: &Key, sql: &str, version: i64) -> rusqlite::Result<bool> {
        let held = self.held.as_ref();
        let fencing = held.and_then(|held| held.fencing);
        let shared = self.shared_until.map(|_| SHARED);
        let free_until = self.shared_until.unwrap_or(self.awaits_until);
        let changed = turn.conn.prepare_cached(sql)?.execute(params![
            key.as_str(),
            version,
            i64::try_from(self.counter).expect("a counter is below 2^53"),
            held.map(|held| held.owner.as_str()).or(shared),
            sql_moment(held.map_or(free_until, |held| held.expires)),
            held.map_or(0, |held| sql_span(held.ttl)),
            held.map_or(0, |held| sql_wall(held.since)),
            fencing.map(|block| i64::from(block.first)),
            fencing.map(|block| block.count),
            held.and_then(|held| held.why.as_deref()),
            held.is_some_and(|held| held.idle),
            turn.now_sql(),
            self.limit,
            self.taken,
            self.is_new_grant,
        ])?;
        Ok(changed == 1)
    }

    /// Writes the row inside a transaction, if something changed that is not written yet.
    pub(super) fn settle(&mut self, turn: &Turn<'_>, key: &Key) -> rusqlite::Result<()> {
        if self.is_changed {
            self.store(turn, key)?;
        }
        Ok(())
    }

    /// Raises the version of the row after a place was added. So no step grants from an older read.
    pub(super) fn bump(&mut self, turn: &Turn<'_>, key: &Key) -> rusqlite::Result<()> {
        const SQL: &str = "UPDATE locks SET version = ?2 + 1, touched = ?3 WHERE key = ?1";
        if !self.exists() {
            self.store(turn, key)?;
            return Ok(());
        }
        turn.conn.run(SQL, params![key.as_str(), self.version, turn.now_sql()])?;
        self.version += 1;
        Ok(())
    }
}

/// The highest counter of all forgotten locks.
fn floor(turn: &Turn<'_>) -> rusqlite::Result<u64> {
    const SQL: &str = "SELECT counter_floor FROM meta";
    turn.conn.one(SQL, []).map(number)
}

/// A number that this library wrote; it is never negative.
pub(super) fn number(sql: i64) -> u64 {
    u64::try_from(sql).unwrap_or(0)
}

/// The fencing tokens of a lease, from its row.
pub(super) fn fencing(first: Option<i64>, count: Option<u32>) -> Option<FencingBlock> {
    Some(FencingBlock { first: FencingToken::new(number(first?))?, count: count? })
}
