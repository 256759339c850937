//! The first words on a connection: who we are, which database, whether a server is there, and,
//! where that matters, which process it is and whether it can tell of copies.
//!
//! Spoken here and not by the client crate, which answers a refused password without what the
//! server said, and takes any other error in its place, such as too many clients, for a wrong
//! password.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::answers::{Answers, Silence};
use super::copies::Replicas;
use super::error::{Said, refusal};
use super::terms::Terms;
use super::url::Address;
use crate::core::error::{Error, ErrorKind};

/// Logs in, chooses the database, and has the server answer once. All in one round trip.
///
/// # Errors
///
/// `Denied`, `Config` or `Unavailable`: nothing was asked of the server yet.
pub(super) async fn greet(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
) -> Result<(), Error> {
    speak(stream, address, Terms::default()).await.map(drop)
}

/// What was heard of a server, where the terms want to know it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Acquaintance {
    /// Which process it is.
    pub(super) run_id: Option<Arc<str>>,
    /// How many replicas it has.
    pub(super) replicas: Option<u32>,
}

/// As [`greet`], and asks in the same breath what the terms want to know: the `run_id` of the
/// server where they are strict, and where they want copies, whether it can tell of them.
pub(super) async fn get_to_know(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
) -> Result<Acquaintance, Error> {
    speak(stream, address, address.terms).await
}

async fn speak(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    address: &Address,
    terms: Terms,
) -> Result<Acquaintance, Error> {
    let mut words = Vec::with_capacity(128);
    let steps = write(address, terms, &mut words);
    // A server that has no room says so and closes, maybe before it has read a word.
    let written = stream.write_all(&words).await;
    let mut answers = Answers::default();
    let mut heard = Acquaintance::default();
    for step in steps {
        match answers.next(stream).await {
            Ok(answer) => step.hear(&answer, &mut heard)?,
            Err(Silence::Nonsense) => return Err(no_redis()),
            Err(Silence::Ended(read)) => return Err(went_away(written.err().unwrap_or(read))),
        }
    }
    if answers.is_empty() { Ok(heard) } else { Err(no_redis()) }
}

/// Writes what is said, and returns what each answer will be to.
fn write(address: &Address, terms: Terms, words: &mut Vec<u8>) -> Vec<Step> {
    let mut steps = Vec::with_capacity(8);
    if let Some(password) = &address.password {
        let mut auth = redis::cmd("AUTH");
        if let Some(username) = &address.username {
            auth.arg(username);
        }
        auth.arg(password).write_packed_command(words);
        steps.push(Step::Auth);
    }
    if address.db != 0 {
        redis::cmd("SELECT").arg(address.db).write_packed_command(words);
        steps.push(Step::Select);
    }
    redis::cmd("PING").write_packed_command(words);
    steps.push(Step::Ping);
    if terms.strict.is_some() {
        redis::cmd("INFO").arg("server").write_packed_command(words);
        steps.push(Step::Info);
    }
    // What this connection has not written it need not wait for, so both are answered at once.
    if terms.copies.fsync {
        redis::cmd("WAITAOF").arg(1).arg(0).arg(1).write_packed_command(words);
        steps.extend([Step::WaitAof, Step::Count, Step::Count]);
    } else if terms.copies.is_any() {
        redis::cmd("WAIT").arg(0).arg(1).write_packed_command(words);
        steps.push(Step::Wait);
    }
    if terms.copies.replicas == Replicas::Majority {
        redis::cmd("INFO").arg("replication").write_packed_command(words);
        steps.push(Step::Replication);
    }
    steps
}

/// A line of what INFO says.
fn line_of<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The `run_id` in what INFO says: a line of its own.
fn run_id_in(info: &str) -> Option<Arc<str>> {
    let run_id = line_of(info, "run_id:")?;
    let is_id = !run_id.is_empty() && run_id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| run_id.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Auth,
    Select,
    Ping,
    Info,
    Wait,
    /// Answered with two numbers.
    WaitAof,
    /// One of them.
    Count,
    Replication,
}

impl Step {
    /// Takes in what the server says, if it went along. `answer` begins with its mark.
    fn hear(self, answer: &str, heard: &mut Acquaintance) -> Result<(), Error> {
        let is_fit = match self {
            Self::Wait | Self::Count => answer.starts_with([':', '-']),
            Self::WaitAof => answer == "*2" || answer.starts_with('-'),
            _ => answer.starts_with(['+', '$', '-']),
        };
        if !is_fit {
            return Err(no_redis());
        }
        self.check(answer)?;
        match self {
            Self::Info => heard.run_id = Some(run_id_in(answer).ok_or_else(no_run_id)?),
            Self::Replication => {
                let count = line_of(answer, "connected_slaves:").and_then(|it| it.parse().ok());
                heard.replicas = Some(count.ok_or_else(no_replicas)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the server went along.
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
            (Self::Replication, ErrorKind::Denied) if code == "NOPERM" => Err(refused(
                ErrorKind::Denied,
                "`replicas=majority` has to ask the server how many replicas it has, and this user \
                 has no right to (`+info`)",
                text,
            )),
            (Self::Replication, ErrorKind::Unknown | ErrorKind::Unsupported) => {
                Err(no_replicas().with_source(Said::new(text)))
            }
            (Self::Wait | Self::WaitAof, _) => Err(self.no_copies(code, text, error)),
            _ => Err(error),
        }
    }
}

impl Step {
    /// Why the server will not tell of copies.
    fn no_copies(self, code: &str, text: &str, error: Error) -> Error {
        let (kind, what) = match (self, error.kind()) {
            (Self::WaitAof, ErrorKind::Denied) if code == "NOPERM" => {
                (ErrorKind::Denied, "`fsync` asks by WAITAOF, and this user may not (`+waitaof`)")
            }
            (_, ErrorKind::Denied) if code == "NOPERM" => {
                (ErrorKind::Denied, "`replicas` asks by WAIT, and this user may not (`+wait`)")
            }
            (Self::WaitAof, _) if text.contains("unknown command") => {
                (ErrorKind::Unsupported, "`fsync` needs WAITAOF, which is in Redis 7.2 and later")
            }
            (_, _) if text.contains("unknown command") => {
                (ErrorKind::Unsupported, "`replicas` needs WAIT, which the server does not have")
            }
            (_, ErrorKind::Unknown) if text.contains("appendonly") => {
                (ErrorKind::Config, "`fsync` needs an append-only file (`appendonly yes`)")
            }
            (_, ErrorKind::Unknown) if text.contains("replica") => {
                (ErrorKind::Config, "the server is a replica of a primary; name the primary")
            }
            (_, ErrorKind::Unknown) => {
                (ErrorKind::Config, "the server does not say whether there are copies of a write")
            }
            _ => return error,
        };
        refused(kind, what, text)
    }
}

/// `Config`: it will not say so by asking again.
fn no_replicas() -> Error {
    Error::new(
        ErrorKind::Config,
        "the server does not say how many replicas it has (`INFO replication`), so that \
         `replicas=majority` has no meaning; nothing was asked, allow the command, or name the \
         number",
    )
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

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::*;
    use crate::store::redis::answers::ANSWER_MAX;

    /// What is sent and what comes of it, by a URL and by what the server answers before it closes.
    async fn greeted(url: &str, answers: &[u8]) -> (String, Result<Acquaintance, Error>) {
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
            ("redis://h?replicas=2", "+PONG\r\n:0\r\n", "PING WAIT 0 1"),
            (
                "redis://h?replicas=majority",
                "+PONG\r\n:0\r\n$33\r\nrole:master\r\nconnected_slaves:4\r\n\r\n",
                "PING WAIT 0 1 INFO replication",
            ),
            ("redis://h?fsync=yes", "+PONG\r\n*2\r\n:1\r\n:0\r\n", "PING WAITAOF 1 0 1"),
            (
                "redis://h?fsync=yes&replicas=majority&strict=yes",
                "+PONG\r\n$14\r\n# S\r\nrun_id:a1\r\n*2\r\n:1\r\n:0\r\n$23\r\n# R\r\n\
                 connected_slaves:4\r\n",
                "PING INFO server WAITAOF 1 0 1 INFO replication",
            ),
        ];
        for (url, answers, words) in table {
            let (sent, outcome) = greeted(url, answers.as_bytes()).await;
            let is_argument = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
            let sent: Vec<_> = sent.split("\r\n").filter(is_argument).collect();
            assert_eq!(sent.join(" "), words, "{url}");
            let heard = outcome.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(heard.run_id.as_deref(), url.contains("strict").then_some("a1"), "{url}");
            assert_eq!(heard.replicas, url.contains("majority").then_some(4), "{url}");
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
        (
            "redis://h?replicas=1",
            "+PONG\r\n-NOPERM this user has no permissions to run the 'wait' command",
            ErrorKind::Denied,
            "`+wait`",
        ),
        (
            "redis://h?replicas=1",
            "+PONG\r\n-ERR WAIT cannot be used with replica instances. Please also note",
            ErrorKind::Config,
            "name the primary",
        ),
        (
            "redis://h?replicas=1",
            "+PONG\r\n-ERR unknown command 'WAIT', with args beginning with: '0'",
            ErrorKind::Unsupported,
            "needs WAIT",
        ),
        ("redis://h?replicas=1", "+PONG\r\n-ERR no", ErrorKind::Config, "copies of a write"),
        ("redis://h?replicas=1", "+PONG\r\n-LOADING no", ErrorKind::Unavailable, "loading"),
        ("redis://h?replicas=1", "+PONG\r\n+OK", ErrorKind::Config, "is not a Redis"),
        (
            "redis://h?replicas=majority",
            "+PONG\r\n:0\r\n-NOPERM this user has no permissions to run the 'info' command",
            ErrorKind::Denied,
            "`+info`",
        ),
        (
            "redis://h?replicas=majority",
            "+PONG\r\n:0\r\n$13\r\n# Replication",
            ErrorKind::Config,
            "how many replicas",
        ),
        (
            "redis://h?fsync=yes",
            "+PONG\r\n-ERR WAITAOF cannot be used when numlocal is set but appendonly is off.",
            ErrorKind::Config,
            "`appendonly yes`",
        ),
        (
            "redis://h?fsync=yes",
            "+PONG\r\n-ERR unknown command 'WAITAOF', with args beginning with: '1' '0' '1'",
            ErrorKind::Unsupported,
            "Redis 7.2",
        ),
        (
            "redis://h?fsync=yes",
            "+PONG\r\n-NOPERM this user has no permissions to run the 'waitaof' command",
            ErrorKind::Denied,
            "`+waitaof`",
        ),
        ("redis://h?fsync=yes", "+PONG\r\n:1", ErrorKind::Config, "is not a Redis"),
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
