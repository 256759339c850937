//! Locks through a real PgBouncer.

use std::time::{Duration, Instant};

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{Lends, Pooler, Schema};

use super::{client, session_at, until};
use crate::real_time::tokens_rise_among_clients_that_wait;

/// The number of rounds, large enough to notice polls, which come once a second.
const ROUNDS: u32 = 8;

fn in_front_of(schema: &Schema, lends: Lends) -> (Pooler, String) {
    let pooler = Pooler::start(schema.server().port(), lends);
    let url = pooler.url(schema.database());
    (pooler, url)
}

/// The shortest time in which a release reaches the waiter of another client.
async fn passing(schema: &Schema, holder: &Client, waiter: &Client) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let guard = holder.mutex("a").lock().await.expect("free");
        let mutex = waiter.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        until("it waits", async || {
            schema.sql("SELECT count(*) FROM leasehold.places")[0][0] == "1"
        })
        .await;
        let released = Instant::now();
        drop(guard);
        let _guard = waiting.await.expect("no panic").expect("its turn");
        least = least.min(released.elapsed());
    }
    least
}

#[tokio::test]
async fn in_session_mode_a_waiter_is_woken_by_the_release() {
    let schema = Schema::lend();
    let (_pooler, url) = in_front_of(&schema, Lends::Session);
    // The pooler has three connections, and one client needs two while nothing is renewed.
    let (holder, waiter) = (client(&schema.url()).await, client(&url).await);
    let passing = passing(&schema, &holder, &waiter).await;
    // Without hints, each round takes nearly a second, because the release comes soon after the
    // ask.
    assert!(passing < Duration::from_millis(500), "{passing:?}");
}

#[tokio::test]
async fn in_transaction_mode_waiters_poll_and_no_update_is_lost() {
    let schema = Schema::lend();
    let (_pooler, url) = in_front_of(&schema, Lends::Transaction);
    tokens_rise_among_clients_that_wait(&url, 4, 3).await;
}

/// A step is one message, and so one transaction. The same holds for a whole migration.
#[tokio::test]
async fn in_statement_mode_a_migration_is_done_and_no_update_is_lost() {
    let schema = Schema::lend();
    let (_pooler, url) = in_front_of(&schema, Lends::Statement);
    let beside = format!("{url}?schema=by_statements");
    let done = migrate(&beside, SystemHost::shared()).await.expect("migrated");
    assert_eq!(done.before, None);
    tokens_rise_among_clients_that_wait(&beside, 4, 3).await;
    schema.sql("DROP SCHEMA by_statements CASCADE");
}

/// A connection of the pooler goes on listening when another client gets it. That client would get
/// each hint, or the pooler would log it.
#[tokio::test]
async fn in_transaction_mode_a_client_does_not_listen_after_its_trial() {
    let schema = Schema::lend();
    let (pooler, url) = in_front_of(&schema, Lends::Transaction);
    let (holder, waiter) = (client(&schema.url()).await, client(&url).await);
    let _passing = passing(&schema, &holder, &waiter).await;
    // There are at most the messages of two trials. If a client listened, there would be a hint for
    // each round.
    assert!(pooler.strays() <= 2, "{} messages for nobody", pooler.strays());
    // This shows that such messages are counted.
    let before = pooler.strays();
    let session = session_at(pooler.port(), schema.database()).await;
    session.batch_execute("LISTEN nobody").await.expect("it obeys");
    schema.sql("NOTIFY nobody");
    until("a message for nobody is counted", async || pooler.strays() > before).await;
}

#[tokio::test]
async fn a_pooler_that_does_not_reach_its_server_is_told_as_out_of_reach() {
    // No server listens at this port.
    let pooler = Pooler::start(1, Lends::Transaction);
    let url = format!("{}?connect_timeout=1", pooler.url("postgres"));
    let error = Client::connect(&url).await.expect_err("no server");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no request was sent"), "{error}");
}
