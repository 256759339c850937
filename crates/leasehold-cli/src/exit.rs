//! Exit codes: one from the table below, the command's own, or death by a signal.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use leasehold::{Error, ErrorKind};
use serde_json::Value;

/// The table in `--help`. Scripts depend on it: rows are added, never changed.
pub(crate) const TABLE: &str = "\
Exit codes:
  0..255  run: the command's own; a signal that kills it also ends leasehold (a shell shows 128+n).
          elect: the same, once it is done
  1, 2    doctor: a warning with --strict; a failed check
  64      usage: the command line cannot be understood, or `unlock` was not confirmed
  69      the store cannot be reached, its answer was lost, or it is quarantined
  75      the lock is taken, or the wait elapsed (-E changes it)
  77      the store denied access
  78      contradictory or impossible configuration: an unusable name, ttl, URL or file
  79      the lock was lost (`run` stops its command), or the given token does not hold it
  124     the time of --max-hold is over (`run` stops its command)
  125     leasehold itself failed
  126     the command cannot be executed
  127     the command was not found
  129,130,131,143
          interrupted while waiting (128+n): nothing was acquired, no place in line remains
Codes will be added: treat an unknown code as a failure.";

/// How long leaving the line, or releasing, may delay our end.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal, raised on ourselves, so that a shell sees the real cause.
    Signal(i32),
}

impl Exit {
    /// Success.
    pub(crate) const OK: Self = Self::Code(0);
    /// `doctor --strict` found something that makes locks weaker.
    pub(crate) const WARNED: Self = Self::Code(1);
    /// `doctor` found that locks do not work, or are not safe.
    pub(crate) const FAILED: Self = Self::Code(2);
    /// The command line cannot be understood.
    pub(crate) const USAGE: Self = Self::Code(64);
    /// The lock is taken.
    pub(crate) const TAKEN: Self = Self::Code(75);
    /// The options contradict each other, or the configuration is impossible.
    pub(crate) const CONFIG: Self = Self::Code(78);
    /// The lock was lost.
    pub(crate) const LOST: Self = Self::Code(79);
    /// The time of `--max-hold` was over.
    pub(crate) const TIME_OVER: Self = Self::Code(124);
    /// Leasehold itself failed.
    pub(crate) const INTERNAL: Self = Self::Code(125);
    /// The command cannot be executed.
    pub(crate) const CANNOT_EXECUTE: Self = Self::Code(126);
    /// The command was not found.
    pub(crate) const NOT_FOUND: Self = Self::Code(127);

    /// The code that a shell shows.
    pub(crate) fn shown(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
        }
    }
}

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Good to know; left out by `--quiet`.
    Info,
    /// The lock or the command is in danger.
    Warning,
    /// The command failed.
    Error,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Why a command failed, ready to be shown.
#[derive(Debug)]
pub(crate) struct Failure {
    /// How the process ends.
    pub(crate) exit: Exit,
    /// One word for programs.
    pub(crate) kind: &'static str,
    /// Says what happened, the state of the lock, and what to do next. Includes the causes.
    pub(crate) message: String,
    /// The lock that failed.
    pub(crate) name: Option<String>,
    /// The holder, if the lock is taken.
    pub(crate) holder: Option<Value>,
    /// How serious it is: *taken* is an answer, not an error.
    pub(crate) level: Level,
}

impl Failure {
    /// A failure that Leasehold found itself.
    pub(crate) fn new(exit: Exit, kind: &'static str, message: impl Into<String>) -> Self {
        Self { exit, kind, message: message.into(), name: None, holder: None, level: Level::Error }
    }

    /// Contradictory or impossible configuration.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::CONFIG, ErrorKind::Config.as_str(), message)
    }

    /// A failure of Leasehold itself, often because the system refused something.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::INTERNAL, "internal", message)
    }

    /// The message without the leading name of the lock, for messages that have named it.
    pub(crate) fn unnamed(&self) -> &str {
        without_name(&self.message, self.name.as_deref())
    }

    /// The same failure, with the name of the lock.
    pub(crate) fn about(mut self, name: &str) -> Self {
        self.name.get_or_insert_with(|| name.to_owned());
        self
    }

    /// Like [`about`](Self::about), unless the failure concerns several locks.
    pub(crate) fn about_any(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.about(name),
            None => self,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The error with its causes.
fn causes(error: &Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        // Many errors repeat their cause in their own text.
        let text = current.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = current.source();
    }
    message
}

/// The error and its causes without the leading name of the lock, for messages that have named it.
pub(crate) fn unnamed(error: &Error) -> String {
    without_name(&causes(error), error.name()).to_owned()
}

fn without_name<'a>(text: &'a str, name: Option<&str>) -> &'a str {
    let head = name.map(|name| format!("`{}`: ", name.escape_debug())).unwrap_or_default();
    text.strip_prefix(&head).unwrap_or(text)
}

/// The name, if there is one. A message that concerns several locks names none.
pub(crate) fn only(names: &[String]) -> Option<&str> {
    match names {
        [name] => Some(name),
        _ => None,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = causes(&error);
        Self {
            exit: Exit::Code(error.kind().exit_code()),
            kind: error.kind().as_str(),
            message,
            name: error.name().map(str::to_owned),
            holder: None,
            level: Level::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_error_ends_with_its_code_and_keeps_its_causes() {
        for &kind in ErrorKind::ALL {
            let error = Error::new(kind, "it went wrong")
                .with_name("x")
                .with_source(std::io::Error::other("disk on fire"));
            assert_eq!(unnamed(&error), "it went wrong: disk on fire");
            let failure = Failure::from(error);
            assert_eq!(failure.exit, Exit::Code(kind.exit_code()));
            assert_eq!(failure.kind, kind.as_str());
            assert_eq!(failure.message, "`x`: it went wrong: disk on fire");
            assert_eq!(failure.unnamed(), "it went wrong: disk on fire");
            assert_eq!(failure.name.as_deref(), Some("x"));
        }
    }

    #[test]
    fn every_code_that_we_end_with_is_in_the_table() {
        let ours = [
            Exit::USAGE,
            Exit::TAKEN,
            Exit::CONFIG,
            Exit::LOST,
            Exit::TIME_OVER,
            Exit::INTERNAL,
            Exit::CANNOT_EXECUTE,
            Exit::NOT_FOUND,
        ];
        let kinds = ErrorKind::ALL.iter().map(|kind| Exit::Code(kind.exit_code()));
        for exit in ours.into_iter().chain(kinds) {
            assert!(TABLE.contains(&format!("\n  {} ", exit.shown())), "{exit:?}");
        }
        assert!(TABLE.contains("unknown code as a failure"));
    }

    #[test]
    fn a_signal_is_shown_as_128_and_its_number() {
        assert_eq!(Exit::Signal(15).shown(), 143);
        assert_eq!(Exit::Signal(2).shown(), 130);
        assert_eq!(Exit::Code(7).shown(), 7);
    }
}
