//! Databases of another version than that of this build.

use leasehold::host::SystemHost;
use leasehold::store::postgres::{Migrated, migrate};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::PostgresServer;

use super::{client, session_at, until};
use crate::on_sql::{Versioned, assert_says};

/// A database of the shared server, which is dropped at the end of its test.
struct Database(&'static str);

impl Database {
    fn make(name: &'static str) -> Self {
        PostgresServer::shared().sql(&format!("CREATE DATABASE {name}"));
        Self(name)
    }

    /// Like [`make`](Self::make), with the tables of this build.
    fn migrated(name: &'static str) -> Self {
        let database = Self::make(name);
        PostgresServer::shared().migrate(name);
        database
    }

    fn url(&self) -> String {
        PostgresServer::shared().database_url(self.0)
    }

    #[track_caller]
    fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        PostgresServer::shared().sql_in(self.0, sql)
    }

    /// Makes its tables and functions those of version 1, as far as clients can tell.
    fn become_version_1(&self) {
        self.sql(
            "ALTER TABLE leasehold.meta DROP COLUMN serves;
            UPDATE leasehold.meta SET version = 1;
            CREATE OR REPLACE FUNCTION leasehold.renew(
                the_key text, the_owner text, the_ttl bigint, at_least bigint, the_reserve bigint,
                is_idle boolean, patience integer,
                OUT status text, OUT first bigint, OUT count integer, OUT from_first bigint,
                OUT from_count integer, OUT wanted boolean, OUT request text
            ) LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'of version 1'; END $$",
        );
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.0);
        PostgresServer::shared().sql(&sql);
    }
}

fn versioned(database: &Database) -> Versioned<'_, impl AsyncFn(&str) -> Result<Migrated, Error>> {
    Versioned {
        url: database.url(),
        version: 2,
        meta: "leasehold.meta",
        sql: Box::new(|sql| database.sql(sql)),
        migrate: async |url: &str| migrate(url, SystemHost::shared()).await,
    }
}

#[tokio::test]
async fn an_older_database_is_refused_until_it_is_migrated_and_keeps_its_leases() {
    let database = Database::migrated("older_version");
    versioned(&database).is_refused_while_it_is_older(|| database.become_version_1()).await;
}

#[tokio::test]
async fn a_newer_database_is_used_if_it_serves_this_build_and_is_never_migrated() {
    let database = Database::migrated("newer_version");
    versioned(&database).is_used_while_it_serves_this_build().await;
}

#[tokio::test]
async fn a_migration_that_waited_for_one_by_a_newer_build_changes_nothing() {
    let database = Database::migrated("waited_version");
    // Each replacement of a function changes this.
    let functions = || {
        database.sql(
            "SELECT proname, p.xmin FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
            WHERE nspname = 'leasehold' ORDER BY proname",
        )
    };
    let before = functions();
    // The number is that of `MIGRATING` in schema.rs.
    let newer = session_at(PostgresServer::shared().port(), database.0).await;
    newer.batch_execute("SELECT pg_advisory_lock(5504913267780775788)").await.expect("free");
    let url = database.url();
    let waiting = tokio::spawn(async move { migrate(&url, SystemHost::shared()).await });
    until("it waits", async || {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        database.sql(waits) == [["1"]]
    })
    .await;
    let ends = "UPDATE leasehold.meta SET version = 99, serves = 99;
        SELECT pg_advisory_unlock(5504913267780775788)";
    newer.batch_execute(ends).await.expect("it runs");
    let refused = waiting.await.expect("no panic").expect_err("newer");
    assert_says(&refused, &["of version 99", "nothing was changed", "use a newer build"]);
    assert_eq!(functions(), before, "a function was replaced");
}

/// A client that is connected has asked for the versions before.
#[tokio::test]
async fn a_function_that_a_newer_build_removed_is_asked_for_by_a_new_connection_only() {
    let database = Database::migrated("removed_function");
    let client = client(&database.url()).await;
    let sql =
        "DROP FUNCTION leasehold.inspect; UPDATE leasehold.meta SET version = 99, serves = 99";
    database.sql(sql);
    let missing = client.inspect("a").await.expect_err("it is missing");
    assert_says(&missing, &["nothing was changed"]);
    until("the next connection says why", async || {
        let refused = client.inspect("a").await.expect_err("it is missing");
        refused.to_string().contains("use a newer build")
    })
    .await;
}

/// The rights in the documentation are enough for a first migration, and for the next ones.
#[tokio::test]
async fn a_migration_needs_few_rights_and_is_told_which() {
    let server = PostgresServer::shared();
    let database = Database::make("few_rights");
    server.sql("CREATE ROLE makes_tables LOGIN; CREATE ROLE makes_nothing LOGIN");
    let url = |user: &str| database.url().replace("postgres@", &format!("{user}@"));
    database.sql("GRANT CREATE ON DATABASE few_rights TO makes_tables");
    let first = migrate(&url("makes_tables"), SystemHost::shared()).await.expect("migrated");
    assert_eq!(first.before, None);
    database.become_version_1();
    let next = migrate(&url("makes_tables"), SystemHost::shared()).await.expect("migrated");
    assert_eq!(next.before, Some(1));
    let denied = migrate(&url("makes_nothing"), SystemHost::shared()).await.expect_err("no right");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let text = denied.to_string();
    assert!(text.contains("migrate as the owner") && !text.contains("GRANT"), "{text}");
    drop(database);
    server.sql("DROP ROLE makes_tables; DROP ROLE makes_nothing");
}
