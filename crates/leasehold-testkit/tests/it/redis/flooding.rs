//! A server that sends without an end. It can cost a client only a limited amount of memory and
//! work.
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use leasehold::store::redis::{
    Command, Connected, LinkConnector, LinkError, RedisConnector, Subscriber,
};

/// More than the longest answer plus the buffers of the system on both ends.
const TAKEN_MAX: usize = 48 << 20;

/// The server stops after this many bytes.
const SENT_MAX: usize = 512 << 20;

/// The answers to the first requests of a client that wants to listen.
const GREETING: [&str; 2] = ["+PONG\r\n", "%0\r\n+OK\r\n"];

/// Endless answers: the beginning, and the part that repeats.
const FLOODS: [(&str, &str); 8] = [
    ("+", "x"),
    ("-ERR ", "x"),
    (":", "1"),
    ("$500000000\r\n", "x"),
    ("*60000\r\n", "$1000\r\n"),
    ("*1000000000\r\n", ":1\r\n"),
    ("*3\r\n$7\r\nmessage\r\n+", "x"),
    (">2\r\n$10\r\ninvalidate\r\n*60000\r\n", "$1000\r\n"),
];

/// A server that answers the first requests with `words`, and floods the next one. Its thread
/// returns how many bytes it could send.
fn flooding(
    words: &'static [&'static str],
    head: &'static str,
    more: &'static str,
) -> (RedisConnector, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        let mut buffer = [0; 4096];
        let mut read = |stream: &mut TcpStream| stream.read(&mut buffer).expect("a request");
        for word in words {
            read(&mut stream);
            stream.write_all(word.as_bytes()).expect("the client reads");
        }
        read(&mut stream);
        let more = more.repeat(64 * 1024 / more.len());
        let mut sent = stream.write(head.as_bytes()).expect("the client reads");
        while sent < SENT_MAX
            && let Ok(written @ 1..) = stream.write(more.as_bytes())
        {
            sent += written;
        }
        sent
    });
    let connector = RedisConnector::new(&format!("redis://127.0.0.1:{port}"));
    (connector.expect("a good URL"), thread)
}

#[tokio::test]
async fn an_answer_without_an_end_ends_the_connection_at_a_bound() {
    for (head, more) in FLOODS {
        let (connector, server) = flooding(&["+PONG\r\n:0\r\n"], head, more);
        let Connected { link, io, .. } = connector.connect().await.expect("it greets");
        let request = link.submit(Command::new("GET").arg("a"));
        io.await;
        let answer = request.await;
        assert!(matches!(answer, Err(LinkError::Broken { .. })), "{head:?}: {answer:?}");
        let sent = server.join().expect("the server goes on to its end");
        assert!(sent < TAKEN_MAX, "{head:?}: {sent} bytes were taken");
    }
}

#[tokio::test]
async fn a_message_without_an_end_ends_the_connection_at_a_bound() {
    for (head, more) in FLOODS {
        let (connector, server) = flooding(&GREETING, head, more);
        let Subscriber { mut channels, mut messages, .. } =
            connector.subscribe().await.expect("it greets");
        let take = async { while messages.next().await.is_some() {} };
        let (added, ()) = tokio::join!(channels.add("inbox"), take);
        assert!(added.is_err(), "{head:?} confirms nothing");
        drop((channels, messages));
        let sent = server.join().expect("the server goes on to its end");
        assert!(sent < TAKEN_MAX, "{head:?}: {sent} bytes were taken");
    }
}
