//! A cluster: locks on all nodes, slots that move, primaries that fail, and what is refused.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::Store as _;
use leasehold::store::redis::{Copies, RedisConnector, RedisStore, Replicas, Strict, Terms};
use leasehold::{Client, Error, ErrorKind, Guard, Key, Lost, MultiRelease, Release};
use leasehold_testkit::not_run;
use leasehold_testkit::servers::{Authority, Cluster, RedisServer, version};

use super::connecting::{check, cluster_node, connect, told};

const MINUTE: Duration = Duration::from_mins(1);

async fn client(url: &str) -> Client {
    let store = connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    Client::with_store(store).connect().await.expect("the store is open")
}

/// Locks as soon as the node of the lock can be reached.
async fn lock(client: &Client, name: &str) -> Guard {
    loop {
        match client.mutex(name).ttl(MINUTE).lock_timeout(MINUTE).await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Renews as soon as the node of the lock can be reached.
async fn renew(guard: &Guard) {
    while let Err(error) = guard.renew().await {
        assert!(guard.is_held() && error.is_retryable(), "{error}");
    }
}

async fn is_taken(client: &Client, name: &str) -> bool {
    client.mutex(name).try_lock().await.expect("answered").is_none()
}

/// A cluster of three primaries whose nodes never end. On a busy machine, a node may still be
/// silent for a long time.
pub(super) fn cluster() -> Cluster {
    Cluster::builder().without_replicas().config("cluster-node-timeout", "15000").start()
}

#[tokio::test]
async fn locks_of_all_nodes_exclude_each_other_and_are_listed_once() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let names: Vec<_> = (0..20).map(|number| format!("lock {number:02}")).collect();
    let mut held = Vec::new();
    for name in &names {
        held.push(one.mutex(name).lock().await.expect("it is free"));
        assert!(is_taken(&other, name).await, "{name}");
        assert_eq!(cluster.node_of(name).command(&["EXISTS", name]).int(), 1, "{name}");
    }
    for node in cluster.nodes() {
        assert!(names.iter().any(|name| cluster.node_of(name).port() == node.port()));
    }
    let listing = other.list("*").await.expect("answered");
    let listed: Vec<_> = listing.names().iter().map(|key| key.as_str().to_owned()).collect();
    assert_eq!(listed, names);
    for name in &names {
        let snapshot = other.inspect(name).await.expect("answered");
        let client = snapshot.holders[0].client.as_ref().expect("its record is found");
        assert_eq!(client.pid, std::process::id(), "{name}");
    }
    let seen = other.inspect(&names[0]).await.expect("answered").holders[0].token.clone();
    let _ended = other.evict(&names[0], &seen, "a test").await.expect("answered");
    assert!(lock(&other, &names[0]).await.fencing_token() > held[0].fencing_token());
    // Only requests from before the map was read went to a wrong node.
    for node in cluster.nodes() {
        let stats = node.command(&["INFO", "errorstats"]).text();
        assert!(!stats.contains("errorstat_CROSSSLOT"), "{stats}");
    }
}

#[tokio::test]
async fn locks_in_the_slots_of_all_nodes_are_taken_together_or_not_at_all() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let names: Vec<_> = (0..20).map(|number| format!("lock {number:02}")).collect();
    for node in cluster.nodes() {
        assert!(names.iter().any(|name| cluster.node_of(name).port() == node.port()));
    }
    let held = one.lock_all(names.iter().rev()).lock().await.expect("all are free");
    assert!(held.is_held());
    for name in &names {
        assert!(is_taken(&other, name).await, "{name}");
    }
    let locks = other.lock_all(&names);
    assert!(locks.try_lock().await.expect("answered").is_none());
    assert_eq!(held.release().await.expect("answered"), MultiRelease::Released);
    let last = one.mutex(&names[19]).lock().await.expect("it is free");
    assert!(locks.try_lock().await.expect("answered").is_none());
    let (all, released) = tokio::join!(locks.lock(), last.release());
    assert_eq!(released.expect("answered"), Release::Released);
    assert!(all.expect("all are free in the end").is_held());
}

/// If only the URL parser refused such terms, a program could ask for copies and get none.
#[tokio::test]
async fn terms_that_a_cluster_cannot_keep_are_refused_before_anything_is_sent() {
    let copies: Terms = Copies::new(Replicas::Count(2), false).into();
    let on_disk: Terms = Copies::new(Replicas::Count(0), true).into();
    for terms in [copies, on_disk, Strict::STANDARD.into()] {
        // No server listens there.
        let connector = RedisConnector::new("redis+cluster://127.0.0.1:1").expect("a URL");
        let connector = connector.on_terms(terms);
        let connected = RedisStore::connect_with(connector.clone(), SystemHost::shared()).await;
        let store = RedisStore::open(connector, SystemHost::shared());
        let client = Client::with_store(store).connect().await.expect("nothing is sent yet");
        let locked = client.mutex("a").try_lock().await.map(|_| ());
        for refused in [connected.map(|_| ()), locked] {
            let error = refused.expect_err("a cluster cannot keep them");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{terms:?}: {error}");
            assert!(error.to_string().contains("no request was sent"), "{error}");
        }
    }
}

#[tokio::test]
async fn one_seed_is_enough_even_if_it_is_a_replica() {
    let cluster = Cluster::builder().start();
    let replica = cluster.nodes().last().expect("six");
    let gone = RedisServer::start();
    gone.kill();
    let url = format!("{},127.0.0.1:{}/", cluster.url_by(&gone), replica.port());
    for url in [cluster.url_by(replica), url] {
        let client = client(&url).await;
        for name in ["a", "b", "c", "d"] {
            drop(lock(&client, name).await);
        }
    }
}

#[tokio::test]
async fn a_held_lock_is_kept_while_its_slot_moves() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let mutex = one.mutex("a").ttl(Duration::from_secs(10));
    let held = mutex.lock().await.expect("it is free");
    let first = held.fencing_token();
    for _ in 0..3 {
        let to = cluster.begin_to_move("a");
        cluster.move_keys("a", to);
        let error = held.renew().await.expect_err("nobody has all keys");
        assert!(error.is_retryable() && held.is_held(), "{error}");
        cluster.end_to_move("a", to);
        renew(&held).await;
        assert!(is_taken(&other, "a").await);
    }
    assert_eq!(held.release().await.expect("answered"), Release::Released);
    assert!(lock(&other, "a").await.fencing_token() > first);
}

/// A lock with a single key is served by both nodes in the middle of a move.
#[tokio::test]
async fn a_lock_of_one_key_is_acquired_and_released_in_the_middle_of_a_move() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let bare = |client: &Client| client.mutex("a").ttl(MINUTE).unqueued().fencing(false);
    let to = cluster.begin_to_move("a");
    for _ in 0..3 {
        let held = bare(&one).try_lock().await.expect("answered").expect("it is free");
        assert!(bare(&other).try_lock().await.expect("answered").is_none());
        // The old node does not have the lock.
        assert_eq!(cluster.node_of("a").command(&["DBSIZE"]).int(), records(&cluster, "a"));
        assert_eq!(held.release().await.expect("answered"), Release::Released);
    }
    cluster.end_to_move("a", to);
    assert!(bare(&other).try_lock().await.expect("answered").is_some());
}

/// How many records of clients are on the node of a key.
fn records(cluster: &Cluster, key: &str) -> i64 {
    let keys = cluster.node_of(key).command(&["KEYS", ":lh:client:*"]);
    keys.array().len().try_into().expect("few")
}

#[tokio::test]
async fn a_waiter_gets_its_turn_after_the_slot_has_moved() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    for _ in 0..3 {
        let held = lock(&one, "a").await;
        let next = other.clone();
        let waiting = tokio::spawn(async move { lock(&next, "a").await });
        while other.inspect("a").await.expect("answered").waiters.is_empty() {}
        cluster.migrate("a");
        let first = held.fencing_token();
        drop(held);
        let next = waiting.await.expect("no panic");
        assert!(next.is_held() && next.fencing_token() > first);
    }
}

#[tokio::test]
async fn a_dropped_guard_is_released_although_its_slot_has_moved() {
    let cluster = cluster();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    for _ in 0..3 {
        let held = lock(&one, "a").await;
        let node = cluster.migrate("a");
        drop(held);
        // The client does not find its own old lease, and other clients get the lock at once.
        let again = one.mutex("a").try_lock().await.expect("answered");
        drop(again.expect("released before"));
        while is_taken(&other, "a").await {}
        let moved = cluster.other_than(node);
        assert_ne!(moved.port(), node.port());
    }
}

/// Requests for a lock keep their order, so a client never finds a lease that it released before.
#[tokio::test]
async fn a_client_never_meets_its_own_old_lease_while_the_slot_moves_to_and_fro() {
    let cluster = Arc::new(cluster());
    let client = client(&cluster.url()).await;
    drop(lock(&client, "a").await);
    let granted = Arc::new(AtomicUsize::new(0));
    let (moving, seen) = (Arc::clone(&cluster), Arc::clone(&granted));
    let moves = tokio::task::spawn_blocking(move || {
        let mut moves = 0;
        while moves < 30 || seen.load(Ordering::Relaxed) < 30 {
            moving.migrate("a");
            moves += 1;
        }
    });
    let mutex = client.mutex("a").ttl(MINUTE);
    while !moves.is_finished() {
        let granted = granted.fetch_add(1, Ordering::Relaxed);
        match mutex.try_lock().await {
            Ok(Some(guard)) => drop(guard),
            Ok(None) => panic!("after {granted} locks, the client meets its own"),
            // Each move takes far less time than a request has.
            Err(error) => panic!("after {granted} locks: {}", told(&error)),
        }
    }
    moves.await.expect("no panic");
}

/// A node does not keep the script of a request that it refuses. An acquire that the node can serve
/// would overtake a release that the client has to send again.
#[tokio::test]
async fn a_release_whose_script_a_node_refused_once_is_not_overtaken_by_the_next_acquire() {
    let cluster = cluster();
    let client = client(&cluster.url()).await;
    // Await the release, since a release after the move would bring its script to the new node.
    let _released = lock(&client, "a").await.release().await.expect("answered");
    let node = cluster.migrate("a");
    let held = lock(&client, "a").await;
    node.command(&["CONFIG", "RESETSTAT"]);
    let to = cluster.begin_to_move("a");
    let release = tokio::spawn(held.release());
    let was_refused = || {
        let stats = node.command(&["INFO", "errorstats"]).text();
        ["TRYAGAIN", "ASK"].iter().any(|code| stats.contains(&format!("errorstat_{code}:")))
    };
    while !was_refused() {
        tokio::task::yield_now().await;
    }
    cluster.move_keys("a", to);
    cluster.end_to_move("a", to);
    assert_eq!(release.await.expect("no panic").expect("answered"), Release::Released);
    assert_eq!(cluster.migrate("a").port(), node.port());
    drop(lock(&client, "a").await);
    assert!(client.mutex("a").try_lock().await.expect("answered").is_some());
}

/// No request for a lock is refused meanwhile, unlike when its keys move one by one.
#[tokio::test]
async fn a_held_lock_is_renewed_and_waited_for_while_its_slot_moves_in_one_step() {
    let cluster = Arc::new(cluster());
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let mut last = None;
    for _ in 0..3 {
        let held = lock(&one, "a").await;
        assert!(held.fencing_token() > last);
        let next = other.clone();
        let waiting = tokio::spawn(async move { lock(&next, "a").await });
        while other.inspect("a").await.expect("answered").waiters.is_empty() {}
        let moving = Arc::clone(&cluster);
        let moves = tokio::task::spawn_blocking(move || moving.migrate_at_once("a").is_some());
        while !moves.is_finished() {
            held.renew().await.expect("renewed");
        }
        if !moves.await.expect("no panic") {
            not_run("this server does not move slots in one step");
            return;
        }
        assert_eq!(cluster.node_of("a").command(&["EXISTS", "a"]).int(), 1, "it came along");
        let first = held.fencing_token();
        assert_eq!(held.release().await.expect("answered"), Release::Released);
        let next = waiting.await.expect("no panic");
        assert!(next.fencing_token() > first);
        last = next.fencing_token();
        assert_eq!(next.release().await.expect("answered"), Release::Released);
    }
}

#[tokio::test]
async fn locks_live_on_when_a_primary_is_killed() {
    let cluster = Cluster::builder().start();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let held = one.mutex("a").ttl(MINUTE).lock().await.expect("it is free");
    let waited_for = one.mutex("{a}b").ttl(MINUTE).lock().await.expect("it is free");
    let next = other.clone();
    let waiting = tokio::spawn(async move { lock(&next, "{a}b").await });
    while other.inspect("{a}b").await.expect("answered").waiters.is_empty() {}
    cluster.node_of("a").command(&["WAIT", "1", "0"]);
    cluster.fail_over("a");
    renew(&held).await;
    let (first, second) = (held.fencing_token(), waited_for.fencing_token());
    renew(&waited_for).await;
    drop(waited_for);
    assert!(waiting.await.expect("no panic").fencing_token() > second);
    assert!(is_taken(&other, "a").await);
    assert_eq!(held.release().await.expect("answered"), Release::Released);
    assert!(lock(&other, "a").await.fencing_token() > first);
    drop(lock(&one, "{a}c").await);
}

/// Otherwise a node that is down would delay the renewals at the other nodes.
#[tokio::test]
async fn locks_are_in_one_shard_exactly_if_one_node_has_them() {
    let cluster = cluster();
    let store = connect(&cluster.url()).await.expect("connected");
    let names: Vec<_> = (0..20).map(|number| format!("lock {number:02}")).collect();
    let places: Vec<_> = names
        .iter()
        .map(|name| {
            let key = Key::new(name.as_str()).expect("a name");
            (store.shard(&key), cluster.node_of(name).port())
        })
        .collect();
    for one in &places {
        for other in &places {
            assert_eq!(one.0 == other.0, one.1 == other.1, "{places:?}");
        }
    }
}

#[tokio::test]
async fn a_primary_that_hands_over_on_command_keeps_its_locks() {
    let cluster = Cluster::builder().start();
    let (one, other) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let held = lock(&one, "a").await;
    cluster.fail_over_by_command("a");
    renew(&held).await;
    assert!(is_taken(&other, "a").await);
    cluster.repair();
}

#[tokio::test]
async fn the_holder_of_a_lock_that_the_new_primary_lacks_is_told() {
    let cluster = Cluster::builder().start();
    let one = client(&cluster.url()).await;
    cluster.node_of("a").cut_replicas_off();
    let held = lock(&one, "a").await;
    cluster.ask_to_fail_over("a", true);
    // The old primary renews until it knows that it is no primary any more.
    while held.renew().await.map_or_else(|error| error.is_retryable(), |()| true) {}
    assert_eq!(held.lost().await, Lost::NotOurs);
}

async fn refused(url: &str, name: &str) -> Error {
    client(url).await.mutex(name).try_lock().await.expect_err("refused")
}

#[tokio::test]
async fn clusters_and_other_servers_are_told_apart() {
    let server = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", server.port());
    check(connect(&url).await, ErrorKind::Config, "write `redis://` in the URL");
    server.kill();
    check(connect(&url).await, ErrorKind::Unavailable, "no server listens there");
    let both = format!("{url},localhost:{}", server.port());
    check(connect(&both).await, ErrorKind::Unavailable, "no node of the cluster says");

    let (lonely, _port) = cluster_node();
    let url = format!("redis+cluster://127.0.0.1:{}", lonely.port());
    check(connect(&url).await, ErrorKind::Unavailable, "this node knows no slots");

    let cluster = cluster();
    let stranger = cluster.other_than(cluster.node_of("a"));
    let error = refused(&stranger.url(), "a").await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("write `redis+cluster://` in the URL"), "{error}");
    let error = refused(&cluster.url(), "a}b").await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("cannot keep the parts of this lock together"), "{error}");
}

#[tokio::test]
async fn a_slot_that_no_node_has_is_unavailable_and_others_work() {
    let cluster =
        Cluster::builder().without_replicas().config("cluster-require-full-coverage", "no").start();
    let slot = cluster.slot_of("a").to_string();
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", &slot]);
    }
    let client = client(&cluster.url()).await;
    let error = client.mutex("a").try_lock().await.expect_err("nobody has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("does not serve this name"), "{}", told(&error));
    drop(lock(&client, "b").await);
}

#[tokio::test]
async fn nodes_have_logins() {
    let cluster = Cluster::builder()
        .without_replicas()
        .config("requirepass", "p@ss")
        .config("masterauth", "p@ss")
        .start();
    check(connect(&cluster.url()).await, ErrorKind::Denied, "requires a password");
    let wrong = cluster.url().replace("//", "//:p%40ss2@");
    check(connect(&wrong).await, ErrorKind::Denied, "does not accept");
    let client = client(&cluster.url().replace("//", "//:p%40ss@")).await;
    for name in ["a", "b", "c", "d"] {
        drop(lock(&client, name).await);
    }
}

#[tokio::test]
async fn nodes_speak_tls() {
    let authority = Authority::new();
    let cluster = Cluster::builder()
        .without_replicas()
        .with_tls(&authority.issue("node", &["127.0.0.1"]), &authority)
        .start();
    let url = cluster.url().replace("redis+", "rediss+");
    let client = client(&format!("{url}?ca={}", authority.ca().display())).await;
    for name in ["a", "b", "c", "d"] {
        drop(lock(&client, name).await);
    }
    let held = lock(&client, "a").await;
    cluster.migrate("a");
    renew(&held).await;
}

/// The certificate is only for the name.
#[tokio::test]
async fn a_certificate_may_be_for_the_host_name_that_nodes_announce() {
    // Older nodes announce no names.
    if version() < (7, 0) {
        return;
    }
    let authority = Authority::new();
    let cluster = Cluster::builder()
        .without_replicas()
        .with_tls(&authority.issue("node", &["localhost"]), &authority)
        .config("cluster-announce-hostname", "localhost")
        .config("cluster-preferred-endpoint-type", "hostname")
        .start();
    let url = cluster.url().replace("redis+", "rediss+").replace("127.0.0.1", "localhost");
    let client = client(&format!("{url}?ca={}", authority.ca().display())).await;
    for name in ["a", "b", "c", "d"] {
        drop(lock(&client, name).await);
    }
    let held = lock(&client, "a").await;
    cluster.migrate("a");
    renew(&held).await;
}

#[tokio::test]
async fn a_cluster_that_lost_its_majority_is_unavailable() {
    let cluster = Cluster::builder().without_replicas().start();
    let one = client(&cluster.url()).await;
    drop(lock(&one, "a").await);
    let having = cluster.node_of("a");
    for node in cluster.nodes().iter().filter(|node| node.port() != having.port()) {
        node.kill();
    }
    // Until the last node has noticed, it grants the locks in its slots.
    let error = loop {
        match one.mutex("a").try_lock().await {
            Ok(guard) => drop(guard),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", told(&error));
    assert!(told(&error).contains("is down or does not serve"), "{}", told(&error));
    let error = one.mutex("b").try_lock().await.expect_err("it was at a dead node, or here");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", told(&error));
}
