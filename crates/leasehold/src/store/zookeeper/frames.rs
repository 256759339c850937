//! A connection that carries messages, each after its length.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::error::Failure;
use super::rpc::Head;
use crate::store::net::{Io, Stream};

/// The longest answer, enough for the names of 200 000 locks. Read as texts, it may take six times
/// as much memory. A longer answer is read and dropped, because the connection serves all locks of
/// a client.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How many bytes are read at a time.
const CHUNK: usize = 16 << 10;

/// How many bytes come before a message.
const LENGTH: usize = 4;

/// A message of a server.
#[derive(Debug)]
pub(super) struct Frame {
    /// The message; only its head if it is too long.
    pub(super) bytes: Vec<u8>,
    pub(super) is_too_long: bool,
}

pub(super) struct Frames {
    io: Io,
    /// The bytes that have arrived.
    read: Vec<u8>,
    /// How many of them, from the first on, belong to messages that were taken.
    taken: usize,
    /// How many more bytes to drop, of a message that is too long.
    to_drop: usize,
    /// Where bytes arrive. It is on the heap, because in a future it would be part of every future
    /// around it.
    chunk: Box<[u8]>,
}

impl Frames {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self {
            io: Io(stream),
            read: Vec::new(),
            taken: 0,
            to_drop: 0,
            chunk: vec![0; CHUNK].into(),
        }
    }

    /// Sends messages that were written with their lengths.
    pub(super) async fn send(&mut self, framed: &[u8]) -> Result<(), Failure> {
        let sent = async {
            self.io.write_all(framed).await?;
            self.io.flush().await
        };
        sent.await.map_err(|cause| Failure::Broken(cause.to_string()))
    }

    /// The next message.
    ///
    /// # Cancel safety
    ///
    /// Nothing that was read gets lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = self.framed() {
                return Ok(frame);
            }
            // Drain only here, so that many messages that come together are moved once.
            self.read.drain(..self.taken);
            self.taken = 0;
            if self.read.is_empty() {
                self.read.shrink_to(CHUNK);
            }
            match self.io.read(&mut self.chunk).await {
                Ok(0) => return Err(Failure::Broken("it was closed".to_owned())),
                Ok(count) => self.read.extend_from_slice(&self.chunk[..count]),
                Err(cause) => return Err(Failure::Broken(cause.to_string())),
            }
        }
    }

    /// Takes a message that was read whole, or the head of one that is too long.
    fn framed(&mut self) -> Option<Frame> {
        let dropped = self.to_drop.min(self.read.len() - self.taken);
        (self.taken, self.to_drop) = (self.taken + dropped, self.to_drop - dropped);
        let left = &self.read[self.taken..];
        let (length, left) = left.split_first_chunk::<LENGTH>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let is_too_long = length > ANSWER_BYTES_MAX;
        let kept = if is_too_long { Head::LENGTH } else { length };
        let bytes = left.get(..kept)?.to_vec();
        (self.taken, self.to_drop) = (self.taken + LENGTH + kept, length - kept);
        Some(Frame { bytes, is_too_long })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_dropped_up_to_its_end_and_not_kept() {
        let (ours, mut theirs) = tokio::io::duplex(CHUNK);
        let mut frames = Frames::new(Box::new(ours));
        let length = ANSWER_BYTES_MAX + 1;
        let head = [7; Head::LENGTH];
        let sending = async move {
            let announced = u32::try_from(length).expect("it fits").to_be_bytes();
            theirs.write_all(&[&announced[..], &head].concat()).await.expect("it is open");
            let rest = vec![9; length - head.len()];
            theirs.write_all(&rest).await.expect("it is open");
            theirs.write_all(&[0, 0, 0, 2, 1, 2]).await.expect("it is open");
        };
        let reading = async {
            let long = frames.next().await.expect("its head is there");
            assert!(long.is_too_long && long.bytes == head);
            let next = frames.next().await.expect("it follows");
            assert!(!next.is_too_long && next.bytes == [1, 2]);
            assert!(frames.read.capacity() <= 4 * CHUNK, "{}", frames.read.capacity());
        };
        tokio::join!(sending, reading);
    }
}
