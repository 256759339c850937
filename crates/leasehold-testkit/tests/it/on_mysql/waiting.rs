//! Waiters on several connections are woken, and served in order.

use leasehold_testkit::servers::MysqlDatabase;

use crate::on_sql::a_release_wakes_the_waiter;
use crate::real_time::tokens_rise_among_clients_that_wait;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_next_poll() {
    let database = MysqlDatabase::lend();
    let places = || database.sql("SELECT COUNT(*) FROM leasehold_places");
    let _held = a_release_wakes_the_waiter(&database.url(), 10, places).await;
    assert_eq!(places(), [["0"]]);
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
