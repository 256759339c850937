//! Logins, and encrypted connections.

use std::time::Duration;

use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::servers::{Authority, EtcdServer};

use super::{client, until};

#[tokio::test]
async fn a_cluster_that_wants_logins_says_so_and_a_login_is_renewed() {
    let server = EtcdServer::start();
    server.want_logins();
    let at = format!("127.0.0.1:{}", server.port(0));
    for (url, part) in [
        (format!("etcd://{at}/app"), "wants a login"),
        (format!("etcd://app:wrong-secret@{at}/app"), "the user and the password"),
        (format!("etcd://app:secret@{at}/other"), "grant a role"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), ErrorKind::Denied, "{text}");
        assert!(text.contains(part) && !text.contains("secret@"), "{text}");
        assert!(!text.contains("wrong-secret"), "{text}");
    }
    let url = format!("etcd://app:secret@{at}/app");
    let (one, other) = (client(&url).await, client(&url).await);
    let ttl = Duration::from_secs(120);
    let guard = one.mutex("a").ttl(ttl).lock().await.expect("free");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || one.inspect("a").await.expect("asked").waiting == 1).await;
    // The password stays the same, but the logins end.
    server.set_password("secret");
    guard.renew().await.expect("renewed by a new login");
    drop(guard);
    let _next = waiting.await.expect("no panic").expect("its turn");
    server.set_password("another");
    let error = one.mutex("b").try_lock().await.expect_err("the password is wrong now");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

#[tokio::test]
async fn a_client_logs_in_when_the_cluster_begins_to_want_logins() {
    let server = EtcdServer::start();
    let url = format!("etcd://app:secret@127.0.0.1:{}/app", server.port(0));
    let client = client(&url).await;
    let mutex = |name| client.mutex(name).ttl(Duration::from_secs(120));
    let guard = mutex("a").lock().await.expect("free");
    server.want_logins();
    guard.renew().await.expect("it has logged in");
    assert_eq!(guard.release().await.expect("answered"), Release::Released);
    assert!(mutex("b").try_lock().await.expect("answered").is_some());
}

#[tokio::test]
async fn a_connection_is_encrypted_and_checked_as_the_url_says() {
    let authority = Authority::new();
    let server = EtcdServer::start_with_tls(&authority.issue("server", &["127.0.0.1"]));
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
