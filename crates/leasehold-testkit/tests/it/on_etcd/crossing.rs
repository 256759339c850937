//! Requests that cross on their way, come late, or lose their answers.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::core::Ttl;
use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::host::SystemHost;
use leasehold::store::etcd::EtcdConnector;
use leasehold::store::{Acquired, Ask, Claim, EtcdStore, LeaseId, Line, OnRelease, Store as _};
use leasehold::{Error, ErrorKind, Key, Release};
use leasehold_testkit::servers::{EtcdServer, PATIENCE, Proxy, Way};

use super::{client, until};

/// A waiter that leaves looks at its place. The answer is held back until it was handed the lock.
#[tokio::test]
async fn a_waiter_that_leaves_while_it_is_handed_the_lock_leaves_it_free() {
    const ROUNDS: u32 = 5;
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port(0));
    let one = client(&server.url("x")).await;
    let mut handed_over = 0;
    for _ in 0..ROUNDS {
        let guard = one.mutex("a").lock().await.expect("free");
        let other = client(&format!("etcd://127.0.0.1:{}/x", proxy.port())).await;
        let mutex = other.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await.map(drop) });
        until("it waits", async || server.count("x/line/a") == 1).await;
        let before = server.transactions();
        proxy.hold(Way::ToClient);
        waiting.abort();
        until("it looks at its place", async || server.transactions() > before).await;
        let _released = guard.release().await.expect("asked");
        handed_over += server.count("x/held/a");
        proxy.go_on(Way::ToClient);
        let _left = other.shutdown(PATIENCE).await;
        assert_eq!(server.count("x/held/a"), 0, "it is taken by one that left");
    }
    // The test may have taken a renewal of the waiter for its reading of the line.
    assert!(handed_over > 0);
}

/// Another store of the same process knows nothing of the first request, as after a lost answer.
#[tokio::test]
async fn a_place_whose_answer_was_lost_is_refreshed_by_the_next_ask() {
    const LASTS: u64 = 60;
    let server = EtcdServer::start();
    let url = server.url("x");
    let _guard = client(&url).await.mutex("a").lock().await.expect("free");
    let ttl = Ttl::new(Duration::from_secs(LASTS)).expect("within bounds");
    let owner = OwnerToken::new("waiter").expect("printable");
    let inbox = ClientId::from_random([7; ClientId::CHARS]);
    let mut ask = Ask::new(Key::new("a").expect("a name"), owner, Claim::Exclusive, ttl);
    ask.line = Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no: 1, inbox };
    let asked = async || {
        let connector = EtcdConnector::new(&url).expect("a URL");
        let store = EtcdStore::connect_with(connector, SystemHost::shared()).await;
        let answer = store.expect("it is there").acquire(ask.clone()).await.expect("an answer");
        assert!(matches!(answer, Acquired::Refused(_)), "{answer:?}");
    };
    let left = || {
        let keys = server.keys();
        let place = keys.iter().find(|(name, _)| name.starts_with("x/line/a\t"));
        place.expect("it has a place").1.expect("places end")
    };
    asked().await;
    until("some of its time passes", async || left() <= LASTS - 3).await;
    asked().await;
    assert!(left() > LASTS - 3, "{} s are left", left());
}

/// The answer to the request for a place was lost. The lock is handed to the place, or the waiter
/// asks again and takes the free lock. So the lease of etcd behind the place becomes free for
/// another lock. The release of the first lock must not end it.
#[tokio::test]
async fn a_lease_behind_a_lost_answer_ends_no_other_lock() {
    const DELAY: Duration = Duration::from_millis(100);
    const LOST: [u32; 2] = [5, 5];
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port(0));
    let open = async |url: &str| {
        let connector = EtcdConnector::new(url).expect("a URL");
        EtcdStore::connect_with(connector, SystemHost::shared()).await.expect("it is there")
    };
    let holder = open(&server.url("x")).await;
    let waiter = open(&format!("etcd://127.0.0.1:{}/x", proxy.port())).await;
    let ttl = |seconds| Ttl::new(Duration::from_secs(seconds)).expect("within bounds");
    let owner = |name: &str| OwnerToken::new(name).expect("printable");
    let ask = |key: &Key, name: &str, seconds| {
        Ask::new(key.clone(), owner(name), Claim::Exclusive, ttl(seconds))
    };
    let lease = |key: &Key, name: &str| LeaseId {
        key: key.clone(),
        owner: owner(name),
        claim: Claim::Exclusive,
    };
    let (mut lost, mut round) = ([0; 2], 0);
    while lost != LOST {
        round += 1;
        assert!(round < 100, "only {lost:?} answers were lost");
        let [key, other] =
            ["a", "b"].map(|name| Key::new(format!("{name}{round}")).expect("a name"));
        let is_handed = lost[1] == lost[0];
        holder.acquire(ask(&key, "first", 120)).await.expect("asked");
        let mut wish = ask(&key, "waiter", 120);
        let inbox = ClientId::from_random([7; ClientId::CHARS]);
        wish.line = Line::Join { waiter_ttl: ttl(60), handed_ttl: ttl(60), ask_no: 1, inbox };
        proxy.delay(Way::ToClient, DELAY);
        let asking = waiter.acquire(wish.clone());
        let asking = tokio::spawn(asking);
        until("it has a place", async || server.count(&format!("x/line/{key}")) == 1).await;
        proxy.close_all();
        proxy.delay(Way::ToClient, Duration::ZERO);
        if asking.await.expect("no panic").is_ok() {
            // The answer came before this test saw the place, as on a slow machine.
            continue;
        }
        lost[usize::from(is_handed)] += 1;
        if is_handed {
            until("it waits", async || waiter.acquire(wish.clone()).await.is_ok()).await;
            holder.release(lease(&key, "first"), OnRelease::Free).await.expect("asked");
        } else {
            holder.release(lease(&key, "first"), OnRelease::FreeAndWake).await.expect("asked");
        }
        let mut granted = Err(Error::new(ErrorKind::Unknown, "not asked"));
        until("it is answered", async || {
            granted = waiter.acquire(wish.clone()).await;
            granted.is_ok()
        })
        .await;
        assert!(matches!(granted, Ok(Acquired::Granted { .. })), "{granted:?}");
        let granted = waiter.acquire(ask(&other, "second", 60)).await.expect("asked");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        waiter.release(lease(&key, "waiter"), OnRelease::Free).await.expect("asked");
        assert_eq!(server.count(&format!("x/held/{other}")), 1, "it was ended in round {round}");
    }
}

/// A request for a lock is on its way while its caller gives up and releases the lock, which it may
/// have got. If the server first sees that the caller has given up, it drops the request. So there
/// are several rounds.
#[tokio::test]
async fn a_request_that_arrives_after_its_release_takes_nothing() {
    const ARRIVES_IN: Duration = Duration::from_millis(200);
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port(0));
    let url = format!("etcd://127.0.0.1:{}/x", proxy.port());
    let connector = EtcdConnector::new(&url).expect("a URL");
    let store = EtcdStore::connect_with(connector, SystemHost::shared()).await;
    let store = store.expect("it is there");
    let ttl = Ttl::new(Duration::from_secs(60)).expect("within bounds");
    let owner = OwnerToken::new("late").expect("printable");
    let key = |name: &str| Key::new(name).expect("a name");
    let ask = |name: &str| Ask::new(key(name), owner.clone(), Claim::Exclusive, ttl);
    let release = async |name: &str| {
        let lease = LeaseId { key: key(name), owner: owner.clone(), claim: Claim::Exclusive };
        store.release(lease, OnRelease::Free).await
    };
    for round in 0..5 {
        let name = format!("a{round}");
        // The client keeps the lease of etcd for the next lock, which then needs a single request.
        until("it is granted", async || store.acquire(ask("warm")).await.is_ok()).await;
        until("it is released", async || release("warm").await.is_ok()).await;
        proxy.strand();
        store.acquire(ask(&name)).await.expect_err("no answer");
        until("it is released", async || release(&name).await.is_ok()).await;
        let (before, landed) = (server.transactions(), Instant::now());
        proxy.land();
        until("the request arrives, or never will", async || {
            server.transactions() > before || landed.elapsed() > ARRIVES_IN
        })
        .await;
        until("it is carried out, or refused", async || {
            assert_eq!(server.count(&format!("x/held/{name}")), 0, "nobody would release it");
            landed.elapsed() > ARRIVES_IN
        })
        .await;
    }
}

#[tokio::test]
async fn a_late_request_for_a_place_does_not_hand_the_lock_to_its_former_owner() {
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    let guard = client.mutex("a").lock().await.expect("free");
    let place = format!("x/line/a\t{}", guard.token().as_str());
    server.copy("x/held/a", &place, 60);
    assert_eq!(guard.release().await.expect("asked"), Release::Released);
    let seen = client.inspect("a").await.expect("asked");
    assert!(seen.holders.is_empty() && seen.waiting == 0, "{seen:?}");
}

#[tokio::test]
async fn a_caller_that_is_not_polled_while_it_connects_holds_no_renewal_up() {
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    let guard = client.mutex("a").ttl(2 * PATIENCE).lock().await.expect("free");
    server.kill(0);
    server.restart(0);
    let mut looking = pin!(client.inspect("a"));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(looking.as_mut().poll(context).is_pending(), "it connects first");
    until("the lease is renewed", async || guard.renew().await.is_ok()).await;
}
