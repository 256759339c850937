//! A command, and its answer or the reason why there is none.

use std::fmt;

/// The size of an acquire request with a place in line, the longest common command. It needs no
/// larger buffer.
const USUAL_BYTES: usize = 512;
const USUAL_ARGUMENTS: usize = 24;

/// A command: its name and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::store::redis) struct Command {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    part: Part,
    /// Which argument is the name of the lock; 0 if it is about no lock.
    lock: usize,
}

/// The part of a script call that `together.lua` can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store::redis) enum Part {
    /// Nothing.
    #[default]
    Nothing,
    /// To acquire a free lock.
    Ask,
    /// To release a lock that nobody waits for.
    Release,
}

impl Command {
    /// A command without arguments.
    pub(in crate::store::redis) fn new(name: &str) -> Self {
        let bytes = Vec::with_capacity(USUAL_BYTES);
        Self { bytes, ends: Vec::with_capacity(USUAL_ARGUMENTS), part: Part::Nothing, lock: 0 }
            .arg(name)
    }

    /// Adds an argument.
    pub(in crate::store::redis) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.bytes.extend_from_slice(argument.as_ref());
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds an argument that consists of these parts.
    pub(in crate::store::redis) fn joined(mut self, parts: &[&str]) -> Self {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.ends.push(self.bytes.len());
        self
    }

    /// Adds one argument for each of `ends`, made of `before` and that end.
    pub(in crate::store::redis) fn branching(mut self, before: &[&str], ends: &[&str]) -> Self {
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
    pub(in crate::store::redis) fn number(self, number: u64) -> Self {
        self.arg(Digits::of(number).as_str())
    }

    /// Sets the step of this command that can be done together with other commands.
    pub(in crate::store::redis) fn with_part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// The step of this command that can be done together with other commands.
    pub(in crate::store::redis) const fn part(&self) -> Part {
        self.part
    }

    /// Says that the last argument so far is the name of the lock.
    pub(in crate::store::redis) fn lock_is_last(self) -> Self {
        let lock = self.ends.len() - 1;
        Self { lock, ..self }
    }

    /// The name of the lock that it is about.
    pub(in crate::store::redis) fn lock(&self) -> Option<&[u8]> {
        (self.lock > 0).then(|| self.at(self.lock))
    }

    /// One of the arguments; the name is the first.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub(in crate::store::redis) fn at(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[number]]
    }

    /// The name and the arguments.
    pub(in crate::store::redis) fn args(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(self.ends.iter().copied()).map(|(start, end)| &self.bytes[start..end])
    }
}

/// A number in decimal. Written by hand, because the standard library takes three times as long,
/// and every request has about six numbers.
pub(in crate::store::redis) struct Digits {
    digits: [u8; 20],
    first: usize,
}

impl Digits {
    pub(in crate::store::redis) fn of(number: u64) -> Self {
        let mut digits = [b'0'; 20];
        let (mut first, mut rest) = (digits.len(), number);
        while rest > 0 || first == digits.len() {
            first -= 1;
            digits[first] += u8::try_from(rest % 10).expect("a digit");
            rest /= 10;
        }
        Self { digits, first }
    }

    pub(in crate::store::redis) fn as_str(&self) -> &str {
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
pub(in crate::store::redis) enum Value {
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

/// Why a request has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum NoAnswer {
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
        assert_eq!((command.at(0), command.at(1), command.at(4)), (args[0], args[1], args[4]));
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
