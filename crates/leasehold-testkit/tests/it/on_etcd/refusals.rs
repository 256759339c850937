//! The store refuses some URLs and some requests, with the reason.

use leasehold::host::SystemHost;
use leasehold::store::{Store as _, from_url};
use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::servers::{EtcdPrefix, EtcdServer};

use super::client;

/// The quota of a small database.
const QUOTA_BYTES: u32 = 8 << 20;

#[tokio::test]
async fn a_url_that_leads_nowhere_says_why_and_shows_no_password() {
    let port = EtcdServer::shared().port(0);
    for (url, kind, part) in [
        ("etcd://u:secret@127.0.0.1:1/a".to_owned(), ErrorKind::Unavailable, "listens"),
        ("etcd://u:secret@127.0.0.1:1,127.0.0.1:2".to_owned(), ErrorKind::Unavailable, "listens"),
        (format!("etcd://127.0.0.1:{port}/a?sslmode=x"), ErrorKind::Config, "sslmode"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(text.contains(part) && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn the_store_promises_what_it_should() {
    let store = from_url(&EtcdPrefix::lend().url(), SystemHost::shared()).await;
    let promised = store.expect("it is there").capabilities();
    assert!(promised.fencing && promised.line && promised.reask && promised.browse);
    assert!(promised.revoke && promised.durable);
    // Other features are refused, and never imitated.
    assert!(!promised.shared && !promised.permits && !promised.watching);
}

#[tokio::test]
async fn requests_beyond_the_promises_of_the_store_are_refused() {
    let client = client(&EtcdPrefix::lend().url()).await;
    let shared = client.rwlock("a").try_read().await.expect_err("not promised");
    assert_eq!(shared.kind(), ErrorKind::Unsupported, "{shared}");
    let permits = client.semaphore("a", 2).try_acquire().await.expect_err("not promised");
    assert_eq!(permits.kind(), ErrorKind::Unsupported, "{permits}");
    assert!(client.mutex("a").try_lock().await.expect("asked").is_some(), "nothing was left");
}

#[tokio::test]
async fn a_full_database_grants_nothing_and_ends_nothing() {
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    // The client keeps the lease of etcd for the next lock, which then needs no new lease.
    drop(client.mutex("b").lock().await.expect("free"));
    let guard = client.mutex("a").lock().await.expect("free");
    server.be_full(true);
    let error = client.mutex("b").try_lock().await.expect_err("it is full");
    assert!(error.to_string().contains("compact"), "{error}");
    assert!(error.is_retryable(), "{error}");
    guard.renew().await.expect("renewals need no space");
    assert_eq!(guard.release().await.expect("nor do releases"), Release::Released);
    server.be_full(false);
    assert!(client.mutex("b").try_lock().await.expect("asked").is_some(), "it is free");
}

#[tokio::test]
async fn a_database_that_reached_its_quota_loses_no_lock_and_serves_again_after_a_compaction() {
    let server = EtcdServer::start_with_quota(QUOTA_BYTES);
    let client = client(&server.url("x")).await;
    // The client keeps the lease of etcd for the next lock, which then needs no new lease.
    drop(client.mutex("b").lock().await.expect("free"));
    let guard = client.mutex("a").lock().await.expect("free");
    let token = guard.fencing_token().expect("a token");
    server.reach_quota();
    let error = client.mutex("b").try_lock().await.expect_err("it is full");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{text}");
    assert!(text.contains("compact") && error.is_retryable(), "{text}");
    guard.renew().await.expect("renewals need no space");
    server.make_room();
    assert!(client.mutex("b").try_lock().await.expect("asked").is_some(), "it is free");
    assert!(guard.is_held() && client.mutex("a").try_lock().await.expect("asked").is_none());
    assert_eq!(guard.release().await.expect("released"), Release::Released);
    let next = client.mutex("a").try_lock().await.expect("asked").expect("it is free");
    assert!(next.fencing_token().expect("a token") > token);
}

#[tokio::test]
async fn a_listing_goes_on_after_many_keys_that_belong_to_no_lock() {
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    let _first = client.mutex("a").lock().await.expect("free");
    let _last = client.mutex("ü").lock().await.expect("free");
    server.write_strange_keys("x/held/", 4_500);
    let listed = client.list("*").await.expect("listed");
    let names: Vec<_> = listed.names().iter().map(leasehold::Key::as_str).collect();
    assert_eq!(names, ["a", "ü"]);
}

#[tokio::test]
async fn an_etcd_cluster_is_no_node_of_a_quorum() {
    let urls = [EtcdPrefix::lend().url(), "memory:".to_owned(), "memory:".to_owned()];
    let error = Client::quorum(urls).connect().await.expect_err("it is a majority by itself");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("one URL"), "{error}");
}
