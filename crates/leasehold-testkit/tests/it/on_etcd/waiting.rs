//! Waiters of several clients are woken, and served in order.

use leasehold_testkit::servers::{EtcdPrefix, EtcdServer};

use super::{client, until};
use crate::real_time::tokens_rise_among_clients_that_wait;

const ROUNDS: u32 = 10;

/// The first wait of a client opens a stream, and the waiter learns of each release over this
/// stream.
#[tokio::test]
async fn hand_overs_in_a_row_are_told_over_one_stream_for_each_client() {
    let server = EtcdServer::start();
    let url = server.url("x");
    let (one, other) = (client(&url).await.mutex("a"), client(&url).await.mutex("a"));
    let mut guard = one.lock().await.expect("free");
    for round in 0..ROUNDS {
        let next = if round % 2 == 0 { other.clone() } else { one.clone() };
        let waiting = tokio::spawn(async move { next.lock().await });
        until("it waits", async || server.count("x/line/a\t") == 1).await;
        drop(guard);
        guard = waiting.await.expect("no panic").expect("its turn");
    }
    assert_eq!(server.watch_streams(), 2);
}

#[tokio::test]
async fn no_update_is_lost_by_clients_that_wait_in_line() {
    let prefix = EtcdPrefix::lend();
    tokens_rise_among_clients_that_wait(&prefix.url(), 4, 10).await;
}

/// The next lock of the client uses the same lease of etcd again.
#[tokio::test]
async fn a_lock_and_its_release_are_two_entries_in_the_log_of_the_cluster() {
    const TIMES: u64 = 20;
    let server = EtcdServer::start();
    let mutex = client(&server.url("a")).await.mutex("a");
    let cycle = async || {
        let guard = mutex.lock().await.expect("free");
        let _released = guard.release().await.expect("released");
    };
    cycle().await;
    let before = server.log_entries();
    for _ in 0..TIMES {
        cycle().await;
    }
    let entries = server.log_entries() - before;
    // A new lease of etcd for each lock would make three entries of each lock.
    assert!(entries < 2 * TIMES + TIMES / 2, "{entries} entries for {TIMES} locks");
}
