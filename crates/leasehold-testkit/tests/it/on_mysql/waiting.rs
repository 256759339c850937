//! Waiters on several connections are woken, and served in order.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::MysqlDatabase;

use super::{client, until};
use crate::real_time::tokens_rise_among_clients_that_wait;

const ROUNDS: u32 = 10;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_next_poll() {
    let database = MysqlDatabase::lend();
    let (one, other) = (client(&database.url()).await, client(&database.url()).await);
    let (one, other) = (one.mutex("a"), other.mutex("a"));
    let began = Instant::now();
    let mut guard = one.lock().await.expect("free");
    for round in 0..ROUNDS {
        let next = if round % 2 == 0 { other.clone() } else { one.clone() };
        let waiting = tokio::spawn(async move { next.lock().await });
        until("it waits", async || {
            database.sql("SELECT COUNT(*) FROM leasehold_places")[0][0] == "1"
        })
        .await;
        drop(guard);
        guard = waiting.await.expect("no panic").expect("its turn");
    }
    // Waiters ask for the key itself once a second.
    let each = began.elapsed() / ROUNDS;
    assert!(each < Duration::from_millis(900), "{each:?} for each hand-over");
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_places")[0][0], "0");
}

#[tokio::test]
async fn no_update_is_lost_by_clients_that_wait_in_line() {
    let database = MysqlDatabase::lend();
    tokens_rise_among_clients_that_wait(&database.url(), 4, 10).await;
}

#[test]
fn a_holder_is_told_again_of_the_first_waiter_every_fifth_time_and_each_time_while_it_is_idle() {
    let database = MysqlDatabase::lend();
    let (holder, waiter) = ("h".repeat(22) + ".holding-clie", "w".repeat(22) + ".waiting-clie");
    let ask = |owner: &str, number: u32| {
        database.sql(&format!(
            "CALL leasehold_acquire('a', '{owner}', 0, NULL, 60000000, 1, 0, 3000000, 3000000,
                 {number}, RIGHT('{owner}', 12), '')"
        ));
    };
    ask(&holder, 1);
    let is_told_by = |number| {
        ask(&waiter, number);
        let told = database.sql("SELECT inbox FROM leasehold_hints");
        database.sql("DELETE FROM leasehold_hints");
        assert!(told.iter().all(|row| row[0] == "holding-clie"), "{told:?}");
        !told.is_empty()
    };
    let told: Vec<_> = (1..=10).filter(|number| is_told_by(*number)).collect();
    assert_eq!(told, [1, 5, 10]);
    database.sql("UPDATE leasehold_locks SET idle = TRUE");
    assert!((11..=13).all(is_told_by));
}
