//! Servers, users and URLs that are refused, each with advice and without the password.

use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer, Proxy};

use super::{client, until};

#[tokio::test]
async fn each_mistake_is_named_without_the_password() {
    let database = MysqlDatabase::lend();
    let name = database.name();
    let at = format!("127.0.0.1:{}", MysqlServer::shared().port());
    for (url, kind, part) in [
        (format!("mysql://locked:wrong-secret@{at}/{name}"), ErrorKind::Denied, "password"),
        (format!("mysql://nobody:wrong-secret@{at}/{name}"), ErrorKind::Denied, "password"),
        (format!("mysql://poor@{at}/{name}"), ErrorKind::Denied, "GRANT"),
        (format!("mysql://app@{at}/missing"), ErrorKind::Config, "no such database"),
        ("mysql://app:wrong-secret@127.0.0.1:1/a".to_owned(), ErrorKind::Unavailable, "listens"),
        ("mysql://app@/a?socket=/missing".to_owned(), ErrorKind::Unavailable, "socket"),
    ] {
        let error = Client::connect(&url).await.expect_err(&url);
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), kind, "{text}");
        assert!(text.contains(part) && !text.contains("secret@"), "{text}");
        assert!(!text.contains("wrong-secret"), "{text}");
    }
}

#[tokio::test]
async fn a_password_logs_in_over_tcp_and_a_user_over_the_socket() {
    let database = MysqlDatabase::lend();
    let server = MysqlServer::shared();
    let by_password =
        format!("mysql://locked:secret@127.0.0.1:{}/{}", server.port(), database.name());
    let guard = client(&by_password).await.mutex("a").lock().await.expect("free");
    let over_socket = client(&server.socket_url(database.name())).await;
    assert!(over_socket.mutex("a").try_lock().await.expect("asked").is_none());
    drop(guard);
}

#[tokio::test]
async fn a_read_only_server_is_refused_and_says_so() {
    let server = MysqlServer::start();
    server.sql("CREATE DATABASE a");
    server.migrate("a");
    server.sql("CREATE USER plain@'127.0.0.1'; GRANT ALL ON a.* TO plain@'127.0.0.1'");
    let url = format!("mysql://plain@127.0.0.1:{}/a", server.port());
    let proxy = Proxy::to(server.port());
    let before = client(&format!("mysql://plain@127.0.0.1:{}/a", proxy.port())).await;
    server.sql("SET GLOBAL read_only = 1");
    for error in [
        Client::connect(&url).await.expect_err("read-only"),
        before.mutex("a").try_lock().await.expect_err("read-only"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("read_only"), "{error}");
    }
    // The host name may lead to another server by now.
    let opened = proxy.counts().connections;
    until("it connects anew", async || {
        before.mutex("a").try_lock().await.expect_err("read-only");
        proxy.counts().connections > opened
    })
    .await;
    server.sql("SET GLOBAL read_only = 0");
    until("it is asked", async || before.mutex("a").try_lock().await.is_ok()).await;
}
