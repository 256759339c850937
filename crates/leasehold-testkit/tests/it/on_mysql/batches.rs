//! Requests of one client that wait together share a message. Each is a transaction, but renewals
//! share one.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::store::Revoked;
use leasehold::{Guard, Release};
use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

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

/// Calls the procedure for a list of renewals of leases that last one second.
fn renew_all(database: &MysqlDatabase, leases: &[(&str, &str)]) -> Vec<String> {
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let entry = |(name, owner): &(&str, &str)| {
        format!(r#"["{}","{}",1000000,null,0,0]"#, hex(name), hex(owner))
    };
    let list: Vec<_> = leases.iter().map(entry).collect();
    let rows = database.sql(&format!("CALL leasehold_renew_all('[{}]')", list.join(",")));
    // The program of MariaDB shows a new line as two characters.
    rows[0][0].replace("\\n", "\n").lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn each_renewal_of_a_list_has_its_own_answer() {
    let database = MysqlDatabase::lend();
    let client = client(&database.url()).await;
    let mut owners = Vec::new();
    for name in ["a", "b", "c'\"\u{e9}"] {
        owners.push(client.mutex(name).lock().await.expect("free").detach());
    }
    let owner = |at: usize| owners[at].as_str();
    let asked = client.revoke("b", owner(1).as_bytes(), "noon").await.expect("asked");
    assert_eq!(asked, Revoked::Asked);
    let _keeper = Keeper::of(&database, &["a"]);
    let answers = renew_all(
        &database,
        &[
            ("a", owner(0)),
            ("b", owner(1)),
            ("b", "stranger"),
            ("c'\"\u{e9}", owner(2)),
            ("d", "x"),
        ],
    );
    let status: Vec<_> = answers.iter().map(|line| line.split(' ').next()).collect();
    let expected = ["kept", "renewed", "lost", "renewed", "lost"].map(Some);
    assert_eq!(status, expected, "{answers:?}");
    let requested: Vec<_> = answers.iter().map(|line| !line.ends_with(" -")).collect();
    assert_eq!(requested, [false, true, false, false, false], "{answers:?}");
}

#[tokio::test]
async fn a_request_to_let_go_comes_with_the_renewals_of_many_leases() {
    let database = MysqlDatabase::lend();
    let (client, operator) = (client(&database.url()).await, client(&database.url()).await);
    let names = &names()[..30];
    let mut guards = Vec::new();
    for name in names {
        let mutex = client.mutex(name).ttl(Duration::from_secs(3));
        guards.push(mutex.lock().await.expect("free"));
    }
    let reason = "caf\u{e9} - \"noon\"\n'later'\0";
    let asked = operator.revoke(&names[7], guards[7].token().as_str().as_bytes(), reason).await;
    assert_eq!(asked.expect("asked"), Revoked::Asked);
    assert_eq!(guards[7].revoked().await.reason, reason);
    assert!(guards.iter().all(Guard::is_held));
}

/// The parameters of a procedure have the character set of the database, unless they name one.
#[tokio::test]
async fn leases_are_renewed_in_databases_of_any_character_set() {
    let server = MysqlServer::shared();
    for set in ["binary", "utf16", "latin1"] {
        server.sql(&format!("CREATE DATABASE of_{set} CHARACTER SET {set}"));
        server.migrate(&format!("of_{set}"));
        let client = client(&server.url(&format!("of_{set}"))).await;
        let guard = client.mutex("caf\u{e9}").lock().await.expect("free");
        guard.renew().await.expect("it is renewed");
        let released = guard.release().await.expect("asked");
        assert_eq!(released, Release::Released, "{set}");
        server.sql(&format!("DROP DATABASE of_{set}"));
    }
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
