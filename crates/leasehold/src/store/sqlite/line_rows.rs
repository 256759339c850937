//! The rows of a line: its places, oldest first.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Failure;
use super::lock_row::{Held, LockRow, number};
use super::numbers::{sql_count, sql_moment, sql_span};
use super::shares::{self, claim_of, sql_claim};
use super::turn::{Effect, Place, Prepared as _, Turn};
use crate::core::claim::Claim;
use crate::core::key::Key;
use crate::core::line::{Front, NEAR, PLACES_MAX, REAPED_MAX, RUN_MAX, Stance, front, place_life};
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::store::errors::line_is_full;
use crate::store::{Ask, Hint, PlaceTerms};

/// The front of a line after its dead places were removed.
pub(super) struct FrontRows {
    /// The front, in the terms of the decisions.
    pub(super) front: Front,
    /// The number and the owner of the first place, alive or dead.
    pub(super) first: Option<(i64, String)>,
}

const JOINED: i64 = 0;
const WATCHING: i64 = 1;

fn stance_of(sql: i64) -> Stance {
    if sql == WATCHING { Stance::Watching } else { Stance::Joined }
}

/// Takes or refreshes the asker's place, if it joins the line. Returns whether it is new, and the
/// place.
pub(super) fn enter(
    turn: &Turn<'_>,
    row: &mut LockRow,
    ask: &Ask,
) -> Result<Option<(bool, Place)>, Failure> {
    let Some(terms) = ask.line.place() else { return Ok(None) };
    let PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance, .. } = terms;
    let handed_ttl = handed_ttl.get();
    let until = turn.now + waiter_ttl.get();
    let mut place = NewPlace { ask, until, handed_ttl, ask_no, inbox, stance };
    let found = if row.has_line { place.find(turn)? } else { None };
    let is_new = found.is_none();
    if row.has_line {
        let ahead = ahead_at_most(turn, &ask.key, found.as_ref().map(|found| found.seq))?;
        place.until = turn.now + place_life(waiter_ttl.get(), ahead);
    }
    let ask_no = match found {
        Some(found) => place.refresh(turn, &found)?,
        None => {
            make_room(turn, row, &ask.key)?;
            place.insert(turn)?;
            row.bump(turn, &ask.key)?;
            row.has_line = true;
            ask_no
        }
    };
    let (inbox, until) = (inbox.clone(), place.until);
    Ok(Some((is_new, Place { inbox, stance, ask_no, until, is_far: false })))
}

struct NewPlace<'a> {
    ask: &'a Ask,
    until: Moment,
    handed_ttl: Duration,
    ask_no: u32,
    inbox: &'a ClientId,
    stance: Stance,
}

struct FoundPlace {
    seq: i64,
    expires: i64,
    ask_no: u32,
}

impl NewPlace<'_> {
    fn why(&self) -> Option<&str> {
        self.ask.note.as_ref()?.why.as_deref()
    }

    fn stance(&self) -> i64 {
        match self.stance {
            Stance::Joined => JOINED,
            Stance::Watching => WATCHING,
        }
    }

    fn find(&self, turn: &Turn<'_>) -> rusqlite::Result<Option<FoundPlace>> {
        const FIND: &str = "SELECT seq, expires, ask_no FROM places WHERE key = ?1 AND owner = ?2";
        let arguments = [self.ask.key.as_str(), self.ask.owner.as_str()];
        turn.conn
            .prepare_cached(FIND)?
            .query_row(arguments, |row| {
                Ok(FoundPlace { seq: row.get(0)?, expires: row.get(1)?, ask_no: row.get(2)? })
            })
            .optional()
    }

    /// Returns the number of the last ask. Never shortens the life of a place. An ask that was
    /// overtaken does not lower the number.
    fn refresh(&self, turn: &Turn<'_>, found: &FoundPlace) -> rusqlite::Result<u32> {
        const SQL: &str = "UPDATE places SET stance = ?3, expires = ?4, handed_ttl = ?5,
                reserve = ?6, ask_no = ?7, inbox = ?8, why = ?9, claim = ?10
            WHERE key = ?1 AND seq = ?2";
        let key = self.ask.key.as_str();
        let ask_no = found.ask_no.max(self.ask_no);
        turn.conn.prepare_cached(SQL)?.execute(params![
            key,
            found.seq,
            self.stance(),
            found.expires.max(sql_moment(self.until)),
            sql_span(self.handed_ttl),
            self.ask.reserve,
            ask_no,
            self.inbox.as_str(),
            self.why(),
            sql_claim(self.ask.claim),
        ])?;
        Ok(ask_no)
    }

    fn insert(&self, turn: &Turn<'_>) -> rusqlite::Result<()> {
        const SQL: &str = "INSERT INTO places (key, seq, owner, stance, expires, handed_ttl,
                reserve, ask_no, inbox, why, since_wall, claim)
            VALUES (?1, (SELECT ifnull(max(seq), 0) + 1 FROM places WHERE key = ?1), ?2, ?3, ?4,
                ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
        turn.conn.prepare_cached(SQL)?.execute(params![
            self.ask.key.as_str(),
            self.ask.owner.as_str(),
            self.stance(),
            sql_moment(self.until),
            sql_span(self.handed_ttl),
            self.ask.reserve,
            self.ask_no,
            self.inbox.as_str(),
            self.why(),
            turn.wall_sql(),
            sql_claim(self.ask.claim),
        ])?;
        Ok(())
    }
}

/// Makes sure that the line can take one more place. Dead places do not count, because a line of
/// them must not lock living waiters out.
fn make_room(turn: &Turn<'_>, row: &LockRow, key: &Key) -> Result<(), Failure> {
    const DROP: &str = "DELETE FROM places WHERE key = ?1 AND expires <= ?2";
    const COUNT: &str = "SELECT count(*) FROM places WHERE key = ?1";
    if !row.has_line || span(turn, key)? < sql_count(PLACES_MAX) {
        return Ok(());
    }
    turn.conn.run(DROP, params![key.as_str(), turn.now_sql()])?;
    let living: i64 = turn.conn.one(COUNT, [key.as_str()])?;
    if living < sql_count(PLACES_MAX) { Ok(()) } else { Err(Failure::Refused(line_is_full(key))) }
}

/// The most places that a line can have, computed from its two ends. Counting takes long in a long
/// line.
fn span(turn: &Turn<'_>, key: &Key) -> rusqlite::Result<i64> {
    const SQL: &str = "SELECT ifnull((SELECT max(seq) FROM places WHERE key = ?1)
        - (SELECT min(seq) FROM places WHERE key = ?1) + 1, 0)";
    turn.conn.one(SQL, [key.as_str()])
}

/// The most places that can be ahead of the place at `seq`, or of a new place, computed from the
/// ends of the line.
fn ahead_at_most(turn: &Turn<'_>, key: &Key, seq: Option<i64>) -> rusqlite::Result<u32> {
    const SQL: &str = "SELECT ifnull(?2, (SELECT max(seq) + 1 FROM places WHERE key = ?1))
        - (SELECT min(seq) FROM places WHERE key = ?1)";
    let ahead: i64 = turn.conn.one(SQL, params![key.as_str(), seq])?;
    Ok(u32::try_from(ahead).unwrap_or(0))
}

/// Removes the place of `owner`, if it has one.
pub(super) fn leave(turn: &mut Turn<'_>, key: &Key, owner: &str) -> rusqlite::Result<()> {
    const SQL: &str = "DELETE FROM places WHERE key = ?1 AND owner = ?2";
    let left = turn.conn.run(SQL, [key.as_str(), owner])?;
    call_up(turn, key, left)
}

/// Tells waiters to ask if they came near the front when `left` places went. They asked rarely
/// until now.
fn call_up(turn: &mut Turn<'_>, key: &Key, left: usize) -> rusqlite::Result<()> {
    const SQL: &str =
        "SELECT owner, inbox FROM places WHERE key = ?1 ORDER BY seq LIMIT ?2 OFFSET ?3";
    if left == 0 {
        return Ok(());
    }
    let (left, near) = (sql_count(left), i64::from(NEAR));
    let mut statement = turn.conn.prepare_cached(SQL)?;
    let called = params![key.as_str(), left, near - left];
    let mut rows = statement.query(called)?;
    while let Some(row) = rows.next()? {
        let owner = OwnerToken::new(row.get_ref(0)?.as_str()?);
        if let (Ok(owner), Some(inbox)) = (owner, ClientId::new(row.get_ref(1)?.as_str()?)) {
            turn.effects.push(Effect::Mail(inbox, Hint::CalledUp { key: key.clone(), owner }));
        }
    }
    Ok(())
}

/// Removes dead places at the front, as many as one step may, and returns the new front.
pub(super) fn drop_dead(
    turn: &mut Turn<'_>,
    row: &LockRow,
    key: &Key,
) -> rusqlite::Result<FrontRows> {
    const FIND: &str = "SELECT seq, expires, stance, claim, owner, inbox FROM places
        WHERE key = ?1 ORDER BY seq LIMIT ?2";
    const DROP: &str = "DELETE FROM places WHERE key = ?1 AND seq <= ?2";
    if !row.has_line {
        return Ok(FrontRows { front: Front::EMPTY, first: None });
    }
    let places = turn
        .conn
        .prepare_cached(FIND)?
        .query_map(params![key.as_str(), sql_count(REAPED_MAX + 1)], |found| {
            let expires = Moment::from_nanos(number(found.get(1)?));
            let (stance, claim) = (stance_of(found.get(2)?), claim_of(found.get(3)?, row.limit));
            Ok((found.get(0)?, expires, stance, claim, found.get(4)?, found.get(5)?))
        })?
        .collect::<rusqlite::Result<Vec<(i64, Moment, Stance, Claim, String, String)>>>()?;
    let is_dead =
        |inbox: &str| ClientId::new(inbox).is_some_and(|inbox| turn.bells.is_dead(&inbox));
    // Check only up to the first living place.
    let front = front(
        turn.now,
        places.iter().map(|(_, expires, stance, claim, _, inbox)| {
            let is_over = *expires > turn.now && is_dead(inbox);
            (if is_over { turn.now } else { *expires }, *stance, *claim)
        }),
    );
    if let Some(last) = front.dead.checked_sub(1) {
        turn.conn.run(DROP, params![key.as_str(), places[last].0])?;
        call_up(turn, key, front.dead)?;
    }
    let first = places.into_iter().nth(front.dead).map(|(seq, _, _, _, owner, _)| (seq, owner));
    Ok(FrontRows { front, first })
}

/// Makes the head an owner. Call [`shares::bury`] before.
pub(super) fn hand_over(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    seq: i64,
) -> rusqlite::Result<()> {
    const TAKE: &str = "DELETE FROM places WHERE key = ?1 AND seq = ?2
        RETURNING owner, handed_ttl, reserve, ask_no, inbox, why, claim";
    let mut statement = turn.conn.prepare_cached(TAKE)?;
    let (owner, ttl, reserve, ask_no, inbox, why, claim) =
        statement.query_row(params![key.as_str(), seq], |found| {
            let ttl = Duration::from_nanos(number(found.get(1)?));
            let inbox: String = found.get(4)?;
            let why: Option<Arc<str>> = found.get(5)?;
            let claim = claim_of(found.get(6)?, row.limit);
            Ok((found.get::<_, String>(0)?, ttl, found.get(2)?, found.get(3)?, inbox, why, claim))
        })?;
    drop(statement);
    call_up(turn, key, 1)?;
    let fencing = row.reserve(turn, reserve)?;
    let granted = Held {
        owner: owner.clone(),
        claim,
        expires: turn.now + ttl,
        ttl,
        since: turn.wall,
        fencing,
        why,
        idle: false,
        revoked: None,
    };
    grant(turn, row, key, granted)?;
    row.store(turn, key)?;
    if let (Ok(owner), Some(inbox)) = (OwnerToken::new(owner), ClientId::new(&inbox)) {
        turn.effects.push(Effect::Settled(key.clone(), owner.clone()));
        let hint = Hint::Granted { key: key.clone(), owner, fencing, ask_no };
        turn.effects.push(Effect::Mail(inbox, hint));
    }
    Ok(())
}

/// Adds a holder: in the row of the lock if it has the key alone, and otherwise in a row of its
/// own. The row is still to be written.
pub(super) fn grant(
    turn: &Turn<'_>,
    row: &mut LockRow,
    key: &Key,
    granted: Held,
) -> rusqlite::Result<()> {
    if !granted.claim.is_alone() {
        return shares::add(turn, row, key, &granted);
    }
    row.grant(granted);
    Ok(())
}

/// Hands the key to all waiters at the front of the line whose turn it is. If there are too many
/// for one step, tells the next of them to ask. Returns how many got it.
pub(super) fn hand_over_run(
    turn: &mut Turn<'_>,
    row: &mut LockRow,
    key: &Key,
) -> rusqlite::Result<usize> {
    shares::bury(turn, row, key)?;
    for handed in 0..=RUN_MAX {
        let FrontRows { front, first } = drop_dead(turn, row, key)?;
        let Some((seq, _)) = first.filter(|_| front.is_due(row.taken(turn.now))) else {
            return Ok(handed);
        };
        if handed == RUN_MAX {
            tell(turn, key, seq)?;
        } else {
            hand_over(turn, row, key, seq)?;
        }
    }
    Ok(RUN_MAX)
}

/// Whether the first place of the line is that of `owner`, and there is room for it.
pub(super) fn is_due(
    conn: &Connection,
    row: &LockRow,
    key: &Key,
    owner: &str,
    now: Moment,
) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT owner, claim FROM places WHERE key = ?1 ORDER BY seq LIMIT 1";
    let first: Option<(String, i64)> = conn
        .prepare_cached(SQL)?
        .query_row([key.as_str()], |found| Ok((found.get(0)?, found.get(1)?)))
        .optional()?;
    Ok(first.is_some_and(|(first, claim)| {
        first == owner && row.taken(now).admits(claim_of(claim, row.limit))
    }))
}

/// Tells the place at `seq` that the key may be free.
pub(super) fn tell(turn: &mut Turn<'_>, key: &Key, seq: i64) -> rusqlite::Result<()> {
    const SQL: &str = "SELECT inbox FROM places WHERE key = ?1 AND seq = ?2";
    let inbox: String = turn.conn.one(SQL, params![key.as_str(), seq])?;
    if let Some(inbox) = ClientId::new(&inbox) {
        turn.effects.push(Effect::Mail(inbox, Hint::MaybeFree { key: key.clone() }));
    }
    Ok(())
}

/// Whether the place of `owner` is near the front of its line, or is gone.
pub(super) fn is_near(conn: &Connection, key: &Key, owner: &str) -> rusqlite::Result<bool> {
    const SQL: &str = "SELECT count(*) FROM (SELECT 1 FROM places WHERE key = ?1 AND seq <
        ifnull((SELECT seq FROM places WHERE key = ?1 AND owner = ?2), 0) LIMIT ?3)";
    let ahead: u32 = conn.one(SQL, params![key.as_str(), owner, NEAR])?;
    Ok(ahead < NEAR)
}

/// How many places are before that of `owner`, or in the whole line if it has none.
pub(super) fn ahead(conn: &Connection, key: &Key, owner: &str) -> rusqlite::Result<u32> {
    const SQL: &str = "SELECT count(*) FROM places WHERE key = ?1 AND seq <
        ifnull((SELECT seq FROM places WHERE key = ?1 AND owner = ?2), 9223372036854775807)";
    conn.one(SQL, [key.as_str(), owner])
}
