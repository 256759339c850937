//! Requests of one client that wait together share a transaction.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use leasehold_testkit::servers::Schema;

use super::{client, keep, until};
use crate::on_sql;

const LOCKS: usize = 500;

fn names() -> Vec<String> {
    (0..LOCKS).map(|at| format!("batch-{at:03}")).collect()
}

/// The transactions that last wrote the rows of all keys.
fn writers(schema: &Schema) -> BTreeSet<String> {
    let rows = schema.sql("SELECT DISTINCT xmin FROM leasehold.locks");
    rows.into_iter().map(|row| row[0].clone()).collect()
}

#[tokio::test]
async fn locks_that_are_asked_for_at_once_are_granted_by_few_commits() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    let guards = join_all(names().iter().map(async |name| client.mutex(name).lock().await)).await;
    let mut fences = BTreeSet::new();
    for guard in &guards {
        let guard = guard.as_ref().expect("free");
        fences.insert((guard.name().to_owned(), guard.fencing_token().expect("a token")));
    }
    assert_eq!(fences.len(), LOCKS);
    // On a slow server messages become shorter. The second message has 50 of the requests that
    // waited.
    let commits = writers(&schema).len();
    assert!(commits <= LOCKS - 49, "{commits} transactions for {LOCKS} locks");
    let held = schema.sql("SELECT count(*) FROM leasehold.locks WHERE owner IS NOT NULL");
    assert_eq!(held[0][0], LOCKS.to_string());
    join_all(guards.into_iter().map(|guard| guard.expect("free").release())).await;
    // On a slow server, some releases get no answer in time, and are repeated.
    let held = "SELECT count(*) FROM leasehold.locks WHERE owner IS NOT NULL";
    until("all are released", async || schema.sql(held)[0][0] == "0").await;
}

#[tokio::test]
async fn a_refused_step_fails_alone_and_the_others_of_its_message_go_again() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    for name in names() {
        drop(client.mutex(&name).lock().await.expect("free"));
    }
    let free = "SELECT count(*) FROM leasehold.locks WHERE owner IS NOT NULL";
    until("all are released", async || schema.sql(free)[0][0] == "0").await;
    let keeper = keep(&schema, &["batch-250"]).await;
    // Ten other requests share the message with the refused request.
    let asked: Vec<_> = (245..256).map(|at| format!("batch-{at}")).collect();
    drop(on_sql::try_beside_a_kept_row(&client, &asked, "batch-250").await);
    keeper.batch_execute("ROLLBACK").await.expect("ended");
    until("nothing is left behind", async || schema.sql(free)[0][0] == "0").await;
}

#[tokio::test]
async fn a_refusal_is_told_to_the_caller_of_its_step_and_to_no_other() {
    let schema = Schema::lend();
    schema.sql(
        "CREATE FUNCTION leasehold.refuse() RETURNS trigger LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION 'on purpose'; END $$",
    );
    schema.sql(
        "CREATE TRIGGER refuses BEFORE INSERT ON leasehold.locks FOR EACH ROW
         WHEN (NEW.key = 'refused') EXECUTE FUNCTION leasehold.refuse()",
    );
    let client = client(&schema.url()).await;
    drop(client.mutex("connected").lock().await.expect("free"));
    let mut names = names()[..100].to_vec();
    names[50] = "refused".to_owned();
    let answers = join_all(names.iter().map(async |name| client.mutex(name).try_lock().await));
    for (name, answer) in names.iter().zip(answers.await) {
        assert_eq!(answer.is_err(), name == "refused", "{name}: {answer:?}");
    }
    // The schema is lent to other tests afterwards.
    schema.sql("DROP FUNCTION leasehold.refuse() CASCADE");
}

#[tokio::test]
async fn a_lock_that_is_dropped_while_it_is_asked_for_leaves_nothing_behind() {
    let schema = Schema::lend();
    let client = client(&schema.url()).await;
    let names = names();
    for round in 0..5 {
        let locking = join_all(names.iter().map(async |name| client.mutex(name).lock().await));
        tokio::select! {
            biased;
            () = async {
                for _ in 0..round {
                    tokio::task::yield_now().await;
                }
            } => {}
            _guards = locking => {}
        }
    }
    let held = "SELECT count(*) FROM leasehold.locks WHERE owner IS NOT NULL";
    // The ttl is 10 s, so the leases were released, and did not end by themselves.
    let _left = client.shutdown(leasehold_testkit::servers::PATIENCE).await;
    assert_eq!(schema.sql(held)[0][0], "0");
}

#[tokio::test]
async fn clients_with_the_same_keys_in_another_order_do_not_block_each_other() {
    let schema = Schema::lend();
    let mut tasks = Vec::new();
    for order in 0..4_usize {
        let client = client(&schema.url()).await;
        tasks.push(tokio::spawn(async move {
            let mut names = names();
            names.truncate(60);
            if order % 2 == 1 {
                names.reverse();
            }
            for _ in 0..5 {
                let answers =
                    join_all(names.iter().map(async |name| client.mutex(name).try_lock().await));
                for answer in answers.await {
                    drop(answer.expect("a deadlock would be refused"));
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// With this many locked rows, a message would never end in time if it waited 50 ms for each.
#[tokio::test]
async fn rows_that_others_keep_cost_no_other_lock_its_renewals() {
    let schema = Schema::lend();
    let keeper = async |names: Vec<&str>| keep(&schema, &names).await;
    let names = &names()[..150];
    on_sql::kept_rows_cost_no_other_lock_its_renewals(&schema.url(), names, 80, keeper).await;
}

/// As an error, this answer would undo all renewals of the message.
#[tokio::test]
async fn that_a_row_is_kept_is_an_answer_to_a_renewal() {
    let schema = Schema::lend();
    let renew = |name: &str| {
        schema.sql(&format!(
            "SELECT status FROM leasehold.renew('{name}', 'stranger', 1000000, NULL, 0, false, 0)"
        ))
    };
    let keeper = async || keep(&schema, &["a"]).await;
    on_sql::a_kept_row_is_an_answer_to_a_renewal(&schema.url(), renew, keeper).await;
}
