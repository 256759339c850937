//! One connection that asks one question after the other, each with a time limit.

use std::sync::Arc;
use std::time::Duration;

use super::facts::{Answer, Gap};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::net::shown;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::codec::{self, Reader};
use crate::store::redis::connector::{Connector, Stream, write_all};
use crate::store::redis::wire::handshake::handshake;
use crate::store::within;

/// How often a connection is opened again. That is enough for all commands that a proxy may not
/// know.
const REOPENED_MAX: usize = 80;

/// How long one answer may take.
const ANSWER_LIMIT: Duration = Duration::from_millis(1_500);

/// How long a connection and its login may take.
const OPEN_LIMIT: Duration = Duration::from_secs(3);

/// The longest answer, in bytes: one step of a scan.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A connection to a server.
pub(super) struct Line {
    host: Arc<dyn Host>,
    stream: Box<dyn Stream>,
    reader: Reader,
    /// When the whole examination ends.
    ends: Moment,
    /// Whether an answer is missing. Later answers would belong to earlier questions.
    is_broken: bool,
    /// Opens the connection again; `None` if it stays closed.
    again: Option<Arc<dyn Connector>>,
    /// How often it was opened again.
    reopened: usize,
    /// Whether a question was asked again because there was no answer in time.
    has_repeated_silence: bool,
    /// The commands at which it ended or fell silent, while a new connection worked.
    ended_at: Vec<String>,
}

impl Line {
    /// Opens a connection and logs in.
    pub(super) async fn open(
        connector: &dyn Connector,
        host: &Arc<dyn Host>,
        ends: Moment,
    ) -> Result<Self, Error> {
        let opening = async {
            let mut stream = connector.open().await?;
            handshake(&mut *stream, &connector.access()).await?;
            Ok(stream)
        };
        let limit = OPEN_LIMIT.min(ends.since(host.now()));
        let stream = match within(Arc::clone(host), limit, opening).await {
            Err(error) if error.kind() == ErrorKind::Unknown => {
                let message = format!("the server does not answer within {limit:?}");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
            opened => opened?,
        };
        let reader = Reader::of_short(ANSWER_BYTES_MAX);
        Ok(Self {
            host: Arc::clone(host),
            stream,
            reader,
            ends,
            is_broken: false,
            again: None,
            reopened: 0,
            has_repeated_silence: false,
            ended_at: Vec::new(),
        })
    }

    /// Opens the connection again if it ends. Some proxies end it at commands that they do not
    /// know.
    pub(super) fn reopening(self, connector: &Arc<dyn Connector>) -> Self {
        Self { again: Some(Arc::clone(connector)), ..self }
    }

    /// Asks one question. If the connection ends, it asks once more on a new one. It also does so
    /// the first time that there is no answer. So a question is not blamed for what happens by
    /// chance.
    pub(super) async fn ask(&mut self, command: Command) -> Answer<Value> {
        let name = name_of(&command);
        if self.ended_at.contains(&name) {
            return Err(Gap::Closed);
        }
        for _ in 0..2 {
            let answer = self.ask_once(&command).await;
            let is_silent = matches!(answer, Err(Gap::Silent));
            if !is_silent && !matches!(answer, Err(Gap::Closed)) || !self.reopen().await {
                return answer;
            }
            // The server may have stood still once. Do not wait for the same again and again.
            if is_silent && std::mem::replace(&mut self.has_repeated_silence, true) {
                break;
            }
        }
        self.ended_at.push(name);
        Err(Gap::Closed)
    }

    async fn ask_once(&mut self, command: &Command) -> Answer<Value> {
        self.tell(std::slice::from_ref(command)).await?;
        self.hear().await
    }

    /// Opens the connection again if it has just ended. Returns whether it works.
    async fn reopen(&mut self) -> bool {
        let Some(connector) = self.again.as_ref().filter(|_| self.reopened < REOPENED_MAX) else {
            return false;
        };
        self.reopened += 1;
        match Self::open(&**connector, &self.host, self.ends).await {
            Ok(new) => {
                (self.stream, self.reader, self.is_broken) = (new.stream, new.reader, false);
            }
            // The server is gone.
            Err(_) => self.again = None,
        }
        self.again.is_some()
    }

    /// How often it was opened again.
    pub(super) const fn reopened(&self) -> usize {
        self.reopened
    }

    /// The commands at which the connection ended or fell silent, while a new one worked.
    pub(super) fn ended_at(&self) -> &[String] {
        &self.ended_at
    }

    /// Asks all questions in one go. Returns the answers in their order. If the connection ends, it
    /// asks the remaining questions one by one.
    pub(super) async fn ask_all(&mut self, commands: &[Command]) -> Vec<Answer<Value>> {
        let mut answers = self.ask_at_once(commands).await;
        let is_missing = |it: &Answer<Value>| matches!(it, Err(Gap::Silent | Gap::Closed));
        let Some(first) = answers.iter().position(is_missing) else { return answers };
        if self.reopen().await {
            for (answer, command) in answers.iter_mut().zip(commands).skip(first) {
                *answer = self.ask(command.clone()).await;
            }
        }
        answers
    }

    async fn ask_at_once(&mut self, commands: &[Command]) -> Vec<Answer<Value>> {
        let mut answers = Vec::with_capacity(commands.len());
        let told = self.tell(commands).await;
        for _ in commands {
            answers.push(match &told {
                Ok(()) => self.hear().await,
                Err(gap) => Err(gap.clone()),
            });
        }
        answers
    }

    async fn tell(&mut self, commands: &[Command]) -> Answer<()> {
        let mut words = Vec::new();
        for command in commands {
            codec::write(command, &mut words);
        }
        let limit = self.limit()?;
        let (host, stream) = (Arc::clone(&self.host), &mut *self.stream);
        let telling = async {
            let written = write_all(stream, &words).await;
            written.map_err(|_| Error::new(ErrorKind::Unavailable, "it ended"))
        };
        let told = within(host, limit, telling).await;
        self.is_broken |= told.is_err();
        told.map_err(|error| missing(&error))
    }

    /// Waits for the next answer or message.
    pub(super) async fn hear(&mut self) -> Answer<Value> {
        let limit = self.limit()?;
        let (host, reader, stream) = (Arc::clone(&self.host), &mut self.reader, &mut *self.stream);
        let hearing = async {
            let heard = reader.next(stream).await.ok().and_then(Result::ok);
            heard.ok_or_else(|| Error::new(ErrorKind::Unavailable, "it ended"))
        };
        let heard = within(host, limit, hearing).await;
        self.is_broken |= heard.is_err();
        heard.map_err(|error| missing(&error))?.answer().map_err(|none| gap(&none))
    }

    /// Whether an answer is missing.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn limit(&self) -> Answer<Duration> {
        let left = self.ends.since(self.host.now());
        let is_over = self.is_broken || left.is_zero();
        if is_over { Err(Gap::Silent) } else { Ok(ANSWER_LIMIT.min(left)) }
    }
}

/// The name of a command, for people.
fn name_of(command: &Command) -> String {
    shown(&String::from_utf8_lossy(command.args().next().unwrap_or_default()))
}

/// Why there is no answer: the limit is over, or the connection ended.
fn missing(error: &Error) -> Gap {
    if error.kind() == ErrorKind::Unknown { Gap::Silent } else { Gap::Closed }
}

fn gap(none: &NoAnswer) -> Gap {
    let NoAnswer::Refused { code, text } = none else { return Gap::Silent };
    let lower = text.to_ascii_lowercase();
    let says = |words: &str| lower.contains(words);
    let is_denied = code == "NOPERM" || says("the user executing the script can't");
    let unknown =
        ["unknown command", "unknown redis command", "unknown subcommand", "unsupported command"];
    if unknown.into_iter().any(says) {
        Gap::Absent
    } else if is_denied && says("channel") {
        Gap::DeniedChannel
    } else if is_denied && says("key") {
        Gap::DeniedKey
    } else if is_denied {
        Gap::Denied
    } else {
        Gap::Refused { code: shown(code), text: shown(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_which_right_is_missing() {
        let refused = |text: &str| {
            let code = text.split(' ').next().expect("a first word").to_owned();
            gap(&NoAnswer::Refused { code, text: text.to_owned() })
        };
        let other = |code: &str, text: &str| Gap::Refused { code: code.into(), text: text.into() };
        let table = [
            ("NOPERM this user has no permissions to run the 'info' command", Gap::Denied),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Gap::DeniedKey,
            ),
            ("NOPERM No permissions to access a channel", Gap::DeniedChannel),
            ("ERR unknown command 'WAITAOF'", Gap::Absent),
            ("ERR unsupported command 'TIME'", Gap::Absent),
            ("ERR The user executing the script can't run this command", Gap::Denied),
            ("OOM command not allowed", other("OOM", "OOM command not allowed")),
            ("WEIRD \u{1b}[31m", other("WEIRD", "WEIRD \\u{1b}[31m")),
        ];
        for (text, expected) in table {
            assert_eq!(refused(text), expected, "{text}");
        }
        assert_eq!(gap(&NoAnswer::Broken { reason: String::new() }), Gap::Silent);
    }
}
