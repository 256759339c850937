//! Leases that end without a release.

use std::time::Duration;

use leasehold::{ErrorKind, Release};
use leasehold_testkit::servers::EtcdPrefix;

use super::{client, until};

#[tokio::test]
async fn a_crashed_holder_frees_the_lock_and_a_waiter_gets_it() {
    let prefix = EtcdPrefix::lend();
    let (one, other) = (client(&prefix.url()).await, client(&prefix.url()).await);
    let ttl = Duration::from_secs(2);
    let guard = one.mutex("a").ttl(ttl).lock().await.expect("free");
    let before = guard.fencing_token();
    // Nobody renews the lease from now on, as after a crash.
    let _token = guard.detach();
    let next = other.mutex("a").ttl(ttl).lock().await.expect("its turn");
    assert!(next.fencing_token() > before, "tokens rise");
}

#[tokio::test]
async fn a_holder_whose_key_was_removed_learns_it_by_a_renewal() {
    let prefix = EtcdPrefix::lend();
    let client = client(&prefix.url()).await;
    let guard = client.mutex("a").lock().await.expect("free");
    prefix.remove_holder("a");
    let error = guard.renew().await.expect_err("its key is gone");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!guard.is_held());
    // Another client's lock stays as it is.
    let next = client.mutex("a").lock().await.expect("free");
    assert_eq!(guard.release().await.expect("asked"), Release::NotHeld);
    assert!(next.is_held());
}

#[tokio::test]
async fn an_evicted_holder_learns_it_and_the_next_one_has_a_higher_token() {
    let prefix = EtcdPrefix::lend();
    let (one, other) = (client(&prefix.url()).await, client(&prefix.url()).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || prefix.waiters("a") == 1).await;
    let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
    let _ended = other.evict("a", &seen, "a test").await.expect("asked");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.renew().await.expect_err("it was ended").kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_handed_lock_is_renewed_for_its_own_ttl() {
    let prefix = EtcdPrefix::lend();
    let (one, other) = (client(&prefix.url()).await, client(&prefix.url()).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let mutex = other.mutex("a").ttl(Duration::from_secs(60));
    let waiting = tokio::spawn(async move { mutex.lock().await });
    until("it waits", async || prefix.waiters("a") == 1).await;
    drop(guard);
    let next = waiting.await.expect("no panic").expect("its turn");
    let token = next.fencing_token();
    next.renew().await.expect("renewed");
    let seen = one.inspect("a").await.expect("asked");
    let left = seen.holders[0].ttl_left.expect("it has an end");
    assert!(left > Duration::from_secs(30), "{left:?}");
    assert_eq!((next.fencing_token(), seen.fencing), (token, token));
}
