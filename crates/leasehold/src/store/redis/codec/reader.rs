//! Reads the values of a stream one by one.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use super::framer::{ANSWER_BYTES_MAX, Framer, Invalid};
use super::{Frame, parse};
use crate::store::redis::connector::Stream;

/// The first size of the buffer.
const READ_BYTES: usize = 16 * 1024;

/// A buffer that has grown beyond this for a long value is replaced after that value.
pub(in crate::store::redis) const BUFFER_KEPT_MAX: usize = 64 * 1024;

/// The bytes that have arrived and were not taken yet.
///
/// ```text
/// taken | begun.. the value that arrives ..checked | filled.. room
/// ```
pub(in crate::store::redis) struct Reader {
    buffer: Vec<u8>,
    /// Where the next value begins.
    begun: usize,
    /// How far the framer has come.
    checked: usize,
    /// Where the arrived bytes end.
    filled: usize,
    framer: Framer,
}

impl Reader {
    pub(in crate::store::redis) fn of_resp2() -> Self {
        Self::new(Framer::new(false, ANSWER_BYTES_MAX))
    }

    pub(in crate::store::redis) fn of_resp3() -> Self {
        Self::new(Framer::new(true, ANSWER_BYTES_MAX))
    }

    /// A reader of RESP2 whose values have at most this many bytes.
    pub(in crate::store::redis) fn of_short(bytes_max: usize) -> Self {
        Self::new(Framer::new(false, bytes_max))
    }

    fn new(framer: Framer) -> Self {
        Self { buffer: vec![0; READ_BYTES], begun: 0, checked: 0, filled: 0, framer }
    }

    /// Takes the next value; `None` if it is not whole yet.
    pub(in crate::store::redis) fn take(&mut self) -> Result<Option<Frame>, Invalid> {
        let end = self.framer.follow(&self.buffer[self.checked..self.filled])?;
        let Some(length) = end else {
            self.checked = self.filled;
            return Ok(None);
        };
        self.checked += length;
        let frame = parse(&mut &self.buffer[self.begun..self.checked])?;
        self.begun = self.checked;
        Ok(Some(frame))
    }

    /// Waits for the next value. The end of the stream is an error.
    pub(in crate::store::redis) async fn next(
        &mut self,
        stream: &mut dyn Stream,
    ) -> io::Result<Result<Frame, Invalid>> {
        loop {
            if let Some(taken) = self.take().transpose() {
                return Ok(taken);
            }
            if !poll_fn(|cx| self.poll_read(stream, cx)).await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Adds bytes that did not come from a stream.
    #[cfg(feature = "redis-crate")]
    pub(in crate::store::redis) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            self.make_room();
            let count = bytes.len().min(self.buffer.len() - self.filled);
            let (now, later) = bytes.split_at(count);
            self.buffer[self.filled..self.filled + count].copy_from_slice(now);
            self.filled += count;
            bytes = later;
        }
    }

    /// Whether every byte that has arrived was taken.
    pub(in crate::store::redis) const fn is_empty(&self) -> bool {
        self.begun == self.filled
    }

    /// Reads once. Returns whether the stream goes on.
    pub(in crate::store::redis) fn poll_read(
        &mut self,
        stream: &mut dyn Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        self.make_room();
        let count = ready!(stream.poll_read(cx, &mut self.buffer[self.filled..]))?;
        self.filled += count;
        Poll::Ready(Ok(count > 0))
    }

    fn make_room(&mut self) {
        if self.is_empty() {
            (self.begun, self.checked, self.filled) = (0, 0, 0);
            if self.buffer.len() > BUFFER_KEPT_MAX {
                self.buffer = vec![0; READ_BYTES];
            }
        }
        if self.filled < self.buffer.len() {
            return;
        }
        if self.begun > 0 {
            self.buffer.copy_within(self.begun..self.filled, 0);
            self.checked -= self.begun;
            self.filled -= self.begun;
            self.begun = 0;
        } else {
            // The buffer cannot grow without end: the framer refuses a value that is too long.
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{join, sink};

    use super::*;

    /// A stream that brings these bytes and then ends.
    fn of(bytes: &[u8]) -> impl Stream + use<> {
        join(io::Cursor::new(bytes.to_vec()), sink())
    }

    /// The values of these bytes, which arrive in pieces of that length.
    async fn read(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, Invalid> {
        let (mut reader, mut frames) = (Reader::of_resp3(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = of(piece);
            while poll_fn(|cx| reader.poll_read(&mut piece, cx)).await.expect("bytes are there") {
                while let Some(frame) = reader.take()? {
                    frames.push(frame);
                }
            }
        }
        assert!(reader.is_empty() && reader.buffer.len() <= 4 * bytes.len().max(READ_BYTES));
        Ok(frames)
    }

    #[tokio::test]
    async fn the_same_values_are_read_however_their_bytes_arrive() {
        let long = |byte: u8, length| Frame::Bytes(vec![byte; length]);
        let values = [
            Frame::Int(1),
            long(b'a', 3 * BUFFER_KEPT_MAX),
            Frame::Array(vec![long(b'b', READ_BYTES), Frame::Nil]),
            long(b'c', READ_BYTES - 1),
            Frame::Push(vec![long(b'd', 7)]),
        ];
        let body = |byte: char, length: usize| {
            format!("${length}\r\n{}\r\n", String::from(byte).repeat(length))
        };
        let bytes = [
            ":1\r\n".to_owned(),
            body('a', 3 * BUFFER_KEPT_MAX),
            format!("*2\r\n{}_\r\n", body('b', READ_BYTES)),
            body('c', READ_BYTES - 1),
            format!(">1\r\n{}", body('d', 7)),
        ]
        .concat();
        for piece in [1, 2, 3, 1_000, READ_BYTES, bytes.len()] {
            assert_eq!(read(bytes.as_bytes(), piece).await.as_deref(), Ok(&values[..]), "{piece}");
        }
    }

    #[tokio::test]
    async fn values_before_nonsense_are_taken() {
        let mut reader = Reader::of_short(8);
        let mut bytes = of(b":1\r\n+OK\r\n$9\r\n");
        let read = poll_fn(|cx| reader.poll_read(&mut bytes, cx)).await;
        assert!(read.expect("bytes are there"));
        assert_eq!(reader.take(), Ok(Some(Frame::Int(1))));
        assert_eq!(reader.take(), Ok(Some(Frame::Bytes(b"OK".to_vec()))));
        assert_eq!(reader.take(), Err(Invalid::TooLong));
        let read = poll_fn(|cx| reader.poll_read(&mut bytes, cx)).await;
        assert!(!read.expect("no error"), "the stream has ended");
    }
}
