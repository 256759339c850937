//! Real servers as nodes that are killed and paused, in real time.

use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::Vote;
use leasehold::{Client, Release};
use leasehold_testkit::servers::{PATIENCE, RedisServer};

/// Three servers, and their client, whose leases outlive any delay of the machine.
async fn open() -> ([RedisServer; 3], Client) {
    let servers: [_; 3] = std::array::from_fn(|_| RedisServer::start());
    let builder = Client::quorum(servers.iter().map(RedisServer::url));
    let client = builder.ttl(Duration::from_mins(10)).connect().await.expect("all are there");
    (servers, client)
}

/// Repeats an action until the votes are as `is_so` demands.
async fn until(client: &Client, again: impl AsyncFn(), is_so: impl Fn(&[Vote]) -> bool) {
    let begun = SystemHost.now();
    loop {
        let seen = client.inspect("a").await.expect("a majority answers");
        if is_so(&seen.votes) {
            return;
        }
        assert!(SystemHost.now().since(begun) < PATIENCE, "it never came to that: {seen:?}");
        again().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_killed_and_came_back_empty_has_the_lock_again() {
    let (servers, client) = open().await;
    let guard = client.mutex("a").lock().await.expect("free");
    servers[0].kill();
    let other = client.mutex("b").lock().await.expect("a majority is there");
    assert_eq!(other.release().await.expect("a majority is there"), Release::Released);
    guard.renew().await.expect("a majority is there");
    servers[0].restart();
    let ours = Ok(Some(guard.token().as_str().as_bytes().to_vec()));
    let renew = async || guard.renew().await.expect("a majority is there");
    until(&client, renew, |votes| votes.iter().all(|vote| vote.holder == ours)).await;
    // The vote of the restarted node counts, so another node may fail.
    servers[1].kill();
    guard.renew().await.expect("a majority is there");
    assert_eq!(guard.release().await.expect("a majority is there"), Release::Released);
}

/// Once the server goes on, it gets the releases that it missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_in_nobodys_way_and_keeps_nothing() {
    let (servers, client) = open().await;
    servers[2].pause();
    for _ in 0..20 {
        let guard = client.mutex("a").lock().await.expect("a majority is there");
        assert!(guard.fencing_token().is_some());
        assert_eq!(guard.release().await.expect("a majority is there"), Release::Released);
    }
    servers[2].resume();
    until(&client, async || (), |votes| votes.iter().all(|vote| vote.holder == Ok(None))).await;
}
