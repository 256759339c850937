//! The bytes of the Redis protocol, from the side of a server.
//!
//! It is written apart from the library's codec, so that a mistake in one is seen by the other.

use leasehold::store::redis::{Command, LinkError, News, Value};

/// Requests as a client writes them, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Requests {
    unread: Vec<u8>,
}

impl Requests {
    /// Adds bytes that the client has written.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Takes the next whole request.
    ///
    /// # Panics
    ///
    /// If the client wrote anything but an array of bulk strings.
    pub(super) fn next(&mut self) -> Option<Command> {
        let mut rest = &self.unread[..];
        let mut words = (0..number(&mut rest, b'*')?).map(|_| {
            let length = number(&mut rest, b'$')?;
            let (word, after) = (rest.get(..length)?, rest.get(length..length + 2)?);
            assert_eq!(after, b"\r\n", "a word ends where its length says");
            rest = &rest[length + 2..];
            Some(word)
        });
        let name = words.next().expect("a request has a name")?;
        let name = str::from_utf8(name).expect("a name is text");
        let command =
            words.try_fold(Command::new(name), |command, word| Some(command.arg(word?)))?;
        let read = self.unread.len() - rest.len();
        self.unread.drain(..read);
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

/// The bytes of an answer.
pub(super) fn answer(answer: &Result<Value, LinkError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(value) => write(value, &mut bytes),
        Err(LinkError::Refused { text, .. }) => bytes = format!("-{text}\r\n").into_bytes(),
        Err(error) => unreachable!("a server answers or refuses: {error:?}"),
    }
    bytes
}

fn write(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Nil => bytes.extend_from_slice(b"$-1\r\n"),
        Value::Int(number) => bytes.extend_from_slice(format!(":{number}\r\n").as_bytes()),
        Value::Bytes(word) => write_word(word, bytes),
        Value::Array(values) => {
            bytes.extend_from_slice(format!("*{}\r\n", values.len()).as_bytes());
            values.iter().for_each(|value| write(value, bytes));
        }
        other => unreachable!("a value of a kind that no server sends: {other:?}"),
    }
}

fn write_word(word: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

/// The answer to `HELLO 3`, which begins the third version of the protocol.
pub(super) fn hello() -> Vec<u8> {
    b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n".to_vec()
}

/// The answer to a subscription.
pub(super) fn subscribed(channel: &str) -> Vec<u8> {
    let mut bytes = b">3\r\n".to_vec();
    write_word(b"subscribe", &mut bytes);
    write_word(channel.as_bytes(), &mut bytes);
    bytes.extend_from_slice(b":1\r\n");
    bytes
}

/// A message that the server sends unasked.
pub(super) fn news(news: &News) -> Vec<u8> {
    let mut bytes = Vec::new();
    match news {
        News::Published(message) => {
            bytes.extend_from_slice(b">3\r\n");
            write_word(b"message", &mut bytes);
            write_word(message.channel.as_bytes(), &mut bytes);
            write_word(&message.payload, &mut bytes);
        }
        News::Changed(key) => {
            bytes.extend_from_slice(b">2\r\n");
            write_word(b"invalidate", &mut bytes);
            bytes.extend_from_slice(b"*1\r\n");
            write_word(key, &mut bytes);
        }
        News::AllChanged => {
            bytes.extend_from_slice(b">2\r\n");
            write_word(b"invalidate", &mut bytes);
            bytes.extend_from_slice(b"_\r\n");
        }
        other => unreachable!("news of a kind that no server sends: {other:?}"),
    }
    bytes
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
                read.extend(std::iter::from_fn(|| requests.next()));
            }
            let set = Command::new("SET").arg("").arg("\r\n$1");
            assert_eq!(read, [Command::new("PING"), set], "{piece}");
            assert_eq!(requests.unread, b"");
        }
    }

    #[test]
    fn answers_are_written_as_the_protocol_has_them() {
        let refused = LinkError::Refused { code: "ERR".to_owned(), text: "ERR no".to_owned() };
        let values = Value::Array(vec![Value::Int(-1), Value::Nil, Value::Bytes(b"a".to_vec())]);
        assert_eq!(answer(&Ok(values)), b"*3\r\n:-1\r\n$-1\r\n$1\r\na\r\n");
        assert_eq!(answer(&Err(refused)), b"-ERR no\r\n");
        let invalidate = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
        assert_eq!(news(&News::Changed(b"k".to_vec())), invalidate);
    }
}
