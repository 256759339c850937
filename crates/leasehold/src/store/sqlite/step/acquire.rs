//! Acquire: grant, hand over to the head of the line, or wait.

use std::time::Duration;

use super::{Step, busy_limit, busy_limit_in_line};
use crate::core::claim::{Taken, Usage};
use crate::core::line::{
    AskDecision, Asker, Front, GIVES_WAY_FOR, Holding, RUN_MAX, decide_ask, is_far,
};
use crate::core::token::{FencingBlock, client_of};
use crate::store::sqlite::error::Failure;
use crate::store::sqlite::line_rows::{self, FrontRows};
use crate::store::sqlite::lock_row::{Held, LockRow};
use crate::store::sqlite::shares;
use crate::store::sqlite::turn::{Effect, Place, Turn};
use crate::store::{Acquired, Ask, Hint, Line, Refusal};

/// How often a grant is retried because another process changed the lock. After that it runs in a
/// transaction.
const QUICK_TRIES_MAX: usize = 3;

/// The step of [`Store::acquire`](crate::store::Store::acquire).
pub(in crate::store::sqlite) struct Acquire(pub(in crate::store::sqlite) Ask);

impl Step for Acquire {
    type Answer = Acquired;
    const AT_ONCE: bool = true;

    fn busy_limit(&self) -> Duration {
        let waits = self.0.line != Line::None;
        if waits { busy_limit_in_line(self.0.ttl) } else { busy_limit(self.0.ttl) }
    }

    fn quick(&self, turn: &mut Turn<'_>) -> rusqlite::Result<Option<Acquired>> {
        let ask = &self.0;
        for _ in 0..QUICK_TRIES_MAX {
            let mut row = LockRow::find(turn.conn, &ask.key)?;
            let holding = row.holding(turn.now, ask.owner.as_str());
            let only_tries = ask.line == Line::None;
            if holding == Holding::TAKEN && only_tries && self.is_a_lock(&row) {
                let taken = self.taken(turn, &row, row.time_left(turn.now))?;
                return Ok(Some(taken.into()));
            }
            if holding != Holding::Mine && (holding != Holding::FREE || row.has_line) {
                // Do this before the transaction, which must be short.
                self.hang_bell(turn);
            }
            if holding == Holding::Others(Taken::Shared) && only_tries && ask.claim.is_alone() {
                let taken = self.taken(turn, &row, shares::time_left(turn, &ask.key)?)?;
                return Ok(Some(taken.into()));
            }
            let is_more = turn.due_record(ask.note.as_ref()).is_some()
                || !row.exists()
                || row.has_line && holding == Holding::FREE
                || !row.is_seeded() && ask.reserve > 0
                || !ask.claim.is_alone()
                || row.shared_until.is_some()
                || row.limit.is_some();
            if is_more {
                return Ok(None);
            }
            let granted = match decide_ask(holding, ask.claim, Front::EMPTY, Asker::Outside) {
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
        shares::use_as(turn, &mut row, &ask.key, ask.claim)?;
        shares::bury(turn, &mut row, &ask.key)?;
        let answer = self.decide(turn, &mut row);
        if matches!(answer, Err(Failure::Sql(_))) {
            return answer;
        }
        // Write the row even if a full line refused the ask, because ended leases were removed.
        row.settle(turn, &ask.key)?;
        answer
    }
}

impl Acquire {
    /// Whether both this ask and the key are for a lock, and not for a semaphore.
    fn is_a_lock(&self, row: &LockRow) -> bool {
        row.limit.is_none() && self.0.claim.usage() == Usage::Lock
    }

    /// Decides with a row that knows what is taken, and carries out the decision.
    fn decide(&self, turn: &mut Turn<'_>, row: &mut LockRow) -> Result<Acquired, Failure> {
        let ask = &self.0;
        let mut holding = row.holding(turn.now, ask.owner.as_str());
        if holding == Holding::TAKEN && ask.line == Line::None && !row.has_line {
            return Ok(self.taken(turn, row, row.time_left(turn.now))?.into());
        }
        let (now, owner) = (turn.now, ask.owner.as_str());
        let mine = shares::find(turn.conn, row, &ask.key, owner, now)?;
        if mine.is_some() {
            holding = Holding::Mine;
        }
        if let Some(record) = turn.due_record(ask.note.as_ref()) {
            turn.record(record)?;
        }
        let is_alone = !row.has_line && row.taken(now).admits(ask.claim);
        let entered = if holding == Holding::Mine || is_alone {
            None
        } else {
            // Another process may have taken the key since the quick look.
            self.hang_bell(turn);
            line_rows::enter(turn, row, ask)?
        };
        let is_new = entered.as_ref().map(|(is_new, _)| *is_new);
        let holder = row.living(now).and_then(|held| client_of(held.owner.as_bytes()));
        let mut retry_in = Duration::ZERO;
        for _ in 0..=RUN_MAX {
            let FrontRows { front, first } = line_rows::drop_dead(turn, row, &ask.key)?;
            let is_head = first.as_ref().is_some_and(|(_, first)| first == owner);
            let asker = Asker::of(is_head, is_new, row.awaits_head(now));
            retry_in = match decide_ask(holding, ask.claim, front, asker) {
                AskDecision::GrantAgain => match mine {
                    Some(mine) => return Ok(self.share_again(turn, row, mine)?),
                    None => return Ok(in_transaction(self.grant_again(turn, row)?)),
                },
                AskDecision::Grant => {
                    line_rows::leave(turn, &ask.key, owner)?;
                    let granted = in_transaction(self.grant(turn, row)?);
                    // The waiters behind this one may share the key too.
                    line_rows::hand_over_run(turn, row, &ask.key)?;
                    return Ok(granted);
                }
                AskDecision::HandOver => {
                    let (seq, _) = first.expect("a living head has a row");
                    line_rows::hand_over(turn, row, &ask.key, seq)?;
                    holding = Holding::Others(row.taken(now));
                    continue;
                }
                AskDecision::Wait if row.living(now).is_some() => row.time_left(now),
                AskDecision::Wait => shares::time_left(turn, &ask.key)?,
                AskDecision::GiveWay => GIVES_WAY_FOR,
                AskDecision::WaitAndRetry => Duration::ZERO,
            };
            break;
        }
        let taken = self.taken(turn, row, retry_in)?;
        if let Some((_, place)) = entered {
            if let Some(inbox) = holder {
                turn.effects.push(Effect::Mail(inbox, Hint::Wanted { key: ask.key.clone() }));
            }
            let place = Place { is_far: is_far(taken.ahead), ..place };
            let (key, owner) = (ask.key.clone(), ask.owner.clone());
            turn.effects.push(Effect::Waits(key, owner, place, row.seen()));
        }
        Ok(taken.into())
    }
}

/// Unwraps the result of a conditional write in a transaction, where the condition always holds.
fn in_transaction(granted: Option<Acquired>) -> Acquired {
    granted.expect("nobody else writes during a transaction that may write")
}

impl Acquire {
    /// Hangs up the client's bell before others can see its place, because the process that hands
    /// it the key must find the bell.
    fn hang_bell(&self, turn: &mut Turn<'_>) {
        if let Some(place) = self.0.line.place() {
            turn.bells.hang(place.inbox);
        }
    }

    /// Makes the asker an owner, unless the row changed since it was read.
    fn grant(&self, turn: &mut Turn<'_>, row: &mut LockRow) -> rusqlite::Result<Option<Acquired>> {
        let ask = &self.0;
        let fencing = row.reserve(turn, ask.reserve)?;
        let granted = Held {
            owner: ask.owner.as_str().to_owned(),
            claim: ask.claim,
            expires: turn.now + ask.ttl.get(),
            ttl: ask.ttl.get(),
            since: turn.wall,
            fencing,
            why: ask.note.as_ref().and_then(|note| note.why.clone()),
            idle: false,
            revoked: None,
        };
        line_rows::grant(turn, row, &ask.key, granted)?;
        self.store_grant(turn, row, fencing)
    }

    /// Like [`grant_again`](Self::grant_again), for an asker that shares the key.
    fn share_again(
        &self,
        turn: &mut Turn<'_>,
        row: &mut LockRow,
        mut mine: Held,
    ) -> rusqlite::Result<Acquired> {
        mine.prolong(turn.now, self.0.ttl.get());
        shares::write(turn, row, &self.0.key, &mine)?;
        Ok(in_transaction(self.store_grant(turn, row, mine.fencing)?))
    }

    /// Grants a lease again that the asker holds. Never shortens it.
    fn grant_again(
        &self,
        turn: &mut Turn<'_>,
        row: &mut LockRow,
    ) -> rusqlite::Result<Option<Acquired>> {
        let held = row.held.as_mut().expect("an owner that is granted again holds it");
        held.prolong(turn.now, self.0.ttl.get());
        let fencing = held.fencing;
        self.store_grant(turn, row, fencing)
    }

    fn store_grant(
        &self,
        turn: &mut Turn<'_>,
        row: &mut LockRow,
        fencing: Option<FencingBlock>,
    ) -> rusqlite::Result<Option<Acquired>> {
        if !row.store(turn, &self.0.key)? {
            return Ok(None);
        }
        if self.0.line != Line::None {
            turn.effects.push(Effect::Settled(self.0.key.clone(), self.0.owner.clone()));
        }
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
}
