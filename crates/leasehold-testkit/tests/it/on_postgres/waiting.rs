//! Waiters on several connections are woken, and served in order.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::Schema;

use super::{client, until};

/// Long enough that no poll can be what woke the waiter: waiters poll once a second.
const ROUNDS: u32 = 20;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_next_poll() {
    let schema = Schema::lend();
    let (one, other) = (client(&schema.url()).await, client(&schema.url()).await);
    let (one, other) = (one.mutex("a"), other.mutex("a"));
    let began = Instant::now();
    let mut guard = one.lock().await.expect("free");
    for round in 0..ROUNDS {
        let next = if round % 2 == 0 { other.clone() } else { one.clone() };
        let waiting = tokio::spawn(async move { next.lock().await });
        until("it waits", async || {
            schema.sql("SELECT count(*) FROM leasehold.places")[0][0] == "1"
        })
        .await;
        drop(guard);
        guard = waiting.await.expect("no panic").expect("its turn");
    }
    let each = began.elapsed() / ROUNDS;
    assert!(each < Duration::from_millis(900), "{each:?} for each hand-over");
}

#[tokio::test]
async fn no_update_is_lost_by_clients_that_wait_in_line() {
    const CLIENTS: u32 = 6;
    const TIMES: u32 = 25;
    let schema = Schema::lend();
    schema.sql("CREATE TABLE leasehold.counter AS SELECT 0 AS n");
    let work: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let url = schema.url();
            tokio::spawn(async move {
                let client = client(&url).await;
                let mutex = client.mutex("counter");
                let mut seen = Vec::new();
                for _ in 0..TIMES {
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
    assert_eq!(all.len(), (CLIENTS * TIMES) as usize, "no token was given twice");
    schema.sql("DROP TABLE leasehold.counter");
}

/// As a proxy does that gives each transaction another connection.
#[tokio::test]
async fn a_waiter_whose_hints_never_arrive_polls() {
    let schema = Schema::lend();
    let (one, other) = (client(&schema.url()).await, client(&schema.url()).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    until("it waits", async || schema.sql("SELECT count(*) FROM leasehold.places")[0][0] == "1")
        .await;
    // Whatever is told goes elsewhere from now on.
    schema.sql(
        "CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text) RETURNS void
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('nobody', hint); END $$",
    );
    drop(guard);
    let guard = waiting.await.expect("no panic").expect("its turn");
    assert!(guard.is_held());
    schema.sql(
        "CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text) RETURNS void
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('leasehold:' || inbox, hint); END $$",
    );
}
