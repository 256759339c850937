//! Receives hints by `LISTEN`.
//!
//! A proxy that runs each transaction on another connection drops `LISTEN`: then waiters poll,
//! since they ask again by themselves.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use super::connect::PostgresConnector;
use super::error::failure;
use super::link::{Link, News};
use crate::core::token::ClientId;
use crate::store::sql::errors::Stage;
use crate::store::sql::{Hints, hint};
use crate::store::within;

/// The beginning of the name of each channel.
const CHANNEL: &str = "leasehold:";

/// How often a quiet connection is probed, and how long the answer may take.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBE_LIMIT: Duration = Duration::from_secs(2);

type Ours = Arc<Hints<PostgresConnector>>;

/// Receives hints until the connection ends.
pub(super) async fn receive(hints: &Ours, mut link: Link) {
    loop {
        let new = hints.new_inboxes();
        if !new.is_empty() {
            let listen: String = new
                .iter()
                .map(|inbox| format!("LISTEN \"{CHANNEL}{}\";", inbox.as_str()))
                .collect();
            if ask(hints, &mut link, &listen).await.is_none() {
                return;
            }
            hints.confirm(&new);
        }
        if !hints.is_wanted() {
            return;
        }
        let probe_at = hints.host.now() + PROBE_EVERY;
        tokio::select! {
            biased;
            message = poll_fn(|cx| link.wire.poll_message(cx)) => match message {
                Some(Ok(message)) => pass_on(hints, News::from(message)),
                Some(Err(_)) | None => return,
            },
            () = hints.news.notified() => {}
            // A peer that vanished sends nothing, not even an error.
            () = hints.host.sleep_until(probe_at) => {
                if ask(hints, &mut link, "").await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Asks, and passes on the messages that come before the answer. `None` if there is no answer.
async fn ask(hints: &Ours, link: &mut Link, sql: &str) -> Option<()> {
    let asking = async {
        let mut came = Vec::new();
        let answer = link.ask_beside(sql, |news| came.push(news)).await;
        came.into_iter().for_each(|news| pass_on(hints, news));
        answer.map_err(|error| failure(&error, Stage::Asking))
    };
    match within(Arc::clone(&hints.host), PROBE_LIMIT, asking).await {
        Ok(_) => Some(()),
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
