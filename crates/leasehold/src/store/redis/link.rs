//! The connections that the store needs: for requests, and for messages.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use super::connector::{Access, Connector, Stream};
use super::handshake::{ServerFacts, handshake_on_terms};
use super::listen;
use super::pipeline::Pipeline;
use super::terms::Terms;
use crate::core::error::{Error, ErrorKind};

/// The boxed future of a link.
pub type LinkFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Opens connections to one server. Each [`Connector`] does, over its streams. Implement
/// [`Connector`] and not this trait, which will be removed.
pub trait LinkConnector: Send + Sync + 'static {
    /// Connects, logs in, selects the database, and waits for an answer of the server, because an
    /// open port alone proves nothing. The future is polled where network I/O works. The caller
    /// limits the time.
    ///
    /// # Errors
    ///
    /// `Unavailable`, `Denied`, `Config` or `Unsupported`. No request was sent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes everything that it has opened.
    fn connect(&self) -> LinkFuture<Result<Connected, Error>>;

    /// Connects for messages. No channel is subscribed yet. The future is polled and limited like
    /// that of [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// Like [`connect`](Self::connect).
    ///
    /// # Cancel safety
    ///
    /// Like [`connect`](Self::connect).
    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>>;

    /// The name of the server for messages and logs, without a password.
    fn label(&self) -> String;

    /// The terms that all clients of the server must agree on.
    ///
    /// - With strict terms, each connection must name its server ([`Connected::run_id`],
    ///   [`Connected::replid`]).
    /// - With a majority of replicas, each connection must count them ([`Connected::replicas`]).
    /// - Without strict terms, [`connect`](Self::connect) must fail if other clients are strict.
    ///   `RedisConnector` checks the key `:lh:epoch` for this.
    fn terms(&self) -> Terms;
}

/// Over the streams of a [`Connector`].
impl<C: Connector> LinkConnector for C {
    fn connect(&self) -> LinkFuture<Result<Connected, Error>> {
        let (opening, access, label) = (self.open(), self.access(), Connector::label(self));
        Box::pin(async move {
            let connected = async { establish(opening.await?, &access).await };
            connected.await.map_err(|error| error.at(&label))
        })
    }

    fn subscribe(&self) -> LinkFuture<Result<Subscriber, Error>> {
        let (opening, access, label) = (self.open(), self.access(), Connector::label(self));
        Box::pin(async move {
            let subscriber = async { listen::establish(opening.await?, &access).await };
            subscriber.await.map_err(|error| error.at(&label))
        })
    }

    fn label(&self) -> String {
        Connector::label(self)
    }

    fn terms(&self) -> Terms {
        self.access().terms
    }
}

/// Turns an open stream into a connection.
pub(super) async fn establish(
    mut stream: Box<dyn Stream>,
    access: &Access,
) -> Result<Connected, Error> {
    let facts = handshake_on_terms(&mut *stream, access).await?;
    let ServerFacts { run_id, replid, replicas } = facts;
    let (link, io) = Pipeline::open(stream);
    Ok(Connected { link, io, run_id, replid, replicas })
}

/// A new connection.
#[non_exhaustive]
pub struct Connected {
    /// Takes the requests.
    pub link: Arc<dyn Link>,
    /// Does the I/O of the connection, and must be polled. It ends with the connection. Dropping it
    /// ends the connection: requests under way are then answered [`Broken`](LinkError::Broken).
    pub io: LinkFuture<()>,
    /// The `run_id` of the server, asked for on this very connection. It differs for each process
    /// of a server. `None` if the [terms](LinkConnector::terms) are not strict.
    pub run_id: Option<Arc<str>>,
    /// The `master_replid` of the server, asked for on this very connection. It changes when the
    /// server takes over the data of another server. `None` if the terms are not strict.
    pub replid: Option<Arc<str>>,
    /// The number of replicas of the server, asked for on this connection. `None` if the
    /// [terms](LinkConnector::terms) do not ask for a majority of them.
    pub replicas: Option<u32>,
}

impl Connected {
    /// A connection for the default [terms](LinkConnector::terms). Set the other fields if the
    /// terms need them.
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
    /// Sends a request. It is in the queue of the connection when this returns, so requests reach
    /// the server in the order of these calls. The store calls this under a lock: it must not
    /// block, wait or call back.
    ///
    /// # Errors
    ///
    /// The future ends in an error that says whether the request may take effect.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may cancel a request that was not written yet. The store keeps the
    /// future until the answer if that must not happen.
    fn submit(&self, command: Command) -> LinkFuture<Result<Value, LinkError>>;
}

/// A connection on which messages come in.
#[non_exhaustive]
pub struct Subscriber {
    /// Adds channels and keys.
    pub channels: Box<dyn Channels>,
    /// Receives messages.
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

/// The channels and keys of a [`Subscriber`].
pub trait Channels: Send + 'static {
    /// Subscribes to a channel. Ends when the server has confirmed it.
    ///
    /// # Errors
    ///
    /// `Denied` if the user has no right to it; `Unavailable` if the connection is gone.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the channel subscribed.
    fn add(
        &mut self,
        channel: &str,
    ) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;

    /// Whether the server reports changes of the keys that [`track`](Self::track) names. The
    /// default is no.
    fn tracks(&self) -> bool {
        false
    }

    /// Asks the server to report the next change of a key once, by [`News::Changed`]. A change is
    /// when the key is set, deleted, given another expiry, or expires. Ends when the server has
    /// confirmed it, and returns whether the key exists.
    ///
    /// # Errors
    ///
    /// Like [`add`](Self::add); `Unsupported` if [`tracks`](Self::tracks) is false.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the key tracked.
    fn track(
        &mut self,
        key: &str,
    ) -> Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + '_>> {
        let message = format!("changes of `{key}` are not reported here; poll the key instead");
        Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, message))))
    }
}

/// The messages of a [`Subscriber`].
pub trait Messages: Send + 'static {
    /// The next message; `None` once the connection is gone. [`Channels::add`] and
    /// [`Channels::track`] only end while this is polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<News>> + Send + '_>>;
}

/// A message that a server sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// A message on a subscribed channel.
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

/// The size of an acquire request with a place in line, the longest common command. It needs no
/// larger buffer.
const USUAL_BYTES: usize = 512;
const USUAL_ARGUMENTS: usize = 24;

/// A command: its name and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Command {
    /// A command without arguments.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { bytes: Vec::with_capacity(USUAL_BYTES), ends: Vec::with_capacity(USUAL_ARGUMENTS) }
            .arg(name)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(argument.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds an argument that consists of these parts.
    #[must_use]
    pub(super) fn joined(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds one argument for each of `ends`, which consists of `before` and that end.
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

    /// Adds a number as an argument.
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

/// A number in decimal. Written by hand, because the standard library takes three times as long,
/// and every request has about six numbers.
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
        // Without the arguments, because some are owner tokens.
        let name = self.args().next().map(String::from_utf8_lossy);
        write!(f, "Command({}, {} arguments)", name.unwrap_or_default(), self.ends.len() - 1)
    }
}

/// The answer of a server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
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
            // Without the bytes, because they may be an owner token.
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Array(values) => f.debug_list().entries(values).finish(),
        }
    }
}

/// Why a request on a connection was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// The server refused the request. Its answer begins with a `code` such as `NOPERM`.
    Refused {
        /// The first word of the answer.
        code: String,
        /// The whole answer.
        text: String,
    },
    /// The request was not sent, because the connection was gone.
    NotSent {
        /// The cause.
        reason: String,
    },
    /// The connection ended or got invalid data after the request may have been sent. The request
    /// may take effect.
    Broken {
        /// The cause.
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
