//! Asks for hints. A server of this kind sends nothing by itself.
//!
//! One connection asks for all clients of the store. It asks often when one of them has begun to
//! wait, and then with growing pauses.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::SERVER_NOW;
use super::connect::MysqlConnector;
use super::link::Link;
use super::text::write_text;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::store::sql::errors::Stage;
use crate::store::sql::{Hints, Link as _, Receive, Row, hint};
use crate::store::within;

/// The shortest pause between two questions.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause, while nobody waits, or somebody has waited for long. So a holder may hear
/// this late that another client waits. A waiter asks for its lock as often.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A pause is the quiet time divided by this, within these bounds.
const QUIET_PER_PAUSE: u32 = 20;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// How many hints one answer has.
const HINTS_MAX: usize = 1_000;

/// The age from which a hint is of no use, because its client has asked by itself. Shorter than
/// `LET_GO_FOR` of session/registry.rs, for which a client remembers its detached leases. So it
/// takes no old hint for a hand-over.
const OLD_AFTER: Duration = Duration::from_secs(30);

type Ours = Arc<Hints<MysqlConnector>>;

impl Receive for MysqlConnector {
    const POLLS: bool = true;

    async fn receive(hints: &Ours, mut link: Link) {
        let mut seen = Seen::default();
        loop {
            // Hints that were left for an inbox before stay there, so no later hint is missed.
            let new = hints.new_inboxes();
            hints.confirm(&new);
            if !hints.is_wanted() {
                return;
            }
            let asked = hints.host.now();
            match within(Arc::clone(&hints.host), LIMIT, fetch(hints, &link, seen.above(asked)))
                .await
            {
                Ok((fetched, numbers)) => {
                    seen.note(&numbers);
                    if fetched > 0 {
                        hints.heard();
                    }
                    if fetched == HINTS_MAX {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::debug!(cause = %error, "the connection for hints is made again");
                    return;
                }
            }
            let now = hints.host.now();
            let pause = pause(hints.quiet_for(now));
            tokio::select! {
                biased;
                _ended = poll_fn(|cx| link.poll_moving(cx)) => return,
                () = hints.news.notified() => hints.host.sleep_until(asked + PAUSE_MIN).await,
                () = hints.host.sleep_until(now + pause) => {}
            }
        }
    }
}

/// The numbers of the hints so far. While a transaction of somebody else is open for hours, the
/// server keeps every hint that was deleted meanwhile, and would look at all of them again in each
/// question. So a question begins above those that are too old to be of use.
#[derive(Default)]
struct Seen {
    /// The last hint that was fetched at least [`OLD_AFTER`] ago.
    floor: u64,
    /// The last hint when the floor was set, and since when it stands.
    mark: u64,
    since: Option<Moment>,
    last: u64,
}

impl Seen {
    /// The number above which the question at `now` begins. Now and then it is about all hints.
    fn above(&mut self, now: Moment) -> u64 {
        if now.since(*self.since.get_or_insert(now)) <= OLD_AFTER {
            return self.floor;
        }
        (self.floor, self.mark, self.since) = (self.mark, self.last, Some(now));
        0
    }

    /// Notes the numbers of the hints that came.
    fn note(&mut self, hints: &[u64]) {
        if hints.first().is_some_and(|first| *first <= self.floor) {
            // Somebody emptied the table, and the numbers have begun anew.
            *self = Self { since: self.since, ..Self::default() };
        }
        self.last = hints.last().map_or(self.last, |last| self.last.max(*last));
    }
}

/// The pause before the next question. `quiet`: for how long no client has begun to wait and no
/// hint has come; `None` if nobody waits. If a lock was held for long, its hand-over is late by a
/// small part of that time.
fn pause(quiet: Option<Duration>) -> Duration {
    quiet.map_or(PAUSE_MAX, |quiet| (quiet / QUIET_PER_PAUSE).clamp(PAUSE_MIN, PAUSE_MAX))
}

/// Takes the hints of all inboxes, and passes on those that are young. The hints are deleted only
/// afterwards. If the connection ends in between, the clients hear them twice, which does no harm.
/// Returns how many there were, and the numbers of those that were understood.
async fn fetch(hints: &Ours, link: &Link, above: u64) -> Result<(usize, Vec<u64>), Error> {
    let mut inboxes = String::new();
    for inbox in hints.inboxes() {
        if !inboxes.is_empty() {
            inboxes.push(',');
        }
        write_text(&mut inboxes, inbox.as_str());
    }
    if inboxes.is_empty() {
        return Ok((0, Vec::new()));
    }
    let sql = format!(
        "SELECT seq, inbox, IF(made > {SERVER_NOW} - {}, hint, NULL) FROM leasehold_hints \
         WHERE inbox IN ({inboxes}) AND seq > {above} ORDER BY seq LIMIT {HINTS_MAX}",
        OLD_AFTER.as_micros()
    );
    let rows = link.ask(&sql, Stage::Asking).await?;
    let fetched: Vec<_> = rows.iter().filter_map(|row| pass_on(hints, row)).collect();
    if !fetched.is_empty() {
        let all: Vec<_> = fetched.iter().map(u64::to_string).collect();
        let sql = format!("DELETE FROM leasehold_hints WHERE seq IN ({})", all.join(","));
        link.ask(&sql, Stage::Asking).await?;
    }
    Ok((rows.len(), fetched))
}

/// Passes a hint on, unless it is old. Returns its number.
fn pass_on(hints: &Ours, row: &Row) -> Option<u64> {
    let [Some(seq), Some(inbox), text] = &row[..] else { return None };
    let seq: u64 = seq.parse().ok()?;
    let hint = text.as_deref().and_then(hint::read);
    if let (Some(inbox), Some(hint)) = (ClientId::new(inbox), hint) {
        hints.pass(&inbox, hint);
    }
    Some(seq)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hints get their numbers before they are committed, so a lower number may come later.
    #[test]
    fn a_question_begins_above_hints_that_came_long_ago_and_not_above_young_ones() {
        let mut seen = Seen::default();
        for (seconds, above, hints) in [
            (0, 0, &[5][..]),
            (30, 0, &[7]),
            (31, 0, &[9]),
            (32, 0, &[8]),
            (62, 0, &[]),
            (63, 7, &[]),
            (93, 0, &[]),
            (94, 9, &[10, 11]),
            // Somebody emptied the table. This is noticed by a question about all hints.
            (125, 0, &[1, 2]),
            (126, 0, &[3]),
        ] {
            let now = Moment::from_nanos(seconds * 1_000_000_000);
            assert_eq!(seen.above(now), above, "after {seconds} s");
            seen.note(hints);
        }
    }

    #[test]
    fn questions_become_rarer_the_longer_nothing_happens() {
        let ms = Duration::from_millis;
        for (quiet, expected) in [
            (Some(ms(0)), ms(10)),
            (Some(ms(200)), ms(10)),
            (Some(ms(1_000)), ms(50)),
            (Some(ms(10_000)), ms(500)),
            (Some(ms(20_000)), ms(1_000)),
            (Some(Duration::MAX), ms(1_000)),
            (None, ms(1_000)),
        ] {
            assert_eq!(pause(quiet), expected, "{quiet:?}");
        }
    }
}
