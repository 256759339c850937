//! Reads the requests that a client writes.

use super::Command;

/// Requests as a client writes them, in pieces of any size.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
    /// How many of the bytes were taken.
    taken: usize,
}

impl Requests {
    /// Adds bytes that the client has written.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole request.
    ///
    /// # Panics
    ///
    /// If the client wrote anything but an array of bulk strings.
    pub fn take(&mut self) -> Option<Command> {
        let mut rest = &self.bytes[self.taken..];
        let mut command = Command::default();
        for _ in 0..number(&mut rest, b'*')? {
            let length = number(&mut rest, b'$')?;
            let (word, after) = (rest.get(..length)?, rest.get(length..length + 2)?);
            assert_eq!(after, b"\r\n", "a word ends where its length says");
            rest = &rest[length + 2..];
            command = command.arg(word);
        }
        assert!(!command.name().is_empty(), "a request has a name");
        self.taken = self.bytes.len() - rest.len();
        Some(command)
    }
}

/// The number of a line that begins with `mark`. `None` if the line is not whole.
fn number(rest: &mut &[u8], mark: u8) -> Option<usize> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, after) = (&rest[..end], &rest[end + 2..]);
    let digits = line.strip_prefix(&[mark]).expect("a client writes arrays of words");
    *rest = after;
    Some(str::from_utf8(digits).ok().and_then(|it| it.parse().ok()).expect("a length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_however_they_are_cut() {
        let bytes = b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\n\r\n$1\r\n";
        for piece in 1..=bytes.len() {
            let mut requests = Requests::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                requests.push(piece);
                read.extend(std::iter::from_fn(|| requests.take()));
            }
            let set = Command::new("SET").arg("").arg("\r\n$1");
            assert_eq!(read, [Command::new("PING"), set], "{piece}");
            assert_eq!(requests.taken, requests.bytes.len());
            assert_eq!(read.iter().flat_map(Command::bytes).collect::<Vec<_>>(), bytes);
        }
    }
}
