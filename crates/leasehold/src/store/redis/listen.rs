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
