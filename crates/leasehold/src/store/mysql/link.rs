//! A connection as the wire and the hints use it.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{Mutex, watch};

use super::conn::{Conn, Failure};
use super::error::failure;
use super::renewals;
use crate::core::error::Error;
use crate::store::sql::errors::Stage;
use crate::store::sql::{self, Batch, Row};

const NO_ANSWER: &str = "there was no answer in time";

/// A connection that is logged in.
pub(in crate::store) struct Link {
    /// A request keeps it locked until its answer has come, or this link is dropped.
    conn: Arc<Mutex<Conn>>,
    /// No value is ever sent. When this link is dropped, the receivers notice that, and the
    /// requests under way end.
    alive: watch::Sender<()>,
}

impl Link {
    pub(super) fn new(conn: Conn) -> Self {
        Self { conn: Arc::new(Mutex::new(conn)), alive: watch::Sender::new(()) }
    }

    /// Asks, and waits for the answer.
    pub(super) async fn ask(&self, sql: &str, stage: Stage) -> Result<Vec<Row>, Error> {
        self.conn.lock().await.ask(sql).await.map_err(|refused| failure(&refused, stage))
    }
}

impl sql::Link for Link {
    /// Each call is a transaction of its own, and takes as long as the disk needs for its commit.
    /// Only renewals share one. A connection whose message is not answered for long counts as dead,
    /// so messages are short.
    const BATCH_MAX: usize = 20;

    /// The server stops at the first call that it refuses.
    fn ask_all(
        &self,
        mut batch: Batch,
    ) -> impl Future<Output = (Batch, Result<(), sql::Refused>)> + Send + 'static {
        let (conn, mut alive) = (Arc::clone(&self.conn), self.alive.subscribe());
        async move {
            let mut conn = conn.lock().await;
            let list = batch.list().map(|entries| renewals::call(&entries));
            let is_list = list.is_some();
            let sql = list.unwrap_or_else(|| batch.sql());
            let answer = |rows: Vec<Row>| {
                if is_list {
                    renewals::rows(&rows).into_iter().for_each(|row| batch.answer(vec![row]));
                } else {
                    batch.answer(rows);
                }
            };
            let asked = tokio::select! {
                biased;
                asked = conn.ask_all(&sql, answer) => asked,
                // The wire gave the link up. Nobody else would close the connection.
                _gone = alive.changed() => Err(Failure::Broken(NO_ANSWER.to_owned())),
            };
            drop(conn);
            let ended = asked.map_err(|refused| sql::Refused {
                at: 0,
                error: failure(&refused, Stage::Asking),
                spares_others: refused.spares_others(),
                ends_connection: refused.ends_connection(),
            });
            (batch, ended)
        }
    }

    fn poll_moving(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // During a request, the request reads.
        let Ok(mut conn) = self.conn.try_lock() else { return Poll::Pending };
        conn.poll_ended(cx).map(|()| false)
    }
}
