//! The protocol of Redis, with its bytes: what clients ask, and what servers send.
//!
//! It is written apart from the library's codec, so that each shows the mistakes of the other.
//!
//! A test has three ways to use it. With a [`Client`] it asks a server. With [`served`] it plays a
//! server itself. With [`Between`] it sees everything that passes on a connection, and may change
//! it.

mod between;
mod client;
mod requests;
mod sent;
mod served;

use std::fmt;

pub use self::between::{Between, Onlooker};
pub use self::client::{Asking, Client, Connection};
pub use self::requests::Requests;
pub(crate) use self::sent::{Sent, take_sent};
pub use self::sent::{hello, news, subscribed};
pub use self::served::{Later, Line, served};

/// A request: its name and its arguments.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Command {
    /// A command without arguments.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::of(&[name])
    }

    /// A command of these words.
    #[must_use]
    pub fn of<W: AsRef<[u8]>>(words: &[W]) -> Self {
        words.iter().fold(Self::default(), Self::arg)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(argument.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds a number as an argument.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// The name and the arguments.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied()).map(|(start, end)| &self.bytes[start..end])
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.args().next().unwrap_or_default()
    }

    /// The name and the arguments as texts.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        self.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Whether a client of the library sends this command to make a connection or to receive
    /// messages, and not for a lock.
    #[must_use]
    pub fn is_of_the_connection(&self) -> bool {
        let words: Vec<_> = self.args().collect();
        match words[..] {
            [b"WAIT", b"0", b"1"]
            | [b"WAITAOF", b"1", b"0", b"1"]
            | [b"HMGET", b":lh:epoch", b"switch"] => true,
            [name, ..] => {
                let names =
                    ["AUTH", "CLIENT", "EXISTS", "HELLO", "INFO", "PING", "SELECT", "SUBSCRIBE"];
                names.iter().any(|other| other.as_bytes() == name)
            }
            [] => false,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", self.ends.len()).into_bytes();
        self.args().for_each(|word| write_word(word, &mut bytes));
        bytes
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.args().map(|word| word.escape_ascii().to_string()).collect();
        write!(f, "Command({})", words.join(" "))
    }
}

/// The answer of a server to a request that it did not refuse.
#[derive(Clone, PartialEq, Eq)]
pub enum Value {
    /// No value.
    Nil,
    /// A number.
    Int(i64),
    /// Bytes, or a status such as `OK`.
    Bytes(Vec<u8>),
    /// Several answers.
    Array(Vec<Self>),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Array(values) => f.debug_list().entries(values).finish(),
        }
    }
}

impl Value {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Nil => bytes.extend_from_slice(b"$-1\r\n"),
            Self::Int(number) => bytes.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Bytes(word) => write_word(word, bytes),
            Self::Array(values) => {
                bytes.extend_from_slice(format!("*{}\r\n", values.len()).as_bytes());
                values.iter().for_each(|value| value.write(bytes));
            }
        }
    }
}

/// The text of a refusal, which begins with a code such as `NOPERM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl Refused {
    /// The first word of the text.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

/// The answer to a request. A refusal of one part refuses the whole.
pub type Answer = Result<Value, Refused>;

/// The bytes of an answer.
#[must_use]
pub fn answer(answer: &Answer) -> Vec<u8> {
    let mut bytes = Vec::new();
    match answer {
        Ok(value) => value.write(&mut bytes),
        Err(Refused(text)) => {
            bytes = format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes();
        }
    }
    bytes
}

/// A message that a server sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A message on a subscribed channel.
    Published(Message),
    /// This key has changed, and is no longer tracked.
    Changed(Vec<u8>),
    /// All keys may have changed. The server no longer tracks any key.
    AllChanged,
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The channel.
    pub channel: String,
    /// The content.
    pub payload: Vec<u8>,
}

impl Message {
    /// A message with this content on this channel.
    #[must_use]
    pub fn new(channel: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { channel: channel.into(), payload: payload.into() }
    }
}

/// The answer of a server to a request of the handshake. `ids` are the run id and the replication
/// id of the server. `None` if the request does not belong to the handshake.
#[must_use]
pub fn greeting(command: &Command, ids: [&str; 2]) -> Option<Vec<u8>> {
    let words: Vec<_> = command.args().collect();
    let text = |text: String| Ok(Value::Bytes(text.into_bytes()));
    let said = match words[..] {
        [b"PING"] => text("PONG".to_owned()),
        // This asks whether the database is in strict mode.
        [b"HMGET", b":lh:epoch", b"switch"] => Ok(Value::Array(vec![Value::Nil])),
        [b"INFO", b"server"] => text(format!("# Server\r\nrun_id:{}\r\n", ids[0])),
        [b"INFO", b"replication"] => {
            text(format!("# Replication\r\nconnected_slaves:1\r\nmaster_replid:{}\r\n", ids[1]))
        }
        [b"WAIT", b"0", b"1"] => Ok(Value::Int(1)),
        // Like an old server, refuse these commands. Its messages are arrays, and it does not
        // report changes.
        [b"HELLO" | b"CLIENT", ..] => Err(Refused("ERR unknown command".to_owned())),
        _ => return None,
    };
    Some(answer(&said))
}

fn write_word(word: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    bytes.extend_from_slice(word);
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_written_as_the_protocol_has_them() {
        let values = Value::Array(vec![Value::Int(-1), Value::Nil, Value::Bytes(b"a".to_vec())]);
        assert_eq!(answer(&Ok(values)), b"*3\r\n:-1\r\n$-1\r\n$1\r\na\r\n");
        assert_eq!(answer(&Err(Refused("ERR no".to_owned()))), b"-ERR no\r\n");
        let invalidate = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n";
        assert_eq!(news(&News::Changed(b"k".to_vec())), invalidate);
    }
}
