//! The migration, and the forgetting of idle keys.

use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{PostgresServer, Schema};

use super::{client, session_at, until};
use crate::on_sql::idle_keys_are_forgotten_by_a_client_in_use;

#[tokio::test]
async fn a_migration_may_be_repeated_and_runs_beside_others() {
    let server = PostgresServer::shared();
    let url = server.url("migrating%22a");
    let all = (0..4).map(|_| migrate(&url, SystemHost::shared()));
    for done in futures_util::future::join_all(all).await {
        let done = done.expect("migrated");
        assert!(done.before.is_none_or(|before| before <= done.version), "{done:?}");
    }
    let again = migrate(&url, SystemHost::shared()).await.expect("migrated");
    assert_eq!(again.before, Some(again.version));
    let guard = client(&url).await.mutex("a").lock().await.expect("free");
    assert!(guard.is_held());
}

/// `CREATE INDEX IF NOT EXISTS` would wait for that transaction, and each reader for the migration.
#[tokio::test]
async fn a_migration_that_changes_nothing_waits_for_no_transaction() {
    // A schema of the kit has its own clock, which a migration would replace.
    let server = PostgresServer::shared();
    server.sql("CREATE DATABASE migrating_busy");
    server.migrate("migrating_busy");
    let url = server.database_url("migrating_busy");
    let other = session_at(server.port(), "migrating_busy").await;
    let busy = "BEGIN; INSERT INTO leasehold.shares (key, owner, claim, expires, ttl, since)
        VALUES ('other', 'nobody', -1, 0, 0, 0)";
    other.batch_execute(busy).await.expect("it runs");
    let done = migrate(&url, SystemHost::shared()).await.expect("migrated");
    assert_eq!(done.before, Some(done.version));
    let client = client(&url).await;
    let guard = client.rwlock("a").read().await.expect("free");
    assert!(guard.is_held());
    other.batch_execute("ROLLBACK").await.expect("it runs");
}

#[tokio::test]
async fn schemas_of_one_database_share_no_locks() {
    let (one, other) = (Schema::lend(), Schema::lend());
    let _guard = client(&one.url()).await.mutex("a").lock().await.expect("free");
    let beside = client(&other.url()).await.mutex("a").try_lock().await.expect("asked");
    assert!(beside.is_some());
}

#[tokio::test]
async fn tables_of_another_version_are_refused() {
    let server = PostgresServer::shared();
    let url = server.url("versions");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    for (versions, advice) in
        [("version = 0", "leasehold migrate"), ("version = 99, serves = 99", "use a newer build")]
    {
        server.sql(&format!("UPDATE versions.meta SET {versions}"));
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
    let schema = Schema::lend();
    schema.sql("INSERT INTO leasehold.locks (key) SELECT 'k' || n FROM generate_series(1, 2500) n");
    let idle = || schema.sql("SELECT count(*) FROM leasehold.locks WHERE key LIKE 'k%'");
    idle_keys_are_forgotten_by_a_client_in_use(&schema.url(), idle).await;
}

/// Before PostgreSQL 15, every user may make such a function. It matches the call better than
/// PostgreSQL's own function.
#[tokio::test]
async fn a_function_that_others_made_is_not_called_as_the_user_of_the_locks() {
    let schema = Schema::lend();
    schema.sql(
        "CREATE TABLE IF NOT EXISTS public.trapped (at timestamptz); TRUNCATE public.trapped;
        CREATE OR REPLACE FUNCTION public.concat_ws(text, text, bigint, bigint, integer, text, text)
        RETURNS text LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.trapped VALUES (now());
            RETURN 'trapped';
        END $$",
    );
    let bait = "SELECT concat_ws(' ', 'granted', 1::bigint, 1::bigint, 1, ''::text, ''::text)";
    assert_eq!(schema.sql(bait), [["trapped"]]);
    let (one, other) = (client(&schema.url()).await, client(&schema.url()).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    until("it waits", async || one.inspect("a").await.expect("seen").waiting == 1).await;
    let _released = guard.release().await.expect("released");
    drop(waiting.await.expect("no panic").expect("its turn"));
    let trapped = schema.sql("SELECT count(*) FROM public.trapped");
    schema.sql("DROP FUNCTION public.concat_ws(text, text, bigint, bigint, integer, text, text)");
    assert_eq!(trapped, [["1"]], "a hand-over calls it too");
}

/// The clock of the schema is frozen, so that 10 minutes pass in one step.
#[tokio::test]
async fn idle_keys_are_forgotten_and_their_tokens_are_not_given_again() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    let now = 1_900_000_000_000_000;
    schema.freeze_at(now);
    let held = client.mutex("held").lock().await.expect("free").detach();
    let hour = Duration::from_hours(1);
    let reader = client.rwlock("read").ttl(hour).read().await.expect("free");
    let permit = client.semaphore("permit", 1).ttl(hour).acquire().await.expect("free");
    let guard = client.mutex("idle").lock().await.expect("free");
    let before = guard.fencing_token().expect("a token");
    let _released = guard.release().await.expect("released");
    let keys = || schema.sql("SELECT key FROM leasehold.locks ORDER BY key");
    schema.sql("UPDATE leasehold.locks SET expires = expires + 3600000000 WHERE key = 'held'");
    schema.freeze_at(now + 599_000_000);
    schema.sql("SELECT leasehold.purge()");
    assert_eq!(keys(), [["held"], ["idle"], ["permit"], ["read"]]);
    schema.freeze_at(now + 700_000_000);
    // The client's own search may be under way, and there is only one search at a time.
    until("the idle key is forgotten", async || {
        // The next search was scheduled by a clock that was far ahead.
        schema.sql("UPDATE leasehold.meta SET purge_due = purge_due + 3600000000");
        schema.sql("SELECT leasehold.purge()");
        keys() == [["held"], ["permit"], ["read"]]
    })
    .await;
    assert!(client.rwlock("read").try_write().await.expect("asked").is_none());
    assert!(client.semaphore("permit", 1).try_acquire().await.expect("asked").is_none());
    assert_eq!(schema.sql("SELECT count(*) FROM leasehold.shares"), [["2"]]);
    // This holds even if the clock was set back.
    schema.freeze_at(now - 1_000_000_000);
    let guard = client.mutex("idle").lock().await.expect("free");
    assert!(guard.fencing_token().expect("a token") > before);
    drop((held, reader, permit));
}
