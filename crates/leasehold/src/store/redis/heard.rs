//! Sorts the values that a server sends on a connection for messages.
//!
//! | value | it is |
//! |---|---|
//! | `message`, as an array (RESP2) or a push (RESP3) | news |
//! | `invalidate`, a push with keys, or with nothing for all keys | news |
//! | `subscribe`, as an array or a push | an answer |
//! | another push | ignored, as RESP3 demands |
//! | another array | invalid |
//! | anything else | an answer |

use redis::{PushKind, Value};

use super::link::{Message, News};

/// One received value.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// The server was not asked for it.
    News(Vec<News>),
    /// The answer to the oldest request.
    Answer(Value),
    /// A value to ignore.
    Nothing,
    /// Invalid data. Nothing after it can be trusted.
    Nonsense,
}

pub(super) fn heard(value: Value) -> Heard {
    match value {
        Value::Push { kind, data } => match kind {
            PushKind::Message => published(data),
            PushKind::Invalidate => changed(data),
            PushKind::Subscribe => Heard::Answer(Value::Push { kind, data }),
            _ => Heard::Nothing,
        },
        Value::Array(mut values) => match values.first() {
            Some(Value::BulkString(kind)) if kind == b"message" => published(values.split_off(1)),
            Some(Value::BulkString(kind)) if kind == b"subscribe" => {
                Heard::Answer(Value::Array(values))
            }
            _ => Heard::Nonsense,
        },
        answer => Heard::Answer(answer),
    }
}

fn published(data: Vec<Value>) -> Heard {
    let Ok([Value::BulkString(channel), Value::BulkString(payload)]) = <[Value; 2]>::try_from(data)
    else {
        return Heard::Nonsense;
    };
    // A channel name that is not text cannot be one of ours.
    String::from_utf8(channel).map_or(Heard::Nothing, |channel| {
        Heard::News(vec![News::Published(Message { channel, payload })])
    })
}

fn changed(data: Vec<Value>) -> Heard {
    let key =
        |value| if let Value::BulkString(key) = value { Some(News::Changed(key)) } else { None };
    match <[Value; 1]>::try_from(data) {
        Ok([Value::Nil]) => Heard::News(vec![News::AllChanged]),
        Ok([Value::Array(keys)]) => Heard::News(keys.into_iter().filter_map(key).collect()),
        _ => Heard::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_answers_and_nonsense_are_told_apart() {
        let message = Message { channel: "c".to_owned(), payload: b"\xff".to_vec() };
        let published = || Heard::News(vec![News::Published(message.clone())]);
        let changed = |keys: &[&str]| {
            Heard::News(keys.iter().map(|key| News::Changed(key.as_bytes().to_vec())).collect())
        };
        let table: [(&[u8], Option<Heard>); 22] = [
            (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
            (b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
            (b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n", Some(changed(&["a"]))),
            (
                b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n",
                Some(changed(&["a", "b"])),
            ),
            (b">2\r\n$10\r\ninvalidate\r\n_\r\n", Some(Heard::News(vec![News::AllChanged]))),
            (b">2\r\n$10\r\ninvalidate\r\n*1\r\n:1\r\n", Some(changed(&[]))),
            (b">2\r\n$10\r\ninvalidate\r\n:1\r\n", Some(Heard::Nothing)),
            (b">1\r\n$10\r\ninvalidate\r\n", Some(Heard::Nothing)),
            (b">1\r\n$5\r\nnovel\r\n", Some(Heard::Nothing)),
            (b">0\r\n", Some(Heard::Nothing)),
            (b"*3\r\n$7\r\nmessage\r\n$1\r\n\xff\r\n$1\r\nx\r\n", Some(Heard::Nothing)),
            (b"*2\r\n$7\r\nmessage\r\n$1\r\nc\r\n", Some(Heard::Nonsense)),
            (b"*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", Some(Heard::Nonsense)),
            (b"*2\r\n$10\r\ninvalidate\r\n*0\r\n", Some(Heard::Nonsense)),
            (b"*1\r\n$3\r\nfoo\r\n", Some(Heard::Nonsense)),
            (b"*0\r\n", Some(Heard::Nonsense)),
            (b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", None),
            (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", None),
            (b":1\r\n", None),
            (b"+OK\r\n", None),
            (b"-ERR no\r\n", None),
            (b"%0\r\n", None),
        ];
        for (bytes, expected) in table {
            let value = || redis::parse_redis_value(bytes).expect("of the protocol");
            let expected = expected.unwrap_or_else(|| Heard::Answer(value()));
            assert_eq!(heard(value()), expected, "{}", bytes.escape_ascii());
        }
    }
}
