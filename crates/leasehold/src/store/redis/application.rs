//! Uses a connection of the crate `redis` that an application already has.
//!
//! The store speaks bytes. So this takes whole requests out of the bytes that the store writes,
//! sends them over the application's connection, and writes the answers as bytes. Requests written
//! meanwhile are sent as one pipeline, once the pipeline before it is answered. So requests keep
//! their order on any connection.

use std::collections::VecDeque;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use ::redis::aio::ConnectionLike;
use ::redis::{Cmd, Pipeline, RedisResult, Value};

use super::codec::{Frame, Reader};
use super::connector::{Connector, Opening, Stream};

/// The most requests in one pipeline.
const BATCH_MAX: usize = 256;

/// The commands that concern the whole connection. The application uses it for other things.
const NOT_SHARED: [&[u8]; 8] =
    [b"AUTH", b"CLIENT", b"HELLO", b"SELECT", b"SUBSCRIBE", b"UNSUBSCRIBE", b"WAIT", b"WAITAOF"];

/// Lets a [`RedisStore`](super::RedisStore) use a connection of the crate
/// [`redis`](https://docs.rs/redis/1) that the application has: a `ConnectionManager` or a
/// `MultiplexedConnection`, for example. The application keeps on using it.
///
/// It costs:
///
/// - Renewals use that connection too, so they need the runtime on which it lives. If that runtime
///   ends, or its only thread blocks for longer than the ttl, locks are lost.
/// - The store cannot connect again by itself. A `ConnectionManager` does. A
///   `MultiplexedConnection` does not: after the server was away, make a new store and client.
/// - No wake-ups. Waiters poll with growing pauses, as they do if the user has no right to
///   subscribe. A wait of a client with a connection of its own ends within a round trip of the
///   release.
/// - Each grant reads the server's clock for its fencing token, because such a connection may
///   reconnect unnoticed.
/// - The [terms](super::Terms) are the defaults, because strict mode, `replicas` and `fsync` need
///   connections of the store's own. A database that is switched to strict mode refuses it.
/// - The connection's own time limits apply too. Set its response timeout above a quarter of the
///   ttl, or a slow answer becomes an unknown outcome earlier than necessary.
///
/// The connection must lead to one server, not to a cluster, and its database is used. Clients with
/// connections of this kind and others exclude each other.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use leasehold::Client;
/// use leasehold::host::SystemHost;
/// use leasehold::store::redis::{ApplicationConnector, RedisStore};
///
/// let redis = redis::Client::open("redis://localhost")?;
/// let connection = redis.get_multiplexed_async_connection().await?;
///
/// let connector = ApplicationConnector::new(connection.clone(), "redis://localhost");
/// let store = RedisStore::connect_with(connector, SystemHost::shared()).await?;
/// let client = Client::with_store(store).connect().await?;
/// let guard = client.mutex("stock:42").lock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ApplicationConnector<C> {
    connection: C,
    label: String,
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> ApplicationConnector<C> {
    /// `label` names the server in messages and logs. It should contain no password.
    pub fn new(connection: C, label: impl Into<String>) -> Self {
        Self { connection, label: label.into() }
    }
}

impl<C> std::fmt::Debug for ApplicationConnector<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApplicationConnector({})", self.label)
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> Connector for ApplicationConnector<C> {
    fn open(&self) -> Opening {
        let stream: Box<dyn Stream> = Box::new(Through::new(self.connection.clone()));
        Box::pin(ready(Ok(stream)))
    }

    fn label(&self) -> String {
        self.label.clone()
    }

    fn may_change_unnoticed(&self) -> bool {
        true
    }
}

type Answers = Pin<Box<dyn Future<Output = RedisResult<Vec<Value>>> + Send>>;

/// A stream through the application's connection.
struct Through<C> {
    connection: C,
    requests: Reader,
    waiting: VecDeque<Request>,
    under_way: Option<Answers>,
    /// The bytes of the answers, and how many of them were read.
    answers: Vec<u8>,
    read: usize,
    /// The task that waits for something to read.
    reader: Option<Waker>,
}

enum Request {
    Sent(Cmd),
    /// A request that does not leave this process, and its answer.
    Refused(String),
}

impl<C> Through<C> {
    fn new(connection: C) -> Self {
        Self {
            connection,
            requests: Reader::of_resp2(),
            waiting: VecDeque::new(),
            under_way: None,
            answers: Vec::new(),
            read: 0,
            reader: None,
        }
    }
}

impl<C: ConnectionLike + Clone + Send + 'static> Through<C> {
    /// Starts the next pipeline, or answers requests that are refused.
    fn go_on(&mut self) {
        let mut pipeline = Pipeline::new();
        while pipeline.len() < BATCH_MAX {
            match self.waiting.front() {
                Some(Request::Sent(_)) => {}
                Some(Request::Refused(_)) if pipeline.is_empty() => {}
                Some(Request::Refused(_)) | None => break,
            }
            match self.waiting.pop_front() {
                Some(Request::Sent(command)) => drop(pipeline.add_command(command)),
                Some(Request::Refused(text)) => {
                    self.answers.extend_from_slice(format!("-{text}\r\n").as_bytes());
                }
                None => {}
            }
        }
        if !pipeline.is_empty() {
            let mut connection = self.connection.clone();
            let count = pipeline.len();
            self.under_way =
                Some(Box::pin(
                    async move { connection.req_packed_commands(&pipeline, 0, count).await },
                ));
        }
    }
}

impl<C: ConnectionLike + Clone + Send + 'static> Stream for Through<C> {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.read < self.answers.len() {
                let count = into.len().min(self.answers.len() - self.read);
                into[..count].copy_from_slice(&self.answers[self.read..self.read + count]);
                self.read += count;
                return Poll::Ready(Ok(count));
            }
            self.answers.clear();
            self.read = 0;
            if let Some(answers) = &mut self.under_way {
                let values = std::task::ready!(answers.as_mut().poll(cx));
                self.under_way = None;
                match values {
                    Ok(values) => values.iter().for_each(|it| write(it, &mut self.answers)),
                    Err(error) => return Poll::Ready(Err(io::Error::other(error))),
                }
            } else if self.waiting.is_empty() {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            } else {
                self.go_on();
            }
        }
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.requests.put(bytes);
        loop {
            match self.requests.take() {
                Ok(Some(frame)) => self.waiting.push_back(request(&frame)?),
                Ok(None) => break,
                Err(invalid) => return Poll::Ready(Err(io::Error::other(format!("{invalid:?}")))),
            }
        }
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

/// Reads a request from a frame.
fn request(frame: &Frame) -> io::Result<Request> {
    let no_request = || io::Error::other("the store wrote something that is not a request");
    let Frame::Array(words) = frame else { return Err(no_request()) };
    let mut command = Cmd::new();
    for word in words {
        let Frame::Bytes(word) = word else { return Err(no_request()) };
        command.arg(&word[..]);
    }
    let Some(Frame::Bytes(name)) = words.first() else { return Err(no_request()) };
    let is_it = |other: &&[u8]| name.eq_ignore_ascii_case(other);
    if NOT_SHARED.iter().any(is_it) {
        let name = String::from_utf8_lossy(name);
        return Ok(Request::Refused(format!(
            "NOPERM `{name}` is not sent over the connection of an application"
        )));
    }
    Ok(Request::Sent(command))
}

/// Writes a value as the server would, in RESP2.
fn write(value: &Value, out: &mut Vec<u8>) {
    let line = |out: &mut Vec<u8>, kind: char, text: &str| {
        // A line break in the text would end the line early.
        let text = text.replace(['\r', '\n'], " ");
        out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
    };
    let bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    };
    match value {
        Value::Nil => out.extend_from_slice(b"$-1\r\n"),
        Value::Int(number) => line(out, ':', &number.to_string()),
        Value::Boolean(is_so) => line(out, ':', if *is_so { "1" } else { "0" }),
        Value::BulkString(text) => bytes(out, text),
        Value::VerbatimString { text, .. } => bytes(out, text.as_bytes()),
        Value::Double(number) => bytes(out, number.to_string().as_bytes()),
        Value::SimpleString(text) => line(out, '+', text),
        Value::Okay => line(out, '+', "OK"),
        Value::Array(values) | Value::Set(values) | Value::Push { data: values, .. } => {
            line(out, '*', &values.len().to_string());
            values.iter().for_each(|value| write(value, out));
        }
        Value::Map(pairs) => {
            line(out, '*', &(2 * pairs.len()).to_string());
            for (key, value) in pairs {
                write(key, out);
                write(value, out);
            }
        }
        Value::Attribute { data, .. } => write(data, out),
        Value::ServerError(error) => {
            let details = error.details().unwrap_or_default();
            line(out, '-', &format!("{} {details}", error.code()));
        }
        _ => line(out, '-', "ERR the answer is of a kind that is not supported"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use ::redis::RedisFuture;

    use super::*;
    use crate::store::redis::codec;
    use crate::store::redis::codec::command::Command;

    fn written(value: &Value) -> String {
        let mut out = Vec::new();
        write(value, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn values_are_written_as_the_server_would() {
        let text = |text: &str| Value::BulkString(text.into());
        for (value, bytes) in [
            (Value::Nil, "$-1\r\n"),
            (Value::Int(-7), ":-7\r\n"),
            (Value::Okay, "+OK\r\n"),
            (Value::SimpleString("PO\r\nNG".into()), "+PO  NG\r\n"),
            (text(""), "$0\r\n\r\n"),
            (text("a\r\nb"), "$4\r\na\r\nb\r\n"),
            (Value::Array(vec![]), "*0\r\n"),
            (
                Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Nil])]),
                "*2\r\n:1\r\n*1\r\n$-1\r\n",
            ),
            (Value::Map(vec![(text("a"), Value::Int(1))]), "*2\r\n$1\r\na\r\n:1\r\n"),
            (Value::Boolean(true), ":1\r\n"),
            (Value::Double(1.5), "$3\r\n1.5\r\n"),
        ] {
            assert_eq!(written(&value), bytes);
        }
    }

    #[test]
    fn commands_for_the_whole_connection_are_not_sent() {
        let words = |words: &[&str]| {
            Frame::Array(words.iter().map(|word| Frame::Bytes(word.as_bytes().into())).collect())
        };
        for (command, is_sent) in [
            (&["GET", "a"][..], true),
            (&["EVALSHA", "x", "0"], true),
            (&["subscribe", "a"], false),
            (&["SELECT", "1"], false),
            (&["WAIT", "1", "0"], false),
        ] {
            let request = request(&words(command)).expect("a request");
            assert_eq!(matches!(request, Request::Sent(_)), is_sent, "{command:?}");
        }
        assert!(request(&Frame::Int(1)).is_err());
        assert!(request(&words(&[])).is_err());
    }

    /// A connection that answers each command by how many came before it.
    #[derive(Clone, Default)]
    struct Counting(Arc<AtomicI64>);

    impl ConnectionLike for Counting {
        fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
            Box::pin(ready(Ok(Value::Int(self.0.fetch_add(1, Ordering::SeqCst)))))
        }

        fn req_packed_commands<'a>(
            &'a mut self,
            _: &'a Pipeline,
            _: usize,
            count: usize,
        ) -> RedisFuture<'a, Vec<Value>> {
            let answer = |_| Value::Int(self.0.fetch_add(1, Ordering::SeqCst));
            let answers = (0..count).map(answer).collect();
            Box::pin(ready(Ok(answers)))
        }

        fn get_db(&self) -> i64 {
            0
        }
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests_although_some_are_refused_here() {
        let mut stream = Through::new(Counting::default());
        let mut requests = Vec::new();
        for (name, argument) in
            [("GET", "a"), ("SELECT", "1"), ("SUBSCRIBE", "b"), ("GET", "c"), ("GET", "d")]
        {
            codec::write(&Command::new(name).arg(argument), &mut requests);
        }
        let mut context = Context::from_waker(Waker::noop());
        let written = stream.poll_write(&mut context, &requests);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == requests.len()));
        let (mut said, mut bytes) = (Vec::new(), [0; 512]);
        while let Poll::Ready(read) = stream.poll_read(&mut context, &mut bytes) {
            said.extend_from_slice(&bytes[..read.expect("it works")]);
        }
        let said = String::from_utf8(said).expect("text");
        let expected = [":0", "-NOPERM `SELECT`", "-NOPERM `SUBSCRIBE`", ":1", ":2"];
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{said}");
        for (line, begin) in lines.into_iter().zip(expected) {
            assert!(line.starts_with(begin), "{said}");
        }
    }
}
