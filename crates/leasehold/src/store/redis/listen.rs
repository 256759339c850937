//! A connection for messages. It reads only as far as messages are taken.
//!
//! It uses RESP3 if the server does, and asks the server to track keys if that is allowed.
//! Otherwise it uses RESP2 and receives only published messages.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;

use super::codec::{self, Frame, Reader};
use super::connector::{Access, Stream};
use super::error::refusal;
use super::handshake::handshake;
use super::heard::{Heard, heard};
use super::link::{Channels, Command, Messages, News, Subscriber};
use crate::core::error::{Error, ErrorKind};

/// Turns an open stream into a connection for messages.
pub(super) async fn establish(
    mut stream: Box<dyn Stream>,
    access: &Access,
) -> Result<Subscriber, Error> {
    handshake(&mut *stream, access).await?;
    let asked = Arc::new(Asked::default());
    let mut messages = RedisMessages {
        stream,
        writing: Vec::new(),
        reader: Reader::of_resp3(),
        news: VecDeque::new(),
        asked: Arc::clone(&asked),
        ended: false,
    };
    let mut channels = RedisChannels { asked, tracks: false };
    {
        let mut choosing = pin!(channels.choose_protocol());
        loop {
            tokio::select! {
                biased;
                chosen = &mut choosing => break chosen?,
                // Nothing is subscribed yet. This moves the requests and the answers.
                news = messages.next() => if news.is_none() { return Err(gone()) },
            }
        }
    }
    Ok(Subscriber { channels: Box::new(channels), messages: Box::new(messages) })
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection for wake-ups ended; it wakes nobody, connect again",
    )
}

/// The open requests; `None` once the connection is gone.
struct Asked(Mutex<Option<Open>>);

#[derive(Default)]
struct Open {
    /// Requests that are not written yet.
    out: Vec<u8>,
    /// The callers that wait for answers, the first one first.
    waiting: VecDeque<oneshot::Sender<Frame>>,
    /// Wakes the task that takes messages, which also writes.
    writer: Option<Waker>,
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
        let (answering, answer) = oneshot::channel();
        let mut state = self.lock();
        let open = state.as_mut().ok_or_else(gone)?;
        codec::write(command, &mut open.out);
        open.waiting.push_back(answering);
        let writer = open.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
        Ok(answer)
    }

    /// Takes the requests that are not written yet. If there are none, the next one wakes the task.
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
            Some(answering) => {
                let _gave_up = answering.send(frame);
                true
            }
            None => false,
        }
    }
}

struct RedisChannels {
    asked: Arc<Asked>,
    tracks: bool,
}

impl RedisChannels {
    /// Asks for RESP3 and key tracking. The server may refuse each: it is old, the user lacks the
    /// right, or the command was renamed.
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

    async fn ask(&mut self, command: &Command) -> Result<Frame, Error> {
        let answer = self.asked.add(command)?;
        match answer.await.map_err(|_| gone())? {
            Frame::Error(text) => Err(refusal(codec::code(&text), &text)),
            frame => Ok(frame),
        }
    }
}

impl Channels for RedisChannels {
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        let subscribe = Command::new("SUBSCRIBE").arg(channel);
        Box::pin(async move {
            match self.ask(&subscribe).await? {
                Frame::Array(_) => Ok(()),
                _ => Err(gone()),
            }
        })
    }

    fn tracks(&self) -> bool {
        self.tracks
    }

    fn track(
        &mut self,
        key: &str,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        // The server tracks every key that is read. EXISTS reads it without its owner token.
        let exists = Command::new("EXISTS").arg(key);
        Box::pin(async move {
            match self.ask(&exists).await? {
                Frame::Int(count) => Ok(count > 0),
                _ => Err(gone()),
            }
        })
    }
}

struct RedisMessages {
    stream: Box<dyn Stream>,
    /// The rest of the requests that are being written.
    writing: Vec<u8>,
    reader: Reader,
    /// News that are not taken yet: the keys of one push.
    news: VecDeque<News>,
    asked: Arc<Asked>,
    ended: bool,
}

impl Messages for RedisMessages {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>> {
        Box::pin(poll_fn(|cx| self.poll(cx)))
    }
}

impl RedisMessages {
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
                Ok(Some(Heard::Nothing)) => true,
                Ok(Some(Heard::Nonsense)) | Err(_) => false,
                // Only now, so that messages that nobody takes stay with the server.
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

impl Drop for RedisMessages {
    fn drop(&mut self) {
        // No answers are moved any more.
        *self.asked.lock() = None;
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "these tests bring a server of their own")]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::store::redis::codec::BUFFER_KEPT;
    use crate::store::redis::link::Message;

    /// How much the pipe between client and server holds.
    const PIPE: usize = 4096;

    /// The first requests after PING.
    const CHOICE: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
                          *3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n";

    /// The answers of a server that knows neither command, and of a server that knows both.
    const OLD: &str = "-ERR unknown command `HELLO`\r\n-ERR Unknown subcommand\r\n";
    const NEW: &str = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*0\r\n+OK\r\n";

    async fn established(choice: &str) -> (Result<Subscriber, Error>, DuplexStream) {
        let (ours, mut server) = tokio::io::duplex(PIPE);
        let access = Access::default();
        let hello = async {
            let mut ping = [0; 14];
            server.read_exact(&mut ping).await.expect("a PING");
            server.write_all(b"+PONG\r\n").await.expect("the client reads");
            let mut asked = [0; CHOICE.len()];
            server.read_exact(&mut asked).await.expect("the choice");
            assert_eq!(asked, CHOICE.as_bytes());
            server.write_all(choice.as_bytes()).await.expect("the client reads");
            if choice.is_empty() {
                server.shutdown().await.expect("it is open");
            }
        };
        let (subscriber, ()) = tokio::join!(establish(Box::new(ours), &access), hello);
        (subscriber, server)
    }

    async fn subscribed() -> (Subscriber, DuplexStream) {
        let (subscriber, server) = established(OLD).await;
        let subscriber = subscriber.expect("it answers");
        assert!(!subscriber.channels.tracks());
        (subscriber, server)
    }

    /// Reads one request.
    async fn read_subscribe(server: &mut DuplexStream) {
        const REQUEST: &[u8] = b"*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\ninbox\r\n";
        let mut request = [0; REQUEST.len()];
        server.read_exact(&mut request).await.expect("a request");
        assert_eq!(request, REQUEST);
    }

    const CONFIRMED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";

    fn message(payload: &str) -> Vec<u8> {
        let length = payload.len();
        format!("*3\r\n$7\r\nmessage\r\n$5\r\ninbox\r\n${length}\r\n{payload}\r\n").into_bytes()
    }

    #[tokio::test]
    async fn a_channel_is_confirmed_and_its_messages_come_in() {
        let (mut subscriber, mut server) = subscribed().await;
        let serve = async {
            read_subscribe(&mut server).await;
            server.write_all(CONFIRMED).await.expect("the client reads");
            server.write_all(&message("g 1\r\n\u{0}")).await.expect("the client reads");
        };
        let (added, next, ()) =
            tokio::join!(subscriber.channels.add("inbox"), subscriber.messages.next(), serve);
        added.expect("confirmed");
        let expected = Message { channel: "inbox".to_owned(), payload: b"g 1\r\n\0".to_vec() };
        assert_eq!(next, Some(News::Published(expected)));
        drop(server);
        assert_eq!(subscriber.messages.next().await, None);
        let late = subscriber.channels.add("inbox").await.expect_err("the connection is gone");
        assert_eq!(late.kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_channel_that_is_refused_is_denied_and_the_connection_goes_on() {
        let (mut subscriber, mut server) = subscribed().await;
        let serve = async {
            read_subscribe(&mut server).await;
            let refusal = b"-NOPERM this user has no permissions to access one of the channels\r\n";
            server.write_all(refusal).await.expect("the client reads");
            read_subscribe(&mut server).await;
            server.write_all(CONFIRMED).await.expect("the client reads");
        };
        let add = async {
            let refused = subscriber.channels.add("inbox").await;
            (refused, subscriber.channels.add("inbox").await)
        };
        let asked = async { tokio::join!(add, serve).0 };
        let (refused, added) = tokio::select! {
            asked = asked => asked,
            _ = subscriber.messages.next() => panic!("nothing is published"),
        };
        let refused = refused.expect_err("no right");
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.to_string().contains("channel"), "{refused}");
        added.expect("confirmed");
    }

    #[tokio::test]
    async fn a_server_that_tells_of_changed_keys_is_asked_about_them() {
        let (subscriber, mut server) = established(NEW).await;
        let mut subscriber = subscriber.expect("it answers");
        assert!(subscriber.channels.tracks());
        const REQUEST: &[u8] = b"*2\r\n$6\r\nEXISTS\r\n$1\r\na\r\n";
        let serve = async {
            for reply in [":1\r\n", ">2\r\n$10\r\ninvalidate\r\n_\r\n:0\r\n", "-NOPERM no\r\n"] {
                let mut request = [0; REQUEST.len()];
                server.read_exact(&mut request).await.expect("a request");
                assert_eq!(request, REQUEST);
                server.write_all(reply.as_bytes()).await.expect("the client reads");
            }
            let changed = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
            server.write_all(changed).await.expect("the client reads");
            server.shutdown().await.expect("it is open");
        };
        let track = async {
            assert_eq!(subscriber.channels.track("a").await.ok(), Some(true));
            assert_eq!(subscriber.channels.track("a").await.ok(), Some(false));
            let refused = subscriber.channels.track("a").await.expect_err("no right");
            assert_eq!(refused.kind(), ErrorKind::Denied);
        };
        let take = async {
            let mut taken = Vec::new();
            while let Some(news) = subscriber.messages.next().await {
                taken.push(news);
            }
            taken
        };
        let (taken, (), ()) = tokio::join!(take, track, serve);
        let changed = |key: &str| News::Changed(key.as_bytes().to_vec());
        assert_eq!(taken, [News::AllChanged, changed("a"), changed("b")]);
    }

    #[tokio::test]
    async fn a_server_may_refuse_either_and_one_that_goes_away_is_told_from_it() {
        let table = [
            ("%0\r\n+OK\r\n", Some(true)),
            ("%0\r\n-NOPERM no right to run 'client|tracking'\r\n", Some(false)),
            ("-NOPERM no right to run 'hello'\r\n+OK\r\n", Some(false)),
            ("+OK\r\n+OK\r\n", Some(false)),
            ("", None),
            ("%0\r\nHTTP/1.1 400\r\n", None),
        ];
        for (choice, expected) in table {
            let (subscriber, server) = established(choice).await;
            let tracks = subscriber.as_ref().map(|subscriber| subscriber.channels.tracks());
            assert_eq!(tracks.as_ref().ok().copied(), expected, "{choice:?}");
            if let Err(error) = tracks {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
            }
            drop(server);
        }
    }

    /// Writes while there is room, and returns how many bytes that were.
    async fn write_while_it_is_read(server: &mut DuplexStream, bytes: &[u8]) -> usize {
        /// Turns of the only thread without progress. After these, nobody reads.
        const STILL: usize = 1_000;
        let (mut written, mut still) = (0, 0);
        while written < bytes.len() && still < STILL {
            let write = poll_fn(|cx| {
                let polled = Stream::poll_write(server, cx, &bytes[written..]);
                Poll::Ready(match polled {
                    Poll::Ready(count) => count.expect("the client is there"),
                    Poll::Pending => 0,
                })
            });
            let count = write.await;
            written += count;
            still = if count == 0 { still + 1 } else { 0 };
            tokio::task::yield_now().await;
        }
        written
    }

    #[tokio::test]
    async fn messages_that_nobody_takes_are_not_read_and_none_of_them_is_lost() {
        let (mut subscriber, mut server) = subscribed().await;
        let one = message("x");
        let count = 100 * PIPE / one.len();
        let flood = one.repeat(count);
        let written = write_while_it_is_read(&mut server, &flood).await;
        assert_eq!(written, PIPE, "what the pipe holds");
        let rest = async {
            server.write_all(&flood[written..]).await.expect("the client reads");
            drop(server);
        };
        let take = async {
            let mut taken = 0;
            while subscriber.messages.next().await.is_some() {
                taken += 1;
            }
            taken
        };
        let (taken, ()) = tokio::join!(take, rest);
        assert_eq!(taken, count);
    }

    #[tokio::test]
    async fn a_message_longer_than_what_is_read_at_a_time_is_taken_and_those_after_it() {
        let (mut subscriber, mut server) = subscribed().await;
        let long = "x".repeat(3 * BUFFER_KEPT);
        let write = async {
            server.write_all(&message(&long)).await.expect("the client reads");
            server.write_all(&message("short")).await.expect("the client reads");
        };
        let take = async {
            for expected in [long.as_str(), "short"] {
                let taken = subscriber.messages.next().await.expect("a message");
                let News::Published(taken) = taken else { panic!("{taken:?}") };
                assert_eq!(taken.payload.len(), expected.len());
            }
        };
        tokio::join!(write, take);
    }

    #[tokio::test]
    async fn nonsense_ends_the_messages() {
        for nonsense in ["HTTP/1.1 200 OK\r\n", ":1\r\n", "*1\r\n$3\r\nfoo\r\n", "-ERR gone\r\n"] {
            let (mut subscriber, mut server) = subscribed().await;
            server.write_all(nonsense.as_bytes()).await.expect("the client reads");
            assert_eq!(subscriber.messages.next().await, None, "{nonsense:?}");
        }
    }
}
