//! The answers of a handshake, read one by one and held to a bound.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The most bytes that a server may answer to all of it. What it says of protected mode takes 1 KB.
pub(super) const ANSWER_MAX: usize = 16 * 1024;

/// Why there is no answer.
pub(super) enum Silence {
    Ended(io::Error),
    Nonsense,
}

/// The answers that come in.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    used: usize,
    taken: usize,
}

impl Answers {
    /// The next one: a line, which begins with its mark, or a text, which begins with `$`. Of a
    /// list it is the line that says how long it is.
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

/// The first answer in `bytes`, by its mark, and where it ends; `None` if it is not whole yet.
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
