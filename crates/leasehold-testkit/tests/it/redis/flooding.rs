//! A server that sends without end. It can cost a client only a limited amount of memory and work.

use std::future::ready;
use std::io::{self, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::store::redis::{Connector, Opening, RedisStore, Stream};
use leasehold::store::{Hint, HintSink, Store as _};
use leasehold::{ErrorKind, Key};
use leasehold_testkit::VirtualHost;

/// The most bytes that a client takes. This is more than the longest answer and one read.
const TAKEN_MAX: usize = 48 << 20;

/// The server stops after this many bytes.
const SENT_MAX: usize = 512 << 20;

/// The answers to the first requests of a client that asks.
const ASKED: &[&str] = &["+PONG\r\n*1\r\n$-1\r\n"];

/// The answers to the first requests of a client that wants to listen.
const LISTENED: &[&str] = &["+PONG\r\n", "%0\r\n+OK\r\n"];

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

/// A server that answers the first writes of a connection with `words`, and floods the next one.
#[derive(Clone)]
struct Flooding {
    words: &'static [&'static str],
    head: &'static str,
    more: &'static str,
    /// How many bytes each connection took.
    taken: Arc<Mutex<Vec<Arc<AtomicUsize>>>>,
}

impl Flooding {
    fn new(words: &'static [&'static str], (head, more): (&'static str, &'static str)) -> Self {
        Self { words, head, more, taken: Arc::default() }
    }

    /// Asserts that there was a connection, and that each one ended at the bound.
    fn check(&self) {
        let taken = self.taken.lock().expect("a test that failed");
        assert!(!taken.is_empty(), "{:?}: nobody connected", self.head);
        for taken in taken.iter() {
            let taken = taken.load(Ordering::Relaxed);
            assert!(taken < TAKEN_MAX, "{:?}: {taken} bytes were taken", self.head);
        }
    }
}

impl Connector for Flooding {
    fn open(&self) -> Opening {
        let taken = Arc::<AtomicUsize>::default();
        self.taken.lock().expect("a test that failed").push(Arc::clone(&taken));
        let (server, sending) = (self.clone(), io::Cursor::default());
        let stream = Flood { server, sending, is_flooding: false, taken, reader: None };
        Box::pin(ready(Ok(Box::new(stream) as Box<dyn Stream>)))
    }

    fn label(&self) -> String {
        "redis://flooding".to_owned()
    }
}

struct Flood {
    server: Flooding,
    /// The bytes that it sends now.
    sending: io::Cursor<Vec<u8>>,
    is_flooding: bool,
    taken: Arc<AtomicUsize>,
    reader: Option<Waker>,
}

impl Stream for Flood {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut count = self.sending.read(into)?;
        let is_over = self.taken.load(Ordering::Relaxed) >= SENT_MAX;
        if count == 0 && self.is_flooding && !is_over {
            let more = self.server.more;
            self.sending = io::Cursor::new(more.repeat(64 * 1024 / more.len()).into_bytes());
            count = self.sending.read(into)?;
        }
        if count == 0 && !is_over {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.taken.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let answer = match self.server.words.split_first() {
            Some((word, rest)) => {
                self.server.words = rest;
                word
            }
            None => {
                self.is_flooding = true;
                self.server.head
            }
        };
        self.sending = io::Cursor::new(answer.into());
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

#[test]
fn an_answer_without_an_end_ends_the_connection_at_a_bound() {
    for flood in FLOODS {
        let (host, server) = (VirtualHost::new(1), Flooding::new(ASKED, flood));
        host.run(async {
            let store = RedisStore::open(server.clone(), host.clone());
            let answer = store.inspect(Key::new("a").expect("a name")).await;
            let error = answer.expect_err("no answer comes to an end");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{flood:?}: {error}");
            let says = "the connection ended before the answer came";
            assert!(error.to_string().contains(says), "{flood:?}: {error}");
        });
        host.drop_tasks();
        server.check();
    }
}

/// Counts hints.
#[derive(Default)]
struct Counting(AtomicUsize);

impl HintSink for Counting {
    fn hint(&self, _: Hint) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_message_without_an_end_ends_the_connection_at_a_bound() {
    for flood in FLOODS {
        let (host, server) = (VirtualHost::new(1), Flooding::new(LISTENED, flood));
        let (counting, client) = (Arc::<Counting>::default(), ClientId::from_random([0; 12]));
        let sink: Arc<dyn HintSink> = counting.clone();
        host.run(async {
            let store = RedisStore::open(server.clone(), host.clone());
            store.watch(&client, Arc::downgrade(&sink));
            store.listen(&client);
            host.advance(Duration::from_millis(20)).await;
            // The connection has ended, and the next one waits for its pause.
            assert_eq!(server.taken.lock().expect("no panic").len(), 1, "{flood:?}");
            host.advance(Duration::from_millis(200)).await;
            assert!(server.taken.lock().expect("no panic").len() > 1, "{flood:?}: it goes on");
        });
        host.drop_tasks();
        server.check();
        assert_eq!(counting.0.load(Ordering::Relaxed), 0, "{flood:?} confirms nothing");
    }
}
