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

use leasehold::store::postgres::PostgresStore;
use leasehold::{Client, Key};

fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

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

/// The store of a URL, for steps without a session.
async fn store(url: &str) -> PostgresStore {
    let connector = leasehold::store::postgres::PostgresConnector::new(url).expect("a URL");
    let opening = PostgresStore::connect_with(connector, leasehold::host::SystemHost::shared());
    opening.await.unwrap_or_else(|error| panic!("{url}: {error}"))
}
