//! A server that is killed, silent or blocked by another transaction.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer, Proxy, Way};

use super::keeper::Keeper;
use super::{client, until};

#[tokio::test]
async fn a_lease_outlives_a_crash_of_the_server() {
    let server = MysqlServer::start();
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1; CREATE DATABASE a");
    server.migrate("a");
    let ttl = Duration::from_secs(600);
    let (one, other) = (client(&server.url("a")).await, client(&server.url("a")).await);
    let guard = one.mutex("a").ttl(ttl).lock().await.expect("free");
    server.kill();
    let down = other.mutex("a").try_lock().await.expect_err("no server");
    assert!(matches!(down.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{down}");
    server.restart();
    until("it is asked again", async || other.mutex("a").try_lock().await.is_ok()).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it is held");
    assert!(guard.is_held());
    guard.renew().await.expect("renewed by a new connection");
    let _released = guard.release().await.expect("released");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
}

/// The tests of an application may empty all tables of its database.
#[tokio::test]
async fn a_client_that_is_connected_while_all_tables_are_emptied_still_gets_locks() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let before = client.mutex("a").lock().await.expect("free").fencing_token();
    database.sql(
        "DELETE FROM leasehold_locks; DELETE FROM leasehold_places; DELETE FROM leasehold_shares;
        DELETE FROM leasehold_hints; DELETE FROM leasehold_clients; DELETE FROM leasehold_meta",
    );
    let guard = client.mutex("a").try_lock().await.expect("asked").expect("free");
    assert!(guard.fencing_token() > before);
    assert_eq!(client.semaphore("b", 3).resize(4).await.expect("asked"), None);
    assert!(client.semaphore("b", 4).try_acquire().await.expect("asked").is_some());
}

#[tokio::test]
async fn a_silent_server_is_noticed_and_its_connection_is_made_again() {
    let server = MysqlServer::start();
    server.sql("CREATE DATABASE a");
    server.migrate("a");
    let client = client(&server.url("a")).await;
    let guard = client.mutex("a").ttl(Duration::from_secs(600)).lock().await.expect("free");
    server.pause();
    let silent = client.mutex("b").try_lock().await.expect_err("no answer");
    assert!(matches!(silent.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{silent}");
    server.resume();
    until("it is asked again", async || client.mutex("b").try_lock().await.is_ok()).await;
    guard.renew().await.expect("it is still held");
}

/// The server lives, and a new connection reaches it.
#[tokio::test]
async fn a_connection_that_loses_a_request_is_given_up_for_another_one() {
    let database = MysqlDatabase::lend();
    let port = MysqlServer::shared().port();
    let proxy = Proxy::to(port);
    let url = database.url().replace(&port.to_string(), &proxy.port().to_string());
    let client = client(&url).await;
    let guard = client.mutex("a").ttl(Duration::from_secs(600)).lock().await.expect("free");
    proxy.strand();
    // The first ask gets no answer. The second may go over another connection already.
    drop(client.mutex("b").try_lock().await);
    until("it is asked again", async || client.mutex("b").try_lock().await.is_ok()).await;
    until("it is renewed", async || guard.renew().await.is_ok()).await;
}

/// The caller was told that the request was not sent.
#[tokio::test]
async fn a_request_that_was_not_sent_in_time_is_never_sent() {
    let database = MysqlDatabase::lend();
    let port = MysqlServer::shared().port();
    let proxy = Proxy::to(port);
    let url = database.url().replace(&port.to_string(), &proxy.port().to_string());
    let (ours, other) = (client(&url).await, client(&database.url()).await);
    // The client connects again, and gets no answer.
    proxy.hold(Way::ToClient);
    proxy.close_all();
    until("a request is not sent", async || {
        let unsent = ours.mutex("a").try_lock().await.expect_err("the server is silent");
        unsent.to_string().contains("no request was sent")
    })
    .await;
    proxy.go_on(Way::ToClient);
    until("another one is sent", async || ours.inspect("b").await.is_ok()).await;
    assert!(other.mutex("a").try_lock().await.expect("answered").is_some(), "the key is free");
}

/// A program that opens a transaction and then hangs blocks the row of one key, not all rows.
#[tokio::test]
async fn a_row_that_another_transaction_keeps_blocks_its_key_for_a_bounded_time() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let _token = client.mutex("a").lock().await.expect("free").detach();
    let keeper = Keeper::of(&database, &["a"]);
    let mutex = client.mutex("a");
    let blocked = mutex.lock_timeout(Duration::from_secs(60)).await.expect_err("the row is kept");
    assert!(matches!(blocked.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{blocked}");
    // Requests of a client go one after the other, so the next request may wait for the end of the
    // blocked one.
    until("another key is free", async || client.mutex("b").try_lock().await.is_ok()).await;
    // Each step waits for a second at most. By itself, the server would let a step wait for 50 s.
    // The server's list of transactions is of no use here, since it does not change while it is
    // read all the time.
    until("no step waits for the row", async || {
        let oldest = database.sql(
            "SELECT COALESCE(MAX(time), -1) FROM information_schema.processlist
            WHERE db = DATABASE() AND command <> 'Sleep' AND id <> CONNECTION_ID()",
        );
        let waited: i64 = oldest[0][0].parse().expect("a number");
        assert!(waited < 25, "a step has waited for {waited} s");
        waited < 0
    })
    .await;
    drop(keeper);
    until("the row is free", async || client.mutex("a").try_lock().await.is_ok()).await;
}
