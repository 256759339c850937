//! A connection as the wire and the hints use it.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::{Mutex, watch};

use super::conn::{Conn, Failure, give_way};
use super::error::{failure, is_rolled_back};
use crate::core::error::Error;
use crate::store::sql::errors::Stage;
use crate::store::sql::{self, Row};

const NO_ANSWER: &str = "there was no answer in time";

/// A connection that is logged in.
pub(in crate::store) struct Link {
    /// A request keeps it locked until its answer has come, or this link is dropped.
    conn: Arc<Mutex<Conn>>,
    /// Nothing is sent: it ends with this link, and so do the requests under way.
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
    /// Each call is a transaction of its own.
    const BATCH_MAX: usize = 1;

    fn ask_all(
        &self,
        requests: Vec<String>,
    ) -> impl Future<Output = Result<Vec<Vec<Row>>, sql::Refused>> + Send + 'static {
        let (conn, mut alive) = (Arc::clone(&self.conn), self.alive.subscribe());
        async move {
            let mut answers = Vec::new();
            for sql in requests {
                let mut conn = conn.lock().await;
                let answer = tokio::select! {
                    biased;
                    answer = conn.ask(&sql) => answer,
                    // The wire gave the link up. Nobody else would close the connection.
                    _gone = alive.changed() => Err(Failure::Broken(NO_ANSWER.to_owned())),
                };
                drop(conn);
                match answer {
                    Ok(rows) => answers.push(rows),
                    Err(refused) => {
                        if refused.ends_connection() {
                            // The wire notices the end before it sends the next request.
                            give_way().await;
                        }
                        let (at, error) = (answers.len(), failure(&refused, Stage::Asking));
                        let is_rolled_back = is_rolled_back(&refused);
                        return Err(sql::Refused { at, error, is_rolled_back });
                    }
                }
            }
            Ok(answers)
        }
    }

    fn poll_moving(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // During a request, the request reads.
        let Ok(mut conn) = self.conn.try_lock() else { return Poll::Pending };
        conn.poll_ended(cx).map(|()| false)
    }
}
