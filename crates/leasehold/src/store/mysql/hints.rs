//! Asks for hints. A server of this kind sends nothing by itself.
//!
//! One connection asks for all clients of the store: often while one of them waits, and seldom
//! otherwise.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::connect::{MysqlConnector, write_text};
use super::link::Link;
use crate::core::error::Error;
use crate::core::token::ClientId;
use crate::store::sql::errors::Stage;
use crate::store::sql::{Hints, Link as _, Row, hint};
use crate::store::within;

/// How long the pause between two questions is while a client waits. A hand-over takes half of it
/// longer than on a server that sends.
const EVERY: Duration = Duration::from_millis(10);

/// The same while nobody waits. A holder may hear so late that another client waits.
const EVERY_AT_REST: Duration = Duration::from_millis(500);

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(2);

/// How many hints one answer has.
const HINTS_MAX: usize = 1_000;

type Ours = Arc<Hints<MysqlConnector>>;

/// Receives hints until the connection ends.
pub(super) async fn receive(hints: &Ours, mut link: Link) {
    loop {
        // What was left for an inbox before stays there, so nothing is missed after this.
        let new = hints.new_inboxes();
        hints.confirm(&new);
        if !hints.is_wanted() {
            return;
        }
        match within(Arc::clone(&hints.host), LIMIT, fetch(hints, &link)).await {
            Ok(fetched) if fetched == HINTS_MAX => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(cause = %error, "the connection for hints is made again");
                return;
            }
        }
        let now = hints.host.now();
        let pause = if hints.has_waiter(now) { EVERY } else { EVERY_AT_REST };
        tokio::select! {
            biased;
            _ended = poll_fn(|cx| link.poll_moving(cx)) => return,
            () = hints.news.notified() => {}
            () = hints.host.sleep_until(now + pause) => {}
        }
    }
}

/// Takes the hints of all inboxes. They are deleted after they were passed on: if the connection
/// ends in between, the clients hear them twice, which does no harm.
async fn fetch(hints: &Ours, link: &Link) -> Result<usize, Error> {
    let mut inboxes = String::new();
    for inbox in hints.inboxes() {
        if !inboxes.is_empty() {
            inboxes.push(',');
        }
        write_text(&mut inboxes, inbox.as_str());
    }
    if inboxes.is_empty() {
        return Ok(0);
    }
    let sql = format!(
        "SELECT seq, inbox, hint FROM leasehold_hints WHERE inbox IN ({inboxes}) ORDER BY seq \
         LIMIT {HINTS_MAX}"
    );
    let rows = link.ask(&sql, Stage::Asking).await?;
    let fetched: Vec<_> = rows.iter().filter_map(|row| pass_on(hints, row)).collect();
    if !fetched.is_empty() {
        let sql = format!("DELETE FROM leasehold_hints WHERE seq IN ({})", fetched.join(","));
        link.ask(&sql, Stage::Asking).await?;
    }
    Ok(rows.len())
}

/// Passes a hint on. Returns its number.
fn pass_on(hints: &Ours, row: &Row) -> Option<String> {
    let [Some(seq), Some(inbox), Some(text)] = &row[..] else { return None };
    let seq: u64 = seq.parse().ok()?;
    if let (Some(inbox), Some(hint)) = (ClientId::new(inbox), hint::read(text)) {
        hints.pass(&inbox, hint);
    }
    Some(seq.to_string())
}
