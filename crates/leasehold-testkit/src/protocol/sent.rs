//! Reads and writes the values that a server sends.

use super::{Answer, Message, News, Refused, Value, write_word};

/// One value that a server sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The answer to the oldest request.
    Answer(Answer),
    /// A message that was not asked for. The list is empty if nobody needs messages of its kind.
    News(Vec<News>),
}

/// Takes the first value off `bytes`. `None` if it is not whole.
///
/// # Panics
///
/// If the bytes are not the protocol.
pub(crate) fn take_sent(bytes: &mut &[u8]) -> Option<Sent> {
    let mark = *bytes.first()?;
    let mut rest = *bytes;
    let answer = value(&mut rest)?;
    *bytes = rest;
    let parts = match &answer {
        Ok(Value::Array(parts)) => &parts[..],
        _ => &[],
    };
    let kind = if let Some(Value::Bytes(kind)) = parts.first() { kind.as_slice() } else { b"" };
    Some(match (mark, kind, parts) {
        (
            b'>' | b'*',
            b"message" | b"smessage",
            [_, Value::Bytes(channel), Value::Bytes(payload)],
        ) => {
            let channel = String::from_utf8_lossy(channel).into_owned();
            let message = Message { channel, payload: payload.clone() };
            Sent::News(vec![News::Published(message)])
        }
        (b'>', b"invalidate", [_, Value::Nil]) => Sent::News(vec![News::AllChanged]),
        (b'>', b"invalidate", [_, Value::Array(keys)]) => {
            let key = |key: &Value| match key {
                Value::Bytes(key) => Some(News::Changed(key.clone())),
                _ => None,
            };
            Sent::News(keys.iter().filter_map(key).collect())
        }
        (b'>', b"subscribe" | b"ssubscribe", _) => Sent::Answer(answer),
        (b'>', ..) => Sent::News(Vec::new()),
        _ => Sent::Answer(answer),
    })
}

/// Reads one value. Maps and pushes are read as arrays.
fn value(rest: &mut &[u8]) -> Option<Answer> {
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (&mark, line) = rest[..end].split_first().expect("a server sends values");
    *rest = &rest[end + 2..];
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = || text().parse::<i64>().expect("a number");
    Some(Ok(match mark {
        b'+' | b',' => Value::Bytes(line.to_vec()),
        b'-' => return Some(Err(Refused(text()))),
        b':' => Value::Int(number()),
        b'#' => Value::Int((line == b"t").into()),
        b'_' => Value::Nil,
        b'$' => match usize::try_from(number()) {
            Ok(length) => {
                let word = rest.get(..length + 2)?;
                *rest = &rest[length + 2..];
                Value::Bytes(word[..length].to_vec())
            }
            Err(_) => Value::Nil,
        },
        b'*' | b'>' | b'%' => match usize::try_from(number()) {
            Ok(count) => {
                let count = if mark == b'%' { 2 * count } else { count };
                let parts: Vec<Answer> = (0..count).map(|_| value(rest)).collect::<Option<_>>()?;
                match parts.into_iter().collect() {
                    Ok(parts) => Value::Array(parts),
                    Err(refused) => return Some(Err(refused)),
                }
            }
            Err(_) => Value::Nil,
        },
        mark => panic!("no value begins with `{}`", mark.escape_ascii()),
    }))
}

/// The answer to `HELLO 3`, which begins the third version of the protocol.
#[must_use]
pub fn hello() -> Vec<u8> {
    b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n".to_vec()
}

/// The answer to a subscription. Without `HELLO 3`, it begins with `*`.
#[must_use]
pub fn subscribed(channel: &str) -> Vec<u8> {
    let mut bytes = b">3\r\n".to_vec();
    write_word(b"subscribe", &mut bytes);
    write_word(channel.as_bytes(), &mut bytes);
    bytes.extend_from_slice(b":1\r\n");
    bytes
}

/// A message that the server sends unasked. Without `HELLO 3`, it begins with `*`.
#[must_use]
pub fn news(news: &News) -> Vec<u8> {
    let mut bytes = Vec::new();
    match news {
        News::Published(message) => {
            bytes.extend_from_slice(b">3\r\n");
            write_word(b"message", &mut bytes);
            write_word(message.channel.as_bytes(), &mut bytes);
            write_word(&message.payload, &mut bytes);
        }
        News::Changed(key) => {
            bytes.extend_from_slice(b">2\r\n");
            write_word(b"invalidate", &mut bytes);
            bytes.extend_from_slice(b"*1\r\n");
            write_word(key, &mut bytes);
        }
        News::AllChanged => {
            bytes.extend_from_slice(b">2\r\n");
            write_word(b"invalidate", &mut bytes);
            bytes.extend_from_slice(b"_\r\n");
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_server_is_read_once_it_is_whole() {
        let message = Message::new("c", b"x");
        let published = News::Published(message);
        let changed = News::Changed(b"a".to_vec());
        let bytes = |text: &str| Value::Bytes(text.into());
        let table = [
            (b"+OK\r\n".to_vec(), Sent::Answer(Ok(bytes("OK")))),
            (b"-ERR no\r\n".to_vec(), Sent::Answer(Err(Refused("ERR no".to_owned())))),
            (
                b"*2\r\n:1\r\n*1\r\n-OOM no\r\n".to_vec(),
                Sent::Answer(Err(Refused("OOM no".to_owned()))),
            ),
            (b"$4\r\na\r\nb\r\n".to_vec(), Sent::Answer(Ok(bytes("a\r\nb")))),
            (b"*-1\r\n".to_vec(), Sent::Answer(Ok(Value::Nil))),
            (b"%1\r\n+a\r\n:1\r\n".to_vec(), {
                Sent::Answer(Ok(Value::Array(vec![bytes("a"), Value::Int(1)])))
            }),
            (news(&published), Sent::News(vec![published])),
            (news(&changed), Sent::News(vec![changed])),
            (news(&News::AllChanged), Sent::News(vec![News::AllChanged])),
            (b">1\r\n+other\r\n".to_vec(), Sent::News(Vec::new())),
            (b">3\r\n+smessage\r\n$1\r\nc\r\n$1\r\nx\r\n".to_vec(), {
                Sent::News(vec![News::Published(Message::new("c", b"x"))])
            }),
            (b">3\r\n+ssubscribe\r\n$1\r\nc\r\n:1\r\n".to_vec(), {
                let parts = vec![bytes("ssubscribe"), bytes("c"), Value::Int(1)];
                Sent::Answer(Ok(Value::Array(parts)))
            }),
            (subscribed("c"), {
                let parts = vec![bytes("subscribe"), bytes("c"), Value::Int(1)];
                Sent::Answer(Ok(Value::Array(parts)))
            }),
        ];
        for (sent, expected) in table {
            for end in 0..sent.len() {
                assert_eq!(take_sent(&mut &sent[..end]), None, "{}", sent.escape_ascii());
            }
            let more = [&sent[..], b":7"].concat();
            let mut rest = &more[..];
            assert_eq!(take_sent(&mut rest), Some(expected));
            assert_eq!(rest, b":7");
        }
    }
}
