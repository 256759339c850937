//! Leases of etcd that no lock needs any more are revoked, and places that were removed are taken
//! again.

use std::time::{Duration, Instant};

use leasehold::Key;
use leasehold::core::Ttl;
use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::host::SystemHost;
use leasehold::store::etcd::EtcdConnector;
use leasehold::store::{Acquired, Ask, Claim, EtcdStore, Line, Store as _};
use leasehold_testkit::servers::{EtcdServer, PATIENCE};
use serde_json::json;

use super::{client, until};

/// The longest lease that a client keeps for later.
const KEPT: Duration = Duration::from_secs(60);

/// How many leases of etcd there are.
fn leases(server: &EtcdServer) -> usize {
    server.ask("/v3/lease/leases", &json!({}))["leases"].as_array().map_or(0, Vec::len)
}

/// If unused leases were left to run out, the server would end the leases of crashed holders late.
#[tokio::test]
async fn a_client_keeps_few_leases_and_leaves_none() {
    const LOCKS: usize = 300;
    const KEPT_MAX: usize = 256;
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    let began = Instant::now();
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        let mutex = client.mutex(format!("a{number}")).ttl(KEPT);
        guards.push(mutex.lock().await.expect("free"));
    }
    for guard in guards {
        let _released = guard.release().await.expect("released");
    }
    until("the others are revoked", async || leases(&server) <= KEPT_MAX).await;
    let _left = client.shutdown(PATIENCE).await;
    until("all are revoked", async || leases(&server) == 0).await;
    assert!(began.elapsed() < KEPT / 2, "they may have ended by themselves");
}

#[tokio::test]
async fn a_lock_for_a_day_leaves_no_lease_after_its_release() {
    let server = EtcdServer::start();
    let client = client(&server.url("x")).await;
    let mutex = client.mutex("a").ttl(Duration::from_secs(86_400));
    let _released = mutex.lock().await.expect("free").release().await.expect("released");
    assert_eq!(leases(&server), 0);
}

#[tokio::test]
async fn a_refused_try_of_a_new_client_writes_nothing() {
    const TRIES: u64 = 20;
    let server = EtcdServer::start();
    let _guard = client(&server.url("x")).await.mutex("a").lock().await.expect("free");
    let before = server.log_entries();
    for _ in 0..TRIES {
        let client = client(&server.url("x")).await;
        assert!(client.mutex("a").try_lock().await.expect("asked").is_none());
    }
    // The server itself may write a few entries.
    let entries = server.log_entries() - before;
    assert!(entries < TRIES / 2, "{entries} entries for {TRIES} tries");
}

/// No read of the line shows this place, which is behind the places that are read.
#[tokio::test]
async fn a_place_far_back_that_was_removed_by_hand_is_taken_again() {
    const WAITERS: usize = 140;
    let server = EtcdServer::start();
    let _guard = client(&server.url("x")).await.mutex("a").lock().await.expect("free");
    let connector = EtcdConnector::new(&server.url("x")).expect("a URL");
    let store = EtcdStore::connect_with(connector, SystemHost::shared()).await;
    let store = store.expect("it is there");
    let ttl = Ttl::new(2 * PATIENCE).expect("within bounds");
    let asked = async |number: usize, ask_no| {
        let owner = OwnerToken::new(format!("waiter{number}")).expect("printable");
        let mut ask = Ask::new(Key::new("a").expect("a name"), owner, Claim::Exclusive, ttl);
        let inbox = ClientId::from_random([7; ClientId::CHARS]);
        ask.line = Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no, inbox };
        let answer = store.acquire(ask).await.expect("an answer");
        assert!(matches!(answer, Acquired::Refused(_)), "{answer:?}");
    };
    for number in 0..WAITERS {
        asked(number, 1).await;
    }
    let last = WAITERS - 1;
    server.remove(&format!("x/line/a\twaiter{last}"));
    assert_eq!(server.count("x/line/a\t"), last);
    asked(last, 2).await;
    assert_eq!(server.count("x/line/a\t"), WAITERS);
}
