//! The handshake on a connection: logs in, selects the database, and checks that a server answers.
//! It also asks whether the database is switched to strict mode, and so learns whether this client
//! is strict. If the terms need it, it asks for the identity of the process, and whether the server
//! can confirm copies.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use crate::core::error::{Error, ErrorKind};
use crate::store::net;
use crate::store::redis::codec::command::Command;
use crate::store::redis::codec::{self, Frame, Reader};
use crate::store::redis::connector::{Access, Stream, write_all};
use crate::store::redis::error::{refusal, said};
use crate::store::redis::keys;
use crate::store::redis::scripts::reasons::no_epoch;
use crate::store::redis::terms::record::Act;
use crate::store::redis::terms::{Replicas, Strict, Strictness};

/// The most bytes of one answer. The text about protected mode takes 1 KB.
const ANSWER_MAX: usize = 16 * 1024;

/// Logs in, selects the database, and waits for one answer of the server, all in one round trip.
///
/// # Errors
///
/// `Denied`, `Config` or `Unavailable`: no request was sent yet.
pub(in crate::store::redis) async fn handshake(
    stream: &mut dyn Stream,
    access: &Access,
) -> Result<(), Error> {
    exchange(stream, access, login(access), &mut ServerFacts::default()).await
}

/// Facts about a server, as far as the terms need them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) struct ServerFacts {
    /// The run id of the process.
    pub(in crate::store::redis) run_id: Option<Arc<str>>,
    /// The replication id of its data.
    pub(in crate::store::redis) replid: Option<Arc<str>>,
    /// The number of its replicas.
    pub(in crate::store::redis) replicas: Option<u32>,
    /// The terms on which the connection is strict; `None` if it is not.
    pub(in crate::store::redis) strict: Option<Strict>,
    /// Whether the database says that nobody has switched it to strict mode, or somebody has
    /// switched it off.
    pub(in crate::store::redis) is_off: bool,
}

/// Like [`handshake`], and asks for what the terms need, in the same round trip:
///
/// - whether the database is switched to strict mode
/// - for a strict client: the `run_id` and the `master_replid` of the server
/// - for terms with copies: whether the server can confirm copies
///
/// A client that does not know yet that it is strict asks for the ids in a second round trip.
pub(in crate::store::redis) async fn handshake_on_terms(
    stream: &mut dyn Stream,
    access: &Access,
) -> Result<ServerFacts, Error> {
    let terms = access.terms();
    let strict = terms.strict.strict();
    let mut heard = ServerFacts { strict, ..ServerFacts::default() };
    let mut requests = login(access);
    requests.questions(access, strict.is_some());
    exchange(stream, access, requests, &mut heard).await?;
    if heard.strict.is_some() && heard.run_id.is_none() {
        let mut requests = Requests::default();
        requests.ids();
        exchange(stream, access, requests, &mut heard).await?;
    }
    Ok(heard)
}

/// Sends requests, and hears their answers.
async fn exchange(
    stream: &mut dyn Stream,
    access: &Access,
    Requests { words, steps }: Requests,
    heard: &mut ServerFacts,
) -> Result<(), Error> {
    // A server at its limit of clients reports that and closes, perhaps before it has read
    // anything.
    let written = write_all(stream, &words).await;
    let mut reader = Reader::of_short(ANSWER_MAX);
    for (number, step) in steps.iter().enumerate() {
        let answer = match reader.next(stream).await {
            Ok(answer) => answer.map_err(|_refused| no_redis())?,
            Err(ended) => {
                // A refusal by the server says more than a failed write.
                let refused = net::failure(&ended);
                let cause = written.err().unwrap_or(ended);
                return Err(refused.unwrap_or_else(|| went_away(cause, &steps[number..])));
            }
        };
        step.hear(&answer, access, heard)?;
    }
    if reader.is_empty() { Ok(()) } else { Err(no_redis()) }
}

/// Requests that are sent together, and the step for each answer.
#[derive(Default)]
struct Requests {
    words: Vec<u8>,
    steps: Vec<Step>,
}

impl Requests {
    fn ask(&mut self, step: Step, command: Command) {
        codec::write(&command, &mut self.words);
        self.steps.push(step);
    }

    /// Adds the requests that the terms need.
    fn questions(&mut self, access: &Access, is_strict: bool) {
        let copies = access.terms.copies;
        if access.settled.asks() {
            let record = Command::new("HMGET").arg(keys::EPOCH).arg(keys::SWITCH);
            self.ask(Step::Record, record);
        }
        if is_strict {
            self.ids();
        }
        // This connection has written nothing, so the server answers `WAIT` and `WAITAOF` at once.
        if copies.fsync {
            self.ask(Step::WaitAof, Command::new("WAITAOF").number(1).number(0).number(1));
        } else if copies.is_any() {
            self.ask(Step::Wait, Command::new("WAIT").number(0).number(1));
        }
        if copies.replicas == Replicas::Majority {
            self.ask(Step::Replication, Command::new("INFO").arg("replication"));
        }
    }

    /// Adds the requests for the ids of the process and of its data.
    fn ids(&mut self) {
        self.ask(Step::Info, Command::new("INFO").arg("server"));
        self.ask(Step::Replid, Command::new("INFO").arg("replication"));
    }
}

/// The login, the database, and one request that every server answers.
fn login(access: &Access) -> Requests {
    let mut requests = Requests::default();
    if let Some(password) = &access.password {
        let auth = Command::new("AUTH");
        let auth = access.username.iter().fold(auth, Command::arg);
        requests.ask(Step::Auth, auth.arg(password));
    }
    if access.db != 0 {
        requests.ask(Step::Select, Command::new("SELECT").number(access.db.into()));
    }
    if access.primary {
        requests.ask(Step::Role, Command::new("ROLE"));
    }
    requests.ask(Step::Ping, Command::new("PING"));
    requests
}

/// The value of a line in the answer to INFO.
fn line_of<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The id of the process in the answer to INFO.
pub(in crate::store::redis) fn run_id(info: &str) -> Option<Arc<str>> {
    id_in(info, "run_id:")
}

/// An id in the answer to INFO, on a line of its own.
fn id_in(info: &str, name: &str) -> Option<Arc<str>> {
    let id = line_of(info, name)?;
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then(|| id.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Auth,
    Select,
    /// Whether the server is a primary.
    Role,
    Ping,
    Info,
    Replid,
    /// Whether the database is switched to strict mode.
    Record,
    Wait,
    WaitAof,
    Replication,
}

impl Step {
    fn hear(self, answer: &Frame, access: &Access, heard: &mut ServerFacts) -> Result<(), Error> {
        if self == Self::Record {
            return record(answer, access, heard);
        }
        let info = match (self, answer) {
            (_, Frame::Error(text)) => return self.check(text),
            (Self::Role, Frame::Array(role))
                if role.first() == Some(&Frame::Bytes(b"master".into())) =>
            {
                return Ok(());
            }
            (Self::Role, Frame::Array(_)) => return Err(no_primary()),
            (Self::Role, _) => return Err(no_redis()),
            (Self::Wait, Frame::Int(_)) => return Ok(()),
            (Self::WaitAof, Frame::Array(counts)) if counts.len() == 2 => return Ok(()),
            (Self::Wait | Self::WaitAof, _) => return Err(no_redis()),
            (_, Frame::Bytes(text)) => String::from_utf8_lossy(text),
            _ => return Err(no_redis()),
        };
        match self {
            Self::Info => heard.run_id = Some(run_id(&info).ok_or_else(no_run_id)?),
            Self::Replid => {
                heard.replid = Some(id_in(&info, "master_replid:").ok_or_else(no_run_id)?);
            }
            Self::Replication => {
                let count = line_of(&info, "connected_slaves:").and_then(|it| it.parse().ok());
                heard.replicas = Some(count.ok_or_else(no_replicas)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the error for a refusal, unless the refusal does no harm.
    fn check(self, text: &str) -> Result<(), Error> {
        let code = codec::code(text);
        let error = refusal(code, text);
        match (self, error.kind()) {
            // A user may lack the right to PING, or the command may be renamed. Such an answer
            // still comes from a Redis server.
            (Self::Ping, ErrorKind::Unsupported) => Ok(()),
            (Self::Ping, ErrorKind::Denied) if code == "NOPERM" => Ok(()),
            // The user has no right to read the key, or the server keeps the key elsewhere.
            (Self::Record, ErrorKind::Denied | ErrorKind::Config | ErrorKind::Unsupported) => {
                Ok(())
            }
            // Only clusters say that, and they have no strict mode.
            (Self::Record, _) if matches!(code, "CLUSTERDOWN" | "TRYAGAIN") => Ok(()),
            (Self::Select, ErrorKind::Unsupported) => Err(refused(
                ErrorKind::Config,
                "the URL names a database, and the server does not know `SELECT`, so perhaps it is \
                 a proxy",
                LEAVE_OUT_DB,
                text,
            )),
            (Self::Role, ErrorKind::Unsupported) => Err(refused(
                ErrorKind::Unsupported,
                "a server behind sentinels is asked for its ROLE, and it does not know the command",
                "enable `ROLE` on every server",
                text,
            )),
            (Self::Select, ErrorKind::Unknown) => Err(refused(
                ErrorKind::Config,
                "the server refuses the database of the URL",
                CORRECT_URL,
                text,
            )),
            (Self::Auth, ErrorKind::Unknown | ErrorKind::Unsupported) => Err(refused(
                ErrorKind::Denied,
                "the server refuses the user and the password of the URL",
                CORRECT_URL,
                text,
            )),
            (Self::Ping, ErrorKind::Unknown) => Err(refused(
                ErrorKind::Unavailable,
                "the server does not answer a PING",
                "try again, and read the log of the server",
                text,
            )),
            (Self::Role, ErrorKind::Denied) if code == "NOPERM" => Err(refused(
                ErrorKind::Denied,
                "a server behind sentinels is asked for its ROLE, and this user has no right to it",
                "allow the user `+role`",
                text,
            )),
            (Self::Info | Self::Replid, ErrorKind::Denied) if code == "NOPERM" => Err(refused(
                ErrorKind::Denied,
                "strict mode needs INFO to identify the server process, and this user has no right \
                 to it",
                ALLOW_INFO,
                text,
            )),
            (Self::Info | Self::Replid, ErrorKind::Unknown | ErrorKind::Unsupported) => {
                Err(no_run_id().with_source(said(text)))
            }
            (Self::Replication, ErrorKind::Denied) if code == "NOPERM" => Err(refused(
                ErrorKind::Denied,
                "`replicas=majority` needs INFO to count the replicas, and this user has no right \
                 to it",
                ALLOW_INFO,
                text,
            )),
            (Self::Replication, ErrorKind::Unknown | ErrorKind::Unsupported) => {
                Err(no_replicas().with_source(said(text)))
            }
            (Self::Wait | Self::WaitAof, _) => Err(self.no_copies(code, text, error)),
            _ => Err(error),
        }
    }
}

/// Hears the record of the database, and decides whether the connection is strict.
fn record(answer: &Frame, access: &Access, heard: &mut ServerFacts) -> Result<(), Error> {
    let is_on = match answer {
        // The key may have been the record of a database in strict mode. A strict client learns
        // this from its requests for locks, and can still renew and release.
        Frame::Error(text) if codec::code(text) == "WRONGTYPE" && heard.strict.is_none() => {
            return Err(no_epoch().with_source(said(text)));
        }
        Frame::Error(text) => {
            unread(text, access)?;
            false
        }
        Frame::Array(fields) => {
            let is_on = match &fields[..] {
                [Frame::Nil] => false,
                [Frame::Bytes(text)] => Act::switches_on(text),
                _ => return Err(no_redis()),
            };
            heard.is_off = !is_on;
            is_on
        }
        _ => return Err(no_redis()),
    };
    heard.strict = access.settled.agree(access.terms.strict, is_on)?;
    Ok(())
}

/// Hears that the server does not show the record. A client that does not know yet whether it is
/// strict must not take that for *not in strict mode*, unless the user has no right to the record
/// or the server cannot have one.
fn unread(text: &str, access: &Access) -> Result<(), Error> {
    let code = codec::code(text);
    let expected = access.settled.resolve(access.terms.strict);
    match Step::Record.check(text) {
        Ok(()) => {
            let is_denied = code == "NOPERM" && expected == Strictness::AsDatabase;
            if is_denied && access.settled.tell_once() {
                tracing::warn!(
                    "this user has no right to read `:lh:epoch`, so this client is not strict even \
                     if the database is switched to strict mode; allow `+hmget ~:lh:epoch`"
                );
            }
            Ok(())
        }
        Err(error) if error.kind() != ErrorKind::Unknown => Err(error),
        // Such a client is strict even if the database is not.
        Err(_) if expected.strict().is_some() => Ok(()),
        Err(_) => Err(not_said(text)),
    }
}

/// `Unavailable`, because the server may say it soon.
fn not_said(text: &str) -> Error {
    refused(
        ErrorKind::Unavailable,
        "the server does not say whether the database is switched to strict mode",
        "try again",
        text,
    )
}

impl Step {
    /// The error if the server cannot confirm copies.
    fn no_copies(self, code: &str, text: &str, error: Error) -> Error {
        let is_absent = text.contains("unknown command");
        let (kind, what, next) = match (self, error.kind()) {
            (Self::WaitAof, ErrorKind::Denied) if code == "NOPERM" => (
                ErrorKind::Denied,
                "`fsync` needs WAITAOF, and this user has no right to it",
                "allow the user `+waitaof`",
            ),
            (_, ErrorKind::Denied) if code == "NOPERM" => (
                ErrorKind::Denied,
                "`replicas` needs WAIT, and this user has no right to it",
                "allow the user `+wait`",
            ),
            (Self::WaitAof, _) if is_absent => (
                ErrorKind::Unsupported,
                "`fsync` needs WAITAOF, which the server does not have",
                "use Redis 7.2 or later, or leave `fsync` out of the URL of every client",
            ),
            (_, _) if is_absent => (
                ErrorKind::Unsupported,
                "`replicas` needs WAIT, which the server does not have",
                "use another server, or leave `replicas` out of the URL of every client",
            ),
            (_, ErrorKind::Unknown) if text.contains("appendonly") => (
                ErrorKind::Config,
                "`fsync` needs an append-only file, which the server does not have",
                "set `appendonly yes` on the server, or leave `fsync` out of the URL of every \
                 client",
            ),
            (_, ErrorKind::Unknown) if text.contains("replica") => (
                ErrorKind::Config,
                "the server is a replica of a primary",
                "name the primary in the URL",
            ),
            (_, ErrorKind::Unknown) => (
                ErrorKind::Config,
                "the server does not report the copies of a write",
                "see the cause, or leave `replicas` and `fsync` out of the URL of every client",
            ),
            _ => return error,
        };
        refused(kind, what, next, text)
    }
}

/// `Unavailable`, because the sentinels soon name another server.
fn no_primary() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server that the sentinels name is a replica; no request was sent; try again when the \
         failover is over",
    )
}

/// `Config`, because retrying does not help.
fn no_replicas() -> Error {
    Error::new(
        ErrorKind::Config,
        "the server does not report its number of replicas (`INFO replication`), which \
         `replicas=majority` needs; no request was sent; allow the command, or write a number such \
         as `replicas=2` in the URL",
    )
}

/// `Config`, because retrying does not help.
pub(in crate::store::redis) fn no_run_id() -> Error {
    Error::new(
        ErrorKind::Config,
        "the server does not report a `run_id` and a `master_replid` (`INFO server`, `INFO \
         replication`), so a strict client cannot notice that the server forgot its data; no \
         request was sent; allow the command, or do without strict mode: `leasehold strict off`, \
         and no `strict=yes` in the URL of any client",
    )
}

const CORRECT_URL: &str = "see the cause, and correct the URL";

const ALLOW_INFO: &str = "allow the user `+info`";

/// The error for a refused request, with the next step for the user.
fn refused(kind: ErrorKind, what: &str, next: &str, text: &str) -> Error {
    let message = format!("{what}; no request was sent; {next}");
    Error::new(kind, message).with_source(said(text))
}

/// `Config`, because retrying does not turn it into a Redis server.
fn no_redis() -> Error {
    Error::new(
        ErrorKind::Config,
        "this is not a Redis or Valkey server, or it requires TLS; no request was sent; correct \
         the host and the port in the URL, or write `rediss://` for TLS",
    )
}

/// The error if the connection ended. Some proxies end it at a command that they do not know.
fn went_away(cause: io::Error, unanswered: &[Step]) -> Error {
    let mut message = "the server ended the connection before it answered; no request was sent; \
                       try again, read the log of the server, and write `rediss://` if it has TLS \
                       at this port"
        .to_owned();
    let unknown = unanswered.iter().find_map(|step| match step {
        Step::Select => Some(("SELECT", LEAVE_OUT_DB)),
        Step::Role => Some(("ROLE", "write the sentinels' own addresses in the URL")),
        Step::Wait | Step::Replication => Some(("WAIT", "leave `replicas` out of the URL")),
        Step::WaitAof => Some(("WAITAOF", "leave `fsync` out of the URL")),
        Step::Info | Step::Replid => Some(("INFO", "leave `strict=yes` out of the URL")),
        Step::Auth | Step::Ping | Step::Record => None,
    });
    if let Some((command, remedy)) = unknown {
        message.push_str(&format!("; perhaps it is a proxy without {command}: then {remedy}"));
    }
    Error::new(ErrorKind::Unavailable, message).with_source(cause)
}

/// The remedy if the server may be a proxy that knows only one database.
const LEAVE_OUT_DB: &str = "leave the database out of the URL of every client";
