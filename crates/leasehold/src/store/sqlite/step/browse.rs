//! The steps of tools: list the keys in use, end the lease of another client, and change how many
//! permits there are.

use rusqlite::params;

use super::Step;
use super::release::end_lease;
use crate::core::claim::Claim;
use crate::core::key::Key;
use crate::core::token::{FencingToken, OwnerToken};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::line_rows;
use crate::store::sqlite::lock_row::LockRow;
use crate::store::sqlite::shares;
use crate::store::sqlite::turn::{Effect, Prepared as _, Turn};
use crate::store::{Evicted, OnRelease, PAGE_KEYS_MAX, Page, Revocation, Revoked, matches_pattern};

/// How many rows one page looks at, matching or not. So a page never delays renewals for long.
const ROWS_MAX: usize = 10 * PAGE_KEYS_MAX;

/// The step of [`Browse::list`](crate::store::Browse::list).
pub(in crate::store::sqlite) struct List {
    pub(in crate::store::sqlite) pattern: String,
    pub(in crate::store::sqlite) cursor: Option<Key>,
}

impl Step for List {
    type Answer = Page;

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Page>> {
        self.page(turn).map(Some)
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Page, Failure> {
        Ok(self.page(turn)?)
    }
}

impl List {
    fn page(&self, turn: &Turn<'_>) -> rusqlite::Result<Page> {
        const SQL: &str = "SELECT key, (owner IS NOT NULL AND expires > ?2) OR EXISTS (
                SELECT 1 FROM places WHERE places.key = locks.key AND places.expires > ?2)
            FROM locks WHERE key > ?1 ORDER BY key";
        let cursor = self.cursor.as_ref().map_or("", Key::as_str);
        let mut statement = turn.conn.prepare_cached(SQL)?;
        let mut rows = statement.query(params![cursor, turn.now_sql()])?;
        let mut page = Page::default();
        let mut looked_at = 0;
        let mut last = None;
        while let Some(row) = rows.next()? {
            if looked_at == ROWS_MAX || page.keys.len() == PAGE_KEYS_MAX {
                page.next = last;
                break;
            }
            // Another program wrote a name that Leasehold would refuse. Such a name does not count,
            // because a page that ends at it could not say where the next page begins.
            let name = row.get_ref(0)?.as_str().map(Key::new);
            let Ok(Ok(key)) = name else { continue };
            if row.get(1)? && matches_pattern(&self.pattern, key.as_str()) {
                page.keys.push(key.clone());
            }
            looked_at += 1;
            last = Some(key);
        }
        Ok(page)
    }
}

/// The step of [`Browse::evict`](crate::store::Browse::evict).
pub(in crate::store::sqlite) struct Evict {
    pub(in crate::store::sqlite) key: Key,
    pub(in crate::store::sqlite) seen: Vec<u8>,
    pub(in crate::store::sqlite) reason: String,
}

impl Step for Evict {
    type Answer = Evicted;

    fn full(&self, turn: &mut Turn<'_>) -> Result<Evicted, Failure> {
        let mut row = LockRow::find(turn.conn, &self.key)?;
        let Ok(owner) = str::from_utf8(&self.seen) else { return Ok(Evicted::Changed) };
        let is_alone = row.living(turn.now).is_some_and(|held| held.owner == owner);
        let share = shares::find(turn.conn, &row, &self.key, owner, turn.now)?;
        if !is_alone && share.is_none() {
            return Ok(Evicted::Changed);
        }
        // Raise the counter now. The next fencing token must be above those of the evicted holder,
        // even if this step grants none.
        row.seed(turn)?;
        row.counter = (row.counter + 1).min(FencingToken::MAX);
        row.is_changed = true;
        line_rows::leave(turn, &self.key, owner)?;
        end_lease(turn, &mut row, &self.key, owner, &OnRelease::Free)?;
        row.settle(turn, &self.key)?;
        let reason = self.reason.clone();
        turn.effects.push(Effect::Evicted(self.key.clone(), OwnerToken::new(owner).ok(), reason));
        Ok(Evicted::Evicted)
    }
}

/// The step of [`Browse::revoke`](crate::store::Browse::revoke).
pub(in crate::store::sqlite) struct Revoke {
    pub(in crate::store::sqlite) key: Key,
    pub(in crate::store::sqlite) seen: Vec<u8>,
    pub(in crate::store::sqlite) by: String,
    pub(in crate::store::sqlite) reason: String,
}

impl Step for Revoke {
    type Answer = Revoked;

    fn full(&self, turn: &mut Turn<'_>) -> Result<Revoked, Failure> {
        const ONE: &str = "UPDATE locks SET revoked_owner = ?2, revoked = ?3
            WHERE key = ?1 AND owner = ?2 AND revoked_owner IS NOT ?2";
        let Ok(owner) = str::from_utf8(&self.seen) else { return Ok(Revoked::Changed) };
        let mut row = LockRow::find(turn.conn, &self.key)?;
        let request = Revocation::new(&*self.by, &*self.reason, turn.wall);
        let text = format!("{}|{}", turn.wall_sql(), request.words());
        if row.living(turn.now).is_some_and(|held| held.owner == owner) {
            turn.conn.run(ONE, params![self.key.as_str(), owner, text])?;
            return Ok(Revoked::Asked);
        }
        let share = shares::find(turn.conn, &row, &self.key, owner, turn.now)?;
        let Some(mut share) = share else { return Ok(Revoked::Changed) };
        share.revoked.get_or_insert(text);
        shares::write(turn, &mut row, &self.key, &share)?;
        row.settle(turn, &self.key)?;
        Ok(Revoked::Asked)
    }
}

/// The step of [`Store::resize`](crate::store::Store::resize).
pub(in crate::store::sqlite) struct Resize {
    pub(in crate::store::sqlite) key: Key,
    pub(in crate::store::sqlite) of: u32,
}

impl Step for Resize {
    type Answer = Option<u32>;

    fn full(&self, turn: &mut Turn<'_>) -> Result<Option<u32>, Failure> {
        let mut row = LockRow::find(turn.conn, &self.key)?;
        let before = resize(turn, &mut row, &self.key, self.of)?;
        row.settle(turn, &self.key)?;
        Ok(before)
    }
}

/// Changes how many permits there are. Returns how many there were.
fn resize(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    of: u32,
) -> Result<Option<u32>, Failure> {
    if row.limit.is_none() {
        shares::use_as(turn, row, key, Claim::Permits { want: 1, of })?;
        return Ok(None);
    }
    let before = row.limit.replace(of);
    row.is_changed = true;
    line_rows::hand_over_run(turn, row, key)?;
    // The next waiter may want more permits than there are now. Let it ask, so that it learns this.
    if let Some((seq, _)) = line_rows::drop_dead(turn, row, key)?.first {
        line_rows::tell(turn, key, seq)?;
    }
    Ok(before)
}
