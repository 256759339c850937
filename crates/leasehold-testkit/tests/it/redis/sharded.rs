//! Hints in a cluster. They stay in the shard of the lock if the server has shard channels, and
//! they arrive in any case.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::sync::Arc;
use std::time::Instant;

use leasehold::core::token::ClientId;
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Acquired, Ask, Claim, Hint, HintSink, LeaseId, Line, OnRelease, Released, Store as _,
};
use leasehold::{Error, OwnerToken};
use leasehold_testkit::conformance::ttl;
use leasehold_testkit::not_run;
use leasehold_testkit::servers::{Cluster, PATIENCE, RedisServer, version};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::cluster::cluster;
use super::connecting::{Told, connect, key};
use crate::on_event::warnings;

/// Whether the servers have shard channels.
fn has_shards() -> bool {
    let has = version() >= (7, 0);
    if !has {
        not_run("this server has no shard channels");
    }
    has
}

/// A client that asks for locks with its own tokens, one after the other.
struct Peer {
    store: RedisStore,
    id: ClientId,
    acquisitions: u8,
    asks: u32,
    hints: UnboundedReceiver<Hint>,
    _sink: Arc<dyn HintSink>,
}

impl Peer {
    async fn connect(url: &str, byte: u8) -> Self {
        let store = connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        let (sender, hints) = unbounded_channel();
        let sink: Arc<dyn HintSink> = Arc::new(Told(sender));
        let id = ClientId::from_random([byte; ClientId::CHARS]);
        store.watch(&id, Arc::downgrade(&sink));
        Self { store, id, acquisitions: 0, asks: 0, hints, _sink: sink }
    }

    fn owner(&self) -> OwnerToken {
        OwnerToken::from_random([self.acquisitions; OwnerToken::RANDOM_BYTES], &self.id)
    }

    /// Begins another acquisition.
    fn afresh(&mut self) -> &mut Self {
        (self.acquisitions, self.asks) = (self.acquisitions + 1, 0);
        self
    }

    /// Asks for a lock, with a place in line. Returns whether it has the lock.
    async fn asks_for(&mut self, name: &str) -> Result<bool, Error> {
        self.asks += 1;
        let mut ask = Ask::new(key(name), self.owner(), Claim::Exclusive, ttl(60_000));
        ask.reserve = 1;
        ask.line = Line::Join {
            waiter_ttl: ttl(60_000),
            handed_ttl: ttl(60_000),
            ask_no: self.asks,
            inbox: self.id.clone(),
        };
        Ok(matches!(self.store.acquire(ask).await?, Acquired::Granted { .. }))
    }

    async fn locks(&mut self, name: &str) {
        assert!(self.afresh().asks_for(name).await.expect("answered"), "it is free");
    }

    async fn queues_for(&mut self, name: &str) {
        assert!(!self.afresh().asks_for(name).await.expect("answered"), "it is taken");
    }

    /// Asks once more.
    async fn waits_on(&mut self, name: &str) {
        assert!(!self.asks_for(name).await.expect("answered"), "it is taken");
    }

    /// Releases the lock, as soon as the node of the lock can be reached.
    async fn releases(&self, name: &str) -> Released {
        let lease = LeaseId { key: key(name), owner: self.owner(), claim: Claim::Exclusive };
        loop {
            match self.store.release(lease.clone(), OnRelease::Free).await {
                Ok(released) => return released,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    }

    /// Releases the lock, and asserts that a waiter gets it.
    async fn hands_over(&self, name: &str) {
        assert_eq!(self.releases(name).await, Released::HandedOver);
    }

    /// Releases the lock, and asserts that nobody waited.
    async fn frees(&self, name: &str) {
        assert_eq!(self.releases(name).await, Released::Freed);
    }

    /// Skips hints until the right one comes.
    async fn expect_hint(&mut self, what: &str, is_it: impl Fn(&Hint) -> bool) {
        loop {
            let hint = timeout(PATIENCE, self.hints.recv()).await;
            let hint = hint.unwrap_or_else(|_| panic!("never {what}"));
            let hint = hint.expect("the client is there");
            if is_it(&hint) {
                return;
            }
            assert!(matches!(hint, Hint::Missed | Hint::Wanted { .. }), "{hint:?}, not {what}");
        }
    }

    async fn is_granted(&mut self, name: &str) {
        let expected = (key(name), self.owner());
        let is_it = |hint: &Hint| match hint {
            Hint::Granted { key, owner, .. } => (key, owner) == (&expected.0, &expected.1),
            _ => false,
        };
        self.expect_hint("granted", is_it).await;
    }

    async fn is_wanted(&mut self, name: &str) {
        let wanted = Hint::Wanted { key: key(name) };
        self.expect_hint("wanted", |hint| *hint == wanted).await;
    }

    /// Expects the hint that it may have missed hints, after which it asks again.
    async fn missed(&mut self) {
        self.expect_hint("missed", |hint| *hint == Hint::Missed).await;
    }
}

/// Two clients.
async fn peers(cluster: &Cluster) -> (Peer, Peer) {
    (Peer::connect(&cluster.url(), 1).await, Peer::connect(&cluster.url(), 2).await)
}

/// How often clients and scripts have called a command since [`forget_calls`], at all primaries.
fn calls(cluster: &Cluster, command: &str) -> u32 {
    let prefix = format!("cmdstat_{command}:calls=");
    let at = |node: &RedisServer| {
        let stats = node.command(&["INFO", "commandstats"]).text();
        let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    };
    cluster.primaries().into_iter().map(at).sum()
}

fn forget_calls(cluster: &Cluster) {
    for node in cluster.primaries() {
        node.command(&["CONFIG", "RESETSTAT"]);
    }
}

/// The shard channels with subscribers at a node.
fn shard_channels(node: &RedisServer) -> Vec<String> {
    let mut channels = node.command(&["PUBSUB", "SHARDCHANNELS"]).texts();
    channels.sort();
    channels
}

/// The shard channel of a client, and its tag.
fn shard_channel(node: &RedisServer, peer: &Peer) -> (String, String) {
    let channels = shard_channels(node);
    let ours = channels.into_iter().find(|channel| channel.ends_with(peer.id.as_str()));
    let channel = ours.expect("it listens to a shard channel");
    let tag = channel.strip_prefix(":lh:inbox:{").and_then(|rest| rest.split_once('}'));
    let tag = tag.expect("it has a tag").0.to_owned();
    (channel, tag)
}

/// Waits until `is_so` returns true. Meanwhile, the tasks of the test go on.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_hint_leaves_the_shard_of_its_lock() {
    let cluster = cluster();
    let (mut one, mut other) = peers(&cluster).await;
    one.locks("a").await;
    other.queues_for("a").await;
    other.missed().await;
    other.waits_on("a").await;
    one.hands_over("a").await;
    other.is_granted("a").await;
    // From now on, both clients listen at the node of the lock.
    one.queues_for("a").await;
    one.missed().await;
    other.hands_over("a").await;
    one.is_granted("a").await;
    forget_calls(&cluster);
    for _ in 0..3 {
        other.queues_for("a").await;
        one.is_wanted("a").await;
        one.hands_over("a").await;
        other.is_granted("a").await;
        std::mem::swap(&mut one, &mut other);
    }
    let called = (calls(&cluster, "spublish"), calls(&cluster, "publish"));
    assert_eq!(called, if has_shards() { (6, 0) } else { (0, 6) });
    if !has_shards() {
        return;
    }
    let node = cluster.node_of("a");
    let channels = [&one, &other].map(|peer| shard_channel(node, peer));
    assert_eq!(channels[0].1, channels[1].1, "all clients choose the same slot");
    for (channel, tag) in channels {
        assert_eq!(cluster.node_of(&tag).port(), node.port());
        let subscribers = node.command(&["PUBSUB", "SHARDNUMSUB", &channel]);
        assert_eq!(subscribers.array()[1].int(), 1);
    }
    for others in cluster.nodes().iter().filter(|other| other.port() != node.port()) {
        assert_eq!(shard_channels(others), [""; 0], "nobody waits there");
    }
}

/// After the move, the channel of the waiter is at another node than the lock.
#[tokio::test]
async fn a_waiter_is_told_although_the_slot_of_the_lock_has_moved() {
    let cluster = cluster();
    let (mut one, mut other) = peers(&cluster).await;
    for moves_at_once in [false, true] {
        one.locks("a").await;
        other.queues_for("a").await;
        other.missed().await;
        other.waits_on("a").await;
        if moves_at_once {
            if cluster.migrate_at_once("a").is_none() {
                not_run("this server does not move slots in one step");
                return;
            }
        } else {
            cluster.migrate("a");
        }
        one.hands_over("a").await;
        other.is_granted("a").await;
        other.frees("a").await;
        std::mem::swap(&mut one, &mut other);
    }
}

#[tokio::test]
async fn a_waiter_subscribes_anew_when_the_slot_of_its_channel_has_moved() {
    if !has_shards() {
        return;
    }
    let cluster = cluster();
    let (mut one, mut other) = peers(&cluster).await;
    one.locks("a").await;
    other.queues_for("a").await;
    other.missed().await;
    for moves_at_once in [false, true] {
        let node = cluster.node_of("a");
        let (channel, tag) = shard_channel(node, &other);
        if moves_at_once {
            if cluster.migrate_at_once(&tag).is_none() {
                not_run("this server does not move slots in one step");
                break;
            }
        } else {
            cluster.migrate(&tag);
        }
        until("it listens to another shard channel", || {
            let channels = shard_channels(node);
            channels.len() == 1 && channels[0] != channel
        })
        .await;
        assert_eq!(cluster.node_of("a").port(), node.port());
        other.missed().await;
        other.waits_on("a").await;
    }
    forget_calls(&cluster);
    one.hands_over("a").await;
    other.is_granted("a").await;
    assert_eq!((calls(&cluster, "spublish"), calls(&cluster, "publish")), (1, 0));
}

#[tokio::test]
async fn a_client_leaves_the_shard_channel_that_it_needs_no_more() {
    if !has_shards() {
        return;
    }
    let cluster = cluster();
    let (mut one, mut other) = peers(&cluster).await;
    let [first, last] = ["b", "a"].map(|name| cluster.node_of(name));
    for name in ["a", "b"] {
        one.locks(name).await;
        other.queues_for(name).await;
        other.missed().await;
    }
    let (channel, _) = shard_channel(first, &other);
    let (_, tag) = shard_channel(last, &other);
    // This tag is lower than the tag of the node that gets its slot.
    assert_eq!((tag.as_str(), cluster.migrate(&tag).port()), ("0", first.port()));
    until("it listens to another shard channel there, too", || {
        let channels = shard_channels(first);
        channels.len() == 1 && channels[0] != channel
    })
    .await;
    assert_eq!(shard_channel(first, &other).1, tag);
}

#[tokio::test]
async fn a_waiter_is_told_by_the_node_that_took_over() {
    let cluster = Cluster::builder().start();
    let (mut one, mut other) = peers(&cluster).await;
    one.locks("a").await;
    other.queues_for("a").await;
    other.missed().await;
    other.waits_on("a").await;
    cluster.node_of("a").command(&["WAIT", "1", "0"]);
    cluster.fail_over("a");
    loop {
        match other.asks_for("a").await {
            Ok(granted) => break assert!(!granted, "it is taken"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
    // The old node may be the first to say that messages were missed.
    let node = cluster.node_of("a");
    until("it listens to the shard channel of the node that took over", || {
        !has_shards() || shard_channels(node).iter().any(|it| it.ends_with(other.id.as_str()))
    })
    .await;
    other.missed().await;
    other.waits_on("a").await;
    forget_calls(&cluster);
    one.hands_over("a").await;
    other.is_granted("a").await;
    let called = (calls(&cluster, "spublish"), calls(&cluster, "publish"));
    assert_eq!(called, if has_shards() { (1, 0) } else { (0, 1) });
}

#[tokio::test]
async fn a_waiter_subscribes_anew_when_its_connection_was_lost() {
    let cluster = cluster();
    let (mut one, mut other) = peers(&cluster).await;
    one.locks("a").await;
    other.queues_for("a").await;
    other.missed().await;
    cluster.node_of("a").command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    other.missed().await;
    other.waits_on("a").await;
    forget_calls(&cluster);
    one.hands_over("a").await;
    other.is_granted("a").await;
    let called = (calls(&cluster, "spublish"), calls(&cluster, "publish"));
    assert_eq!(called, if has_shards() { (1, 0) } else { (0, 1) });
}

/// The URL of a user who lacks these rights.
fn url_without(cluster: &Cluster, user: &str, rights: &[&str]) -> String {
    for node in cluster.nodes() {
        let words = ["ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all"];
        node.command(&[&words, rights].concat());
    }
    cluster.url().replace("//", &format!("//{user}:any@"))
}

#[tokio::test]
async fn clients_with_and_without_shard_channels_wait_in_one_line() {
    if !has_shards() {
        return;
    }
    let cluster = cluster();
    let url = url_without(&cluster, "deaf", &["-ssubscribe"]);
    let mute = url_without(&cluster, "mute", &["-spublish"]);
    let (mut one, other) = peers(&cluster).await;
    let deaf = Peer::connect(&url, 3).await;
    let mute = Peer::connect(&mute, 4).await;
    let last = Peer::connect(&cluster.url(), 5).await;
    one.locks("a").await;
    let mut waiters = [deaf, other, mute, last];
    for waiter in &mut waiters {
        waiter.queues_for("a").await;
        waiter.missed().await;
        waiter.waits_on("a").await;
    }
    one.hands_over("a").await;
    for turn in 0..waiters.len() {
        waiters[turn].is_granted("a").await;
        if turn + 1 < waiters.len() {
            waiters[turn].hands_over("a").await;
        }
    }
}

#[tokio::test]
async fn a_user_without_the_right_to_shard_channels_is_told_once_and_still_woken() {
    if !has_shards() {
        return;
    }
    let cluster = cluster();
    let url = url_without(&cluster, "deaf", &["-ssubscribe"]);
    let (_warned, mut warnings) = warnings();
    let mut one = Peer::connect(&cluster.url(), 1).await;
    let mut deaf = Peer::connect(&url, 2).await;
    for round in 0..2 {
        one.locks("a").await;
        deaf.queues_for("a").await;
        if round == 0 {
            deaf.missed().await;
        }
        // The next connection is refused the right, too.
        cluster.node_of("a").command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        deaf.missed().await;
        deaf.waits_on("a").await;
        one.hands_over("a").await;
        deaf.is_granted("a").await;
        deaf.frees("a").await;
    }
    let warning = warnings.try_recv().expect("it was told");
    assert!(warning.contains("no right to shard channels"), "{warning}");
    assert_eq!(warnings.try_recv().ok(), None, "once");
}
