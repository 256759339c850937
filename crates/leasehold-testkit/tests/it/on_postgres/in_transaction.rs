//! Locks that end with a transaction of the caller.

use futures_util::future::join_all;
use leasehold::in_transaction::{LOCK, LOCK_SHARED, TRY_LOCK};
use leasehold_testkit::servers::Schema;
use tokio_postgres::Client as Session;
use tokio_postgres::error::SqlState;

use super::{session, until};

async fn is_granted(session: &Session, name: &str) -> bool {
    let rows = session.query(TRY_LOCK, &[&name]).await.expect("it never waits");
    rows[0].get("granted")
}

async fn begin(session: &Session, isolation: &str) {
    session.batch_execute(&format!("BEGIN ISOLATION LEVEL {isolation}")).await.expect("begun");
}

async fn commit(session: &Session) {
    session.batch_execute("COMMIT").await.expect("committed");
}

async fn rollback(session: &Session) {
    session.batch_execute("ROLLBACK").await.expect("rolled back");
}

#[tokio::test]
async fn eight_sessions_add_250_times_each_and_no_step_is_lost() {
    let schema = Schema::lend();
    schema.sql("CREATE TABLE counter (count BIGINT NOT NULL)");
    schema.sql("INSERT INTO counter VALUES (0)");
    let sessions = join_all((0..8).map(|_| session(&schema))).await;
    let adding = sessions.iter().map(async |session| {
        for _ in 0..250 {
            begin(session, "READ COMMITTED").await;
            session.execute(LOCK, &[&"counter"]).await.expect("granted");
            // Reading and writing are two statements, so steps would be lost without the lock.
            let row = session.query_one("SELECT count FROM counter", &[]).await.expect("read");
            let next = row.get::<_, i64>(0) + 1;
            session.execute("UPDATE counter SET count = $1", &[&next]).await.expect("written");
            commit(session).await;
        }
    });
    join_all(adding).await;
    assert_eq!(schema.sql("SELECT count FROM counter")[0][0], "2000");
}

#[tokio::test]
async fn a_name_is_taken_until_its_transaction_ends_however_it_ends() {
    let schema = Schema::lend();
    let (one, other) = (session(&schema).await, session(&schema).await);
    begin(&one, "READ COMMITTED").await;
    begin(&other, "READ COMMITTED").await;
    assert!(is_granted(&one, "a").await);
    assert!(!is_granted(&other, "a").await, "one has it");
    assert!(is_granted(&other, "b").await, "another name");
    commit(&one).await;
    assert!(is_granted(&other, "a").await, "it ended with the commit");
    begin(&one, "READ COMMITTED").await;
    assert!(!is_granted(&one, "a").await);
    rollback(&other).await;
    assert!(is_granted(&one, "a").await, "it ended with the rollback");
    begin(&other, "READ COMMITTED").await;
    for (statement, is_free) in [("SAVEPOINT s", false), ("ROLLBACK TO s", false)] {
        one.batch_execute(statement).await.expect("carried out");
        assert_eq!(is_granted(&other, "a").await, is_free, "the lock is older than {statement}");
    }
    assert!(is_granted(&one, "c").await, "behind the savepoint");
    one.batch_execute("ROLLBACK TO s").await.expect("carried out");
    assert!(is_granted(&other, "c").await, "as the page says");
    rollback(&other).await;
    drop(one);
    begin(&other, "READ COMMITTED").await;
    until("it ends with the session", async || is_granted(&other, "a").await).await;
}

#[tokio::test]
async fn those_that_share_a_name_keep_away_who_wants_it_alone() {
    let schema = Schema::lend();
    let (one, two, alone) =
        (session(&schema).await, session(&schema).await, session(&schema).await);
    for session in [&one, &two, &alone] {
        begin(session, "READ COMMITTED").await;
    }
    one.execute(LOCK_SHARED, &[&"a"]).await.expect("shared");
    two.execute(LOCK_SHARED, &[&"a"]).await.expect("shared");
    assert!(!is_granted(&alone, "a").await);
    commit(&one).await;
    assert!(!is_granted(&alone, "a").await, "the second one still shares it");
    commit(&two).await;
    assert!(is_granted(&alone, "a").await);
}

#[tokio::test]
async fn a_wait_ends_with_an_error_at_the_limit_of_the_caller() {
    let schema = Schema::lend();
    let (one, other) = (session(&schema).await, session(&schema).await);
    begin(&one, "READ COMMITTED").await;
    one.execute(LOCK, &[&"a"]).await.expect("granted");
    begin(&other, "READ COMMITTED").await;
    other.batch_execute("SET LOCAL lock_timeout = '20ms'").await.expect("set");
    let error = other.execute(LOCK, &[&"a"]).await.expect_err("one has it");
    assert_eq!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE));
}

/// This is why the documentation asks for `READ COMMITTED`.
#[tokio::test]
async fn only_a_transaction_with_read_committed_sees_the_work_of_the_last_holder() {
    let schema = Schema::lend();
    schema.sql("CREATE TABLE invoice (account BIGINT NOT NULL)");
    for (isolation, sees) in [("READ COMMITTED", 1), ("REPEATABLE READ", 0)] {
        schema.sql("DELETE FROM invoice");
        let (one, other) = (session(&schema).await, session(&schema).await);
        begin(&one, "READ COMMITTED").await;
        one.execute(LOCK, &[&"a"]).await.expect("granted");
        begin(&other, isolation).await;
        let waits = async {
            other.execute(LOCK, &[&"a"]).await.expect("granted at last");
            let sql = "SELECT count(*) FROM invoice";
            other.query_one(sql, &[]).await.expect("read").get::<_, i64>(0)
        };
        let works = async {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
                           AND NOT granted AND database = (SELECT oid FROM pg_database \
                           WHERE datname = current_database())";
            until("the other waits", async || schema.sql(waiting)[0][0] == "1").await;
            one.batch_execute("INSERT INTO invoice VALUES (42)").await.expect("written");
            commit(&one).await;
        };
        let (seen, ()) = tokio::join!(waits, works);
        assert_eq!(seen, sees, "{isolation}");
        rollback(&other).await;
    }
}
