//! A request arrives, but its answer does not.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use leasehold::Client;
use leasehold::host::SystemHost;
use leasehold::store::postgres::{PostgresConnector, PostgresStore, Stream};
use leasehold_testkit::servers::Schema;

/// A stream that ends before the answer to the next message with a certain word.
struct Cut {
    inner: Box<dyn Stream>,
    word: &'static str,
    armed: Arc<AtomicBool>,
    is_cut: bool,
}

impl Stream for Cut {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_read(cx, into))?;
        Poll::Ready(Ok(if self.is_cut { 0 } else { count }))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_write(cx, bytes))?;
        let has_word = bytes.windows(self.word.len()).any(|part| part == self.word.as_bytes());
        if has_word && self.armed.swap(false, Ordering::AcqRel) {
            self.is_cut = true;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }
}

/// A client, and its trigger. When the trigger is armed, the client loses the next answer to a
/// request with this word.
async fn losing(schema: &Schema, word: &'static str) -> (Client, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let arm = Arc::clone(&armed);
    let connector = PostgresConnector::new(&schema.url()).expect("a URL");
    let connector = connector.through(move |opening| {
        let armed = Arc::clone(&arm);
        Box::pin(async move {
            let stream: Box<dyn Stream> =
                Box::new(Cut { inner: opening.await?, word, armed, is_cut: false });
            Ok(stream)
        })
    });
    let store = PostgresStore::connect_with(connector, SystemHost::shared()).await;
    let client = Client::with_store(store.expect("the server is there")).connect().await;
    (client.expect("connected"), armed)
}

#[tokio::test]
async fn a_lost_answer_to_an_acquire_is_repaired_by_asking_again() {
    let schema = Schema::lend();
    let (client, armed) = losing(&schema, ".acquire(").await;
    drop(client.mutex("a").lock().await.expect("free"));
    for _ in 0..20 {
        armed.store(true, Ordering::Release);
        let guard = client.mutex("a").lock().await.expect("free");
        assert!(!armed.load(Ordering::Acquire), "an answer was lost");
        assert!(guard.is_held());
        let _released = guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_release_leaves_nothing_behind() {
    let schema = Schema::lend();
    let (client, armed) = losing(&schema, ".release(").await;
    for _ in 0..20 {
        let guard = client.mutex("a").lock().await.expect("free");
        armed.store(true, Ordering::Release);
        let _unknown = guard.release().await;
        assert!(!armed.load(Ordering::Acquire), "an answer was lost");
        // The server may still be busy with the release that came over the other connection.
        let next = client.mutex("a").lock_timeout(Duration::from_secs(5)).await;
        let _released = next.expect("free before its ttl").release().await.expect("released");
    }
    let held = "SELECT key FROM leasehold.locks WHERE owner IS NOT NULL";
    assert!(schema.sql(held).is_empty());
}

#[tokio::test]
async fn a_lost_answer_to_a_renewal_loses_no_lease() {
    let schema = Schema::lend();
    let (client, armed) = losing(&schema, ".renew(").await;
    let guard = client.mutex("a").lock().await.expect("free");
    guard.renew().await.expect("renewed");
    for _ in 0..5 {
        armed.store(true, Ordering::Release);
        let _unknown = guard.renew().await;
        assert!(!armed.load(Ordering::Acquire), "an answer was lost");
        assert!(guard.is_held());
    }
    guard.renew().await.expect("renewed");
}
