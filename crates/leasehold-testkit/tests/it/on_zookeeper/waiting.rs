//! Waiters of several clients are woken, and served in order.

use std::time::{Duration, Instant};

use leasehold::core::token::ClientId;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{
    Acquired, Ask, Claim, LeaseId, Line, OnRelease, Renewal, Renewed, Store as _, from_url,
};
use leasehold::{Key, OwnerToken, Ttl};
use leasehold_testkit::servers::ZookeeperPath;

use super::{client, until};
use crate::real_time::tokens_rise_among_clients_that_wait;

const ROUNDS: u32 = 10;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_not_by_its_next_poll() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (one, other) = (client(&url).await, client(&url).await);
    let (one, other) = (one.mutex("a"), other.mutex("a"));
    let mut guard = one.lock().await.expect("free");
    let mut waited = Duration::ZERO;
    for round in 0..ROUNDS {
        let next = if round % 2 == 0 { other.clone() } else { one.clone() };
        let waiting = tokio::spawn(async move { next.lock().await });
        until("it waits", async || path.waiters("a") == 1).await;
        let began = Instant::now();
        drop(guard);
        guard = waiting.await.expect("no panic").expect("its turn");
        waited += began.elapsed();
    }
    // Waiters ask for the key itself once a second.
    let each = waited / ROUNDS;
    assert!(each < Duration::from_millis(400), "{each:?} for each hand-over");
    assert_eq!(path.waiters("a"), 0);
}

#[tokio::test]
async fn no_update_is_lost_by_clients_that_wait_in_line() {
    let path = ZookeeperPath::lend();
    tokens_rise_among_clients_that_wait(&path.url("15s"), 4, 10).await;
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_no_node() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (one, other) = (client(&url).await, client(&url).await);
    let _guard = one.mutex("a").lock().await.expect("free");
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    waiting.abort();
    until("it leaves", async || path.waiters("a") == 0).await;
}

#[tokio::test]
async fn a_waiter_whose_node_was_deleted_lines_up_again() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").lock().await.expect("free");
    let waiting = {
        let mutex = other.mutex("a");
        tokio::spawn(async move { mutex.lock().await })
    };
    until("it waits", async || path.waiters("a") == 1).await;
    let is_its = |node: &String| !node.contains(guard.token().as_str());
    let place = path.nodes("a").into_iter().find(is_its).expect("two nodes");
    assert!(path.client().delete(&format!("{}/{place}", path.lock("a"))));
    until("it waits again", async || path.waiters("a") == 1).await;
    let _released = guard.release().await.expect("released");
    let _next = waiting.await.expect("no panic").expect("its turn");
}

#[tokio::test]
async fn a_try_of_a_taken_lock_writes_nothing() {
    let path = ZookeeperPath::lend();
    let url = path.url("15s");
    let (one, other) = (client(&url).await, client(&url).await);
    let _guard = one.mutex("a").lock().await.expect("free");
    let held = path.nodes("a");
    for _ in 0..5 {
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    }
    assert_eq!(path.nodes("a"), held);
    // The number that the server appends counts all nodes that were ever made under this parent.
    let next = path.client().line_up(&path.lock("a"), "next");
    assert!(next.ends_with("-lock-0000000001"), "{next}");
}

/// A client that passes the lock on among its tasks takes more tokens while others wait. Their
/// nodes are older than these tokens.
#[tokio::test]
async fn tokens_rise_over_those_that_a_holder_took_while_others_waited() {
    let path = ZookeeperPath::lend();
    let open =
        async || from_url(&path.url("60s"), SystemHost::shared()).await.expect("it is there");
    let (one, other) = (open().await, open().await);
    let (key, claim) = (Key::new("a").expect("a name"), Claim::Exclusive);
    let ttl = Ttl::new(Duration::from_secs(30)).expect("within bounds");
    let ask = |owner: &str, line: Line| {
        let mut ask = Ask::new(key.clone(), OwnerToken::new(owner).expect("a token"), claim, ttl);
        (ask.line, ask.reserve) = (line, 1);
        ask
    };
    let granted = |answer: Acquired| match answer {
        Acquired::Granted { fencing } => fencing.expect("it asked for tokens"),
        Acquired::Refused(refusal) => panic!("{refusal:?}"),
    };
    granted(one.acquire(ask("one", Line::None)).await.expect("answered"));
    let inbox = ClientId::from_random([7; ClientId::CHARS]);
    let joins = Line::Join { waiter_ttl: ttl, handed_ttl: ttl, ask_no: 1, inbox };
    let waits = other.acquire(ask("other", joins.clone())).await.expect("answered");
    assert!(waits.is_taken(), "{waits:?}");
    let lease =
        LeaseId { key: key.clone(), owner: OwnerToken::new("one").expect("a token"), claim };
    let mut renewal = Renewal::new(lease.clone(), ttl);
    renewal.reserve = 4;
    let Renewed::Renewed { fencing: Some(more), .. } = one.renew(renewal).await.expect("answered")
    else {
        panic!("it has the lock");
    };
    one.release(lease, OnRelease::Free).await.expect("answered");
    // Until the event that tells its turn is there, a waiter only checks its own node.
    let mut answer = other.acquire(ask("other", joins.clone())).await.expect("answered");
    let end = SystemHost.now() + Duration::from_mins(1);
    while answer.is_taken() {
        assert!(SystemHost.now() < end, "its turn does not come");
        answer = other.acquire(ask("other", joins.clone())).await.expect("answered");
    }
    let next = granted(answer);
    assert!(next.first.get() >= more.first.get() + u64::from(more.count), "{next:?} {more:?}");
}
