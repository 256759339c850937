//! A connection as a stream of bytes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::core::error::Error;

/// The future of a new stream.
pub type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn Stream>, Error>> + Send>>;

/// A connection that carries bytes in both directions. Each stream of tokio is one.
///
/// The methods return at once. If they cannot go on, they wake the task of `cx` when they can.
pub trait Stream: Send + 'static {
    /// Reads bytes that have arrived. Returns their number; 0 is the end of the stream.
    ///
    /// # Errors
    ///
    /// If the connection failed. The stream is not used after that.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of the bytes, in order. Returns their number.
    ///
    /// # Errors
    ///
    /// Like [`poll_read`](Self::poll_read).
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;

    /// Sends everything that was written. Default: there is no buffer.
    ///
    /// # Errors
    ///
    /// Like [`poll_read`](Self::poll_read).
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _no_buffer = cx;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(into);
        ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(self), cx)
    }
}

/// Writes all bytes and sends them.
pub(crate) async fn write_all(stream: &mut dyn Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| stream.poll_write(cx, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => bytes = &bytes[count..],
        }
    }
    poll_fn(|cx| stream.poll_flush(cx)).await
}
