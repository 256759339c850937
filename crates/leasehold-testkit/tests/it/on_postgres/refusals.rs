//! Servers, databases and users that cannot keep locks: each is refused with advice.

use std::error::Error as _;

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{Client, Error, ErrorKind};
use leasehold_testkit::servers::{PostgresServer, Schema};

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
async fn what_a_url_leads_to_is_refused_with_advice() {
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
    for (user, setting, part) in [
        ("reader", "default_transaction_read_only = on", "read_only = off"),
        ("serial", "default_transaction_isolation = 'serializable'", "read committed"),
    ] {
        server.sql(&format!("CREATE ROLE {user} SUPERUSER LOGIN"));
        server.sql(&format!("ALTER ROLE {user} SET {setting}"));
        check(&refused(&login(user)).await, ErrorKind::Config, part);
    }
}

/// The rights in the documentation are enough, and without them the error names them.
#[tokio::test]
async fn a_user_needs_few_rights_and_is_told_which() {
    let server = PostgresServer::start();
    let owner = server.url("leasehold");
    let app = owner.replace("postgres@", "app@");
    server.sql("CREATE ROLE app LOGIN");
    let denied = migrate(&app, SystemHost::shared()).await.expect_err("no right to create");
    check(&denied, ErrorKind::Denied, "may not create");
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
    client.evict("a", &token, "a test").await.expect("evicted");
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
