//! Acquire: grant, hand over to the head of the line, or wait.

use std::time::Duration;

use super::{Step, busy_limit, busy_limit_in_line};
use crate::core::line::{AskDecision, Asker, Front, GIVES_WAY_FOR, Holding, decide_ask, is_far};
use crate::core::token::client_of;
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::line_rows::{self, Entered};
use crate::store::sqlite::lock_row::{Held, LockRow};
use crate::store::sqlite::turn::{Effect, Turn, Waiting};
use crate::store::{Acquired, Ask, Hint, Line, Refusal};

/// How often a grant is retried because another process changed the lock. After that it runs in a
/// transaction.
const QUICK_TRIES: usize = 3;

/// The step of [`Store::acquire`](crate::store::Store::acquire).
pub(in crate::store::sqlite) struct Acquire(pub(in crate::store::sqlite) Ask);

impl Step for Acquire {
    type Answer = Acquired;
    const AT_ONCE: bool = true;

    fn busy_limit(&self) -> Duration {
        match self.0.line {
            Line::None => busy_limit(self.0.ttl),
            Line::Join { .. } | Line::Watch { .. } => busy_limit_in_line(self.0.ttl),
        }
    }

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Acquired>> {
        for _ in 0..QUICK_TRIES {
            let mut row = LockRow::find(turn.conn, &self.0.key)?;
            let holding = row.holding(turn.now, self.0.owner.as_str());
            if holding == Holding::TAKEN && self.0.line == Line::None {
                let taken = self.taken(turn, &row, row.time_left(turn.now))?;
                return Ok(Some(taken.into()));
            }
            if holding != Holding::Mine && (holding == Holding::TAKEN || row.has_line) {
                // Before the transaction, which must be short.
                self.hang_bell(turn);
            }
            let is_more = turn.due_record(self.0.note.as_ref()).is_some()
                || !row.exists()
                || row.has_line && holding == Holding::FREE
                || !row.is_seeded() && self.0.reserve > 0;
            if is_more {
                return Ok(None);
            }
            let granted = match decide_ask(holding, self.0.claim, Front::EMPTY, Asker::Outside) {
                AskDecision::GrantAgain => self.grant_again(turn, &mut row)?,
                AskDecision::Grant => self.grant(turn, &mut row)?,
                _ => return Ok(None),
            };
            if granted.is_some() {
                return Ok(granted);
            }
        }
        Ok(None)
    }

    fn full(&self, turn: &mut Turn<'_>) -> Result<Acquired, Failure> {
        let ask = &self.0;
        let mut row = LockRow::find(turn.conn, &ask.key)?;
        let holding = row.holding(turn.now, ask.owner.as_str());
        if holding == Holding::TAKEN && ask.line == Line::None && !row.has_line {
            return Ok(self.taken(turn, &row, row.time_left(turn.now))?.into());
        }
        if let Some(record) = turn.due_record(ask.note.as_ref()) {
            turn.record(record)?;
        }
        let is_alone = holding == Holding::FREE && !row.has_line;
        let entered = if holding == Holding::Mine || is_alone {
            None
        } else {
            // Another process may have taken the key since the quick look.
            self.hang_bell(turn);
            line_rows::enter(turn, &mut row, ask)?
        };
        let holder = row.living(turn.now).and_then(|held| client_of(held.owner.as_bytes()));
        let (front, first) = if is_alone {
            (Front::EMPTY, None)
        } else {
            let rows = line_rows::drop_dead(turn, &ask.key)?;
            (rows.front, rows.first)
        };
        let is_head = first.as_ref().is_some_and(|(_, owner)| owner.as_str() == ask.owner.as_str());
        let is_new = entered.as_ref().map(|entered| entered.is_new);
        let asker = Asker::of(is_head, is_new, row.awaits_head(turn.now));
        let retry_in = match decide_ask(holding, ask.claim, front, asker) {
            AskDecision::GrantAgain => {
                return Ok(in_transaction(self.grant_again(turn, &mut row)?));
            }
            AskDecision::Grant => {
                line_rows::leave(turn, &ask.key, ask.owner.as_str())?;
                return Ok(in_transaction(self.grant(turn, &mut row)?));
            }
            AskDecision::HandOver => {
                let (seq, _) = first.expect("a living head has a row");
                line_rows::hand_over(turn, &mut row, &ask.key, seq)?
            }
            AskDecision::Wait => row.time_left(turn.now),
            AskDecision::GiveWay => GIVES_WAY_FOR,
            AskDecision::WaitAndRetry => Duration::ZERO,
        };
        let taken = self.taken(turn, &row, retry_in)?;
        if let Some(entered) = entered {
            if let Some(inbox) = holder {
                turn.effects.push(Effect::Mail(inbox, Hint::Wanted { key: ask.key.clone() }));
            }
            self.waits(turn, &row, entered, is_far(taken.ahead));
        }
        Ok(taken.into())
    }
}

/// Unwraps the result of a conditional write in a transaction, where the condition always holds.
fn in_transaction(granted: Option<Acquired>) -> Acquired {
    granted.expect("nobody else writes during a transaction that may write")
}

impl Acquire {
    /// Hangs up the client's bell before others can see its place: the process that hands it the
    /// key must find the bell.
    fn hang_bell(&self, turn: &mut Turn<'_>) {
        if let Some(place) = self.0.line.place() {
            turn.bells.hang(place.inbox);
        }
    }

    /// Makes the asker the owner, unless the row changed since it was read.
    fn grant(&self, turn: &mut Turn<'_>, row: &mut LockRow) -> rusqlite::Result<Option<Acquired>> {
        let ask = &self.0;
        let fencing = row.reserve(turn, ask.reserve)?;
        row.held = Some(Held {
            owner: ask.owner.as_str().to_owned(),
            expires: turn.now + ask.ttl.get(),
            ttl: ask.ttl.get(),
            since: turn.wall,
            fencing,
            why: ask.note.as_ref().and_then(|note| note.why.clone()),
            idle: false,
        });
        self.store_grant(turn, row)
    }

    /// Grants a lease again that the asker holds. Never shortens it.
    fn grant_again(
        &self,
        turn: &mut Turn<'_>,
        row: &mut LockRow,
    ) -> rusqlite::Result<Option<Acquired>> {
        let ttl = self.0.ttl.get();
        let held = row.held.as_mut().expect("an owner that is granted again holds it");
        held.expires = held.expires.max(turn.now + ttl);
        held.ttl = ttl;
        self.store_grant(turn, row)
    }

    fn store_grant(
        &self,
        turn: &mut Turn<'_>,
        row: &mut LockRow,
    ) -> rusqlite::Result<Option<Acquired>> {
        if !row.store(turn, &self.0.key)? {
            return Ok(None);
        }
        if self.0.line != Line::None {
            turn.effects.push(Effect::Settled(self.0.key.clone(), self.0.owner.clone()));
        }
        let fencing = row.held.as_ref().and_then(|held| held.fencing);
        Ok(Some(Acquired::Granted { fencing }))
    }

    fn taken(
        &self,
        turn: &Turn<'_>,
        row: &LockRow,
        retry_in: Duration,
    ) -> rusqlite::Result<Refusal> {
        let has_line = row.has_line || self.0.line != Line::None;
        let ahead = if has_line {
            line_rows::ahead(turn.conn, &self.0.key, self.0.owner.as_str())?
        } else {
            0
        };
        Ok(Refusal::taken(Some(retry_in), ahead))
    }

    fn waits(&self, turn: &mut Turn<'_>, row: &LockRow, entered: Entered, is_far: bool) {
        let Entered { is_new: _, inbox, stance, ask_no, until } = entered;
        let owner = self.0.owner.clone();
        let seen = row.seen();
        let waiting = Waiting { owner, inbox, stance, ask_no, until, is_far, seen };
        turn.effects.push(Effect::Waits(self.0.key.clone(), waiting));
    }
}
