//! The store on a real PostgreSQL server, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

mod failing_over;
mod losing;
mod lost_answers;
mod migrating;
mod refusals;
mod runtimes;
mod tls;
mod waiting;

use leasehold::Client;

async fn client(url: &str) -> Client {
    Client::connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Waits until a question has this answer, by asking again and again.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < leasehold_testkit::servers::PATIENCE, "in time: {what}");
        tokio::task::yield_now().await;
    }
}
