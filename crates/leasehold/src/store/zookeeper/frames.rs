//! A connection that carries messages, each after its length.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::error::Failure;
use crate::store::net::{Io, Stream};

/// The longest answer, enough for the names of 200 000 locks. Read as texts, it may take six times
/// as much memory.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// How many bytes are read at a time.
const CHUNK: usize = 16 << 10;

/// How many bytes come before a message.
const LENGTH: usize = 4;

pub(super) struct Frames {
    io: Io,
    /// The bytes that have arrived.
    read: Vec<u8>,
    /// How many of them, from the first on, belong to messages that were taken.
    taken: usize,
    /// Where bytes arrive. On the heap: in a future, it would be part of every future around it.
    chunk: Box<[u8]>,
}

impl Frames {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self { io: Io(stream), read: Vec::new(), taken: 0, chunk: vec![0; CHUNK].into() }
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
    pub(super) async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(message) = self.framed()? {
                return Ok(message);
            }
            // Only here, so that many messages that come together are moved once.
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

    /// Takes a message that was read whole.
    fn framed(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let left = &self.read[self.taken..];
        let Some((length, left)) = left.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        let Some(message) = left.get(..length) else { return Ok(None) };
        let message = message.to_vec();
        self.taken += LENGTH + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused_before_it_is_read() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut frames = Frames::new(Box::new(ours));
        theirs.write_all(&u32::to_be_bytes((16 << 20) + 1)).await.expect("it is open");
        assert!(matches!(frames.next().await, Err(Failure::Malformed)));
    }
}
