//! A client that sends exactly the requests that it is told to send, in order. It does not log in
//! by itself.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use leasehold::Error;
use leasehold::host::Task;
use leasehold::store::redis::{Connector, Stream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::{Answer, Command, News, Sent, take_sent};

/// A connection to a server. Clones share it.
#[derive(Clone, Debug)]
pub struct Client(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    out: Vec<u8>,
    /// The requests that wait for answers, the first one first.
    waiting: VecDeque<oneshot::Sender<Answer>>,
    writer: Option<Waker>,
    has_ended: bool,
}

/// The parts of a new connection.
pub struct Connection {
    /// Takes the requests.
    pub client: Client,
    /// The messages that the server sends unasked. They end with the connection.
    pub news: UnboundedReceiver<News>,
    /// Does the I/O, and must be polled. It ends with the connection, and dropping it ends the
    /// connection.
    pub io: Task,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({:?})", self.client)
    }
}

impl Client {
    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// The errors of the connector.
    pub async fn connect(connector: &impl Connector) -> Result<Connection, Error> {
        Ok(Self::over(connector.open().await?))
    }

    /// Makes a client that speaks over a stream.
    #[must_use]
    pub fn over(stream: Box<dyn Stream>) -> Connection {
        let client = Self(Arc::default());
        let (telling, news) = unbounded_channel();
        let (state, arrived) = (Arc::clone(&client.0), Vec::new());
        let mut moving = Moving { state, stream, writing: Vec::new(), arrived, telling };
        let io = Box::pin(async move {
            let _ended = poll_fn(|cx| moving.poll(cx)).await;
        });
        Connection { client, news, io }
    }

    /// Sends a request. It is in the queue when this returns.
    pub fn ask(&self, command: &Command) -> Asking {
        let (sender, answer) = oneshot::channel();
        let mut state = lock(&self.0);
        if !state.has_ended {
            state.out.extend_from_slice(&command.bytes());
            state.waiting.push_back(sender);
        }
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Asking(answer)
    }
}

/// Waits for an answer. `None` if the connection ended first. Dropping this does not cancel the
/// request.
#[derive(Debug)]
pub struct Asking(oneshot::Receiver<Answer>);

impl Future for Asking {
    type Output = Option<Answer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        Pin::new(&mut self.0).poll(cx).map(Result::ok)
    }
}

/// Does the I/O.
struct Moving {
    state: Arc<Mutex<State>>,
    stream: Box<dyn Stream>,
    writing: Vec<u8>,
    arrived: Vec<u8>,
    telling: UnboundedSender<News>,
}

impl Moving {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(ended) = self.read(cx) {
            return Poll::Ready(ended);
        }
        self.write(cx)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut piece = [0; 4096];
            let count = ready!(self.stream.poll_read(cx, &mut piece))?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            self.arrived.extend_from_slice(&piece[..count]);
            let mut rest = &self.arrived[..];
            while let Some(sent) = take_sent(&mut rest) {
                match sent {
                    // A caller that has gone needs neither answers nor messages.
                    Sent::News(all) => all.into_iter().for_each(|news| {
                        let _gone = self.telling.send(news);
                    }),
                    Sent::Answer(answer) => {
                        let first = lock(&self.state).waiting.pop_front();
                        let _gone = first.expect("somebody has asked").send(answer);
                    }
                }
            }
            self.arrived = rest.to_vec();
        }
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.writing.is_empty() {
                let mut state = lock(&self.state);
                self.writing = std::mem::take(&mut state.out);
                state.writer = Some(cx.waker().clone());
            }
            if self.writing.is_empty() {
                ready!(self.stream.poll_flush(cx))?;
                return Poll::Pending;
            }
            let count = ready!(self.stream.poll_write(cx, &self.writing))?;
            self.writing.drain(..count);
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
