//! Requests of one client that wait together share a message, and each is a transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{ErrorKind, Guard};
use leasehold_testkit::servers::MysqlDatabase;

use super::keeper::Keeper;
use super::{client, until};

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
    let answers =
        join_all(names.iter().map(async |name| client.mutex(name).try_lock().await)).await;
    let mut granted = BTreeSet::new();
    for (name, answer) in names.iter().zip(&answers) {
        match answer {
            Ok(guard) => {
                assert_ne!(name, "batch-10", "its row is kept");
                assert!(guard.is_some(), "{name}: nobody else asks");
                granted.insert(name.clone());
            }
            // Those behind it may wait for longer than their limit.
            Err(error) => {
                let is_open = matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable);
                assert!(is_open, "{name}: {error}");
            }
        }
    }
    assert!(held(&database).is_superset(&granted), "each answer is that of its request");
    drop((answers, keeper));
    until("nothing is left behind", async || held(&database).is_empty()).await;
    for name in &names {
        until("it is free", async || matches!(client.mutex(name).try_lock().await, Ok(Some(_))))
            .await;
    }
}

#[tokio::test]
async fn rows_that_others_keep_cost_no_other_lock_its_renewals() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let names: Vec<_> = names().into_iter().take(50).collect();
    let mutex = |name: &String| client.mutex(name).ttl(Duration::from_secs(10));
    let guards = join_all(names.iter().map(async |name| mutex(name).lock().await)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let (kept, others) = guards.split_at(20);
    let kept_names: Vec<_> = kept.iter().map(Guard::name).collect();
    let keeper = Keeper::of(&database, &kept_names);
    for guard in kept {
        guard.lost().await;
    }
    assert!(others.iter().all(Guard::is_held), "each was renewed for a whole ttl");
    drop(keeper);
}

/// As an error, it would end the message, and each such row would cost the others a round trip.
#[tokio::test]
async fn that_a_row_is_kept_is_an_answer_to_a_renewal() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let _token = client.mutex("a").lock().await.expect("free").detach();
    let renew = |name: &str| {
        let rows = database.sql(&format!(
            "CALL leasehold_renew('{name}', 'stranger', 1000000, NULL, 0, FALSE, FALSE)"
        ));
        rows[0][0].clone()
    };
    assert_eq!((&*renew("a"), &*renew("b")), ("lost", "lost"));
    let keeper = Keeper::of(&database, &["a"]);
    assert_eq!((&*renew("a"), &*renew("b")), ("kept", "lost"));
    drop(keeper);
}
