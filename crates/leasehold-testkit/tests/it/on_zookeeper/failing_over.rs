//! Servers that are killed, silent, or restarted.

use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{FakeServer, ZookeeperServer};

use super::{client, until};

/// A ttl so long that it does not run out on a slow machine.
const TTL: Duration = Duration::from_secs(120);

/// The URL of an ensemble, with sessions that are long enough for this ttl.
fn url(server: &ZookeeperServer) -> String {
    format!("{}?session_timeout=180s", server.url("a"))
}

#[tokio::test]
async fn a_lock_outlives_its_leader_and_nobody_else_gets_it() {
    let server = ZookeeperServer::ensemble();
    let (one, other) = (client(&url(&server)).await, client(&url(&server)).await);
    let guard = one.mutex("a").ttl(TTL).lock().await.expect("free");
    let token = guard.fencing_token();
    server.kill(server.leader());
    // Until then, every ask ends with an error or with *taken*.
    until("another server leads", async || match other.mutex("a").try_lock().await {
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
    let server = ZookeeperServer::ensemble();
    let (one, other) = (client(&url(&server)).await, client(&url(&server)).await);
    let guard = one.mutex("a").ttl(Duration::from_secs(5)).lock().await.expect("free");
    let leader = server.leader();
    let rest: Vec<_> = (0..3).filter(|it| *it != leader).collect();
    for member in &rest {
        server.pause(*member);
    }
    // The leader alone changes nothing, so the holder runs into its own deadline.
    guard.lost().await;
    assert!(!guard.is_held());
    let nobody = other.mutex("a").try_lock().await;
    assert!(nobody.is_err() || nobody.is_ok_and(|it| it.is_none()), "nobody gets it");
    for member in &rest {
        server.resume(*member);
    }
    until("the majority is back", async || other.mutex("b").try_lock().await.is_ok()).await;
    let next = other.mutex("a").lock().await.expect("it ends by itself");
    assert!(next.is_held());
}

#[tokio::test]
async fn a_lock_outlives_a_restart_of_the_only_server() {
    let server = ZookeeperServer::start();
    let (one, other) = (client(&url(&server)).await, client(&url(&server)).await);
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
async fn a_silent_server_is_given_up_for_another_one() {
    let server = ZookeeperServer::ensemble();
    // Short sessions notice sooner that a server is silent.
    let url = format!("{}?session_timeout=20s", server.url("a"));
    let client = client(&url).await;
    let leader = server.leader();
    for follower in (0..3).filter(|it| *it != leader) {
        let guard = client.mutex("a").ttl(Duration::from_secs(15)).lock().await.expect("free");
        server.pause(follower);
        until("another server answers", async || guard.renew().await.is_ok()).await;
        assert!(client.mutex("b").try_lock().await.expect("asked").is_some());
        server.resume(follower);
        let _released = guard.release().await.expect("released");
    }
}

/// Waits until a task of this client has a place, and the answer that says so. To be sure, it
/// awaits the answers to later requests, because the task makes only a few.
async fn until_it_waits(client: &Client) {
    const LATER: usize = 20;
    let mut seen = 0;
    until("it waits", async || {
        seen += client.inspect("a").await.expect("asked").waiting;
        seen as usize > LATER
    })
    .await;
}

/// The client gave up its session, but the server still knows it.
#[tokio::test]
async fn a_waiter_goes_on_after_an_outage_that_is_longer_than_its_session() {
    const SESSION: Duration = Duration::from_secs(4);
    // Another server of the URL of the waiter is none of ZooKeeper.
    let (server, other) = (ZookeeperServer::start(), FakeServer::speaking_http());
    let url = format!("{}?session_timeout={}s", server.url("a"), SESSION.as_secs());
    let right = format!("127.0.0.1:{}", server.port(0));
    let both = url.replace(&right, &format!("127.0.0.1:{},{right}", other.port()));
    let (holder, ours) = (client(&url).await, client(&both).await);
    let mutex = |client: &Client| client.mutex("a").ttl(SESSION / 2);
    let guard = mutex(&holder).lock().await.expect("free");
    let waiting = {
        let mutex = mutex(&ours);
        tokio::spawn(async move { mutex.lock().await })
    };
    until_it_waits(&ours).await;
    server.kill(0);
    let began = Instant::now();
    until("the client gives its session up", async || {
        let error = ours.inspect("a").await.expect_err("no server");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        began.elapsed() > 3 * SESSION
    })
    .await;
    server.restart(0);
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.is_held() && !guard.is_held());
}

#[tokio::test]
async fn a_waiter_goes_on_whatever_another_server_of_the_url_says() {
    let (server, other) = (ZookeeperServer::start(), FakeServer::speaking_http());
    let right = format!("127.0.0.1:{}", server.port(0));
    let url = url(&server).replace(&right, &format!("127.0.0.1:{},{right}", other.port()));
    let holder = client(&self::url(&server)).await;
    let ours = client(&url).await;
    let guard = holder.mutex("a").ttl(TTL).lock().await.expect("free");
    let waiting = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until_it_waits(&ours).await;
    server.kill(0);
    let error = ours.inspect("a").await.expect_err("no server");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart(0);
    until("the holder reaches it again", async || guard.renew().await.is_ok()).await;
    drop(guard);
    let _next = waiting.await.expect("no panic").expect("its turn");
}
