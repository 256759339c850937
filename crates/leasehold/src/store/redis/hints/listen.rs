//! A connection for messages. It reads only as far as messages are taken.
//!
//! It uses RESP3 if the server does, and asks the server to track keys if that is allowed.
//! Otherwise it uses RESP2 and receives only published messages.

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "these tests bring a server of their own")]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use crate::core::error::{Error, ErrorKind};
use crate::store::redis::codec::command::Command;
use crate::store::redis::codec::{self, Frame, Reader};
use crate::store::redis::connector::{Connector, Stream};
use crate::store::redis::error::refusal;
use crate::store::redis::wire::handshake::handshake;

/// A connection on which messages come in.
pub(in crate::store::redis) struct Subscriber {
    /// Adds channels and keys.
    pub(in crate::store::redis) channels: Channels,
    /// Receives messages.
    pub(in crate::store::redis) messages: Messages,
}

/// Connects for messages. No channel is subscribed yet.
///
/// # Errors
///
/// `Unavailable`, `Denied` or `Config`.
///
/// # Cancel safety
///
/// Dropping the future closes everything that it has opened.
pub(in crate::store::redis) async fn subscribe(
    connector: &dyn Connector,
) -> Result<Subscriber, Error> {
    let stream = log_in(connector).await?;
    establish(stream).await.map_err(|error| error.at(&connector.label()))
}

/// The first half of [`subscribe`]: connects and logs in.
pub(super) async fn log_in(connector: &dyn Connector) -> Result<Box<dyn Stream>, Error> {
    let stream = async {
        let mut stream = connector.open().await?;
        handshake(&mut *stream, &connector.access()).await?;
        Ok(stream)
    };
    stream.await.map_err(|error: Error| error.at(&connector.label()))
}

/// The second half: turns an open stream into a connection for messages.
pub(super) async fn establish(stream: Box<dyn Stream>) -> Result<Subscriber, Error> {
    let asked = Arc::new(Asked::default());
    let mut messages = Messages {
        stream,
        writing: Vec::new(),
        reader: Reader::of_resp3(),
        news: VecDeque::new(),
        asked: Arc::clone(&asked),
        ended: false,
    };
    let mut channels = Channels { asked, tracks: false };
    // Nothing is subscribed yet, so no message is dropped.
    messages.attend(channels.choose_protocol(), drop).await?;
    Ok(Subscriber { channels, messages })
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection for hints ended; nothing is announced until there is a new one",
    )
}

/// The open requests; `None` once the connection is gone.
struct Asked(Mutex<Option<Open>>);

#[derive(Default)]
struct Open {
    /// Requests that are not written yet.
    out: Vec<u8>,
    /// The callers that wait for answers, the first one first.
    waiting: VecDeque<Waiting>,
    /// Wakes the task that takes messages, which also writes.
    writer: Option<Waker>,
}

/// A caller that waits for an answer.
struct Waiting {
    answering: oneshot::Sender<Frame>,
    /// The shard channel that it unsubscribes from. Channels can also end unasked.
    leaves: Option<String>,
}

impl Default for Asked {
    fn default() -> Self {
        Self(Mutex::new(Some(Open::default())))
    }
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.0.lock().expect("nothing panics while it holds this")
    }

    /// Adds a request.
    fn add(&self, command: &Command) -> Result<oneshot::Receiver<Frame>, Error> {
        self.add_to_leave(command, None)
    }

    fn add_to_leave(
        &self,
        command: &Command,
        leaves: Option<String>,
    ) -> Result<oneshot::Receiver<Frame>, Error> {
        let (answering, answer) = oneshot::channel();
        let mut state = self.lock();
        let open = state.as_mut().ok_or_else(gone)?;
        codec::write(command, &mut open.out);
        open.waiting.push_back(Waiting { answering, leaves });
        let writer = open.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Ok(answer)
    }

    /// Takes the unwritten requests. If there are none, the next request wakes the task.
    fn take_out(&self, cx: &Context<'_>) -> Vec<u8> {
        let mut state = self.lock();
        let Some(open) = state.as_mut() else { return Vec::new() };
        open.writer = Some(cx.waker().clone());
        std::mem::take(&mut open.out)
    }

    /// Answers the oldest request. Returns whether there was one.
    fn answer(&self, frame: Frame) -> bool {
        let first = self.lock().as_mut().and_then(|open| open.waiting.pop_front());
        match first {
            Some(Waiting { answering, .. }) => {
                let _gave_up = answering.send(frame);
                true
            }
            None => false,
        }
    }

    /// Whether the oldest request is to unsubscribe from this shard channel.
    fn leaves(&self, channel: &str) -> bool {
        let state = self.lock();
        let first = state.as_ref().and_then(|open| open.waiting.front());
        first.is_some_and(|first| first.leaves.as_deref() == Some(channel))
    }
}

/// The channels and keys of a [`Subscriber`].
pub(in crate::store::redis) struct Channels {
    asked: Arc<Asked>,
    tracks: bool,
}

impl Channels {
    /// Asks for RESP3 and key tracking. The server may refuse each, because it is old, the user
    /// lacks the right, or the command was renamed.
    async fn choose_protocol(&mut self) -> Result<(), Error> {
        let hello = self.asked.add(&Command::new("HELLO").number(3))?;
        let tracking = self.asked.add(&Command::new("CLIENT").arg("TRACKING").arg("ON"))?;
        let hello = hello.await.map_err(|_| gone())?;
        let tracking = tracking.await.map_err(|_| gone())?;
        self.tracks =
            matches!((&hello, &tracking), (Frame::Map(_), Frame::Bytes(ok)) if ok == b"OK");
        if !self.tracks {
            tracing::debug!(?hello, ?tracking, "this server does not report changed keys");
        }
        Ok(())
    }

    /// Subscribes to a channel. Ends when the server has confirmed it.
    ///
    /// # Errors
    ///
    /// `Denied` if the user has no right to it; `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the channel subscribed.
    pub(in crate::store::redis) async fn add(&mut self, channel: &str) -> Result<(), Error> {
        let answer = self.asked.add(&Command::new("SUBSCRIBE").arg(channel))?;
        match answer.await.map_err(|_| gone())? {
            Frame::Array(_) => Ok(()),
            Frame::Error(text) => Err(refusal(codec::code(&text), &text)),
            _ => Err(gone()),
        }
    }

    /// Subscribes to a shard channel. Ends when the server has confirmed or refused it. Returns
    /// the text of a refusal.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Like [`add`](Self::add).
    pub(super) async fn add_shard(&mut self, channel: &str) -> Result<Result<(), String>, Error> {
        let answer = self.asked.add(&Command::new("SSUBSCRIBE").arg(channel))?;
        match answer.await.map_err(|_| gone())? {
            Frame::Array(_) => Ok(Ok(())),
            Frame::Error(text) => Ok(Err(text)),
            _ => Err(gone()),
        }
    }

    /// Unsubscribes from a shard channel. A refusal does not matter, because messages that nobody
    /// wants are ignored.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the channel subscribed.
    pub(super) async fn leave_shard(&mut self, channel: &str) -> Result<(), Error> {
        let command = Command::new("SUNSUBSCRIBE").arg(channel);
        let answer = self.asked.add_to_leave(&command, Some(channel.to_owned()))?;
        answer.await.map_err(|_| gone())?;
        Ok(())
    }

    /// Whether the server reports changes of the keys that [`track`](Self::track) names.
    pub(super) const fn tracks(&self) -> bool {
        self.tracks
    }

    /// Asks the server to report the next change of a key once, by [`News::Changed`]. A change is
    /// when the key is set, deleted, given another expiry, or expires. The request is queued before
    /// this returns. The future ends when the server has confirmed it, and returns whether the key
    /// exists at this server.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the key tracked.
    pub(super) fn track(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<bool, Error>> + Send + use<> {
        // The server tracks every key that is read. EXISTS reads it without its owner token.
        let answer = self.asked.add(&Command::new("EXISTS").arg(key));
        async move {
            match answer?.await.map_err(|_| gone())? {
                Frame::Int(count) => Ok(count > 0),
                // The slot has moved, or moves just now.
                Frame::Error(text) if is_elsewhere(codec::code(&text)) => Ok(false),
                Frame::Error(text) => Err(refusal(codec::code(&text), &text)),
                _ => Err(gone()),
            }
        }
    }

    /// Checks that the server answers. A refusal is an answer too.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(super) async fn check(&self) -> Result<(), Error> {
        let _answer = self.asked.add(&Command::new("PING"))?.await.map_err(|_| gone())?;
        Ok(())
    }
}

/// Whether another node of the cluster has the key, or will have it.
fn is_elsewhere(code: &str) -> bool {
    ["MOVED", "ASK", "TRYAGAIN"].contains(&code)
}

/// The messages of a [`Subscriber`].
pub(in crate::store::redis) struct Messages {
    stream: Box<dyn Stream>,
    /// The rest of the requests that are being written.
    writing: Vec<u8>,
    reader: Reader,
    /// News that are not taken yet: the keys of one push.
    news: VecDeque<News>,
    asked: Arc<Asked>,
    ended: bool,
}

impl Messages {
    /// The next message; `None` once the connection is gone. [`Channels::add`] and
    /// [`Channels::track`] only end while this is polled. Dropping the future loses nothing.
    pub(in crate::store::redis) async fn next(&mut self) -> Option<News> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Waits for an answer and takes messages meanwhile, because the answer comes among them.
    ///
    /// # Errors
    ///
    /// The error of the answer; `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Like that of `asking`.
    pub(in crate::store::redis) async fn attend<T>(
        &mut self,
        asking: impl Future<Output = Result<T, Error>>,
        mut take: impl FnMut(News),
    ) -> Result<T, Error> {
        let mut asking = pin!(asking);
        loop {
            tokio::select! {
                biased;
                news = self.next() => take(news.ok_or_else(gone)?),
                answer = &mut asking => return answer,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Poll::Ready(Some(news));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let goes_on = match self.reader.take().map(|frame| frame.map(heard)) {
                Ok(Some(Heard::News(news))) => {
                    self.news = news.into();
                    true
                }
                Ok(Some(Heard::Answer(frame))) => self.asked.answer(frame),
                Ok(Some(Heard::Left(channel))) if self.asked.leaves(&channel) => {
                    self.asked.answer(Frame::Nil)
                }
                Ok(Some(Heard::Left(channel))) => {
                    self.news.push_back(News::Left(channel));
                    true
                }
                Ok(Some(Heard::Nothing)) => true,
                Ok(Some(Heard::Nonsense)) | Err(_) => false,
                // Read only now, so that messages that nobody takes stay with the server.
                Ok(None) => {
                    let written = self.write(cx);
                    match (self.reader.poll_read(&mut *self.stream, cx), written) {
                        (Poll::Ready(Ok(goes_on)), _) => goes_on,
                        (Poll::Ready(Err(_)), _) | (Poll::Pending, Err(_)) => false,
                        (Poll::Pending, Ok(())) => return Poll::Pending,
                    }
                }
            };
            if !goes_on {
                self.ended = true;
                *self.asked.lock() = None;
            }
        }
    }

    /// Writes the requests as far as the other side takes them.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if self.writing.is_empty() {
                self.writing = self.asked.take_out(cx);
            }
            if self.writing.is_empty() {
                return match self.stream.poll_flush(cx) {
                    Poll::Ready(flushed) => flushed,
                    Poll::Pending => Ok(()),
                };
            }
            match self.stream.poll_write(cx, &self.writing) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => drop(self.writing.drain(..count)),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        // Nobody moves answers any more.
        *self.asked.lock() = None;
    }
}

/// A message that a server sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum News {
    /// A message on a subscribed channel.
    Published(Message),
    /// This key has changed, and is no longer tracked.
    Changed(Vec<u8>),
    /// All keys may have changed, and none is tracked any longer.
    AllChanged,
    /// This shard channel is not subscribed to any more, because its slot has left the node.
    Left(String),
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Message {
    /// The channel.
    pub(in crate::store::redis) channel: String,
    /// The content.
    pub(in crate::store::redis) payload: Vec<u8>,
}

/// One received value.
#[derive(Debug, PartialEq)]
enum Heard {
    /// Messages that the client did not ask for.
    News(Vec<News>),
    /// The answer to the oldest request.
    Answer(Frame),
    /// This shard channel is not subscribed to any more, asked or not.
    Left(String),
    /// A value to ignore.
    Nothing,
    /// Invalid data. Nothing after it can be trusted.
    Nonsense,
}

/// Sorts the values that a server sends on a connection for messages.
///
/// | value | it is |
/// |---|---|
/// | `message` or `smessage`, as an array (RESP2) or a push (RESP3) | news |
/// | `invalidate`, a push with keys, or with nothing for all keys | news |
/// | `subscribe` or `ssubscribe`, as an array or a push | an answer |
/// | `pong`, as an array | an answer |
/// | `sunsubscribe`, as an array or a push | an answer if that was asked for, otherwise news |
/// | another push | ignored, as RESP3 demands |
/// | another array | invalid |
/// | anything else | an answer |
fn heard(frame: Frame) -> Heard {
    let is_push = matches!(frame, Frame::Push(_));
    let (Frame::Push(mut frames) | Frame::Array(mut frames)) = frame else {
        return Heard::Answer(frame);
    };
    let kind = if let Some(Frame::Bytes(kind)) = frames.first() { kind.as_slice() } else { b"" };
    match (kind, is_push) {
        (b"message" | b"smessage", _) => published(frames.split_off(1)),
        (b"invalidate", true) => changed(frames.split_off(1)),
        (b"subscribe" | b"ssubscribe", _) | (b"pong", false) => Heard::Answer(Frame::Array(frames)),
        (b"sunsubscribe", _) => left(frames.split_off(1)),
        (_, true) => Heard::Nothing,
        (_, false) => Heard::Nonsense,
    }
}

fn published(frames: Vec<Frame>) -> Heard {
    let Ok([Frame::Bytes(channel), Frame::Bytes(payload)]) = <[Frame; 2]>::try_from(frames) else {
        return Heard::Nonsense;
    };
    // A channel name that is not text cannot belong to a client.
    String::from_utf8(channel).map_or(Heard::Nothing, |channel| {
        Heard::News(vec![News::Published(Message { channel, payload })])
    })
}

fn left(frames: Vec<Frame>) -> Heard {
    match <[Frame; 2]>::try_from(frames) {
        Ok([Frame::Bytes(channel), _]) => {
            String::from_utf8(channel).map_or(Heard::Nothing, Heard::Left)
        }
        Ok(_) => Heard::Nothing,
        Err(_) => Heard::Nonsense,
    }
}

fn changed(frames: Vec<Frame>) -> Heard {
    let key = |frame| if let Frame::Bytes(key) = frame { Some(News::Changed(key)) } else { None };
    match <[Frame; 1]>::try_from(frames) {
        Ok([Frame::Nil]) => Heard::News(vec![News::AllChanged]),
        Ok([Frame::Array(keys)]) => Heard::News(keys.into_iter().filter_map(key).collect()),
        _ => Heard::Nothing,
    }
}
