//! The migration, and the forgetting of idle keys.

use leasehold::host::SystemHost;
use leasehold::store::mysql::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

use super::{client, until};

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

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let server = MysqlServer::shared();
    server.sql("CREATE DATABASE versions");
    server.migrate("versions");
    let url = server.url("versions");
    for (version, advice) in [(0, "leasehold migrate"), (99, "use a newer build")] {
        server.sql_in("versions", &format!("UPDATE leasehold_meta SET version = {version}"));
        let error = Client::connect(&url).await.expect_err("another version");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(advice), "{error}");
    }
    let newer = migrate(&url, SystemHost::shared()).await.expect_err("newer");
    assert_eq!(newer.kind(), ErrorKind::Config, "{newer}");
}

/// A thousand are looked at in one go.
#[tokio::test]
async fn thousands_of_idle_keys_are_forgotten_by_a_client_that_is_in_use() {
    let database = MysqlDatabase::lend();
    database.sql(
        "INSERT INTO leasehold_locks (name)
        WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 50)
        SELECT CONCAT('k', a.i, '-', b.i) FROM n a CROSS JOIN n b",
    );
    let client = client(&database.url()).await;
    let mut used = 0;
    until("they are forgotten", async || {
        used += 1;
        let guard = client.mutex(format!("in use {used}")).try_lock().await.expect("asked");
        drop(guard.expect("free"));
        database.sql("SELECT COUNT(*) FROM leasehold_locks WHERE name LIKE 'k%'") == [["0"]]
    })
    .await;
}

#[tokio::test]
async fn idle_keys_are_forgotten_and_their_tokens_are_not_given_again() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let held = client.mutex("held").lock().await.expect("free");
    let guard = client.mutex("idle").lock().await.expect("free");
    let before = guard.fencing_token().expect("a token");
    let _released = guard.release().await.expect("released");
    // Hints for a client that has died.
    database.sql(
        "INSERT INTO leasehold_hints (inbox, made, hint) VALUES ('gone', 0, 'old');
        CALL leasehold_clock(@now);
        INSERT INTO leasehold_hints (inbox, made, hint) VALUES ('gone', @now + 60000000, 'new')",
    );
    // As if 11 minutes had passed.
    database.sql(
        "UPDATE leasehold_locks SET touched = touched - 660000000;
        UPDATE leasehold_locks SET counter = counter + 1000000000 WHERE name = 'idle';
        UPDATE leasehold_meta SET purge_due = 0; CALL leasehold_purge()",
    );
    assert_eq!(database.sql("SELECT name FROM leasehold_locks"), [["held"]]);
    assert_eq!(database.sql("SELECT hint FROM leasehold_hints"), [["new"]]);
    let guard = client.mutex("idle").lock().await.expect("free");
    let after = guard.fencing_token().expect("a token");
    assert!(after.get() >= before.get() + 1_000_000_000, "{after} is not above the forgotten one");
    assert!(held.is_held());
}
