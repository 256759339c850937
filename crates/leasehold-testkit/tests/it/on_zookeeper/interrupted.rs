//! Connections that end, answers that are lost, and sessions that end while their client is away.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use leasehold::core::Ttl;
use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::host::SystemHost;
use leasehold::store::zookeeper::ZookeeperConnector;
use leasehold::store::{
    Acquired, Ask, Claim, Hint, HintSink, LeaseId, Line, OnRelease, Revoked, Store as _,
    ZookeeperStore,
};
use leasehold::{Client, ErrorKind, Key};
use leasehold_testkit::servers::{Proxy, Way, ZookeeperPath, ZookeeperServer};

use super::{client, until};

/// The URL of a path through a proxy.
fn through(proxy: &Proxy, path: &ZookeeperPath, session_timeout: &str) -> String {
    let direct = ZookeeperServer::shared().port(0).to_string();
    path.url(session_timeout).replace(&direct, &proxy.port().to_string())
}

fn proxy() -> Proxy {
    Proxy::to(ZookeeperServer::shared().port(0))
}

fn store(url: &str) -> ZookeeperStore {
    let connector = ZookeeperConnector::new(url).expect("a URL");
    ZookeeperStore::open(connector, SystemHost::shared())
}

fn ttl(seconds: u64) -> Ttl {
    Ttl::new(Duration::from_secs(seconds)).expect("within bounds")
}

/// An ask for the lock `a`.
fn ask() -> Ask {
    let (key, owner) = (Key::new("a").expect("a name"), OwnerToken::new("x").expect("printable"));
    Ask::new(key, owner, Claim::Exclusive, ttl(6))
}

#[tokio::test]
async fn a_lease_outlives_its_connection() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let ours = client(&through(&proxy, &path, "15s")).await;
    let guard = ours.mutex("a").lock().await.expect("free");
    let (token, nodes) = (guard.fencing_token(), path.nodes("a"));
    for _ in 0..3 {
        proxy.close_all();
        until("it is renewed", async || guard.renew().await.is_ok()).await;
    }
    assert!(guard.is_held());
    assert_eq!((guard.fencing_token(), path.nodes("a")), (token, nodes), "the same lease");
    assert!(proxy.counts().connections > 3, "each over another connection");
}

/// The session goes on, so its nodes stay. A client would repeat the release, so this test asks the
/// store directly.
#[tokio::test]
async fn a_release_without_a_connection_ends_the_lock_when_there_is_one_again() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let other = client(&path.url("15s")).await;
    let ours = store(&through(&proxy, &path, "15s"));
    let ask = ask();
    let lease = LeaseId { key: ask.key.clone(), owner: ask.owner.clone(), claim: ask.claim };
    let granted = ours.acquire(ask).await.expect("asked");
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
    proxy.refuse();
    proxy.close_all();
    let unknown = ours.release(lease, OnRelease::Free).await.expect_err("no connection");
    assert!(matches!(unknown.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{unknown}");
    assert_eq!(path.nodes("a").len(), 1, "its session goes on");
    proxy.accept();
    until("it is free", async || other.mutex("a").try_lock().await.expect("a store").is_some())
        .await;
}

#[tokio::test]
async fn a_server_is_used_only_with_a_session_that_is_long_enough_for_its_answers() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    proxy.delay(Way::ToClient, Duration::from_millis(900));
    let short = Client::connect(&through(&proxy, &path, "4s")).await.expect_err("too slow");
    assert_eq!(short.kind(), ErrorKind::Unavailable, "{short}");
    assert!(short.to_string().contains("session_timeout"), "{short}");
    let ours = client(&through(&proxy, &path, "15s")).await;
    until("it is answered", async || ours.inspect("a").await.is_ok()).await;
}

#[tokio::test]
async fn a_waiter_is_woken_after_its_connection_ended() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let holder = client(&path.url("15s")).await;
    let ours = client(&through(&proxy, &path, "15s")).await;
    let guard = holder.mutex("a").lock().await.expect("free");
    let waiting = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    proxy.close_all();
    drop(guard);
    let _next = waiting.await.expect("no panic").expect("its turn");
}

/// The hints of a client.
#[derive(Default)]
struct Inbox(Mutex<Vec<Hint>>);

impl HintSink for Inbox {
    fn hint(&self, hint: Hint) {
        self.0.lock().expect("nothing panics").push(hint);
    }
}

impl Inbox {
    /// Takes all hints. Returns whether one of them is of that kind.
    fn take_any(&self, wanted: impl Fn(&Hint) -> bool) -> bool {
        self.0.lock().expect("nothing panics").drain(..).any(|hint| wanted(&hint))
    }
}

/// A watch ends with its connection. The waiter learns of that, and asks again.
#[tokio::test]
async fn a_waiter_that_asked_again_over_another_connection_is_told_of_its_turn() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let holder = client(&path.url("15s")).await;
    let guard = holder.mutex("a").lock().await.expect("free");
    let store = store(&through(&proxy, &path, "15s"));
    let (id, inbox) = (ClientId::from_random([7; ClientId::CHARS]), Arc::new(Inbox::default()));
    let sink: Arc<dyn HintSink> = inbox.clone();
    store.watch(&id, Arc::downgrade(&sink));
    let mut ask = ask();
    ask.line =
        Line::Join { waiter_ttl: ttl(600), handed_ttl: ttl(6), ask_no: 1, inbox: id.clone() };
    for _ in 0..3 {
        until("it waits", async || {
            matches!(store.acquire(ask.clone()).await, Ok(Acquired::Refused(_)))
        })
        .await;
        proxy.close_all();
        until("it is told", async || inbox.take_any(|hint| *hint == Hint::Missed)).await;
    }
    until("it waits", async || store.acquire(ask.clone()).await.is_ok()).await;
    let _released = guard.release().await.expect("released");
    until("it has its turn", async || inbox.take_any(|it| matches!(it, Hint::Granted { .. })))
        .await;
}

#[tokio::test]
async fn a_node_whose_answer_was_lost_is_found_again() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let ours = client(&through(&proxy, &path, "15s")).await;
    // The parent nodes exist already, so the next request makes the node.
    drop(ours.mutex("a").lock().await.expect("free"));
    until("it is free", async || path.nodes("a").is_empty()).await;
    proxy.hold(Way::ToClient);
    let asking = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("the node is made", async || path.nodes("a").len() == 1).await;
    let made = path.nodes("a");
    proxy.close_all();
    proxy.go_on(Way::ToClient);
    let guard = asking.await.expect("no panic").expect("it has the node");
    assert_eq!(path.nodes("a"), made, "the same node, and no other");
    let _released = guard.release().await.expect("released");
    assert_eq!(path.nodes("a"), Vec::<String>::new());
}

#[tokio::test]
async fn a_node_whose_answer_was_lost_is_deleted_if_its_caller_gives_up() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let ours = client(&through(&proxy, &path, "15s")).await;
    drop(ours.mutex("a").lock().await.expect("free"));
    until("it is free", async || path.nodes("a").is_empty()).await;
    proxy.hold(Way::ToClient);
    let asking = {
        let mutex = ours.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("the node is made", async || path.nodes("a").len() == 1).await;
    asking.abort();
    proxy.close_all();
    proxy.go_on(Way::ToClient);
    until("it is deleted", async || path.nodes("a").is_empty()).await;
    assert!(ours.mutex("a").try_lock().await.expect("asked").is_some());
}

/// The first write of a renewal finds the request to let go. The second write never arrives.
#[tokio::test]
async fn a_request_to_let_go_is_told_by_the_renewal_after_the_one_that_failed() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let ours = client(&through(&proxy, &path, "15s")).await;
    let operator = client(&path.url("15s")).await;
    let guard = ours.mutex("a").lock().await.expect("free");
    let seen = guard.token().as_str().as_bytes();
    let asked = operator.revoke("a", seen, "noon").await.expect("an answer");
    assert_eq!(asked, Revoked::Asked);
    proxy.delay(Way::ToClient, Duration::from_millis(50));
    let sent = || proxy.counts().request_bytes;
    let before = sent();
    let cut_off = async {
        until("the first write is sent", async || sent() > before).await;
        let wrote = sent();
        until("the node is read", async || sent() > wrote).await;
        proxy.hold(Way::ToServer);
    };
    let (renewed, ()) = tokio::join!(guard.renew(), cut_off);
    renewed.expect_err("the second write has no answer");
    proxy.close_all();
    proxy.delay(Way::ToClient, Duration::ZERO);
    proxy.go_on(Way::ToServer);
    until("it is renewed", async || guard.renew().await.is_ok()).await;
    let revoked = guard.revoked().now_or_never().expect("it was told");
    assert_eq!(revoked.reason, "noon");
}

/// The holder is told before the server gives the lock to another client.
#[tokio::test]
async fn a_holder_that_is_cut_off_loses_its_lock_before_its_session_ends() {
    let (path, proxy) = (ZookeeperPath::lend(), proxy());
    let ours = client(&through(&proxy, &path, "4s")).await;
    let other = client(&path.url("15s")).await;
    let guard = ours.mutex("a").ttl(Duration::from_secs(2)).lock().await.expect("free");
    let before = guard.fencing_token();
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move {
            let guard = mutex.lock().await;
            (guard, Instant::now())
        })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    proxy.refuse();
    proxy.hold(Way::Both);
    guard.lost().await;
    let lost = Instant::now();
    let (next, got) = waiting.await.expect("no panic");
    assert!(lost < got, "the holder knew first");
    assert!(next.expect("its turn").fencing_token() > before);
    // The client of the lost lock goes on in another session.
    proxy.close_all();
    proxy.go_on(Way::Both);
    proxy.accept();
    until("it is answered", async || {
        let again = ours.mutex("b").ttl(Duration::from_secs(2)).try_lock().await;
        again.is_ok_and(|it| it.is_some())
    })
    .await;
    assert!(!guard.is_held());
}
