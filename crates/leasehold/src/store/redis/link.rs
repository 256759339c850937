//! What the store needs of a connection: the seam for simulation, and for connections that users
//! bring.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use super::terms::Terms;
use crate::core::error::{Error, ErrorKind};

/// A future of a link, boxed.
pub type LinkFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Opens connections to one server.
pub trait Connector: Send + Sync + 'static {
    /// Connects, and makes the connection ready: authenticated, on the right database, and answered
    /// by the server, since an open port is not yet one. Polled where network input and output can
    /// be done; the caller limits the time.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Denied`, `Config` or `Unsupported`: nothing was asked yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes whatever it has opened.
    fn connect(&self) -> LinkFuture<Result<Connected, Error>>;

    /// Connects to where messages come in. No channel is listened to yet. Polled and limited as
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// As [`connect`](Self::connect).
    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>>;

    /// Which server this is, for messages and logs: without a password.
    fn label(&self) -> String;

    /// What all clients of that server have to agree on. Under strict terms each connection has to
    /// name its server ([`Connected::run_id`], [`Connected::replid`]), and where they want a
    /// majority of its replicas, to count these ([`Connected::replicas`]). That others are strict
    /// where these terms are not is for [`connect`](Self::connect) to find out, as `RedisConnector`
    /// does by the key `:lh:epoch`.
    fn terms(&self) -> Terms;
}

/// A connection that has just been made.
#[non_exhaustive]
pub struct Connected {
    /// Where requests go.
    pub link: Arc<dyn Link>,
    /// Moves the bytes. It has to be polled for anything to happen, ends with the connection, and
    /// ends the connection when it is dropped: whatever is under way then is answered
    /// [`Broken`](LinkError::Broken).
    pub io: LinkFuture<()>,
    /// The `run_id` of the server, asked for on this very connection: it tells one process of a
    /// server from the next. `None` where the [terms](Connector::terms) are not strict.
    pub run_id: Option<Arc<str>>,
    /// The `master_replid` of the server, asked for on this very connection: it changes where the
    /// server took over the data of another one. `None` where the terms are not strict.
    pub replid: Option<Arc<str>>,
    /// How many replicas the server has, asked for on this connection. `None` where the
    /// [terms](Connector::terms) do not want a majority of them.
    pub replicas: Option<u32>,
}

impl Connected {
    /// A connection of which nothing more is known, as the default [terms](Connector::terms) want
    /// it. Set the other fields where they want more.
    #[must_use]
    pub fn new(link: Arc<dyn Link>, io: LinkFuture<()>) -> Self {
        Self { link, io, run_id: None, replid: None, replicas: None }
    }
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connected")
    }
}

/// One connection.
pub trait Link: Send + Sync + 'static {
    /// Sends a request. It is in the queue of the connection when this returns: what is submitted
    /// first reaches the server first. Called under a lock of the store: it must not block, wait or
    /// call back.
    ///
    /// # Errors
    ///
    /// The future ends in an error that says whether the request may take effect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may take a request back that was not yet written; the store keeps it
    /// until the answer where that must not be.
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>>;
}

/// A connection on which messages come in.
#[non_exhaustive]
pub struct Subscriber {
    /// What is listened to.
    pub channels: Box<dyn Channels>,
    /// What comes in.
    pub messages: Box<dyn Messages>,
}

impl Subscriber {
    /// Both ends of one connection.
    #[must_use]
    pub fn new(channels: Box<dyn Channels>, messages: Box<dyn Messages>) -> Self {
        Self { channels, messages }
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscriber")
    }
}

/// What a [`Subscriber`] listens to.
pub trait Channels: Send + 'static {
    /// Listens to one more channel; ends once the server has confirmed it.
    ///
    /// # Errors
    ///
    /// `Denied` if the user has no right to; `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the channel listened to.
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;

    /// Whether the server says here when keys change that [`track`](Self::track) names. It does not
    /// unless this is overridden.
    fn tracks(&self) -> bool {
        false
    }

    /// Has the server say once, by [`News::Changed`], that a key was set, deleted, given another
    /// end, or that it expired. Ends once that is certain; whether the key is there then.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); `Unsupported` if this connection does not [`tracks`](Self::tracks).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the key tracked.
    fn track(
        &mut self,
        key: &str,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        let message = format!("changes of `{key}` are not told here; look at it again and again");
        Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, message))))
    }
}

/// What comes in on a [`Subscriber`].
pub trait Messages: Send + 'static {
    /// What comes next; `None` once the connection is gone. Has to be polled for
    /// [`Channels::add`] and [`Channels::track`] to end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>>;
}

/// What a server says unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// Something was published on a channel that is listened to.
    Published(Message),
    /// This key has changed, and is no longer tracked.
    Changed(Vec<u8>),
    /// All keys may have changed, and none is tracked any longer.
    AllChanged,
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Where it was published.
    pub channel: String,
    /// What.
    pub payload: Vec<u8>,
}

impl Message {
    /// What was published where.
    #[must_use]
    pub fn new(channel: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        Self { channel: channel.into(), payload: payload.into() }
    }
}

/// What an ask in line takes, the longest of the usual commands: it grows no buffer.
const USUAL_BYTES: usize = 512;
const USUAL_ARGUMENTS: usize = 24;

/// One command: its name, and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Command {
    /// A command without arguments yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { bytes: Vec::with_capacity(USUAL_BYTES), ends: Vec::with_capacity(USUAL_ARGUMENTS) }
            .arg(name)
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(argument.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// With one more argument, made of these parts.
    #[must_use]
    pub(super) fn joined(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.ends.push(self.bytes.len());
        self
    }

    /// With one more argument for each of `ends`: `before`, and that.
    #[must_use]
    pub(super) fn branching(mut self, before: &[&str], ends: &[&str]) -> Self {
        let start = self.bytes.len();
        for part in before {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        let before = start..self.bytes.len();
        for (number, end) in ends.iter().enumerate() {
            if number > 0 {
                self.bytes.extend_from_within(before.clone());
            }
            self.bytes.extend_from_slice(end.as_bytes());
            self.ends.push(self.bytes.len());
        }
        self
    }

    /// With a number as one more argument.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.arg(Digits::of(number).as_str())
    }

    /// The name and the arguments.
    pub fn args(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied()).map(|(start, end)| &self.bytes[start..end])
    }
}

/// A number in decimal. By hand: the formatting of the standard library takes three times as long,
/// and every request has half a dozen numbers.
pub(super) struct Digits {
    digits: [u8; 20],
    first: usize,
}

impl Digits {
    pub(super) fn of(number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let (mut first, mut rest) = (digits.len(), number);
        while rest > 0 || first == digits.len() {
            first -= 1;
            digits[first] += u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
        Self { digits, first }
    }

    pub(super) fn as_str(&self) -> &str {
        str::from_utf8(&self.digits[self.first..]).expect("digits are text")
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The arguments are left out: there are owner tokens among them.
        let name = self.args().next().map(String::from_utf8_lossy);
        write!(f, "Command({}, {} arguments)", name.unwrap_or_default(), self.ends.len() - 1)
    }
}

/// What a server answered.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
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
            // Left out: it may be an owner token.
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Array(values) => f.debug_list().entries(values).finish(),
        }
    }
}

/// Why a request on a connection was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The server refused it, by an answer that begins with a `code` such as `NOPERM`.
    Refused {
        /// The first word of the answer.
        code: String,
        /// The whole of it.
        text: String,
    },
    /// It never left: the connection was gone before.
    NotSent {
        /// What happened.
        reason: String,
    },
    /// The connection ended, or spoke nonsense, after the request may have left: it may take
    /// effect.
    Broken {
        /// What happened.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_keeps_its_arguments_apart_and_shows_none() {
        let command =
            Command::new("SET").arg("").arg(b"\xff\r\n").number(42).joined(&["a", "", "b"]);
        let args: Vec<_> = command.args().collect();
        assert_eq!(args, [b"SET".as_slice(), b"", b"\xff\r\n", b"42", b"ab"]);
        assert_eq!(format!("{command:?}"), "Command(SET, 4 arguments)");
        let command = Command::new("SET").arg("x").branching(&["a", "b"], &["c", "", "d"]);
        let args: Vec<_> = command.args().skip(1).collect();
        assert_eq!(args, [b"x".as_slice(), b"abc", b"ab", b"abd"]);
    }

    #[test]
    fn a_number_is_written_in_decimal() {
        for number in [0, 1, 9, 10, 600_000, u64::MAX] {
            let command = Command::new("SET").number(number);
            assert_eq!(command.args().nth(1), Some(number.to_string().as_bytes()));
        }
    }
}
