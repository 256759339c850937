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

use super::codec::Frame;

/// A message that a server sends without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A message on a subscribed channel.
    Published(Message),
    /// This key has changed, and is no longer tracked.
    Changed(Vec<u8>),
    /// All keys may have changed, and none is tracked any longer.
    AllChanged,
}

/// A message of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The channel.
    pub(super) channel: String,
    /// The content.
    pub(super) payload: Vec<u8>,
}

/// One received value.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// The server was not asked for it.
    News(Vec<News>),
    /// The answer to the oldest request.
    Answer(Frame),
    /// A value to ignore.
    Nothing,
    /// Invalid data. Nothing after it can be trusted.
    Nonsense,
}

pub(super) fn heard(frame: Frame) -> Heard {
    let is_push = matches!(frame, Frame::Push(_));
    let (Frame::Push(mut frames) | Frame::Array(mut frames)) = frame else {
        return Heard::Answer(frame);
    };
    let kind = if let Some(Frame::Bytes(kind)) = frames.first() { kind.as_slice() } else { b"" };
    match (kind, is_push) {
        (b"message", _) => published(frames.split_off(1)),
        (b"invalidate", true) => changed(frames.split_off(1)),
        (b"subscribe", _) => Heard::Answer(Frame::Array(frames)),
        (_, true) => Heard::Nothing,
        (_, false) => Heard::Nonsense,
    }
}

fn published(frames: Vec<Frame>) -> Heard {
    let Ok([Frame::Bytes(channel), Frame::Bytes(payload)]) = <[Frame; 2]>::try_from(frames) else {
        return Heard::Nonsense;
    };
    // A channel name that is not text cannot be one of ours.
    String::from_utf8(channel).map_or(Heard::Nothing, |channel| {
        Heard::News(vec![News::Published(Message { channel, payload })])
    })
}

fn changed(frames: Vec<Frame>) -> Heard {
    let key = |frame| if let Frame::Bytes(key) = frame { Some(News::Changed(key)) } else { None };
    match <[Frame; 1]>::try_from(frames) {
        Ok([Frame::Nil]) => Heard::News(vec![News::AllChanged]),
        Ok([Frame::Array(keys)]) => Heard::News(keys.into_iter().filter_map(key).collect()),
        _ => Heard::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::codec::parse;

    #[test]
    fn news_answers_and_nonsense_are_told_apart() {
        let message = Message { channel: "c".to_owned(), payload: b"\xff".to_vec() };
        let published = || Heard::News(vec![News::Published(message.clone())]);
        let changed = |keys: &[&str]| {
            Heard::News(keys.iter().map(|key| News::Changed(key.as_bytes().to_vec())).collect())
        };
        let bytes = |text: &str| Frame::Bytes(text.into());
        let subscribed =
            || Heard::Answer(Frame::Array(vec![bytes("subscribe"), bytes("c"), Frame::Int(1)]));
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
            (b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", Some(subscribed())),
            (b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", Some(subscribed())),
            (b":1\r\n", None),
            (b"+OK\r\n", None),
            (b"-ERR no\r\n", None),
            (b"%0\r\n", None),
        ];
        for (bytes, expected) in table {
            let frame = || parse(&mut &*bytes).expect("of the protocol");
            let expected = expected.unwrap_or_else(|| Heard::Answer(frame()));
            assert_eq!(heard(frame()), expected, "{}", bytes.escape_ascii());
        }
    }
}
