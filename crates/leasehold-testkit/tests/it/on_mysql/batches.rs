//! Requests of one client that wait together share a message, and each is a transaction.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use leasehold_testkit::servers::MysqlDatabase;

use super::keeper::Keeper;
use super::{client, until};
use crate::on_sql;

fn names() -> Vec<String> {
    (0..100).map(|at| format!("batch-{at:02}")).collect()
}

/// The locks that have an owner.
fn held(database: &MysqlDatabase) -> BTreeSet<String> {
    let rows = database.sql("SELECT name FROM leasehold_locks WHERE owner IS NOT NULL");
    rows.into_iter().map(|row| row[0].clone()).collect()
}

#[tokio::test]
async fn each_of_many_requests_has_its_own_answer() {
    let database = MysqlDatabase::lend();
    let (ours, other) = (client(&database.url()).await, client(&database.url()).await);
    let theirs: BTreeSet<_> = names().into_iter().step_by(7).collect();
    let kept: Vec<_> =
        join_all(theirs.iter().map(async |name| other.mutex(name).lock().await)).await;
    assert!(kept.iter().all(Result::is_ok), "all are free");
    let names = names();
    let answers = join_all(names.iter().map(async |name| ours.mutex(name).try_lock().await));
    for (name, answer) in names.iter().zip(answers.await) {
        let granted = answer.expect("the server answers").is_some();
        assert_eq!(granted, !theirs.contains(name), "{name}");
    }
}

#[tokio::test]
async fn a_refused_step_fails_alone_and_those_behind_it_go_again() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let names: Vec<_> = names().into_iter().take(20).collect();
    for name in &names {
        let _released = client.mutex(name).lock().await.expect("free").release().await;
    }
    let keeper = Keeper::of(&database, &["batch-10"]);
    let guards = on_sql::try_beside_a_kept_row(&client, &names, "batch-10").await;
    let granted: BTreeSet<_> = guards.iter().map(|guard| guard.name().to_owned()).collect();
    assert!(held(&database).is_superset(&granted), "each answer is that of its request");
    drop((guards, keeper));
    until("nothing is left behind", async || held(&database).is_empty()).await;
    for name in &names {
        until("it is free", async || matches!(client.mutex(name).try_lock().await, Ok(Some(_))))
            .await;
    }
}

#[tokio::test]
async fn rows_that_others_keep_cost_no_other_lock_its_renewals() {
    let database = MysqlDatabase::lend();
    let keeper = async |names: Vec<&str>| Keeper::of(&database, &names);
    let names = &names()[..50];
    on_sql::kept_rows_cost_no_other_lock_its_renewals(&database.url(), names, 20, keeper).await;
}

/// As an error, this answer would end the message, and each such row would cost the other requests
/// a round trip.
#[tokio::test]
async fn that_a_row_is_kept_is_an_answer_to_a_renewal() {
    let database = MysqlDatabase::lend();
    let renew = |name: &str| {
        database.sql(&format!(
            "CALL leasehold_renew('{name}', 'stranger', 1000000, NULL, 0, FALSE, FALSE)"
        ))
    };
    let keeper = async || Keeper::of(&database, &["a"]);
    on_sql::a_kept_row_is_an_answer_to_a_renewal(&database.url(), renew, keeper).await;
}
