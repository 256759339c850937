//! The first words on a connection: who we are, which database, whether a server is there, and
//! which process it is where that matters.
//!
//! Spoken here and not by the client crate, which answers a refused password without what the
//! server said, and takes any other error in its place, such as too many clients, for a wrong
//! password.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::error::{Said, refusal};
use super::url::Address;
use crate::core::error::{Error, ErrorKind};

/// The most bytes that a server may answer to all of it. What it says of protected mode takes 1 KB.
const ANSWER_MAX: usize = 16 * 1024;

/// Logs in, chooses the database, and has the server answer once. All in one round trip.
///
/// # Errors
///
/// `Denied`, `Config` or `Unavailable`: nothing was asked of the server yet.
pub(super) async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
) -> Result<(), Error> {
    speak(stream, address, false).await.map(drop)
}

/// As [`greet`], and asks in the same breath for the `run_id` of the server where the terms are
/// strict.
pub(super) async fn get_to_know(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
) -> Result<Option<Arc<str>>, Error> {
    speak(stream, address, address.terms.strict.is_some()).await
}

async fn speak(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
    asks_run_id: bool,
) -> Result<Option<Arc<str>>, Error> {
    let mut words = Vec::with_capacity(128);
    let mut steps = Vec::with_capacity(3);
    if let Some(password) = &address.password {
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = &address.username {
            auth.arg(username);
        }
        auth.arg(password).write_packed_command(&mut words);
        steps.push(Step::Auth);
    }
    if address.db != 0 {
        redis::cmd("SELECT").arg(address.db).write_packed_command(&mut words);
        steps.push(Step::Select);
    }
    redis::cmd("PING").write_packed_command(&mut words);
    steps.push(Step::Ping);
    if asks_run_id {
        redis::cmd("INFO").arg("server").write_packed_command(&mut words);
        steps.push(Step::Info);
    }
    // A server that has no room says so and closes, maybe before it has read a word.
    let written = stream.write_all(&words).await;
    let mut answers = Answers::default();
    let mut run_id = None;
    for step in steps {
        match answers.next(stream).await {
            Ok(answer) => {
                step.check(&answer)?;
                if step == Step::Info {
                    run_id = Some(run_id_in(&answer).ok_or_else(no_run_id)?);
                }
            }
            Err(Silence::Nonsense) => return Err(no_redis()),
            Err(Silence::Ended(read)) => return Err(went_away(written.err().unwrap_or(read))),
        }
    }
    if answers.is_empty() { Ok(run_id) } else { Err(no_redis()) }
}

/// The `run_id` in what INFO says: a line of its own.
fn run_id_in(info: &str) -> Option<Arc<str>> {
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?.trim();
    let is_id = !run_id.is_empty() && run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| run_id.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Auth,
    Select,
    Ping,
    Info,
}

impl Step {
    /// Whether the server went along. `answer` begins with its mark, `+`, `-` or `$`.
    fn check(self, answer: &str) -> Result<(), Error> {
        let Some(text) = answer.strip_prefix('-') else {
            return Ok(());
        };
        let code = text.split(' ').next().unwrap_or_default();
        let error = refusal(code, text);
        match (self, error.kind()) {
            // A user may lack the right to PING, or the command may be renamed: it is a Redis that
            // says so.
            (Self::Ping, ErrorKind::Unsupported) => Ok(()),
            (Self::Ping, ErrorKind::Denied) if code == "NOPERM" => Ok(()),
            (Self::Select, ErrorKind::Unknown) => Err(refused(
                ErrorKind::Config,
                "the server does not give the database that the URL names",
                text,
            )),
            (Self::Auth, ErrorKind::Unknown | ErrorKind::Unsupported) => Err(refused(
                ErrorKind::Denied,
                "the server does not take the user and the password of the URL",
                text,
            )),
            (Self::Ping, ErrorKind::Unknown) => {
                Err(refused(ErrorKind::Unavailable, "the server does not answer a PING", text))
            }
            (Self::Info, ErrorKind::Denied) if code == "NOPERM" => Err(refused(
                ErrorKind::Denied,
                "`strict=yes` has to ask the server which process it is, and this user has no \
                 right to (`+info`)",
                text,
            )),
            (Self::Info, ErrorKind::Unknown | ErrorKind::Unsupported) => {
                Err(no_run_id().with_source(Said::new(text)))
            }
            _ => Err(error),
        }
    }
}

/// `Config`: it will not say so by asking again.
fn no_run_id() -> Error {
    Error::new(
        ErrorKind::Config,
        "the server does not say by a `run_id` which process it is (`INFO server`), so that \
         `strict=yes` could not tell when it forgets; nothing was asked, allow the command, or \
         leave the option out of the URL of every client",
    )
}

fn refused(kind: ErrorKind, what: &str, text: &str) -> Error {
    let message = format!("{what}; nothing was asked, see the cause, and correct the URL");
    Error::new(kind, message).with_source(Said::new(text))
}

/// `Config`: what answers there will not become a Redis by asking again.
fn no_redis() -> Error {
    Error::new(
        ErrorKind::Config,
        "what answers there is not a Redis or Valkey server, or one that wants TLS; nothing was \
         asked, correct host and port in the URL",
    )
}

fn went_away(cause: io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server ended the connection before it answered; nothing was asked, try again, and \
         look at the log of the server",
    )
    .with_source(cause)
}

/// Why there is no answer.
enum Silence {
    Ended(io::Error),
    Nonsense,
}

/// The answers that come in.
#[derive(Default)]
struct Answers {
    bytes: Vec<u8>,
    used: usize,
    taken: usize,
}

impl Answers {
    /// The next one: a line, which begins with `+` or `-`, or a text, which begins with `$`.
    async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<String, Silence> {
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

    fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }
}

/// The first answer in `bytes`, by its mark, and where it ends; `None` if it is not whole yet.
fn whole(bytes: &[u8]) -> Result<Option<(String, usize)>, Silence> {
    let Some(mark) = bytes.first() else { return Ok(None) };
    if !matches!(mark, b'+' | b'-' | b'$') {
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use tokio::io::DuplexStream;

    use super::*;

    /// What is sent and what comes of it, by a URL and by what the server answers before it closes.
    async fn greeted(url: &str, answers: &[u8]) -> (String, Result<Option<Arc<str>>, Error>) {
        async fn serve(mut server: DuplexStream, answers: &[u8]) -> String {
            server.write_all(answers).await.expect("there is room");
            server.shutdown().await.expect("it is open");
            let mut words = Vec::new();
            server.read_to_end(&mut words).await.expect("the client closes");
            String::from_utf8(words).expect("text")
        }
        let address = Address::parse(url).expect("a good URL");
        let (mut ours, server) = tokio::io::duplex(1 << 20);
        let greet = async move { get_to_know(&mut ours, &address).await };
        tokio::join!(serve(server, answers), greet)
    }

    #[tokio::test]
    async fn what_the_url_says_is_said_and_a_missing_right_to_ping_does_no_harm() {
        let table = [
            ("redis://h", "+PONG\r\n", "PING"),
            ("redis://h/0", "-NOPERM this user has no permissions to run 'ping'\r\n", "PING"),
            ("redis://h", "-ERR unknown command 'PING', with args beginning with: \r\n", "PING"),
            ("redis://:p%20w@h", "+OK\r\n+PONG\r\n", "AUTH p w PING"),
            ("redis://u:p@h/3", "+OK\r\n+OK\r\n+PONG\r\n", "AUTH u p SELECT 3 PING"),
            (
                "redis://h/3?strict=yes",
                "+OK\r\n+PONG\r\n$35\r\n# Server\r\nredis_mode:x\r\nrun_id:a1\r\n\r\n",
                "SELECT 3 PING INFO server",
            ),
        ];
        for (url, answers, words) in table {
            let (sent, outcome) = greeted(url, answers.as_bytes()).await;
            let is_argument = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
            let sent: Vec<_> = sent.split("\r\n").filter(is_argument).collect();
            assert_eq!(sent.join(" "), words, "{url}");
            let run_id = outcome.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(run_id.as_deref(), url.contains("strict").then_some("a1"), "{url}");
        }
    }

    const REFUSALS: &[(&str, &str, ErrorKind, &str)] = &[
        ("redis://h", "-NOAUTH Authentication required.", ErrorKind::Denied, "wants a password"),
        ("redis://:secret@h", "-WRONGPASS invalid", ErrorKind::Denied, "does not accept"),
        (
            "redis://:secret@h",
            "-ERR AUTH x without any password configured",
            ErrorKind::Denied,
            "take the password out",
        ),
        (
            "redis://:secret@h",
            "-ERR unknown command 'AUTH', with args beginning with: 'secret'",
            ErrorKind::Denied,
            "does not take",
        ),
        (
            "redis://u:secret@h",
            "-ERR wrong number of arguments for 'auth' command",
            ErrorKind::Denied,
            "does not take",
        ),
        (
            "redis://:secret@h",
            "-ERR max number of clients reached",
            ErrorKind::Unavailable,
            "`maxclients`",
        ),
        ("redis://h/9", "-ERR DB index is out of range", ErrorKind::Config, "no database"),
        ("redis://h/9", "-ERR SELECT is not allowed in cluster mode", ErrorKind::Config, "Cluster"),
        (
            "redis://h/9",
            "-NOPERM this user has no permissions to run the 'select' command",
            ErrorKind::Denied,
            "the command `select`",
        ),
        ("redis://h/9", "-ERR no", ErrorKind::Config, "does not give the database"),
        ("redis://h", "-LOADING Redis is loading", ErrorKind::Unavailable, "loading"),
        ("redis://h", "-DENIED Redis is running in protected mode", ErrorKind::Denied, "protected"),
        ("redis://h", "-ERR no", ErrorKind::Unavailable, "does not answer a PING"),
        ("redis://h", "HTTP/1.1 400 Bad Request", ErrorKind::Config, "is not a Redis"),
        ("redis://h", "\x15\x03\x01", ErrorKind::Config, "is not a Redis"),
        ("redis://h", "SSH-2.0-OpenSSH", ErrorKind::Config, "is not a Redis"),
        ("redis://h", "+PONG\r\n+PONG", ErrorKind::Config, "is not a Redis"),
        (
            "redis://h?strict=yes",
            "+PONG\r\n-NOPERM this user has no permissions to run the 'info' command",
            ErrorKind::Denied,
            "`+info`",
        ),
        (
            "redis://h?strict=yes",
            "+PONG\r\n-ERR unknown command 'INFO', with args beginning with: 'server'",
            ErrorKind::Config,
            "`run_id`",
        ),
        ("redis://h?strict=yes", "+PONG\r\n$9\r\n# Server\r\n", ErrorKind::Config, "`run_id`"),
        ("redis://h?strict=yes", "+PONG\r\n$9\r\nrun_id:\r\n", ErrorKind::Config, "`run_id`"),
        ("redis://h?strict=yes", "+PONG\r\n$-1", ErrorKind::Config, "is not a Redis"),
        ("redis://h?strict=yes", "+PONG\r\n$99999999", ErrorKind::Config, "is not a Redis"),
    ];

    #[tokio::test]
    async fn each_refusal_of_a_connection_says_what_to_do_and_shows_no_password() {
        for &(url, answer, kind, says) in REFUSALS {
            let (_, outcome) = greeted(url, format!("{answer}\r\n").as_bytes()).await;
            let error = outcome.expect_err(answer);
            let message = error.to_string();
            assert_eq!(error.kind(), kind, "{answer}: {message}");
            assert!(message.contains(says), "{answer}: {message}");
            let says_the_state =
                ["nothing was asked", "nothing was changed", "nothing was granted"];
            assert!(says_the_state.iter().any(|state| message.contains(state)), "{message}");
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            assert!(!format!("{message} {cause} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_closes_or_never_ends_its_line_is_told_from_one_that_answers() {
        for answers in ["", "+PO", "+PONG\r", "+OK\r\n"] {
            let (_, outcome) = greeted("redis://:p@h", answers.as_bytes()).await;
            let error = outcome.expect_err("no PONG");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("ended the connection"), "{error}");
        }
        let (_, outcome) = greeted("redis://h", &b"+".repeat(10 * ANSWER_MAX)).await;
        assert_eq!(outcome.expect_err("no end").kind(), ErrorKind::Config);
    }
}
