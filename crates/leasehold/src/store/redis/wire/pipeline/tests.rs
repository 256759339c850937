use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::core::key::Key;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::host::SystemHost;
use crate::host::shielded::panicking_waker;
use crate::store::redis::codec::command::Value;
use crate::store::redis::scripts::scripted::Scripted;
use crate::store::redis::scripts::step::Step as LockStep;
use crate::store::redis::terms::{Copies, Replicas};
use crate::store::redis::wire::Request as _;
use crate::store::redis::wire::ticks::Ticks;
use crate::store::{Ask, Claim, LeaseId, Line, OnRelease};

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
async fn requests_since_the_last_write_leave_in_one_write() {
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

/// The request for copies of a write with this limit.
fn confirmation(limit_ms: u64) -> Confirmation {
    let copies = Copies::new(Replicas::Count(1), false);
    let asked = copies.confirmation(&Known::new(None, None), Duration::from_millis(limit_ms));
    asked.expect("it is asked for")
}

/// The commands that have arrived, word by word.
async fn commands(server: &mut DuplexStream) -> Vec<String> {
    let mut sent = vec![0; 1_000];
    let count = server.read(&mut sent).await.expect("written");
    let text = String::from_utf8_lossy(&sent[..count]).into_owned();
    let words = |command: &str| command.lines().skip(2).step_by(2).collect::<Vec<_>>().join(" ");
    text.split('*').skip(1).map(words).collect()
}

#[tokio::test]
async fn writes_that_leave_together_are_confirmed_by_one_request() {
    let (stream, mut server) = tokio::io::duplex(1 << 20);
    let (pipeline, mut io) = Pipeline::open(Box::new(stream));
    let confirmed = |limit_ms| {
        let written = pipeline.submit(&Command::new("SET"));
        (written, pipeline.confirm(confirmation(limit_ms)))
    };
    let (one, other, same) = (confirmed(1_000), confirmed(25), confirmed(1_000));
    moved(&mut io).await;
    let sent = commands(&mut server).await;
    assert_eq!(sent, ["SET", "SET", "SET", "WAIT 1 12", "WAIT 1 488"]);
    // The answers to the three writes, and to the requests for copies.
    server.write_all(b":0\r\n:0\r\n:0\r\n:7\r\n:8\r\n").await.expect("room");
    moved(&mut io).await;
    for ((written, confirmed), copies) in [(one, 8), (other, 7), (same, 8)] {
        assert_eq!((written.await, confirmed.await), (Ok(Value::Int(0)), Ok(Value::Int(copies))));
    }
}

#[tokio::test]
async fn a_request_for_copies_does_not_wait_for_the_spans_of_others() {
    let table = [
        (vec![1_000], vec!["WAIT 1 500"]),
        (vec![1_000, 25], vec!["WAIT 1 12", "WAIT 1 488"]),
        (vec![500, 25, 1_000, 500], vec!["WAIT 1 12", "WAIT 1 211", "WAIT 1 277"]),
        (vec![0, 1_000], vec!["WAIT 1 1", "WAIT 1 500"]),
    ];
    for (limits, expected) in table {
        let (stream, mut server) = tokio::io::duplex(1_000);
        let (pipeline, mut io) = Pipeline::open(Box::new(stream));
        for limit in &limits {
            drop(pipeline.confirm(confirmation(*limit)));
        }
        moved(&mut io).await;
        assert_eq!(commands(&mut server).await, expected, "{limits:?}");
    }
}

/// The executor of a caller may be gone, so that its waker panics.
#[tokio::test]
async fn a_panic_of_a_callers_waker_loses_no_answer_of_another_caller() {
    let (stream, mut server) = tokio::io::duplex(1_000);
    let (pipeline, mut io) = Pipeline::open(Box::new(stream));
    let host = SystemHost::shared();
    let (ticks, limit) = (Ticks::new(Arc::clone(&host)), host.now() + Duration::from_secs(60));
    let ask = || Box::pin(ticks.until(limit, pipeline.submit(&Command::new("PING"))));
    let (mut one, mut other) = (ask(), ask());
    let panics = panicking_waker();
    assert!(one.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    assert!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    moved(&mut io).await;
    server.write_all(b"+PONG\r\n+PONG\r\n").await.expect("room");
    moved(&mut io).await;
    for asked in [one, other] {
        assert_eq!(asked.await, Some(Ok(Value::Bytes(b"PONG".to_vec()))));
    }
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

/// A step of one lock, which may leave with others.
fn step(key: &str, make: impl Fn(LeaseId) -> LockStep) -> Command {
    let owner = OwnerToken::new("anna").expect("a token");
    let key = Key::new(key).expect("a name");
    let lease = LeaseId { key, owner, claim: Claim::Exclusive };
    let mut known = Known::default();
    known.warmed(&lease.key);
    let _in_full = Scripted::new(make(lease.clone())).command(&mut known);
    Scripted::new(make(lease)).command(&mut known)
}

/// Only the answer tells which of several steps have to be asked for alone. A release that
/// overtakes such an ask would leave its grant to nobody.
#[tokio::test]
async fn a_request_waits_for_a_step_of_its_key_that_left_with_others() {
    let ask = |LeaseId { key, owner, claim }| {
        let (ttl, line) = (Ttl::DEFAULT, Line::None);
        LockStep::Acquire(Ask { key, owner, claim, ttl, line, note: None, reserve: 1 })
    };
    let (stream, mut server) = tokio::io::duplex(1 << 16);
    let (pipeline, mut io) = Pipeline::open(Box::new(stream));
    let submit = |command| {
        let (answering, answer) = oneshot::channel();
        pipeline.submit_for(command, answering, None);
        answer
    };
    let _asked = (submit(step("a", ask)), submit(step("b", ask)));
    moved(&mut io).await;
    assert_eq!(texts(&mut server).await.len(), 1, "they leave together");
    let _released = submit(step("a", |lease| LockStep::Release(lease, OnRelease::Open)));
    // While the server is busy, the first turn only lets other tasks submit.
    moved(&mut io).await;
    moved(&mut io).await;
    let mut none = [0];
    assert!(server.read(&mut none).now_or_never().is_none(), "the release waits");
    server.write_all(b"*2\r\n:0\r\n:9\r\n").await.expect("room");
    moved(&mut io).await;
    let sent = texts(&mut server).await;
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!(sent[1].contains("open"), "the release comes last: {sent:?}");
}

/// The commands that have arrived, as they were sent. A script in them may contain anything but the
/// end of a line of the protocol.
async fn texts(server: &mut DuplexStream) -> Vec<String> {
    let mut sent = vec![0; 1 << 16];
    let count = server.read(&mut sent).await.expect("written");
    let text = String::from_utf8_lossy(&sent[..count]).into_owned();
    text.split("\r\n*").map(str::to_owned).collect()
}
