//! Compares the reader with a plain one, on any bytes. cargo-fuzz and a test run this.
#![allow(unreachable_pub, reason = "only cargo-fuzz calls it from outside")]

use std::io::Cursor;
use std::task::{Context, Poll, Waker};

use tokio::io::{join, sink};

use super::framer::ANSWER_BYTES_MAX;
use super::{Frame, Invalid, Reader};

/// The longest value of a short reader, in bytes, so that short inputs exceed it.
const SHORT_BYTES: usize = 60;

/// How deep values may be nested: in eight arrays.
const DEPTH_MAX: usize = 9;

/// Reads bytes and checks the values. A plain reader must find the same values, however the bytes
/// arrive. No value may come after the first wrong byte.
///
/// The first byte selects the protocol and the longest value. The second byte is the length of the
/// pieces in which the rest arrives.
///
/// # Panics
///
/// If the values differ, or if the reader misses one.
pub fn codec(data: &[u8]) {
    let [settings, piece, bytes @ ..] = data else { return };
    let (reader, resp3, allowed): (fn() -> Reader, bool, usize) = match settings % 3 {
        0 => (Reader::of_resp2, false, ANSWER_BYTES_MAX),
        1 => (Reader::of_resp3, true, ANSWER_BYTES_MAX),
        _ => (|| Reader::of_short(SHORT_BYTES), false, SHORT_BYTES),
    };
    let (frames, refused) = read(reader(), bytes, bytes.len());
    assert_eq!(read(reader(), bytes, (*piece).into()), (frames.clone(), refused), "in pieces");
    let mut rest = bytes;
    for frame in frames {
        assert_eq!(plain(&mut rest, resp3, DEPTH_MAX), Ok(frame.clone()));
        let _answer = frame.answer();
    }
    let left = rest.len();
    if let Ok(next) = plain(&mut rest, resp3, DEPTH_MAX) {
        assert_eq!(refused, Some(Invalid::TooLong), "{next:?} is not found");
        assert!(left - rest.len() > allowed, "{next:?} is not too long");
    }
}

/// The values of these bytes, which arrive in pieces of that length, and the refusal at the end.
fn read(mut reader: Reader, bytes: &[u8], piece: usize) -> (Vec<Frame>, Option<Invalid>) {
    let mut frames = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for piece in bytes.chunks(piece.max(1)) {
        let mut stream = join(Cursor::new(piece.to_vec()), sink());
        while let Poll::Ready(Ok(true)) = reader.poll_read(&mut stream, &mut cx) {
            loop {
                match reader.take() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(refused) => return (frames, Some(refused)),
                }
            }
        }
    }
    (frames, None)
}

/// There is no value: the bytes are wrong or end too early.
#[derive(Debug, PartialEq)]
struct NoValue;

/// Takes one value off `bytes`, without limits on its length.
fn plain(bytes: &mut &[u8], resp3: bool, depth: usize) -> Result<Frame, NoValue> {
    let mark = *bytes.first().ok_or(NoValue)?;
    if depth == 0 || !(b"+-:$*".contains(&mark) || resp3 && b"_#,>%".contains(&mark)) {
        return Err(NoValue);
    }
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").ok_or(NoValue)?;
    let (line, rest) = (&bytes[1..end], &bytes[end + 2..]);
    *bytes = rest;
    let text = std::str::from_utf8(line);
    let mut values = |each: usize| -> Result<Option<Vec<Frame>>, NoValue> {
        let Some(count) = length(line)? else { return Ok(None) };
        (0..count.saturating_mul(each))
            .map(|_| plain(bytes, resp3, depth - 1))
            .collect::<Result<_, _>>()
            .map(Some)
    };
    Ok(match (mark, line) {
        (b'+' | b',', _) => Frame::Bytes(line.to_vec()),
        (b'-', _) => Frame::Error(String::from_utf8_lossy(line).into_owned()),
        (b':', _) => Frame::Int(text.ok().and_then(|text| text.parse().ok()).ok_or(NoValue)?),
        (b'#', b"t") => Frame::Int(1),
        (b'#', b"f") => Frame::Int(0),
        (b'_', b"") => Frame::Nil,
        (b'*', _) => values(1)?.map_or(Frame::Nil, Frame::Array),
        (b'>', _) => Frame::Push(values(1)?.ok_or(NoValue)?),
        (b'%', _) => Frame::Map(values(2)?.ok_or(NoValue)?),
        (b'$', _) => {
            let Some(length) = length(line)? else { return Ok(Frame::Nil) };
            let body = bytes.get(..length).ok_or(NoValue)?;
            let end = bytes.get(length..length + 2).ok_or(NoValue)?;
            *bytes = &bytes[length + 2..];
            return if end == b"\r\n" { Ok(Frame::Bytes(body.to_vec())) } else { Err(NoValue) };
        }
        _ => return Err(NoValue),
    })
}

/// A length, or `None` for a null value.
fn length(line: &[u8]) -> Result<Option<usize>, NoValue> {
    match line.strip_prefix(b"-") {
        Some(b"1") => Ok(None),
        None if !line.is_empty() && line.iter().all(u8::is_ascii_digit) => {
            let text = str::from_utf8(line).expect("digits are text");
            text.parse().map(Some).map_err(|_| NoValue)
        }
        _ => Err(NoValue),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};
    use proptest::sample::select;

    use super::codec;

    /// Bytes that are made of pieces of values.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let words = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":17\r\n",
            ":-1\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$2\r\nab\r\n",
            "$3\r\n\r\n\r\r\n",
            "*2\r\n",
            "*0\r\n",
            "*1\r\n",
            "%1\r\n",
            ">2\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5\r\n",
            "$-0\r\n",
            "*9223372036854775807\r\n",
            "$400\r\n",
            "\r",
            "\n",
            "-",
            "0",
            "1",
            "$",
            "*",
            "|1\r\n",
        ];
        let word = prop_oneof![
            8 => select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
            1 => vec(any::<u8>(), 1..4),
        ];
        vec(word, 0..24).prop_map(|words| words.concat())
    }

    /// The number of inputs: `LEASEHOLD_FUZZ_CHANGES`, as for the targets of the test kit.
    fn cases() -> u32 {
        std::env::var("LEASEHOLD_FUZZ_CHANGES")
            .map_or(20_000, |number| number.parse().expect("LEASEHOLD_FUZZ_CHANGES is a number"))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases()))]

        #[test]
        fn any_bytes_are_read_as_a_plain_reader_reads_them(
            settings in 0_u8..3, piece in 0_u8..9, bytes in bytes(),
        ) {
            codec(&[&[settings, piece], bytes.as_slice()].concat());
        }
    }
}
