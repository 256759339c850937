//! Hints that arrive while the connection for hints waits for an answer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use leasehold::core::token::ClientId;
use leasehold::host::SystemHost;
use leasehold::store::postgres::{PostgresConnector, PostgresStore, Stream};
use leasehold::store::{Acquired, Ask, Claim, Hint, HintSink, Line, Store as _};
use leasehold::{Key, OwnerToken, Release, Ttl};
use leasehold_testkit::servers::Schema;

use super::{client, until};

/// A gate on the connection for hints. While it is closed, bytes from the server wait there.
#[derive(Default)]
struct Gate {
    is_closed: AtomicBool,
    /// Whether something has come to the closed gate.
    has_come: AtomicBool,
}

/// The stream of a connection. A `LISTEN` of the client opens its gate.
struct Gated {
    inner: Box<dyn Stream>,
    gate: Arc<Gate>,
    /// Whether this is the connection for hints.
    listens: bool,
    /// The bytes that came to the closed gate.
    kept: Vec<u8>,
}

impl Stream for Gated {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        while self.listens && self.gate.is_closed.load(Ordering::Acquire) {
            let mut some = [0; 1_024];
            let count = ready!(self.inner.poll_read(cx, &mut some))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            self.kept.extend_from_slice(&some[..count]);
            self.gate.has_come.store(true, Ordering::Release);
        }
        if self.kept.is_empty() {
            return self.inner.poll_read(cx, into);
        }
        let count = into.len().min(self.kept.len());
        into[..count].copy_from_slice(&self.kept[..count]);
        self.kept.drain(..count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        const WORD: &[u8] = b"LISTEN \"leasehold:";
        let count = ready!(self.inner.poll_write(cx, bytes))?;
        if bytes.windows(WORD.len()).any(|part| part == WORD) {
            self.listens = true;
            if self.gate.is_closed.swap(false, Ordering::AcqRel) {
                // The task has read before it wrote.
                cx.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }
}

/// A store whose hints pass through this gate.
async fn gated(schema: &Schema, gate: &Arc<Gate>) -> PostgresStore {
    let gate = Arc::clone(gate);
    let connector = PostgresConnector::new(&schema.url()).expect("a URL");
    let connector = connector.through(move |opening| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            let (inner, kept) = (opening.await?, Vec::new());
            let stream: Box<dyn Stream> = Box::new(Gated { inner, gate, listens: false, kept });
            Ok(stream)
        })
    });
    let store = PostgresStore::connect_with(connector, SystemHost::shared()).await;
    store.expect("the server is there")
}

/// A client that takes hints.
struct Inbox {
    id: ClientId,
    is_told: AtomicBool,
}

impl Inbox {
    fn of(store: &PostgresStore, number: u8) -> Arc<Self> {
        let id = ClientId::from_random([number; ClientId::CHARS]);
        let inbox = Arc::new(Self { id, is_told: AtomicBool::new(false) });
        let sink: Arc<dyn HintSink> = inbox.clone();
        store.watch(&inbox.id, Arc::downgrade(&sink));
        inbox
    }

    /// Whether a hint has come since the last call.
    fn is_told(&self) -> bool {
        self.is_told.swap(false, Ordering::AcqRel)
    }

    /// Waits in the line of a lock that is taken.
    async fn joins_the_line(&self, store: &PostgresStore, name: &str) {
        let key = Key::new(name).expect("a good name");
        let owner = OwnerToken::from_random([0; OwnerToken::RANDOM_BYTES], &self.id);
        let (waiter_ttl, handed_ttl) = (Ttl::DEFAULT, Ttl::DEFAULT);
        let inbox = self.id.clone();
        let mut ask = Ask::new(key, owner, Claim::Exclusive, Ttl::DEFAULT);
        ask.line = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox };
        let answer = store.acquire(ask).await.expect("an answer");
        assert!(matches!(answer, Acquired::Refused(_)), "{answer:?}");
    }
}

impl HintSink for Inbox {
    fn hint(&self, _: Hint) {
        self.is_told.store(true, Ordering::Release);
    }
}

/// The hint comes before the answer to the `LISTEN` of another client.
#[tokio::test]
async fn a_hint_that_comes_while_another_client_begins_to_listen_reaches_the_waiter() {
    let schema = Schema::lend();
    let gate = Arc::<Gate>::default();
    let store = gated(&schema, &gate).await;
    let (waiter, newcomer) = (Inbox::of(&store, 1), Inbox::of(&store, 2));
    let guard = client(&schema.url()).await.mutex("a").lock().await.expect("free");
    waiter.joins_the_line(&store, "a").await;
    // A new listener is first told that it may have missed hints.
    until("the waiter listens", async || waiter.is_told()).await;
    gate.is_closed.store(true, Ordering::Release);
    assert_eq!(guard.release().await.expect("an answer"), Release::Released);
    until("the hint has come", async || gate.has_come.load(Ordering::Acquire)).await;
    assert!(!waiter.is_told(), "it is kept back");
    store.listen(&newcomer.id);
    until("the waiter is told", async || waiter.is_told()).await;
}
