//! Reads the answers of a handshake one by one, up to a size limit.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The most bytes of all answers together. The text about protected mode takes 1 KB.
pub(super) const ANSWER_MAX: usize = 16 * 1024;

/// Why there is no answer.
pub(super) enum Silence {
    Ended(io::Error),
    Nonsense,
}

/// The answers that have arrived.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    used: usize,
    taken: usize,
}

impl Answers {
    /// The next answer: a line, which begins with its type character, or a text, which begins with
    /// `$`. Of a list, only the line with its length.
    pub(super) async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<String, Silence> {
        loop {
            let rest = &self.bytes[self.used..];
            if let Some((answer, end)) = whole(rest)? {
                self.used += end;
                return Ok(answer);
            }
            if self.taken > ANSWER_MAX {
                return Err(Silence::Nonsense);
            }
            match stream.read_buf(&mut self.bytes).await {
                Ok(0) => return Err(Silence::Ended(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.taken += count,
                Err(error) => return Err(Silence::Ended(error)),
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }
}

/// The first answer in `bytes` with its type character, and its end; `None` if it is incomplete.
fn whole(bytes: &[u8]) -> Result<Option<(String, usize)>, Silence> {
    let Some(mark) = bytes.first() else { return Ok(None) };
    if !matches!(mark, b'+' | b'-' | b'$' | b':' | b'*') {
        return Err(Silence::Nonsense);
    }
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = String::from_utf8_lossy(&bytes[..end]).into_owned();
    if *mark != b'$' {
        return Ok(Some((line, end + 2)));
    }
    let length = line[1..].parse::<usize>().ok().filter(|length| *length <= ANSWER_MAX);
    let length = length.ok_or(Silence::Nonsense)?;
    let text = &bytes[end + 2..];
    if text.len() < length + 2 {
        return Ok(None);
    }
    let text = format!("${}", String::from_utf8_lossy(&text[..length]));
    Ok(Some((text, end + 2 + length + 2)))
}
