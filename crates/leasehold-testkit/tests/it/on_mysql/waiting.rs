//! Waiters on several connections are woken, and served in order.

use leasehold_testkit::servers::MysqlDatabase;

use crate::on_sql::a_release_wakes_the_waiter;
use crate::real_time::{client, tokens_rise_among_clients_that_wait, until};

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

/// The grant in the hint has ended, and the waiter may have forgotten the lease.
#[tokio::test]
async fn an_old_hint_is_deleted_and_not_believed() {
    let database = MysqlDatabase::lend();
    let (holder, waiter) = (client(&database.url()).await, client(&database.url()).await);
    let _held = holder.mutex("a").lock().await.expect("free");
    let place = || database.sql("SELECT inbox, owner, ask_no FROM leasehold_places");
    let left = || database.sql("SELECT COUNT(*) FROM leasehold_hints WHERE made = 1");
    let hinted = async {
        until("it waits", async || place().len() == 1).await;
        let [inbox, owner, ask_no] = &place()[0][..] else { panic!("three columns") };
        // A number that the clock of the server explains: other hints are refused anyway.
        let counter = &database.sql("SELECT counter FROM leasehold_locks")[0][0];
        let fence = counter.parse::<u64>().expect("a number") + 1;
        let granted = format!("granted {ask_no} {fence} 1 {owner} a");
        database.sql(&format!(
            "INSERT INTO leasehold_hints (inbox, made, hint) VALUES ('{inbox}', 1, '{granted}')"
        ));
        until("they are deleted", async || left() == [["0"]]).await;
    };
    let mutex = waiter.mutex("a");
    tokio::select! {
        biased;
        _granted = mutex.lock() => panic!("it took itself for the holder"),
        () = hinted => {}
    }
}
