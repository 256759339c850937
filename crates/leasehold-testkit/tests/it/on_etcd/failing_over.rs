//! Members that are killed, silent, or restarted.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::servers::EtcdServer;

use super::{client, until};

/// A ttl so long that it does not run out on a slow machine.
const TTL: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_lock_outlives_its_leader_and_nobody_else_gets_it() {
    let server = EtcdServer::cluster();
    let (one, other) = (client(&server.url("a")).await, client(&server.url("a")).await);
    let guard = one.mutex("a").ttl(TTL).lock().await.expect("free");
    let token = guard.fencing_token();
    server.kill(server.leader());
    // Until then, every ask ends with an error or with *taken*.
    until("another member leads", async || match other.mutex("a").try_lock().await {
        Ok(answer) => {
            assert!(answer.is_none(), "it is held");
            true
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
            false
        }
    })
    .await;
    until("it is renewed at the new leader", async || guard.renew().await.is_ok()).await;
    assert!(guard.is_held());
    assert_eq!(guard.fencing_token(), token);
    // A client that waits gets the lock from the new leader.
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    drop(guard);
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.fencing_token() > token, "tokens rise");
}

#[tokio::test]
async fn a_holder_without_a_majority_knows_before_its_lease_ends() {
    let server = EtcdServer::cluster();
    let (one, other) = (client(&server.url("a")).await, client(&server.url("a")).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(5)).lock().await.expect("free");
    let leader = server.leader();
    let rest: Vec<_> = (0..3).filter(|it| *it != leader).collect();
    for member in &rest {
        server.pause(*member);
    }
    // The leader alone answers nothing that counts, so the holder runs into its own deadline.
    guard.lost().await;
    assert!(!guard.is_held());
    assert!(other.mutex("a").try_lock().await.is_err(), "nobody gets it from a minority");
    for member in &rest {
        server.resume(*member);
    }
    until("the majority is back", async || other.mutex("a").try_lock().await.is_ok()).await;
    let next = other.mutex("a").lock().await.expect("it ends by itself");
    assert!(next.is_held());
}

#[tokio::test]
async fn a_lock_outlives_a_restart_of_the_only_member() {
    let server = EtcdServer::start();
    let (one, other) = (client(&server.url("a")).await, client(&server.url("a")).await);
    let guard = one.mutex("a").ttl(TTL).lock().await.expect("free");
    server.kill(0);
    let down = other.mutex("a").try_lock().await.expect_err("no server");
    assert!(matches!(down.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{down}");
    server.restart(0);
    until("it is asked again", async || other.mutex("a").try_lock().await.is_ok()).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it is held");
    until("a new connection", async || guard.renew().await.is_ok()).await;
    let token = guard.fencing_token();
    let _released = guard.release().await.expect("released");
    let next = other.mutex("a").try_lock().await.expect("asked").expect("free");
    assert!(next.fencing_token() > token, "tokens rise over a restart");
}

#[tokio::test]
async fn a_waiter_is_woken_after_its_stream_broke() {
    let server = EtcdServer::start();
    let (one, other) = (client(&server.url("a")).await, client(&server.url("a")).await);
    let guard = one.mutex("a").ttl(TTL).lock().await.expect("free");
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || server.count("a/line/a\t") == 1).await;
    server.kill(0);
    server.restart(0);
    until("the holder reaches it again", async || guard.renew().await.is_ok()).await;
    drop(guard);
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.is_held());
}

#[tokio::test]
async fn a_silent_member_is_given_up_for_another_one() {
    let server = EtcdServer::cluster();
    let leader = server.leader();
    let follower = (0..3).find(|it| *it != leader).expect("three members");
    // The first member of the URL is asked first.
    let others: Vec<_> = (0..3).filter(|it| *it != follower).collect();
    let ports = [follower, others[0], others[1]].map(|it| server.port(it));
    let [a, b, c] = ports;
    let url = format!("etcd://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}/a");
    let client = client(&url).await;
    let guard = client.mutex("a").ttl(TTL).lock().await.expect("free");
    server.pause(follower);
    until("another member answers", async || guard.renew().await.is_ok()).await;
    assert!(client.mutex("b").try_lock().await.expect("asked").is_some());
    server.resume(follower);
}
