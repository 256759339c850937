//! Tests of a connection for messages, against a server that speaks by hand.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::store::redis::codec::{BUFFER_KEPT_MAX, parse};
use crate::store::redis::connector::Access;

/// How much the pipe between client and server holds.
const PIPE: usize = 4096;

/// The requests after PING.
const CHOICE: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n\
                      *3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n";

/// The answers of a server that knows neither command, and of a server that knows both.
const OLD: &str = "-ERR unknown command `HELLO`\r\n-ERR Unknown subcommand\r\n";
const NEW: &str = "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nmodules\r\n*0\r\n+OK\r\n";

async fn established(choice: &str) -> (Result<Subscriber, Error>, DuplexStream) {
    let (ours, mut server) = tokio::io::duplex(PIPE);
    let access = Access::default();
    let hello = async {
        let mut ping = [0; 14];
        server.read_exact(&mut ping).await.expect("a PING");
        server.write_all(b"+PONG\r\n").await.expect("the client reads");
        let mut asked = [0; CHOICE.len()];
        server.read_exact(&mut asked).await.expect("the choice");
        assert_eq!(asked, CHOICE.as_bytes());
        server.write_all(choice.as_bytes()).await.expect("the client reads");
        if choice.is_empty() {
            server.shutdown().await.expect("it is open");
        }
    };
    let connecting = async {
        let mut ours: Box<dyn Stream> = Box::new(ours);
        handshake(&mut *ours, &access).await?;
        establish(ours).await
    };
    let (subscriber, ()) = tokio::join!(connecting, hello);
    (subscriber, server)
}

async fn subscribed() -> (Subscriber, DuplexStream) {
    let (subscriber, server) = established(OLD).await;
    let subscriber = subscriber.expect("it answers");
    assert!(!subscriber.channels.tracks());
    (subscriber, server)
}

/// Reads one request.
async fn read_subscribe(server: &mut DuplexStream) {
    const REQUEST: &[u8] = b"*2\r\n$9\r\nSUBSCRIBE\r\n$5\r\ninbox\r\n";
    let mut request = [0; REQUEST.len()];
    server.read_exact(&mut request).await.expect("a request");
    assert_eq!(request, REQUEST);
}

const CONFIRMED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$5\r\ninbox\r\n:1\r\n";

fn message(payload: &str) -> Vec<u8> {
    let length = payload.len();
    format!("*3\r\n$7\r\nmessage\r\n$5\r\ninbox\r\n${length}\r\n{payload}\r\n").into_bytes()
}

#[tokio::test]
async fn a_channel_is_confirmed_and_its_messages_come_in() {
    let (mut subscriber, mut server) = subscribed().await;
    let serve = async {
        read_subscribe(&mut server).await;
        server.write_all(CONFIRMED).await.expect("the client reads");
        server.write_all(&message("g 1\r\n\u{0}")).await.expect("the client reads");
    };
    let (added, next, ()) =
        tokio::join!(subscriber.channels.add("inbox"), subscriber.messages.next(), serve);
    added.expect("confirmed");
    let expected = Message { channel: "inbox".to_owned(), payload: b"g 1\r\n\0".to_vec() };
    assert_eq!(next, Some(News::Published(expected)));
    drop(server);
    assert_eq!(subscriber.messages.next().await, None);
    let late = subscriber.channels.add("inbox").await.expect_err("the connection is gone");
    assert_eq!(late.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_channel_that_is_refused_is_denied_and_the_connection_goes_on() {
    let (mut subscriber, mut server) = subscribed().await;
    let serve = async {
        read_subscribe(&mut server).await;
        let refusal = b"-NOPERM this user has no permissions to access one of the channels\r\n";
        server.write_all(refusal).await.expect("the client reads");
        read_subscribe(&mut server).await;
        server.write_all(CONFIRMED).await.expect("the client reads");
    };
    let add = async {
        let refused = subscriber.channels.add("inbox").await;
        (refused, subscriber.channels.add("inbox").await)
    };
    let asked = async { tokio::join!(add, serve).0 };
    let (refused, added) = tokio::select! {
        asked = asked => asked,
        _ = subscriber.messages.next() => panic!("nothing is published"),
    };
    let refused = refused.expect_err("no right");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("channel"), "{refused}");
    added.expect("confirmed");
}

/// A server says that a shard channel has ended when the client leaves it, and when its slot leaves
/// the server.
#[tokio::test]
async fn a_shard_channel_that_ends_unasked_is_news_and_one_that_was_left_is_not() {
    let (mut subscriber, mut server) = subscribed().await;
    let ended = |channel: &str| format!("*3\r\n$12\r\nsunsubscribe\r\n$1\r\n{channel}\r\n:1\r\n");
    let serve = async {
        let replies = [
            ("*2\r\n$10\r\nSSUBSCRIBE\r\n$1\r\na\r\n", "-MOVED 15495 h:7\r\n".to_owned()),
            ("*2\r\n$12\r\nSUNSUBSCRIBE\r\n$1\r\na\r\n", ended("b") + &ended("a")),
            ("*2\r\n$12\r\nSUNSUBSCRIBE\r\n$1\r\nc\r\n", "-NOPERM no\r\n".to_owned() + &ended("a")),
        ];
        for (expected, reply) in replies {
            let mut request = vec![0; expected.len()];
            server.read_exact(&mut request).await.expect("a request");
            assert_eq!(request, expected.as_bytes());
            server.write_all(reply.as_bytes()).await.expect("the client reads");
        }
        server.shutdown().await.expect("it is open");
    };
    let leave = async {
        let refused = subscriber.channels.add_shard("a").await.expect("answered");
        assert_eq!(refused, Err("MOVED 15495 h:7".to_owned()));
        subscriber.channels.leave_shard("a").await.expect("answered");
        subscriber.channels.leave_shard("c").await.expect("a refusal does not matter");
    };
    let take = async {
        let mut taken = Vec::new();
        while let Some(news) = subscriber.messages.next().await {
            taken.push(news);
        }
        taken
    };
    let (taken, (), ()) = tokio::join!(take, leave, serve);
    assert_eq!(taken, ["b", "a"].map(|channel| News::Left(channel.to_owned())));
}

#[tokio::test]
async fn a_server_that_tells_of_changed_keys_is_asked_about_them() {
    let (subscriber, mut server) = established(NEW).await;
    let mut subscriber = subscriber.expect("it answers");
    assert!(subscriber.channels.tracks());
    const REQUEST: &[u8] = b"*2\r\n$6\r\nEXISTS\r\n$1\r\na\r\n";
    let serve = async {
        for reply in
            [":1\r\n", ">2\r\n$10\r\ninvalidate\r\n_\r\n:0\r\n", "-ASK 5 h:1\r\n", "-NOPERM no\r\n"]
        {
            let mut request = [0; REQUEST.len()];
            server.read_exact(&mut request).await.expect("a request");
            assert_eq!(request, REQUEST);
            server.write_all(reply.as_bytes()).await.expect("the client reads");
        }
        let changed = b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n";
        server.write_all(changed).await.expect("the client reads");
        server.shutdown().await.expect("it is open");
    };
    let track = async {
        assert_eq!(subscriber.channels.track("a").await.ok(), Some(true));
        assert_eq!(subscriber.channels.track("a").await.ok(), Some(false));
        assert_eq!(subscriber.channels.track("a").await.ok(), Some(false), "it moves just now");
        let refused = subscriber.channels.track("a").await.expect_err("no right");
        assert_eq!(refused.kind(), ErrorKind::Denied);
    };
    let take = async {
        let mut taken = Vec::new();
        while let Some(news) = subscriber.messages.next().await {
            taken.push(news);
        }
        taken
    };
    let (taken, (), ()) = tokio::join!(take, track, serve);
    let changed = |key: &str| News::Changed(key.as_bytes().to_vec());
    assert_eq!(taken, [News::AllChanged, changed("a"), changed("b")]);
}

#[tokio::test]
async fn a_server_may_refuse_either_and_one_that_goes_away_is_told_from_it() {
    let table = [
        ("%0\r\n+OK\r\n", Some(true)),
        ("%0\r\n-NOPERM no right to run 'client|tracking'\r\n", Some(false)),
        ("-NOPERM no right to run 'hello'\r\n+OK\r\n", Some(false)),
        ("+OK\r\n+OK\r\n", Some(false)),
        ("", None),
        ("%0\r\nHTTP/1.1 400\r\n", None),
    ];
    for (choice, expected) in table {
        let (subscriber, server) = established(choice).await;
        let tracks = subscriber.as_ref().map(|subscriber| subscriber.channels.tracks());
        assert_eq!(tracks.as_ref().ok().copied(), expected, "{choice:?}");
        if let Err(error) = tracks {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
        }
        drop(server);
    }
}

/// Writes while there is room, and returns how many bytes that were.
async fn write_while_it_is_read(server: &mut DuplexStream, bytes: &[u8]) -> usize {
    /// After this many turns of the only thread without progress, nobody reads.
    const STILL: usize = 1_000;
    let (mut written, mut still) = (0, 0);
    while written < bytes.len() && still < STILL {
        let write = poll_fn(|cx| {
            let polled = Stream::poll_write(server, cx, &bytes[written..]);
            Poll::Ready(match polled {
                Poll::Ready(count) => count.expect("the client is there"),
                Poll::Pending => 0,
            })
        });
        let count = write.await;
        written += count;
        still = if count == 0 { still + 1 } else { 0 };
        tokio::task::yield_now().await;
    }
    written
}

#[tokio::test]
async fn messages_that_nobody_takes_are_not_read_and_none_of_them_is_lost() {
    let (mut subscriber, mut server) = subscribed().await;
    let one = message("x");
    let count = 100 * PIPE / one.len();
    let flood = one.repeat(count);
    let written = write_while_it_is_read(&mut server, &flood).await;
    assert_eq!(written, PIPE, "what the pipe holds");
    let rest = async {
        server.write_all(&flood[written..]).await.expect("the client reads");
        drop(server);
    };
    let take = async {
        let mut taken = 0;
        while subscriber.messages.next().await.is_some() {
            taken += 1;
        }
        taken
    };
    let (taken, ()) = tokio::join!(take, rest);
    assert_eq!(taken, count);
}

#[tokio::test]
async fn a_message_longer_than_one_read_is_taken_and_so_are_the_next_ones() {
    let (mut subscriber, mut server) = subscribed().await;
    let long = "x".repeat(3 * BUFFER_KEPT_MAX);
    let write = async {
        server.write_all(&message(&long)).await.expect("the client reads");
        server.write_all(&message("short")).await.expect("the client reads");
    };
    let take = async {
        for expected in [long.as_str(), "short"] {
            let taken = subscriber.messages.next().await.expect("a message");
            let News::Published(taken) = taken else { panic!("{taken:?}") };
            assert_eq!(taken.payload.len(), expected.len());
        }
    };
    tokio::join!(write, take);
}

#[tokio::test]
async fn nonsense_ends_the_messages() {
    for nonsense in ["HTTP/1.1 200 OK\r\n", ":1\r\n", "*1\r\n$3\r\nfoo\r\n", "-ERR gone\r\n"] {
        let (mut subscriber, mut server) = subscribed().await;
        server.write_all(nonsense.as_bytes()).await.expect("the client reads");
        assert_eq!(subscriber.messages.next().await, None, "{nonsense:?}");
    }
}

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
    let shard_subscribed =
        || Heard::Answer(Frame::Array(vec![bytes("ssubscribe"), bytes("c"), Frame::Int(1)]));
    let pong = || Heard::Answer(Frame::Array(vec![bytes("pong"), bytes("")]));
    let left = || Heard::Left("c".to_owned());
    let table: [(&[u8], Option<Heard>); 33] = [
        (b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
        (b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
        (b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n", Some(changed(&["a"]))),
        (b">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n", Some(changed(&["a", "b"]))),
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
        (b">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
        (b"*3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n\xff\r\n", Some(published())),
        (b"*2\r\n$8\r\nsmessage\r\n$1\r\nc\r\n", Some(Heard::Nonsense)),
        (b">3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n", Some(shard_subscribed())),
        (b">3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n", Some(left())),
        (b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n", Some(left())),
        (b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\n\xff\r\n:0\r\n", Some(Heard::Nothing)),
        (b">3\r\n$12\r\nsunsubscribe\r\n_\r\n:0\r\n", Some(Heard::Nothing)),
        (b"*2\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n", Some(Heard::Nonsense)),
        (b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", Some(pong())),
        (b">2\r\n$4\r\npong\r\n$0\r\n\r\n", Some(Heard::Nothing)),
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
