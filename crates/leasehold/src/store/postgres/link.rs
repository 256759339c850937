//! One connection to a server: the login, and requests one after the other.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt as _;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};

use super::error::{failure, is_missing, is_read_only, is_refusal};
use crate::core::error::Error;
use crate::store::net::Io;
use crate::store::net::Stream;
use crate::store::sql::errors::Stage;
use crate::store::sql::url::Address;
use crate::store::sql::{self, Batch, Row, SIZE_MAX};

/// A connection that is logged in.
pub(in crate::store) struct Link {
    client: Arc<Client>,
    pub(super) wire: Connection<Io, NoTlsStream>,
}

impl Link {
    /// Logs in on a new stream, which is already encrypted if it has to be.
    pub(super) async fn log_in(stream: Box<dyn Stream>, address: &Address) -> Result<Self, Error> {
        let mut config = Config::new();
        config.user(&address.user).dbname(&address.database).application_name("leasehold");
        if let Some(password) = &address.password {
            config.password(password);
        }
        let connecting = config.connect_raw(Io(stream), NoTls);
        let (client, wire) =
            connecting.await.map_err(|error| failure(&error, Stage::Connecting))?;
        Ok(Self { client: Arc::new(client), wire })
    }

    /// Asks, and waits for the answer. Messages that arrive meanwhile are lost.
    pub(super) async fn ask(&mut self, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.ask_beside(sql, drop).await
    }

    /// Asks, and waits for the answer. Messages that arrive meanwhile go to `receive`.
    pub(super) async fn ask_beside(
        &mut self,
        sql: &str,
        mut receive: impl FnMut(News),
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let mut answer = pin!(ask(&self.client, sql));
        let wire = &mut self.wire;
        let mut is_open = true;
        poll_fn(|cx| {
            loop {
                // The first poll sends the request. The end of the connection is reported here too.
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                if !is_open {
                    return Poll::Pending;
                }
                match ready!(wire.poll_message(cx)) {
                    Some(Ok(message)) => receive(message.into()),
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => is_open = false,
                }
            }
        })
        .await
    }
}

impl sql::Link for Link {
    const BATCH_MAX: usize = SIZE_MAX;

    /// The message is one transaction, so no request has an answer before all of them are
    /// committed.
    fn ask_all(
        &self,
        mut batch: Batch,
    ) -> impl Future<Output = (Batch, Result<(), sql::Refused>)> + Send + 'static {
        let client = Arc::clone(&self.client);
        async move {
            let asked = ask_all(&client, &batch.sql()).await;
            let ended = asked.map(|answers| answers.into_iter().for_each(|it| batch.answer(it)));
            let ended = ended.map_err(|Refused { at, error }| {
                let spares_others = is_refusal(&error);
                let ends_connection = !spares_others || is_missing(&error) || is_read_only(&error);
                let error = failure(&error, Stage::Asking);
                sql::Refused { at, error, spares_others, ends_connection }
            });
            (batch, ended)
        }
    }

    fn poll_moving(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.wire.poll_message(cx).map(|message| matches!(message, Some(Ok(_))))
    }
}

/// Asks by one message of the simple protocol. The server runs the message as one transaction, once
/// it has the whole message. So a client that is stopped while it sends keeps no row lock.
async fn ask(client: &Client, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    let answers = ask_all(client, sql).await.map_err(|refused| refused.error)?;
    Ok(answers.into_iter().flatten().collect())
}

/// A message that was refused.
struct Refused {
    /// Which of its statements was refused, counted from zero.
    at: usize,
    error: tokio_postgres::Error,
}

/// Like [`ask`], with the rows of each statement apart. Ends after the commit.
async fn ask_all(client: &Client, sql: &str) -> Result<Vec<Vec<Row>>, Refused> {
    let (mut answers, mut rows) = (Vec::new(), Vec::new());
    let asked = client.simple_query_raw(sql).await;
    let mut messages = pin!(asked.map_err(|error| Refused { at: 0, error })?);
    while let Some(message) = messages.next().await {
        match message.map_err(|error| Refused { at: answers.len(), error })? {
            SimpleQueryMessage::Row(row) => {
                let texts = (0..row.len()).map(|at| Ok(row.try_get(at)?.map(str::to_owned)));
                let texts = texts.collect::<Result<_, _>>();
                rows.push(texts.map_err(|error| Refused { at: answers.len(), error })?);
            }
            SimpleQueryMessage::CommandComplete(_) => answers.push(std::mem::take(&mut rows)),
            _ => {}
        }
    }
    Ok(answers)
}

/// A message of the server besides its answers.
pub(super) enum News {
    /// A message for a channel, with its text.
    Message(String, String),
    /// Anything else, which is ignored.
    Other,
}

impl From<AsyncMessage> for News {
    fn from(message: AsyncMessage) -> Self {
        match message {
            AsyncMessage::Notification(it) => {
                Self::Message(it.channel().to_owned(), it.payload().to_owned())
            }
            _ => Self::Other,
        }
    }
}
