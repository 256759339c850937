//! Leases that end without a release.

use std::time::Duration;

use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::ZookeeperPath;

use super::{client, until};

#[tokio::test]
async fn a_lease_that_nobody_renews_ends_on_time_while_its_process_lives() {
    let path = ZookeeperPath::lend();
    let url = path.url("60s");
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(2)).lock().await.expect("free");
    let before = guard.fencing_token();
    let _token = guard.detach();
    // The session lasts much longer.
    let next = other.mutex("a").lock_timeout(Duration::from_secs(30)).await.expect("its turn");
    assert!(next.fencing_token() > before, "tokens rise");
}

#[tokio::test]
async fn the_locks_of_a_client_end_with_it() {
    let path = ZookeeperPath::lend();
    let url = path.url("60s");
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(40)).lock().await.expect("free");
    let _token = guard.detach();
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    drop(one);
    until("its session ends", async || other.mutex("a").try_lock().await.expect("asked").is_some())
        .await;
}

#[tokio::test]
async fn a_holder_whose_node_was_deleted_learns_it_by_a_renewal() {
    let path = ZookeeperPath::lend();
    let client = client(&path.url("15s")).await;
    let guard = client.mutex("a").lock().await.expect("free");
    let node = path.nodes("a").remove(0);
    assert!(path.client().delete(&format!("{}/{node}", path.lock("a"))));
    let error = guard.renew().await.expect_err("its node is gone");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!guard.is_held());
    // Another client's lock stays as it is.
    let next = client.mutex("a").lock().await.expect("free");
    assert_eq!(guard.release().await.expect("asked"), Release::NotHeld);
    assert!(next.is_held());
}

#[tokio::test]
async fn an_evicted_holder_learns_it_and_the_next_one_has_a_higher_token() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
    let _ended = other.evict("a", &seen, "a test").await.expect("asked");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.renew().await.expect_err("it was ended").kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_handed_lock_is_renewed_for_its_own_ttl() {
    let path = ZookeeperPath::lend();
    let url = path.url("120s");
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let mutex = other.mutex("a").ttl(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || path.waiters("a") == 1).await;
    drop(guard);
    let next = waiting.await.expect("no panic").expect("its turn");
    let token = next.fencing_token();
    next.renew().await.expect("renewed");
    let seen = one.inspect("a").await.expect("asked");
    let left = seen.holders[0].ttl_left.expect("it has an end");
    assert!(left > Duration::from_secs(30), "{left:?}");
    assert_eq!((next.fencing_token(), seen.fencing), (token, token));
}
