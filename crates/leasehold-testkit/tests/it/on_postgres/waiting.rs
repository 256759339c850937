//! Waiters on several connections are woken, and served in order.

use leasehold_testkit::servers::Schema;

use super::{client, until};
use crate::on_sql::a_release_wakes_the_waiter;
use crate::real_time::tokens_rise_among_clients_that_wait;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_next_poll() {
    let schema = Schema::lend();
    let places = || schema.sql("SELECT count(*) FROM leasehold.places");
    let _held = a_release_wakes_the_waiter(&schema.url(), 20, places).await;
}

#[tokio::test]
async fn no_update_is_lost_by_clients_that_wait_in_line() {
    let schema = Schema::lend();
    tokens_rise_among_clients_that_wait(&schema.url(), 6, 25).await;
}

/// The holder is not told each time, because each message wakes all sessions that listen.
#[test]
fn a_holder_is_told_again_of_the_first_waiter_every_fifth_time_and_each_time_while_it_is_idle() {
    let schema = Schema::lend();
    let (holder, waiter) = ("h".repeat(22) + ".holding-clie", "w".repeat(22) + ".waiting-clie");
    let ask = |owner: &str, number: u32| {
        schema.sql(&format!(
            "SELECT * FROM leasehold.acquire('a', '{owner}', 0, NULL, 60000000, 1, 0, 3000000,
                 3000000, {number}, right('{owner}', 12), '', 750)"
        ));
    };
    schema.sql("CREATE TABLE leasehold.told (inbox text)");
    let mail = |body: &str| {
        schema.sql(&format!(
            "CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text) RETURNS void
                 LANGUAGE plpgsql AS $$ BEGIN {body}; END $$"
        ));
    };
    mail("INSERT INTO leasehold.told VALUES (inbox)");
    ask(&holder, 1);
    let is_told_by = |number| {
        ask(&waiter, number);
        let told = schema.sql("DELETE FROM leasehold.told RETURNING inbox");
        assert!(told.iter().all(|row| row[0] == "holding-clie"), "{told:?}");
        !told.is_empty()
    };
    let told: Vec<_> = (1..=10).filter(|number| is_told_by(*number)).collect();
    assert_eq!(told, [1, 5, 10]);
    schema.sql("UPDATE leasehold.locks SET idle = true");
    assert!((11..=13).all(is_told_by));
    schema.sql("DROP TABLE leasehold.told");
    mail("PERFORM pg_notify('leasehold:' || inbox, hint)");
}

/// Hints never arrive if a proxy gives each transaction another connection.
#[tokio::test]
async fn a_waiter_whose_hints_never_arrive_polls() {
    let schema = Schema::lend();
    let (one, other) = (client(&schema.url()).await, client(&schema.url()).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    until("it waits", async || schema.sql("SELECT count(*) FROM leasehold.places")[0][0] == "1")
        .await;
    // From now on, all messages go to another channel.
    schema.sql(
        "CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text) RETURNS void
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('nobody', hint); END $$",
    );
    drop(guard);
    let guard = waiting.await.expect("no panic").expect("its turn");
    assert!(guard.is_held());
    schema.sql(
        "CREATE OR REPLACE FUNCTION leasehold.mail(inbox text, hint text) RETURNS void
            LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_notify('leasehold:' || inbox, hint); END $$",
    );
}
