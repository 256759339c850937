//! Messages by the crate `redis`.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::StreamExt as _;
use futures_util::task::AtomicWaker;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connect::nothing_to_say;
use super::error::refusal;
use super::greet::greet;
use super::link::{Channels, Message, Messages, Subscriber};
use super::url::Address;
use crate::core::error::{Error, ErrorKind};
use crate::host::poll_whole;

/// How many bytes are read ahead of who takes the messages. The crate queues them without a limit.
const AHEAD: usize = 64 * 1024;

/// Makes an open stream a connection on which messages come in.
pub(super) async fn establish<S>(mut stream: S, address: &Address) -> Result<Subscriber, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    greet(&mut stream, address).await?;
    let pace = Arc::new(Pace { left: AtomicUsize::new(AHEAD), waits: AtomicWaker::new() });
    let paced = Paced { stream, pace: Arc::clone(&pace) };
    let connection = PubSub::new(&nothing_to_say(), paced).await.map_err(|cause| gone(&cause))?;
    let (sink, messages) = connection.split();
    Ok(Subscriber {
        channels: Box::new(RedisChannels { sink }),
        messages: Box::new(RedisMessages { messages, pace }),
    })
}

fn gone(cause: &redis::RedisError) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection for wake-ups ended; nobody is woken over it, connect again",
    )
    .with_source(cause.clone())
}

struct RedisChannels {
    sink: PubSubSink,
}

impl Channels for RedisChannels {
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        let channel = channel.to_owned();
        Box::pin(async move {
            self.sink.subscribe(channel).await.map_err(|error| match error.code() {
                Some(code) => {
                    let details = error.detail().unwrap_or_default();
                    refusal(code, &format!("{code} {details}"))
                }
                None => gone(&error),
            })
        })
    }
}

struct RedisMessages {
    messages: PubSubStream,
    pace: Arc<Pace>,
}

impl Messages for RedisMessages {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Message>> + Send + '_>> {
        Box::pin(poll_fn(|cx| self.poll(cx)))
    }
}

impl RedisMessages {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        // Whole: only then does "none now" mean that all were taken.
        match poll_whole(Pin::new(&mut self.messages.next()), cx) {
            Poll::Ready(message) => Poll::Ready(message.map(|message| Message {
                channel: message.get_channel_name().to_owned(),
                payload: message.get_payload_bytes().to_vec(),
            })),
            Poll::Pending => {
                self.pace.go_on();
                Poll::Pending
            }
        }
    }
}

/// How far reading may go.
struct Pace {
    left: AtomicUsize,
    waits: AtomicWaker,
}

impl Pace {
    /// All that was read is taken.
    fn go_on(&self) {
        self.left.store(AHEAD, Ordering::Release);
        self.waits.wake();
    }

    /// Whether reading may go on now; who may not is woken when it may.
    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.left.load(Ordering::Acquire) == 0 {
            self.waits.register(cx.waker());
            if self.left.load(Ordering::Acquire) == 0 {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    fn count(&self, bytes: usize) {
        let took = |left: usize| Some(left.saturating_sub(bytes));
        // The closure always answers, so it is never refused.
        let _ = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, took);
    }
}

/// A stream that is read no further ahead than its [`Pace`] allows: whoever publishes faster than
/// we take fills the buffers of the server, which then ends the connection.
struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.pace.poll(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.pace.count(buffer.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "these tests bring a server of their own")]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// How much the pipe between client and server holds.
    const PIPE: usize = 4096;

    async fn subscribed() -> (Subscriber, DuplexStream) {
        let (ours, mut server) = tokio::io::duplex(PIPE);
        let address = Address::parse("redis://h").expect("a good URL");
        let hello = async {
            let mut ping = [0; 14];
            server.read_exact(&mut ping).await.expect("a PING");
            server.write_all(b"+PONG\r\n").await.expect("the client reads");
        };
        let (subscriber, ()) = tokio::join!(establish(ours, &address), hello);
        (subscriber.expect("it answers"), server)
    }

    /// Takes one request.
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
        assert_eq!(next, Some(expected));
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
        let ((refused, added), ()) = tokio::join!(add, serve);
        let refused = refused.expect_err("no right");
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.to_string().contains("channel"), "{refused}");
        added.expect("confirmed");
    }

    /// Writes while there is room, and returns how much that was.
    async fn write_while_it_is_read(server: &mut DuplexStream, bytes: &[u8]) -> usize {
        /// Turns of the one thread without progress: nobody reads any more.
        const STILL: usize = 1_000;
        let (mut written, mut still) = (0, 0);
        while written < bytes.len() && still < STILL {
            let write = poll_fn(|cx| {
                let polled = Pin::new(&mut *server).poll_write(cx, &bytes[written..]);
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
    async fn messages_that_nobody_takes_are_not_read_without_end_and_none_of_them_is_lost() {
        let (mut subscriber, mut server) = subscribed().await;
        let one = message("x");
        let count = 100 * AHEAD / one.len();
        let flood = one.repeat(count);
        let written = write_while_it_is_read(&mut server, &flood).await;
        assert!(written >= AHEAD, "{written} bytes are read ahead");
        assert!(written < 4 * AHEAD, "{written} bytes are read ahead");
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
    async fn nonsense_ends_the_messages() {
        for nonsense in ["HTTP/1.1 200 OK\r\n", ":1\r\n", "*1\r\n$3\r\nfoo\r\n", "-ERR gone\r\n"] {
            let (mut subscriber, mut server) = subscribed().await;
            server.write_all(nonsense.as_bytes()).await.expect("the client reads");
            assert_eq!(subscriber.messages.next().await, None, "{nonsense:?}");
        }
    }
}
