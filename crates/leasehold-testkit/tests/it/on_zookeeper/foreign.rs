//! Other libraries on the same path: some name their nodes as Apache Curator does, and some keep
//! other data there.

use futures_util::FutureExt as _;
use leasehold::store::Revoked;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::{ZookeeperPath, ZookeeperServer};

use super::{client, until};

const CURATOR: &str = "6fa459ea-ee8a-3ca4-894e-db77e160355e";

#[tokio::test]
async fn a_foreign_holder_is_waited_for() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    // The path is made by the first lock.
    drop(ours.mutex("first").lock().await.expect("free"));
    let mut foreign = path.client();
    let node = foreign.line_up(&path.lock("a"), CURATOR);
    assert!(ours.mutex("a").try_lock().await.expect("asked").is_none(), "it is held");
    let waiting = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    let seen = ours.inspect("a").await.expect("asked");
    assert_eq!((seen.holders[0].token.as_slice(), seen.waiting), (CURATOR.as_bytes(), 1));
    assert_eq!(seen.holders[0].ttl_left, None, "nobody knows");
    let error = ours.revoke("a", CURATOR.as_bytes(), "noon").await.expect_err("nobody reads it");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(foreign.delete(&node));
    let guard = waiting.await.expect("no panic").expect("its turn");
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_name_in_full_width_letters_is_the_same_lock() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    drop(ours.mutex("first").lock().await.expect("free"));
    let mut foreign = path.client();
    let _node = foreign.line_up(&path.lock("ＡＢＣ"), CURATOR);
    assert!(ours.mutex("ＡＢＣ").try_lock().await.expect("asked").is_none(), "it is held");
}

/// Curator's `Revoker` does this.
#[tokio::test]
async fn a_holder_is_told_what_a_foreign_client_asks_it_for() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    let guard = ours.mutex("a").lock().await.expect("free");
    let node = format!("{}/{}", path.lock("a"), path.nodes("a")[0]);
    path.client().write(&node, b"__REVOKE__");
    let seen = guard.token().as_str().as_bytes();
    let again = ours.revoke("a", seen, "noon").await.expect("an answer");
    assert_eq!(again, Revoked::Asked, "as before");
    guard.renew().await.expect("renewed");
    let revoked = guard.revoked().now_or_never().expect("it was told");
    assert!(revoked.by.contains("Curator"), "{revoked:?}");
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_foreign_waiter_gets_its_turn() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    let guard = ours.mutex("a").lock().await.expect("free");
    let mut foreign = path.client();
    let node = foreign.line_up(&path.lock("a"), CURATOR);
    // One of our clients waits behind the foreign holder.
    let waiting = {
        let mutex = client(&path.url("15s")).await.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("both wait", async || path.waiters("a") == 2).await;
    let _released = guard.release().await.expect("released");
    let seen = ours.inspect("a").await.expect("asked");
    assert_eq!(seen.holders[0].token, CURATOR.as_bytes());
    assert!(ours.mutex("a").try_lock().await.expect("asked").is_none());
    assert!(!waiting.is_finished(), "it waits behind");
    assert!(foreign.delete(&node));
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(next.is_held());
}

#[tokio::test]
async fn a_foreign_holder_whose_session_ends_frees_the_lock() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    drop(ours.mutex("first").lock().await.expect("free"));
    let mut foreign = path.client();
    let _node = foreign.line_up(&path.lock("a"), CURATOR);
    let waiting = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    drop(foreign);
    let _guard = waiting.await.expect("no panic").expect("its turn");
}

#[tokio::test]
async fn a_node_that_is_no_lock_is_refused_and_left_as_it_is() {
    let path = ZookeeperPath::lend();
    let ours = client(&path.url("15s")).await;
    drop(ours.mutex("first").lock().await.expect("free"));
    let mut foreign = path.client();
    // Curator's semaphores have such nodes.
    for node in ["", "/leases", "/locks"] {
        let _made = foreign.make(&format!("{}{node}", path.lock("a"))).expect("it is new");
    }
    let error = ours.mutex("a").try_lock().await.expect_err("no lock");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("not a lock, since it has the child `le"), "{error}");
    let error = ours.mutex("a").lock().await.expect_err("no lock");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    until("nothing is left there", async || path.nodes("a") == ["leases", "locks"]).await;
    // The server's own nodes are not locks either.
    let top = Client::connect(&ZookeeperServer::shared().url("")).await.expect("it is there");
    let error = top.mutex("zookeeper").try_lock().await.expect_err("no lock");
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}
