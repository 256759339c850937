//! Servers, databases and users that cannot keep locks. Each is refused with advice.

use std::error::Error as _;
use std::io;
use std::task::{Context, Poll};

use leasehold::host::SystemHost;
use leasehold::store::postgres::{PostgresConnector, PostgresStore, Stream, migrate};
use leasehold::{Client, Error, ErrorKind};
use leasehold_testkit::servers::{PostgresServer, Proxy, Schema};

/// The error with all of its causes as text, which must not show the password.
#[track_caller]
fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(" | {next}"));
        cause = next.source();
    }
    assert!(!format!("{text} {error:?}").contains("wrong-secret"), "{text}");
    text
}

#[track_caller]
fn check(error: &Error, kind: ErrorKind, part: &str) {
    let text = told(error);
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(part), "`{part}` is not in {text}");
    let states = ["no request was sent", "nothing was changed"];
    assert!(states.iter().any(|state| text.contains(state)), "{text}");
}

async fn refused(url: &str) -> Error {
    Client::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn a_url_that_leads_to_no_usable_database_is_refused_with_advice() {
    let server = PostgresServer::shared();
    let at = format!("127.0.0.1:{}", server.port());
    server.sql("CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0");
    let port = server.port();
    for (url, kind, part) in [
        (format!("postgres://locked:wrong-secret@{at}/postgres"), ErrorKind::Denied, "pg_hba.conf"),
        (format!("postgres://locked@{at}/postgres"), ErrorKind::Denied, "has none"),
        (format!("postgres://nobody@{at}/postgres"), ErrorKind::Denied, "nobody"),
        (format!("postgres://postgres@{at}/missing"), ErrorKind::Config, "no such database"),
        (server.url("missing"), ErrorKind::Config, "leasehold migrate"),
        (format!("postgres://postgres@{at}/latin1"), ErrorKind::Config, "UTF8"),
        ("postgres://postgres@127.0.0.1:1/x".to_owned(), ErrorKind::Unavailable, "listens"),
        (
            format!("postgres://postgres@:{port}/x?host=/nowhere"),
            ErrorKind::Unavailable,
            "no server listens at the socket",
        ),
    ] {
        check(&refused(&url).await, kind, part);
    }
}

#[tokio::test]
async fn settings_of_a_user_that_break_steps_are_refused_with_advice() {
    let schema = Schema::lend();
    let server = schema.server();
    let login = |user: &str| schema.url().replace("postgres@", &format!("{user}@"));
    let (read_only, isolation) = ("default_transaction_read_only", "default_transaction_isolation");
    for (user, setting, kind, part) in [
        // A hosting service may have set this for a while.
        ("reader", format!("{read_only} = on"), ErrorKind::Unavailable, "read_only = off"),
        ("serial", format!("{isolation} = 'serializable'"), ErrorKind::Config, "read committed"),
    ] {
        server.sql(&format!("CREATE ROLE {user} SUPERUSER LOGIN"));
        server.sql(&format!("ALTER ROLE {user} SET {setting}"));
        check(&refused(&login(user)).await, kind, part);
    }
}

/// The name of a server that gave way to another one may lead to that one by now.
#[tokio::test]
async fn a_server_that_becomes_read_only_is_connected_to_anew() {
    let server = PostgresServer::start();
    let owner = server.url("leasehold");
    migrate(&owner, SystemHost::shared()).await.expect("migrated");
    let proxy = Proxy::to(server.port());
    let url = owner.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port()));
    let client = Client::connect(&url).await.expect("connected");
    drop(client.mutex("a").lock().await.expect("free"));
    let read_only = |value: &str| {
        server.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
        server.sql("SELECT pg_reload_conf()");
    };
    read_only("on");
    let opened = proxy.counts().connections;
    super::until("it connects anew", async || {
        let error = client.mutex("b").try_lock().await.err();
        error.inspect(|error| assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"));
        proxy.counts().connections > opened
    })
    .await;
    read_only("off");
    super::until("it is asked", async || client.mutex("b").try_lock().await.is_ok()).await;
}

/// The rights in the documentation are enough. If one is missing, the error names it.
#[tokio::test]
async fn a_user_needs_few_rights_and_is_told_which() {
    let server = PostgresServer::start();
    let owner = server.url("leasehold");
    let app = owner.replace("postgres@", "app@");
    server.sql("CREATE ROLE app LOGIN");
    let denied = migrate(&app, SystemHost::shared()).await.expect_err("no right to create");
    check(&denied, ErrorKind::Denied, "no right to create");
    migrate(&owner, SystemHost::shared()).await.expect("migrated");
    check(&refused(&app).await, ErrorKind::Denied, "GRANT USAGE ON SCHEMA");
    server.sql("GRANT USAGE ON SCHEMA leasehold TO app");
    check(&refused(&app).await, ErrorKind::Denied, "GRANT SELECT");
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app");
    let client = Client::connect(&app).await.expect("connected");
    let guard = client.mutex("a").lock().await.expect("free");
    let waiting = {
        let other = Client::connect(&app).await.expect("connected");
        tokio::spawn(async move { other.mutex("a").lock().await })
    };
    super::until("it waits", async || client.inspect("a").await.expect("seen").waiting == 1).await;
    assert_eq!(client.list("*").await.expect("listed").names().len(), 1);
    let token = guard.token().as_str().as_bytes().to_vec();
    let _ended = client.evict("a", &token, "a test").await.expect("evicted");
    drop(waiting.await.expect("no panic").expect("its turn"));
    server.sql("SELECT leasehold.purge()");
}

#[tokio::test]
async fn a_password_is_sent_by_a_login_that_does_not_show_it() {
    let schema = Schema::lend();
    schema.sql("GRANT USAGE ON SCHEMA leasehold TO locked");
    schema.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO locked");
    // The clock of the kit reads a file.
    schema.sql(
        "GRANT pg_read_server_files TO locked;
        GRANT EXECUTE ON FUNCTION pg_read_file(text) TO locked",
    );
    let url = schema.url().replace("postgres@", "locked:secret@");
    let client = Client::connect(&url).await.expect("connected");
    assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
}

/// A stream that brings no answer to a statement.
struct Silenced {
    inner: Box<dyn Stream>,
    is_silent: bool,
}

impl Stream for Silenced {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.is_silent { Poll::Pending } else { self.inner.poll_read(cx, into) }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_silent |= bytes.first() == Some(&b'Q');
        self.inner.poll_write(cx, bytes)
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_after_the_login_was_sent_no_request() {
    let url = format!("{}?connect_timeout=1", PostgresServer::shared().database_url("postgres"));
    let connector = PostgresConnector::new(&url).expect("a URL").through(|opening| {
        Box::pin(async move {
            let stream: Box<dyn Stream> =
                Box::new(Silenced { inner: opening.await?, is_silent: false });
            Ok(stream)
        })
    });
    let silent = PostgresStore::connect_with(connector, SystemHost::shared()).await;
    let error = silent.map(drop).expect_err("it is silent");
    check(&error, ErrorKind::Unavailable, "does not answer within 1s");
    assert!(!error.to_string().contains("take effect"), "{error}");
}
