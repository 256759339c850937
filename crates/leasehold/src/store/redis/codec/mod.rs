//! RESP2 and RESP3, the protocols of Redis: writes commands as bytes, and reads values from bytes.
//!
//! Everything that a server sends is read here, in two steps. The [`Framer`](framer::Framer) finds
//! where a value ends, and refuses what is too long, too deep or not the protocol, before memory is
//! spent on it. Then [`parse`] makes the value.

pub(super) mod command;
mod framer;
#[cfg(any(fuzzing, test))]
mod fuzz;
mod reader;

use std::fmt;

use self::command::{Command, Digits, NoAnswer, Value};
pub(super) use self::framer::Invalid;
#[cfg(fuzzing)]
pub use self::fuzz::codec as fuzz_codec;
pub(super) use self::reader::Reader;
use super::error::without_arguments;

/// A value that a server sent.
#[derive(Clone, PartialEq)]
pub(super) enum Frame {
    Nil,
    /// A number, or a truth value as 0 or 1.
    Int(i64),
    /// Bytes, a status such as `OK`, or a fraction as its text.
    Bytes(Vec<u8>),
    /// A refusal, whose first word is its code.
    Error(String),
    Array(Vec<Self>),
    /// The names and values of a map, alternately.
    Map(Vec<Self>),
    /// A message that a server sends without being asked.
    Push(Vec<Self>),
}

impl Frame {
    /// The answer to a request in RESP2. An error anywhere in it makes the whole answer an error.
    pub(super) fn answer(self) -> Result<Value, NoAnswer> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Int(number) => Value::Int(number),
            Self::Bytes(bytes) => Value::Bytes(bytes),
            Self::Error(text) => {
                let code = code(&text).to_owned();
                return Err(NoAnswer::Refused { code, text: without_arguments(&text).to_owned() });
            }
            Self::Array(frames) => {
                Value::Array(frames.into_iter().map(Self::answer).collect::<Result<_, _>>()?)
            }
            Self::Map(_) | Self::Push(_) => {
                return Err(NoAnswer::Broken { reason: Invalid::NotTheProtocol.to_string() });
            }
        })
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("Nil"),
            Self::Int(number) => write!(f, "{number}"),
            // Without the bytes, because they may be an owner token.
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Error(text) => write!(f, "{:?}", without_arguments(text)),
            Self::Array(frames) | Self::Map(frames) => f.debug_list().entries(frames).finish(),
            Self::Push(frames) => f.debug_tuple("Push").field(frames).finish(),
        }
    }
}

/// The first word of a refusal, such as `NOPERM`.
pub(super) fn code(text: &str) -> &str {
    text.split(' ').next().unwrap_or_default()
}

/// Appends a command.
pub(super) fn write(command: &Command, out: &mut Vec<u8>) {
    write_head(b'*', command.args().count(), out);
    for argument in command.args() {
        write_head(b'$', argument.len(), out);
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_head(mark: u8, count: usize, out: &mut Vec<u8>) {
    // Most counts have one or two digits, and every request has a dozen of them.
    match u8::try_from(count) {
        Ok(count @ ..=9) => out.extend_from_slice(&[mark, b'0' + count, b'\r', b'\n']),
        Ok(count @ 10..=99) => {
            out.extend_from_slice(&[mark, b'0' + count / 10, b'0' + count % 10, b'\r', b'\n']);
        }
        _ => {
            out.push(mark);
            out.extend_from_slice(Digits::of(count as u64).as_str().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Takes the first value off `bytes`, which must begin with a whole one.
pub(super) fn parse(bytes: &mut &[u8]) -> Result<Frame, Invalid> {
    let (&mark, rest) = bytes.split_first().ok_or(Invalid::NotTheProtocol)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Invalid::NotTheProtocol)?;
    let line = &rest[..end];
    *bytes = &rest[end + 2..];
    Ok(match mark {
        b'+' | b',' => Frame::Bytes(line.to_vec()),
        b'-' => Frame::Error(String::from_utf8_lossy(line).into_owned()),
        b':' => Frame::Int(number(line)?),
        b'#' if line == b"t" => Frame::Int(1),
        b'#' if line == b"f" => Frame::Int(0),
        b'_' if line.is_empty() => Frame::Nil,
        b'$' => parse_bytes(line, bytes)?,
        b'*' => parse_each(line, 1, bytes)?.map_or(Frame::Nil, Frame::Array),
        // Only bytes and arrays may be null.
        b'>' => Frame::Push(parse_each(line, 1, bytes)?.ok_or(Invalid::NotTheProtocol)?),
        b'%' => Frame::Map(parse_each(line, 2, bytes)?.ok_or(Invalid::NotTheProtocol)?),
        _ => return Err(Invalid::NotTheProtocol),
    })
}

fn parse_bytes(line: &[u8], bytes: &mut &[u8]) -> Result<Frame, Invalid> {
    let Ok(length) = usize::try_from(number(line)?) else { return Ok(Frame::Nil) };
    let body = bytes.get(..length).ok_or(Invalid::NotTheProtocol)?;
    *bytes = bytes[length..].strip_prefix(b"\r\n").ok_or(Invalid::NotTheProtocol)?;
    Ok(Frame::Bytes(body.to_vec()))
}

/// The values of an array, or of a map with two for each entry. `None` if there is no array.
fn parse_each(line: &[u8], each: usize, bytes: &mut &[u8]) -> Result<Option<Vec<Frame>>, Invalid> {
    let Ok(count) = usize::try_from(number(line)?) else { return Ok(None) };
    let count = count.saturating_mul(each);
    let mut frames = Vec::with_capacity(count.min(bytes.len()));
    for _ in 0..count {
        frames.push(parse(bytes)?);
    }
    Ok(Some(frames))
}

fn number(line: &[u8]) -> Result<i64, Invalid> {
    let number = std::str::from_utf8(line).ok().and_then(|text| text.parse().ok());
    number.ok_or(Invalid::NotTheProtocol)
}

#[cfg(test)]
pub(super) use self::reader::BUFFER_KEPT_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_its_arguments() {
        let mut out = b"before".to_vec();
        let command = Command::new("SET").arg("").arg(b"\xff\r\n").arg([b'x'; 100]);
        write(&command.arg([b'y'; 42]), &mut out);
        let expected = b"before*5\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\n\xff\r\n\r\n$100\r\n";
        assert_eq!(
            out,
            [expected.as_slice(), &[b'x'; 100], b"\r\n$42\r\n", &[b'y'; 42], b"\r\n"].concat()
        );
    }

    #[test]
    fn a_value_is_taken_off_and_what_follows_stays() {
        use Frame::{Array, Bytes, Error, Int, Map, Nil, Push};
        let refused = || Err(Invalid::NotTheProtocol);
        let bytes = |text: &str| Bytes(text.into());
        let table = [
            (":-7\r\nrest", Ok(Int(-7)), "rest"),
            ("$-1\r\n", Ok(Nil), ""),
            ("*-1\r\n", Ok(Nil), ""),
            ("_\r\n", Ok(Nil), ""),
            ("#t\r\n#f\r\n", Ok(Int(1)), "#f\r\n"),
            ("#f\r\n", Ok(Int(0)), ""),
            (",1.5\r\n", Ok(bytes("1.5")), ""),
            ("+OK\r\n", Ok(bytes("OK")), ""),
            (
                "*3\r\n:1\r\n-OOM no\r\n$2\r\nab\r\n:2\r\n",
                Ok(Array(vec![Int(1), Error("OOM no".to_owned()), bytes("ab")])),
                ":2\r\n",
            ),
            ("%1\r\n+a\r\n*0\r\n", Ok(Map(vec![bytes("a"), Array(vec![])])), ""),
            (">2\r\n+a\r\n_\r\n", Ok(Push(vec![bytes("a"), Nil])), ""),
            ("#x\r\n", refused(), ""),
            ("_x\r\n", refused(), ""),
            (">-1\r\n", refused(), ""),
            ("%-1\r\n", refused(), ""),
            (":1x\r\n", refused(), ""),
            ("$3\r\nabcde\r\n", refused(), "abcde\r\n"),
            ("$9223372036854775807\r\nab\r\n", refused(), "ab\r\n"),
            ("*9223372036854775807\r\n:1\r\n", refused(), ""),
            ("%9223372036854775807\r\n:1\r\n", refused(), ""),
            ("|1\r\n", refused(), ""),
            ("", refused(), ""),
            ("+a", refused(), "+a"),
        ];
        for (text, expected, rest) in table {
            let mut bytes = text.as_bytes();
            assert_eq!(parse(&mut bytes), expected, "{text:?}");
            assert_eq!(String::from_utf8_lossy(bytes), rest, "{text:?}");
        }
    }

    #[test]
    fn an_error_anywhere_makes_the_whole_answer_an_error_without_arguments() {
        let error = |text: &str| Frame::Error(text.to_owned());
        let refused = |code: &str, text: &str| {
            Err(NoAnswer::Refused { code: code.to_owned(), text: text.to_owned() })
        };
        let unknown = "ERR unknown command 'X', with args beginning with: 'secret' ";
        let table = [
            (Frame::Int(1), Ok(Value::Int(1))),
            (Frame::Array(vec![Frame::Nil]), Ok(Value::Array(vec![Value::Nil]))),
            (error("WEIRD"), refused("WEIRD", "WEIRD")),
            (error(unknown), refused("ERR", "ERR unknown command 'X'")),
            (
                Frame::Array(vec![Frame::Array(vec![error("OOM no")]), error("ERR later")]),
                refused("OOM", "OOM no"),
            ),
        ];
        for (frame, expected) in table {
            let shown = format!("{frame:?}");
            assert!(!shown.contains("secret"), "{shown}");
            assert_eq!(frame.answer(), expected, "{shown}");
        }
        let pushed = Frame::Push(vec![]).answer();
        assert!(matches!(pushed, Err(NoAnswer::Broken { .. })), "{pushed:?}");
    }
}
