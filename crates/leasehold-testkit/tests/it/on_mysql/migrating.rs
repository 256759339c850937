//! The migration, and the forgetting of idle keys.

use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::mysql::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

use super::keeper::Keeper;
use super::{client, until};
use crate::on_sql::idle_keys_are_forgotten_by_a_client_in_use;

#[tokio::test]
async fn a_migration_may_be_repeated_and_runs_beside_others() {
    let server = MysqlServer::shared();
    server.sql("CREATE DATABASE migrating");
    let url = server.url("migrating");
    let missing = Client::connect(&url).await.expect_err("no tables");
    assert_eq!(missing.kind(), ErrorKind::Config);
    assert!(missing.to_string().contains("leasehold migrate"), "{missing}");
    let all = (0..3).map(|_| migrate(&url, SystemHost::shared()));
    for done in futures_util::future::join_all(all).await {
        let done = done.expect("migrated");
        assert!(done.before.is_none_or(|before| before == done.version), "{done:?}");
    }
    let made = || {
        server.sql(
            "SELECT routine_name, created FROM information_schema.routines
            WHERE routine_schema = 'migrating' ORDER BY routine_name",
        )
    };
    let before = made();
    assert!(before.len() > 10, "{before:?}");
    let again = migrate(&url, SystemHost::shared()).await.expect("migrated");
    assert_eq!(again.before, Some(again.version));
    assert_eq!(made(), before, "a procedure was made again");
    let guard = client(&url).await.mutex("a").lock().await.expect("free");
    assert!(guard.is_held());
}

/// A procedure is missing in the middle of a migration, or after a migration that was cut off.
#[tokio::test]
async fn while_a_procedure_is_missing_waiters_go_on_waiting_and_releases_are_repeated() {
    let server = MysqlServer::shared();
    server.sql("CREATE DATABASE gap");
    server.migrate("gap");
    let url = server.url("gap");
    let (one, other) = (client(&url).await, client(&url).await);
    let ttl = Duration::from_secs(600);
    let held = one.mutex("a").ttl(ttl).lock().await.expect("free");
    let released = one.mutex("b").ttl(ttl).lock().await.expect("free");
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.mutex("a").lock().await }
    });
    until("it waits", async || one.inspect("a").await.expect("seen").waiting == 1).await;
    server.sql_in("gap", "DROP PROCEDURE leasehold_acquire; DROP PROCEDURE leasehold_release");
    drop(released);
    // The waiter asks once a second, before and after these tries.
    for _ in 0..50 {
        let refused = other.mutex("c").try_lock().await.expect_err("it is missing");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("leasehold migrate"), "{refused}");
    }
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    until("it is released", async || {
        other.mutex("b").try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    assert!(!waiting.is_finished(), "it waits for the holder");
    drop(held);
    drop(waiting.await.expect("no panic").expect("its turn"));
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let server = MysqlServer::shared();
    server.sql("CREATE DATABASE versions");
    server.migrate("versions");
    let url = server.url("versions");
    for (versions, advice) in
        [("version = 0", "leasehold migrate"), ("version = 99, serves = 99", "use a newer build")]
    {
        server.sql_in("versions", &format!("UPDATE leasehold_meta SET {versions}"));
        let error = Client::connect(&url).await.expect_err("another version");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(advice), "{error}");
    }
    let newer = migrate(&url, SystemHost::shared()).await.expect_err("newer");
    assert_eq!(newer.kind(), ErrorKind::Config, "{newer}");
}

/// The client looks at a thousand keys at a time.
#[tokio::test]
async fn thousands_of_idle_keys_are_forgotten_by_a_client_that_is_in_use() {
    let database = MysqlDatabase::lend();
    database.sql(
        "INSERT INTO leasehold_locks (name)
        WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 50)
        SELECT CONCAT('k', a.i, '-', b.i) FROM n a CROSS JOIN n b",
    );
    let idle = || database.sql("SELECT COUNT(*) FROM leasehold_locks WHERE name LIKE 'k%'");
    idle_keys_are_forgotten_by_a_client_in_use(&database.url(), idle).await;
}

#[tokio::test]
async fn idle_keys_are_forgotten_and_their_tokens_are_not_given_again() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let held = client.mutex("held").lock().await.expect("free");
    let hour = Duration::from_hours(1);
    let reader = client.rwlock("read").ttl(hour).read().await.expect("free");
    let permit = client.semaphore("permit", 1).ttl(hour).acquire().await.expect("free");
    let guard = client.mutex("idle").lock().await.expect("free");
    let before = guard.fencing_token().expect("a token");
    let _released = guard.release().await.expect("released");
    // These are hints for a client that has died.
    database.sql(
        "INSERT INTO leasehold_hints (inbox, made, hint) VALUES ('gone', 0, 'old');
        CALL leasehold_clock(@now);
        INSERT INTO leasehold_hints (inbox, made, hint) VALUES ('gone', @now + 60000000, 'new')",
    );
    // This looks as if 11 minutes had passed.
    database.sql(
        "UPDATE leasehold_locks SET touched = touched - 660000000;
        UPDATE leasehold_locks SET counter = counter + 1000000000 WHERE name = 'idle';
        UPDATE leasehold_meta SET purge_due = 0; CALL leasehold_purge()",
    );
    let names = database.sql("SELECT name FROM leasehold_locks ORDER BY name");
    assert_eq!(names, [["held"], ["permit"], ["read"]]);
    assert!(client.rwlock("read").try_write().await.expect("asked").is_none());
    assert!(client.semaphore("permit", 1).try_acquire().await.expect("asked").is_none());
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_shares"), [["2"]]);
    assert_eq!(database.sql("SELECT hint FROM leasehold_hints"), [["new"]]);
    let guard = client.mutex("idle").lock().await.expect("free");
    let after = guard.fencing_token().expect("a token");
    assert!(after.get() >= before.get() + 1_000_000_000, "{after} is not above the forgotten one");
    assert!(held.is_held() && reader.is_held() && permit.is_held());
}

/// The row of a client is deleted after the keys.
#[tokio::test]
async fn idle_keys_are_forgotten_although_another_transaction_keeps_the_row_of_a_client() {
    let database = MysqlDatabase::lend();
    // The next search was scheduled by a clock that was far ahead.
    database.sql(
        "INSERT INTO leasehold_locks (name) VALUES ('idle');
        INSERT INTO leasehold_clients (id, host, pid, username, command, seen)
        VALUES ('stranger', '', 1, '', '', 0);
        CALL leasehold_clock(@now);
        UPDATE leasehold_meta SET purge_due = @now + 3600000000",
    );
    let rows = "id FROM leasehold_clients WHERE id = 'stranger'";
    let keeper = Keeper::of_rows(&database, rows);
    until("it is forgotten", async || {
        // A client looks for idle keys with its first request.
        drop(client(&database.url()).await.mutex("used").try_lock().await);
        database.sql("SELECT name FROM leasehold_locks WHERE name = 'idle'").is_empty()
    })
    .await;
    drop(keeper);
}
