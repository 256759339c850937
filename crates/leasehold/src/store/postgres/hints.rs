//! Receives hints by `LISTEN`.
//!
//! A proxy that runs each transaction on another connection loses the messages for `LISTEN`, or
//! gives them to others. So each new connection is tried first, on a channel that nobody else
//! knows. If a message does not arrive there, the client does not listen for a while. Its waiters
//! poll then, since they ask again by themselves.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::connect::PostgresConnector;
use super::error::failure;
use super::link::{Link, News};
use crate::core::error::Error;
use crate::core::token::ClientId;
use crate::host::{Host, random_u32};
use crate::store::sql::errors::Stage;
use crate::store::sql::{Hints, Receive, Row, hint};
use crate::store::within;

/// The beginning of the name of each channel.
const CHANNEL: &str = "leasehold:";

/// How often a connection is probed, and how long the answer may take. Probes may be rare, because
/// without hints waiters ask once a second, and holders hear of them by their renewals.
const PROBE_EVERY: Duration = Duration::from_secs(15);
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const PROBE: &str = "SELECT current_setting('transaction_read_only')";

/// How long a message may take to arrive.
pub(super) const ARRIVES_WITHIN: Duration = Duration::from_secs(2);

type Ours = Arc<Hints<PostgresConnector>>;

impl Receive for PostgresConnector {
    const POLLS: bool = false;

    async fn receive(hints: &Ours, mut link: Link) {
        let word = format!("trial:{:08x}", random_u32(&*hints.host));
        let notify = |sql| hints.ask_elsewhere(PROBE_LIMIT, sql);
        let told = tokio::select! {
            biased;
            () = hints.until_unwanted() => return,
            told = are_told(&hints.host, &mut link, &word, notify) => told,
        };
        match told {
            Ok(true) => hints.arrived(),
            Ok(false) => return hints.missed(),
            Err(error) => tracing::debug!(cause = %error, "whether hints arrive is not known"),
        }
        let mut probe_at = hints.host.now() + PROBE_EVERY;
        loop {
            let new = hints.new_inboxes();
            if !new.is_empty() {
                let listen: String = new.iter().map(|inbox| listen_to(inbox.as_str())).collect();
                if ask(hints, &mut link, &listen).await.is_none() {
                    return;
                }
                hints.confirm(&new);
            }
            if !hints.is_wanted() {
                return;
            }
            tokio::select! {
                biased;
                message = poll_fn(|cx| link.wire.poll_message(cx)) => match message {
                    Some(Ok(message)) => pass_on(hints, News::from(message)),
                    Some(Err(_)) | None => return,
                },
                () = hints.news.notified() => {}
                // A peer that vanished sends nothing, not even an error.
                () = hints.host.sleep_until(probe_at) => {
                    let rows = ask(hints, &mut link, PROBE).await;
                    // A server that became read-only ends no connection, and its name may lead to
                    // another server now.
                    if rows.is_none_or(|rows| rows.first().is_some_and(is_read_only)) {
                        return;
                    }
                    probe_at = hints.host.now() + PROBE_EVERY;
                }
            }
        }
    }
}

fn is_read_only(row: &Row) -> bool {
    row.first().is_some_and(|setting| setting.as_deref() == Some("on"))
}

fn listen_to(word: &str) -> String {
    format!("LISTEN \"{CHANNEL}{word}\";")
}

/// Whether a session that listens gets messages. `notify` runs a statement in another session,
/// which sends a message to a channel that ends with this word. An error says that this could not
/// be tried.
pub(super) async fn are_told<T>(
    host: &Arc<dyn Host>,
    link: &mut Link,
    word: &str,
    notify: impl AsyncFnOnce(String) -> Result<T, Error>,
) -> Result<bool, Error> {
    let channel = format!("{CHANNEL}{word}");
    let is_ours = |news| matches!(news, News::Message(to, _) if to == channel);
    let mut is_told = false;
    try_in_time(host, link.ask(&listen_to(word))).await?;
    notify(format!("SELECT pg_notify('{channel}', '')")).await?;
    let arriving = async {
        while let Some(message) = poll_fn(|cx| link.wire.poll_message(cx)).await {
            if is_ours(message?.into()) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    tokio::select! {
        biased;
        arrived = arriving => is_told = arrived.map_err(refused)?,
        () = host.sleep_until(host.now() + ARRIVES_WITHIN) => {}
    }
    // If this task was kept from running, it sees the message now, because the server sends the
    // message before the answer. If the connection has ended, there is no answer.
    let unlisten = format!("UNLISTEN \"{channel}\"");
    let last = link.ask_beside(&unlisten, |news| is_told |= is_ours(news));
    try_in_time(host, last).await?;
    Ok(is_told)
}

/// Asks, and waits for the answer for as long as a probe may take.
pub(super) async fn try_in_time<T>(
    host: &Arc<dyn Host>,
    asking: impl Future<Output = Result<T, tokio_postgres::Error>> + Send,
) -> Result<T, Error> {
    within(Arc::clone(host), PROBE_LIMIT, async { asking.await.map_err(refused) }).await
}

fn refused(error: tokio_postgres::Error) -> Error {
    failure(&error, Stage::Connecting)
}

/// Asks, and passes on the messages that come before the answer. `None` if there is no answer.
async fn ask(hints: &Ours, link: &mut Link, sql: &str) -> Option<Vec<Row>> {
    let asking = async {
        let answer = link.ask_beside(sql, |news| pass_on(hints, news)).await;
        answer.map_err(|error| failure(&error, Stage::Asking))
    };
    match within(Arc::clone(&hints.host), PROBE_LIMIT, asking).await {
        Ok(rows) => Some(rows),
        Err(error) => {
            tracing::debug!(cause = %error, "the connection for hints is made again");
            None
        }
    }
}

fn pass_on(hints: &Ours, news: News) {
    let News::Message(channel, text) = news else { return };
    let inbox = channel.strip_prefix(CHANNEL).and_then(ClientId::new);
    if let (Some(inbox), Some(hint)) = (inbox, hint::read(&text)) {
        hints.pass(&inbox, hint);
    }
}
