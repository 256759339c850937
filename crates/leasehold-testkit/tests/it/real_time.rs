//! Helpers for tests of stores on real servers, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::time::Instant;

use leasehold::Client;
use leasehold_testkit::servers::PATIENCE;

pub(crate) async fn client(url: &str) -> Client {
    Client::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Waits until a question has this answer, by asking again and again.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "in time: {what}");
        tokio::task::yield_now().await;
    }
}

/// Lets several clients, each with its own connections, take one lock `times` times each. Asserts
/// that their fencing tokens rise, and that none is given twice.
pub(crate) async fn tokens_rise_among_clients_that_wait(url: &str, clients: usize, times: usize) {
    let work: Vec<_> = (0..clients)
        .map(|_| {
            let url = url.to_owned();
            tokio::spawn(async move {
                let client = client(&url).await;
                let mutex = client.mutex("counter");
                let mut seen = Vec::new();
                for _ in 0..times {
                    let guard = mutex.lock().await.expect("its turn");
                    seen.push(guard.fencing_token().expect("a token"));
                    let _released = guard.release().await.expect("released");
                }
                seen
            })
        })
        .collect();
    let mut all = Vec::new();
    for one in work {
        let seen = one.await.expect("no panic");
        assert!(seen.is_sorted_by(|earlier, later| earlier < later), "tokens rise: {seen:?}");
        all.extend(seen);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), clients * times, "no token was given twice");
}
