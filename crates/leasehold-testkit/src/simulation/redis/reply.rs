//! The answer to a command.

use std::borrow::Cow;

use crate::protocol::{Refused, Value};
/// An answer. Scripts can tell more types apart than clients can.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Nil,
    Int(i64),
    Status(Cow<'static, str>),
    Bytes(Vec<u8>),
    Array(Vec<Self>),
    /// A refusal inside the answer of a script.
    Refused(Refusal),
}

/// Why a command is refused: a code, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(Cow<'static, str>);

impl Reply {
    pub(super) const OK: Self = Self::Status(Cow::Borrowed("OK"));

    pub(super) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).expect("fewer than the memory has bytes"))
    }

    pub(super) fn bytes(bytes: Option<&[u8]>) -> Self {
        bytes.map_or(Self::Nil, |bytes| Self::Bytes(bytes.to_vec()))
    }

    /// The answer as the store gets it. A refusal anywhere in an answer refuses the whole answer,
    /// as in the store's connections.
    pub(super) fn into_value(self) -> Result<Value, Refusal> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Int(number) => Value::Int(number),
            Self::Status(text) => Value::Bytes(text.into_owned().into_bytes()),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Array(replies) => Value::Array(
                replies.into_iter().map(Self::into_value).collect::<Result<_, Refusal>>()?,
            ),
            Self::Refused(refusal) => return Err(refusal),
        })
    }
}

impl Refusal {
    pub(super) const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const NOT_AN_INTEGER: Self =
        Self::fixed("ERR value is not an integer or out of range");
    pub(super) const NOT_A_FLOAT: Self = Self::fixed("ERR value is not a valid float");
    pub(super) const SYNTAX: Self = Self::fixed("ERR syntax error");
    pub(super) const FULL: Self =
        Self::fixed("OOM command not allowed when used memory > 'maxmemory'.");
    pub(super) const NO_SCRIPT: Self = Self::fixed("NOSCRIPT No matching script. Please use EVAL.");

    /// A refusal with this text. Its first word is the code.
    pub(super) const fn fixed(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(super) fn new(text: String) -> Self {
        Self(Cow::Owned(text))
    }

    /// A refusal of something that a real server can do and this one cannot.
    pub(super) fn left_out(what: &str) -> Self {
        Self::new(format!("ERR the simulated server leaves out {what}"))
    }

    pub(super) fn wrong_arity(command: &str) -> Self {
        let command = command.to_ascii_lowercase();
        Self::new(format!("ERR wrong number of arguments for '{command}' command"))
    }

    pub(super) fn bad_expiry(command: &str) -> Self {
        let command = command.to_ascii_lowercase();
        Self::new(format!("ERR invalid expire time in '{command}' command"))
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn into_refused(self) -> Refused {
        // An error text is one line in the protocol.
        Refused(self.0.trim_end_matches(['\r', '\n']).replace(['\r', '\n'], " "))
    }
}
