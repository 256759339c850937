//! Finds where a value ends, before its bytes are decoded.
//!
//! A value that is not in the agreed protocol, or exceeds a limit, ends the connection.

use std::fmt;

/// The longest answer, in bytes. The longest expected answer, one step of a scan, has a few hundred
/// KB.
pub(in crate::store::redis) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The most values in one answer. Each takes about 50 bytes of memory, but only three on the wire.
/// The map of a cluster may have a range of 24 values for each of its 16 384 slots.
const ANSWER_VALUES_MAX: usize = 1 << 19;

/// How deep arrays may be nested.
const DEPTH_MAX: usize = 8;

/// Why bytes are refused. The connection ends then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Invalid {
    NotTheProtocol,
    TooLong,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTheProtocol => "the server's answer does not follow the Redis protocol",
            Self::TooLong => "the server's answer is longer than any expected one",
        })
    }
}

/// The state of the value that is arriving.
pub(super) struct Framer {
    /// Whether RESP3 types are allowed. Only types that we ask for are known here.
    resp3: bool,
    bytes_max: usize,
    at: At,
    bytes: usize,
    values: usize,
    /// How many values are missing in each open array, the outermost first.
    open: Vec<usize>,
}

/// The meaning of the next byte.
#[derive(Clone, Copy)]
enum At {
    /// The type of a value.
    Mark,
    /// The rest of a line. `cr`: whether the last byte was a carriage return.
    Line { cr: bool },
    /// A length, which is none before its first digit.
    Length { of: Of, minus: bool, length: Option<usize>, cr: bool },
    /// This many bytes, including the end of the line.
    Body { left: usize },
}

/// The types that have a length.
#[derive(Clone, Copy)]
enum Of {
    Bytes,
    Array,
    Map,
}

impl Framer {
    pub(super) const fn new(resp3: bool, bytes_max: usize) -> Self {
        Self { resp3, bytes_max, at: At::Mark, bytes: 0, values: 0, open: Vec::new() }
    }

    /// Checks these bytes up to the end of a value. Returns where the value ends, if it ends in
    /// these bytes.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<Option<usize>, Invalid> {
        let mut at = 0;
        while at < bytes.len() {
            let taken = if let At::Body { left } = self.at {
                let taken = left.min(bytes.len() - at);
                self.at = At::Body { left: left - taken };
                if left == taken {
                    self.value_ends();
                }
                taken
            } else {
                self.take(bytes[at])?;
                1
            };
            at += taken;
            self.bytes += taken;
            if self.bytes > self.bytes_max {
                return Err(Invalid::TooLong);
            }
            if matches!(self.at, At::Mark) && self.open.is_empty() {
                (self.bytes, self.values) = (0, 0);
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Takes one byte that is outside of a body.
    fn take(&mut self, byte: u8) -> Result<(), Invalid> {
        match &mut self.at {
            At::Mark => {
                self.values += 1;
                let length_of = |of| At::Length { of, minus: false, length: None, cr: false };
                self.at = match byte {
                    b'+' | b'-' | b':' => At::Line { cr: false },
                    b'$' => length_of(Of::Bytes),
                    b'*' => length_of(Of::Array),
                    b'_' | b'#' | b',' if self.resp3 => At::Line { cr: false },
                    b'>' if self.resp3 => length_of(Of::Array),
                    b'%' if self.resp3 => length_of(Of::Map),
                    _ => return Err(Invalid::NotTheProtocol),
                };
            }
            At::Line { cr: true } if byte == b'\n' => self.value_ends(),
            At::Line { cr } => *cr = byte == b'\r',
            At::Length { of, minus, length, cr: true, .. } if byte == b'\n' => {
                let (of, length) = (*of, if *minus { None } else { *length });
                return self.length_is(of, length);
            }
            At::Length { minus, length, cr, .. } => match byte {
                b'\r' if length.is_some() && !*cr => *cr = true,
                b'-' if !*minus && length.is_none() => *minus = true,
                // The only negative length is -1.
                b'1' if *minus && length.is_none() => *length = Some(1),
                b'0'..=b'9' if !*minus && !*cr => {
                    let longer = length.unwrap_or(0) * 10 + usize::from(byte - b'0');
                    if longer > self.bytes_max {
                        return Err(Invalid::TooLong);
                    }
                    *length = Some(longer);
                }
                _ => return Err(Invalid::NotTheProtocol),
            },
            At::Body { .. } => unreachable!("bodies are taken whole"),
        }
        Ok(())
    }

    /// Takes the length of an array, a map or bytes; `None` for a null value.
    fn length_is(&mut self, of: Of, length: Option<usize>) -> Result<(), Invalid> {
        match (of, length) {
            (Of::Array | Of::Map, Some(count @ 1..)) => {
                let count = if matches!(of, Of::Map) { 2 * count } else { count };
                let values = self.values + self.open.iter().sum::<usize>() + count;
                if values > ANSWER_VALUES_MAX || self.open.len() == DEPTH_MAX {
                    return Err(Invalid::TooLong);
                }
                self.open.push(count);
                self.at = At::Mark;
            }
            (Of::Bytes, Some(length)) => {
                let end_of_line = 2;
                self.at = At::Body { left: length + end_of_line };
            }
            (_, None) | (Of::Array | Of::Map, Some(0)) => self.value_ends(),
        }
        Ok(())
    }

    fn value_ends(&mut self) {
        self.at = At::Mark;
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESP2: Framer = Framer::new(false, ANSWER_BYTES_MAX);

    /// Checks bytes in pieces of that length. Returns how many belong to whole values, and the
    /// refusal.
    fn followed(bytes: &[u8], piece: usize) -> (usize, Option<Invalid>) {
        let (mut framer, mut seen, mut whole) = (RESP2, 0, 0);
        for mut piece in bytes.chunks(piece) {
            loop {
                match framer.follow(piece) {
                    Ok(Some(end)) => {
                        (seen, piece) = (seen + end, &piece[end..]);
                        whole = seen;
                    }
                    Ok(None) => break,
                    Err(refused) => return (whole, Some(refused)),
                }
            }
            seen += piece.len();
        }
        (whole, None)
    }

    #[test]
    fn answers_of_the_protocol_pass_and_all_else_ends_where_it_begins() {
        use Invalid::{NotTheProtocol, TooLong};
        let deep = format!("{}:1\r\n", "*1\r\n".repeat(DEPTH_MAX));
        let deeper = format!("*1\r\n{deep}");
        let table: [(&str, usize, Option<Invalid>); 30] = [
            ("+OK\r\n:1\r\n-ERR no\r\n$2\r\nab\r\n", 26, None),
            ("$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n", 20, None),
            ("*2\r\n*1\r\n:1\r\n$3\r\na\r\n\r\n", 21, None),
            ("+a\rb\nc\r\r\n", 9, None),
            ("*2\r\n:1\r\n", 0, None),
            ("$3\r\nab", 0, None),
            (&deep, deep.len(), None),
            ("", 0, None),
            ("+OK\r\nHTTP/1.1", 5, Some(NotTheProtocol)),
            ("%1\r\n+a\r\n+b\r\n", 0, Some(NotTheProtocol)),
            (":1\r\n>1\r\n+a\r\n", 4, Some(NotTheProtocol)),
            ("_\r\n", 0, Some(NotTheProtocol)),
            ("*x\r\n", 0, Some(NotTheProtocol)),
            ("$1-\r\n", 0, Some(NotTheProtocol)),
            ("$--1\r\n", 0, Some(NotTheProtocol)),
            ("$-0\r\n", 0, Some(NotTheProtocol)),
            ("$0-1\r\n", 0, Some(NotTheProtocol)),
            ("$-\r\n", 0, Some(NotTheProtocol)),
            ("$\r\n", 0, Some(NotTheProtocol)),
            ("*\r\n", 0, Some(NotTheProtocol)),
            ("*-2\r\n", 0, Some(NotTheProtocol)),
            ("$1\r\r\n", 0, Some(NotTheProtocol)),
            ("*1\r\n\r\n", 0, Some(NotTheProtocol)),
            ("\r\n", 0, Some(NotTheProtocol)),
            ("$9223372036854775807\r\n", 0, Some(TooLong)),
            ("$99999999999999999999999\r\n", 0, Some(TooLong)),
            ("$-99999999999999999999999\r\n", 0, Some(NotTheProtocol)),
            ("*524288\r\n", 0, Some(TooLong)),
            ("*2\r\n*40000\r\n", 0, None),
            (&deeper, 0, Some(TooLong)),
        ];
        for (bytes, whole, refused) in table {
            for piece in [1, 3, 1_000] {
                assert_eq!(followed(bytes.as_bytes(), piece), (whole, refused), "{bytes:?}");
            }
        }
    }

    #[test]
    fn values_of_resp3_pass_once_resp3_is_agreed_on() {
        type Followed = Result<Option<usize>, Invalid>;
        let table: [(&[u8], Followed); 10] = [
            (b"%1\r\n+a\r\n*0\r\n:1\r\n", Ok(Some(12))),
            (b">2\r\n$1\r\na\r\n_\r\n+more", Ok(Some(14))),
            (b"*2\r\n#t\r\n,1.5\r\n", Ok(Some(14))),
            (b"%2\r\n+a\r\n+b\r\n+c\r\n", Ok(None)),
            (b">0\r\n", Ok(Some(4))),
            (b"%0\r\n", Ok(Some(4))),
            (b"|1\r\n", Err(Invalid::NotTheProtocol)),
            (b"~1\r\n", Err(Invalid::NotTheProtocol)),
            (b"%300000\r\n", Err(Invalid::TooLong)),
            (b">600000\r\n", Err(Invalid::TooLong)),
        ];
        for (bytes, expected) in table {
            let followed = Framer::new(true, ANSWER_BYTES_MAX).follow(bytes);
            assert_eq!(followed, expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn an_answer_that_does_not_end_is_refused_at_the_bound() {
        let line = [b"+".to_vec(), vec![b'x'; ANSWER_BYTES_MAX]].concat();
        assert_eq!(followed(&line, 4096), (0, Some(Invalid::TooLong)));
        assert_eq!(followed(&line[..ANSWER_BYTES_MAX], 4096), (0, None));
        let arrays = "*2\r\n*300000\r\n".to_owned() + &":1\r\n".repeat(300_000) + "*400000\r\n";
        assert_eq!(followed(arrays.as_bytes(), 4096), (0, Some(Invalid::TooLong)));
        let many = "*1\r\n:1\r\n".repeat(ANSWER_VALUES_MAX + 1);
        assert_eq!(followed(many.as_bytes(), 4096), (many.len(), None), "answers of their own");
    }
}
