//! Connections that end, and a server that is killed and comes back.

use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::postgres::{PostgresConnector, PostgresStore, migrate};
use leasehold::store::{Acquired, Ask, Claim, LeaseId, Renewal, Renewed, Store as _};
use leasehold::{Client, ErrorKind, Key, Lost, OwnerToken, Release, Ttl};
use leasehold_testkit::servers::{PostgresServer, Schema};

use super::{client, keep, session, until};

/// A new server with tables, and its URL.
async fn migrated() -> (PostgresServer, String) {
    let server = PostgresServer::start();
    let url = server.url("leasehold");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    (server, url)
}

#[tokio::test]
async fn a_lock_is_kept_and_waited_for_while_its_connections_end_again_and_again() {
    let (server, url) = migrated().await;
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(3)).lock().await.expect("free");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    let waits = "SELECT count(*) FROM leasehold.places";
    until("it waits", async || server.sql(waits)[0][0] == "1").await;
    for _ in 0..10 {
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'leasehold'",
        );
        // The renewal connects again.
        if let Err(error) = guard.renew().await {
            let is_open = matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable);
            assert!(is_open, "the lease is kept: {error}");
        }
        assert!(guard.is_held());
    }
    let token = guard.fencing_token().expect("a token");
    drop(guard);
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.fencing_token().expect("a token") > token);
}

/// The client receives its answers while this test asks the server, so the runtime has several
/// threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_connection_for_hints_has_ended_a_client_listens_again() {
    let (server, url) = migrated().await;
    let (one, other) = (client(&url).await, client(&url).await);
    let _token = one.mutex("a").ttl(Duration::from_secs(600)).lock().await.expect("free").detach();
    // Count only the connections that are idle after their answer.
    let listening = || -> Vec<_> {
        let pids = server.sql(
            "SELECT pid FROM pg_stat_activity
            WHERE state = 'idle'
            AND query LIKE 'LISTEN \"leasehold:%' AND query NOT LIKE '%:trial:%'",
        );
        pids.into_iter().flatten().collect()
    };
    // After this, the waiter is the client that listens.
    until("the holder listens", async || !listening().is_empty()).await;
    drop(one);
    until("the holder is gone", async || listening().is_empty()).await;
    let _waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    until("the waiter listens", async || !listening().is_empty()).await;
    for _ in 0..3 {
        let before = listening();
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'leasehold'",
        );
        let is_new = |pid: &String| !before.contains(pid);
        until("it listens again", async || listening().iter().any(is_new)).await;
    }
}

#[tokio::test]
async fn a_lease_outlives_a_crash_of_the_server_and_tokens_rise_after_it() {
    let (server, url) = migrated().await;
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(30)).lock().await.expect("free");
    let free = one.mutex("b").lock().await.expect("free");
    let before = free.fencing_token().expect("a token");
    let _released = free.release().await.expect("released");
    // Without this, a server without fsync may forget the leases.
    server.sql("CHECKPOINT");
    server.kill();
    let down = other.mutex("a").try_lock().await.expect_err("nobody answers");
    assert_eq!(down.kind(), ErrorKind::Unavailable, "{down}");
    server.restart();
    until("the holder reaches it again", async || guard.renew().await.is_ok()).await;
    let mut taken = None;
    until("it answers", async || {
        taken = other.mutex("a").try_lock().await.ok();
        taken.is_some()
    })
    .await;
    assert!(taken.expect("an answer").is_none(), "the lease was kept");
    assert_eq!(guard.release().await.expect("answered"), Release::Released);
    let later = other.mutex("b").lock().await.expect("free");
    assert!(later.fencing_token().expect("a token") > before);
}

#[tokio::test]
async fn a_holder_learns_of_its_loss_in_time_when_the_server_is_gone() {
    let (server, url) = migrated().await;
    let client = client(&url).await;
    let guard = client.mutex("a").ttl(Duration::from_secs(1)).lock().await.expect("free");
    server.kill();
    assert_eq!(guard.lost().await, Lost::Deadline);
    assert!(!guard.is_held());
}

#[tokio::test]
async fn a_transaction_that_keeps_a_row_delays_that_lock_alone_and_is_named() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    let guard = client.mutex("a").lock().await.expect("free");
    let _released = guard.release().await.expect("released");
    let keeper = keep(&schema, &["a"]).await;
    let refused = client.mutex("a").try_lock().await.expect_err("its row is locked");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("pg_stat_activity"), "{refused}");
    assert!(client.mutex("b").try_lock().await.expect("asked").is_some(), "another key");
    keeper.batch_execute("ROLLBACK").await.expect("ended");
    assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
}

#[tokio::test]
async fn an_eviction_ends_a_lease_and_a_request_to_let_go_does_not() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    let guard = client.mutex("a").ttl(Duration::from_secs(3)).lock().await.expect("free");
    let token = guard.token().as_str().as_bytes().to_vec();
    let _asked = client.revoke("a", &token, "maintenance").await.expect("asked");
    let request = guard.revoked().await;
    assert_eq!(request.reason, "maintenance");
    assert!(guard.is_held(), "it decides by itself");
    schema.sql("UPDATE leasehold.locks SET owner = NULL");
    assert_eq!(guard.lost().await, Lost::NotOurs);
}

/// A backend that waits for a table does not notice that its client has given up.
#[tokio::test]
async fn no_backend_waits_for_long_for_a_table_that_is_locked() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    // The first call in a backend reads the types of the tables.
    drop(client.inspect("a").await.expect("read"));
    let keeper = session(&schema).await;
    let locked = "BEGIN; LOCK leasehold.locks, leasehold.meta IN ACCESS EXCLUSIVE MODE";
    keeper.batch_execute(locked).await.expect("locked");
    drop(client.inspect("a").await.expect_err("the table is locked"));
    let refused = Client::connect(&schema.url()).await.expect_err("the table is locked");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    until("no backend waits", async || schema.sql(waiting)[0][0] == "0").await;
}

/// The first renewal opens a connection of its own.
#[tokio::test]
async fn a_lease_is_renewed_although_the_server_has_no_second_connection_left() {
    let (server, url) = migrated().await;
    server.sql(
        "CREATE ROLE narrow LOGIN CONNECTION LIMIT 1; GRANT USAGE ON SCHEMA leasehold TO narrow;
        GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO narrow",
    );
    let url = url.replace("postgres@", "narrow@");
    let connector = PostgresConnector::new(&url).expect("a URL");
    let store = PostgresStore::open(connector, SystemHost::shared());
    let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("anna").expect("a token"));
    let ask = Ask::new(key.clone(), owner.clone(), Claim::Exclusive, Ttl::DEFAULT);
    let granted = store.acquire(ask).await.expect("answered");
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
    let lease = LeaseId { key, owner, claim: Claim::Exclusive };
    let renewed = store.renew(Renewal::new(lease, Ttl::DEFAULT)).await.expect("answered");
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
}
