//! Reads the values of a stream one by one, and only as far as they are taken.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use redis::Value;
use tokio::io::{AsyncRead, ReadBuf};

use super::bounded::Answer;

/// How many bytes are read at a time.
const READ: usize = 8 * 1024;

/// A buffer that has grown larger for a long message is dropped after it.
pub(super) const BUFFER_KEPT: usize = 64 * 1024;

/// The values of one stream, within the bounds of [`bounded`](super::bounded).
pub(super) struct Values<S> {
    stream: S,
    buffer: Vec<u8>,
    /// The position in the buffer where the next value begins.
    begun: usize,
    /// The position up to which the bytes were checked.
    seen: usize,
    answer: Answer,
    ended: bool,
}

impl<S: AsyncRead + Unpin> Values<S> {
    pub(super) fn new(stream: S) -> Self {
        let (buffer, answer) = (Vec::new(), Answer::of_resp3());
        Self { stream, buffer, begun: 0, seen: 0, answer, ended: false }
    }

    /// Stops reading.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// The next value; `None` once the stream has ended or sent invalid data.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Value>> {
        while !self.ended {
            match self.answer.follow_one(&self.buffer[self.seen..]) {
                Ok(Some(length)) => {
                    let end = self.seen + length;
                    let value = redis::parse_redis_value(&self.buffer[self.begun..end]);
                    (self.begun, self.seen) = (end, end);
                    return Poll::Ready(value.ok());
                }
                Ok(None) => ready!(self.poll_read(cx)),
                Err(_refused) => self.ended = true,
            }
        }
        Poll::Ready(None)
    }

    /// Reads more bytes when the buffer has no whole value.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.seen = self.buffer.len() - self.begun;
        self.buffer.drain(..self.begun);
        self.begun = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_KEPT {
            self.buffer = Vec::new();
        }
        let mut chunk = [0; READ];
        let mut chunk = ReadBuf::new(&mut chunk);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut chunk));
        self.ended = read.is_err() || chunk.filled().is_empty();
        self.buffer.extend_from_slice(chunk.filled());
        Poll::Ready(())
    }
}
