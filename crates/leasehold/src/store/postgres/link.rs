//! One connection to a server: the login, and requests one after the other.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};

use super::error::{Stage, failure};
use super::url::Address;
use crate::core::error::Error;
use crate::store::net::Stream;

/// A row of an answer: the columns as text, `None` for null.
pub(super) type Row = Vec<Option<String>>;

/// A connection that is logged in.
pub(super) struct Link {
    pub(super) client: Arc<Client>,
    pub(super) wire: Connection<Io, NoTlsStream>,
}

impl Link {
    /// Logs in on a new stream. If it is encrypted, that has been done.
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
                // The first poll sends it. The end of the connection is reported here too.
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

/// Asks by one message of the simple protocol. The server runs it as one transaction, once it has
/// all of it: so a client that is stopped in between keeps no row lock.
pub(super) async fn ask(client: &Client, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    let rows = client.simple_query(sql).await?.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

/// What comes in beside answers.
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

/// A stream in the form that the client of the database reads.
pub(super) struct Io(Box<dyn Stream>);

impl AsyncRead for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(self.0.poll_read(cx, buf.initialize_unfilled()))?;
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Dropping the stream closes it.
        self.poll_flush(cx)
    }
}
