//! Databases of another version than that of this build.

use leasehold::host::SystemHost;
use leasehold::store::mysql::{Migrated, migrate};
use leasehold::{Client, Error, ErrorKind};
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

use super::keeper::Keeper;
use super::{client, until};
use crate::on_sql::{Versioned, assert_says};

/// Makes its tables and procedures those of version 1, as far as clients can tell.
fn become_version_1(database: &str) {
    MysqlServer::shared().sql_in(
        database,
        "ALTER TABLE leasehold_meta DROP COLUMN serves;
        UPDATE leasehold_meta SET version = 1;
        DROP PROCEDURE leasehold_renew;
        CREATE PROCEDURE leasehold_renew(a VARBINARY(512)) SQL SECURITY INVOKER SELECT 'lost'",
    );
}

fn versioned(
    database: &MysqlDatabase,
) -> Versioned<'_, impl AsyncFn(&str) -> Result<Migrated, Error>> {
    Versioned {
        url: database.url(),
        version: 3,
        meta: "leasehold_meta",
        sql: Box::new(|sql| database.sql(sql)),
        migrate: async |url: &str| migrate(url, SystemHost::shared()).await,
    }
}

#[tokio::test]
async fn an_older_database_is_refused_until_it_is_migrated_and_keeps_its_leases() {
    let database = MysqlDatabase::lend();
    versioned(&database).is_refused_while_it_is_older(|| become_version_1(database.name())).await;
}

#[tokio::test]
async fn a_newer_database_is_used_if_it_serves_this_build_and_is_never_migrated() {
    let database = MysqlDatabase::lend();
    versioned(&database).is_used_while_it_serves_this_build().await;
}

#[tokio::test]
async fn a_migration_that_waited_for_one_by_a_newer_build_changes_nothing() {
    let database = MysqlDatabase::lend();
    // Without it, the migration would make it.
    database.sql("DROP PROCEDURE leasehold_list");
    let name = "CONCAT('leasehold ', LEFT(SHA2(DATABASE(), 256), 40))";
    let newer = Keeper::of_rows(&database, &format!("GET_LOCK({name}, 0) FROM (SELECT 1) AS one"));
    let url = database.url();
    let waiting = tokio::spawn(async move { migrate(&url, SystemHost::shared()).await });
    until("it waits", async || {
        let waits = "SELECT COUNT(*) FROM information_schema.processlist
            WHERE db = DATABASE() AND state = 'User lock'";
        database.sql(waits) == [["1"]]
    })
    .await;
    database.sql("UPDATE leasehold_meta SET version = 99, serves = 99");
    drop(newer);
    let refused = waiting.await.expect("no panic").expect_err("newer");
    assert_says(&refused, &["of version 99", "nothing was changed", "use a newer build"]);
    let made = "SELECT COUNT(*) FROM information_schema.routines
        WHERE routine_schema = DATABASE() AND routine_name = 'leasehold_list'";
    assert_eq!(database.sql(made), [["0"]]);
}

/// A migration says first whom the new procedures serve, and last of which version they are.
#[tokio::test]
async fn a_migration_that_was_cut_off_can_be_repeated_and_is_not_used_before() {
    let database = MysqlDatabase::lend();
    become_version_1(database.name());
    database.sql("ALTER TABLE leasehold_meta ADD COLUMN serves INT NOT NULL DEFAULT 2");
    let refused = Client::connect(&database.url()).await.expect_err("not finished");
    assert_says(&refused, &["of version 1", "leasehold migrate"]);
    let done = migrate(&database.url(), SystemHost::shared()).await.expect("migrated");
    assert_eq!(done.before, Some(1));
    let guard = client(&database.url()).await.mutex("a").lock().await.expect("free");
    guard.renew().await.expect("the procedure is the new one");
}

/// A client that is connected has asked for the versions before.
#[tokio::test]
async fn a_procedure_with_other_arguments_is_asked_for_by_a_new_connection_only() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    database.sql(
        "DROP PROCEDURE leasehold_inspect;
        CREATE PROCEDURE leasehold_inspect() SQL SECURITY INVOKER SELECT 1;
        UPDATE leasehold_meta SET version = 99, serves = 99",
    );
    let other = client.inspect("a").await.expect_err("it takes no argument");
    assert_eq!(other.kind(), ErrorKind::Unavailable, "{other}");
    until("the next connection says why", async || {
        let refused = client.inspect("a").await.expect_err("it takes no argument");
        refused.to_string().contains("use a newer build")
    })
    .await;
}

/// The rights in the documentation are enough for a first migration, and for the next ones.
#[tokio::test]
async fn a_migration_needs_few_rights_and_is_told_which() {
    let server = MysqlServer::shared();
    server.sql(
        "CREATE DATABASE few_rights;
        CREATE USER makes_tables@'127.0.0.1';
        GRANT SELECT, INSERT, UPDATE, CREATE, ALTER, CREATE ROUTINE, ALTER ROUTINE
            ON few_rights.* TO makes_tables@'127.0.0.1'",
    );
    let url = format!("mysql://makes_tables@127.0.0.1:{}/few_rights", server.port());
    let first = migrate(&url, SystemHost::shared()).await.expect("migrated");
    assert_eq!(first.before, None);
    become_version_1("few_rights");
    let next = migrate(&url, SystemHost::shared()).await.expect("migrated");
    assert_eq!(next.before, Some(1));
    server.sql("REVOKE ALTER ROUTINE ON few_rights.* FROM makes_tables@'127.0.0.1'");
    become_version_1("few_rights");
    let denied = migrate(&url, SystemHost::shared()).await.expect_err("no right");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(denied.to_string().contains("ALTER ROUTINE"), "{denied}");
    server.sql("DROP DATABASE few_rights; DROP USER makes_tables@'127.0.0.1'");
}
