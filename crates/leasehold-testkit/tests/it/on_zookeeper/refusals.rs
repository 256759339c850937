//! The store refuses some URLs and some requests, with the reason.

use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::{Store as _, from_url};
use leasehold::{Client, Coexist, ErrorKind, Release};
use leasehold_testkit::servers::{Authority, ZookeeperPath, ZookeeperServer};

use super::{client, until};

#[tokio::test]
async fn a_url_that_leads_nowhere_says_why_and_shows_no_password() {
    let port = ZookeeperServer::shared().port(0);
    for (url, kind, part) in [
        ("zookeeper://u:secret@127.0.0.1:1/a".to_owned(), ErrorKind::Unavailable, "listens"),
        (
            "zookeeper://u:secret@127.0.0.1:1,127.0.0.1:2".to_owned(),
            ErrorKind::Unavailable,
            "listens",
        ),
        (format!("zookeeper://127.0.0.1:{port}/a?sslmode=x"), ErrorKind::Config, "sslmode"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(text.contains(part) && !text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn the_store_promises_what_it_should() {
    let store = from_url(&ZookeeperPath::lend().url("15s"), SystemHost::shared()).await;
    let promised = store.expect("it is there").capabilities();
    assert!(promised.fencing && promised.line && promised.reask);
    assert!(promised.browse && promised.revoke);
    // Other features are refused, and never imitated.
    assert!(!promised.shared && !promised.permits && !promised.watching);
    assert!(!promised.durable && !promised.detached && !promised.frees);
}

#[tokio::test]
async fn requests_beyond_the_promises_of_the_store_are_refused() {
    let client = client(&ZookeeperPath::lend().url("15s")).await;
    let shared = client.rwlock("a").try_read().await.expect_err("not promised");
    assert_eq!(shared.kind(), ErrorKind::Unsupported, "{shared}");
    let permits = client.semaphore("a", 2).try_acquire().await.expect_err("not promised");
    assert_eq!(permits.kind(), ErrorKind::Unsupported, "{permits}");
    let freed = client.mutex("a").coexist(Coexist::On).try_lock().await.expect_err("not promised");
    assert_eq!(freed.kind(), ErrorKind::Unsupported, "{freed}");
    let kept = client.mutex("a").min_hold(Duration::from_secs(20)).try_lock().await;
    let kept = kept.expect_err("not promised");
    assert_eq!(kept.kind(), ErrorKind::Unsupported, "{kept}");
    let guard = client.mutex("a").lock().await.expect("free");
    let kept = guard.keep_for(Duration::from_secs(20)).await.expect_err("not promised");
    assert_eq!(kept.kind(), ErrorKind::Unsupported, "{kept}");
    let next = client.mutex("a").lock().await.expect("it was released");
    let _released = next.release().await.expect("released");
    assert!(client.mutex("a").try_lock().await.expect("asked").is_some(), "nothing was left");
}

#[tokio::test]
async fn another_client_cannot_go_on_with_a_lease_but_may_release_it() {
    let path = ZookeeperPath::lend();
    let (one, other) = (client(&path.url("15s")).await, client(&path.url("15s")).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let lease = other.lease("a", guard.token().clone());
    let error = lease.renew(Duration::from_secs(5)).await.expect_err("it is bound to its client");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("leasehold run"), "{error}");
    guard.renew().await.expect("it is unchanged");
    assert_eq!(lease.release().await.expect("asked"), Release::Released);
    assert_eq!(guard.renew().await.expect_err("released").kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_ttl_that_a_session_does_not_cover_is_refused() {
    let path = ZookeeperPath::lend();
    let client = client(&path.url("8s")).await;
    let long = client.mutex("a").ttl(Duration::from_secs(7)).try_lock().await;
    let error = long.expect_err("longer than is sure");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("`session_timeout=10s`"), "{error}");
    let short = client.mutex("a").ttl(Duration::from_secs(6));
    assert!(short.try_lock().await.expect("asked").is_some());
}

#[tokio::test]
async fn a_client_without_the_login_of_the_nodes_is_denied() {
    let path = ZookeeperPath::lend();
    let as_user = |user: &str| path.url("15s").replace("//", &format!("//{user}@"));
    let ours = client(&as_user("app:secret")).await;
    let again = client(&as_user("app:secret")).await;
    let guard = ours.mutex("a").lock().await.expect("free");
    assert!(again.mutex("a").try_lock().await.expect("asked").is_none());
    for url in [path.url("15s"), as_user("app:wrong-secret"), as_user("other:secret")] {
        let stranger = client(&url).await;
        for error in [
            stranger.mutex("a").try_lock().await.expect_err("no right"),
            stranger.mutex("b").lock().await.expect_err("no right"),
            stranger.inspect("a").await.expect_err("no right"),
        ] {
            let text = format!("{error} {error:?}");
            assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
            assert!(text.contains("login") && !text.contains("wrong-secret"), "{text}");
        }
    }
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_connection_is_encrypted_and_checked_as_the_url_says() {
    let authority = Authority::new();
    let server = ZookeeperServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
    let url = server.url("a");
    let ca = format!("ca={}", authority.ca().display());
    let checked = format!("{url}?sslmode=verify-full&{ca}");
    until("it has started", async || Client::connect(&checked).await.is_ok()).await;
    for options in ["?sslmode=require".to_owned(), format!("?sslmode=verify-full&{ca}")] {
        let client = client(&format!("{url}{options}")).await;
        // The release of the guard of the round before may be on its way.
        let _guard = client.mutex("a").lock().await.expect(&options);
    }
    let other = Authority::new();
    let ca = format!("ca={}", other.ca().display());
    for (options, part) in [
        (format!("?sslmode=verify-full&{ca}"), "certificate"),
        // The server closes a connection that is not encrypted.
        (String::new(), "no request was sent"),
    ] {
        let strange = format!("{url}{options}");
        let error = Client::connect(&strange).await.expect_err("not trusted");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_zookeeper_ensemble_is_no_node_of_a_quorum() {
    let urls = [ZookeeperPath::lend().url("15s"), "memory:".to_owned(), "memory:".to_owned()];
    let error = Client::quorum(urls).connect().await.expect_err("it is a majority by itself");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("one URL"), "{error}");
}
