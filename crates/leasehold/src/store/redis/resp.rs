//! RESP2, the protocol of Redis: writes commands as bytes, and reads answers.

use super::error::without_arguments;
use super::link::{Command, Digits, LinkError, Value};

/// The reason why a connection with invalid data is ended.
pub(super) const NONSENSE: &str = "the server answered what is not Redis's protocol";

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

/// Takes the first answer off `bytes`, which must begin with a whole one. Invalid data is
/// [`Broken`](LinkError::Broken). An error anywhere in the answer makes the whole answer an error.
pub(super) fn take(bytes: &mut &[u8]) -> Result<Value, LinkError> {
    let (&mark, rest) = bytes.split_first().ok_or_else(nonsense)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(nonsense)?;
    let line = &rest[..end];
    *bytes = &rest[end + 2..];
    match mark {
        b'+' => Ok(Value::Bytes(line.to_vec())),
        b'-' => Err(refused(line)),
        b':' => Ok(Value::Int(number(line)?)),
        b'$' => match usize::try_from(number(line)?) {
            Err(_) => Ok(Value::Nil),
            Ok(length) => {
                let body = bytes.get(..length).ok_or_else(nonsense)?;
                *bytes = bytes[length..].strip_prefix(b"\r\n").ok_or_else(nonsense)?;
                Ok(Value::Bytes(body.to_vec()))
            }
        },
        b'*' => match usize::try_from(number(line)?) {
            Err(_) => Ok(Value::Nil),
            Ok(count) => take_array(count, bytes),
        },
        _ => Err(nonsense()),
    }
}

/// Takes the whole array, even after an error, because the next answer begins behind it.
fn take_array(count: usize, bytes: &mut &[u8]) -> Result<Value, LinkError> {
    let mut values = Vec::with_capacity(count.min(bytes.len()));
    let mut first_error = None;
    for _ in 0..count {
        match take(bytes) {
            Ok(value) => values.push(value),
            Err(broken @ LinkError::Broken { .. }) => return Err(broken),
            Err(refused) => first_error = first_error.or(Some(refused)),
        }
    }
    first_error.map_or(Ok(Value::Array(values)), Err)
}

fn number(line: &[u8]) -> Result<i64, LinkError> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or_else(nonsense)
}

fn refused(line: &[u8]) -> LinkError {
    let text = String::from_utf8_lossy(line);
    let code = text.split(' ').next().unwrap_or_default().to_owned();
    LinkError::Refused { code, text: without_arguments(&text).to_owned() }
}

fn nonsense() -> LinkError {
    LinkError::Broken { reason: NONSENSE.to_owned() }
}

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
    fn an_answer_is_taken_off_and_what_follows_stays() {
        let int = |number| Ok(Value::Int(number));
        let refused = LinkError::Refused { code: "OOM".to_owned(), text: "OOM no".to_owned() };
        let table = [
            (":-7\r\nrest", int(-7), "rest"),
            ("$-1\r\n", Ok(Value::Nil), ""),
            ("*3\r\n:1\r\n-OOM no\r\n$2\r\nab\r\n:2\r\n", Err(refused), ":2\r\n"),
            (":1x\r\n", Err(nonsense()), ""),
            ("$3\r\nabcde\r\n", Err(nonsense()), "abcde\r\n"),
            ("$9223372036854775807\r\nab\r\n", Err(nonsense()), "ab\r\n"),
            ("*9223372036854775807\r\n:1\r\n", Err(nonsense()), ""),
            ("%1\r\n", Err(nonsense()), ""),
            ("", Err(nonsense()), ""),
            ("+a", Err(nonsense()), "+a"),
        ];
        for (text, expected, rest) in table {
            let mut bytes = text.as_bytes();
            assert_eq!(take(&mut bytes), expected, "{text:?}");
            assert_eq!(String::from_utf8_lossy(bytes), rest, "{text:?}");
        }
    }
}
