use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::store::redis::codec::command::Value;

/// A stream that counts how often it is written to.
struct Counting {
    stream: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl Stream for Counting {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Stream::poll_read(&mut self.stream, cx, into)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Stream::poll_write(&mut self.stream, cx, bytes)
    }
}

/// Polls the I/O task once.
async fn moved(io: &mut Mover) {
    let turn = poll_fn(|cx| Poll::Ready(Pin::new(&mut *io).poll(cx).is_pending()));
    assert!(turn.await, "the connection goes on");
}

#[tokio::test]
async fn whatever_was_submitted_since_the_last_write_leaves_in_one() {
    const COUNT: usize = 1_000;
    let (stream, mut server) = tokio::io::duplex(1 << 20);
    let writes = Arc::new(AtomicUsize::new(0));
    let counting = Counting { stream, writes: Arc::clone(&writes) };
    let (pipeline, mut io) = Pipeline::open(Box::new(counting));
    for round in 1..3 {
        let answers: Vec<_> = (0..COUNT)
            .map(|number| pipeline.submit(&Command::new("ECHO").number(number as u64)))
            .collect();
        moved(&mut io).await;
        assert_eq!(writes.load(Ordering::Relaxed), round);
        let mut sent = vec![0; 1 << 20];
        assert_ne!(server.read(&mut sent).await.expect("written"), 0);
        server.write_all(&b":1\r\n".repeat(COUNT)).await.expect("room");
        moved(&mut io).await;
        for answer in answers {
            assert_eq!(answer.await, Ok(Value::Int(1)));
        }
    }
}

#[tokio::test]
async fn writes_that_leave_together_are_confirmed_by_one_request() {
    let (stream, mut server) = tokio::io::duplex(1 << 20);
    let (pipeline, mut io) = Pipeline::open(Box::new(stream));
    let confirmation = |replicas| Command::new("WAIT").number(replicas).number(500);
    let confirmed = |number: u64, replicas| {
        let written = pipeline.submit(&Command::new("ECHO").number(number));
        (written, pipeline.confirm(confirmation(replicas)))
    };
    let (one, other, same) = (confirmed(1, 1), confirmed(2, 2), confirmed(3, 1));
    moved(&mut io).await;
    let mut sent = vec![0; 1_000];
    let count = server.read(&mut sent).await.expect("written");
    let text = String::from_utf8_lossy(&sent[..count]);
    let names = ["ECHO", "WAIT"].map(|name| text.matches(name).count());
    assert_eq!(names, [3, 2], "{text}");
    // The answers to the three writes, with the first confirmation before the last one.
    server.write_all(b":0\r\n:0\r\n:0\r\n:7\r\n:8\r\n").await.expect("room");
    moved(&mut io).await;
    for (written, confirmed) in [one, same] {
        assert_eq!((written.await, confirmed.await), (Ok(Value::Int(0)), Ok(Value::Int(7))));
    }
    assert_eq!((other.0.await, other.1.await), (Ok(Value::Int(0)), Ok(Value::Int(8))));
}

#[tokio::test]
async fn answers_that_nobody_asked_for_end_the_connection() {
    let (stream, mut server) = tokio::io::duplex(1_000);
    let (pipeline, io) = Pipeline::open(Box::new(stream));
    let answer = pipeline.submit(&Command::new("PING"));
    server.write_all(b"+PONG\r\n:1\r\n").await.expect("room");
    io.await;
    assert_eq!(answer.await, Ok(Value::Bytes(b"PONG".to_vec())));
    let late = pipeline.submit(&Command::new("PING")).await;
    assert!(matches!(late, Err(NoAnswer::NotSent { .. })), "{late:?}");
}
