//! Nodes that are down, silent or slow.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::host::SystemHost;
use leasehold::store::redis::RedisConnector;
use leasehold::store::{Quorum, RedisStore};
use leasehold_compat::redsync::{Error, Redsync};
use leasehold_testkit::servers::{Proxy, RedisServer, Reply, Way};

use super::world::{NAME, play, said, taken};
use crate::world::ms;

/// How long a call waits at most for a node that is down: less than any limit.
const NO_TIME: Duration = Duration::ZERO;

#[test]
fn a_quorum_works_while_a_minority_of_nodes_is_down() {
    play(3, async |nodes| {
        let (first, second) = (nodes.mutex().await, nodes.mutex().await);
        nodes.server(2).kill();
        first.lock().await.expect("two of three have it");
        assert!(first.valid().await.expect("two of three say so"));
        assert!(first.extend().await.expect("two of three have it"));
        let error = second.try_lock().await.expect_err("it is held");
        assert_eq!(taken(&error), [0, 1], "a node that is down hinders nothing");
        assert!(first.unlock().await.expect("two of three had it"));
        for node in 0..2 {
            assert_eq!(nodes.value(node), None);
        }
    });
}

/// As in redsync, whose pools connect with the first request.
#[tokio::test]
async fn a_program_starts_while_a_minority_of_nodes_is_down() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    servers[1].kill();
    let stores = servers.iter().map(|server| {
        let connector = RedisConnector::new(&server.url()).expect("a URL");
        RedisStore::open(connector, SystemHost::shared())
    });
    let mutex = Redsync::new(stores).new_mutex(NAME);
    mutex.lock().await.expect("two of three have it");
    assert!(mutex.unlock().await.expect("two of three had it"));
}

#[test]
fn without_a_majority_of_nodes_nothing_is_locked_and_nothing_stays() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await.with_tries(2);
        mutex.lock().await.expect("it is free");
        nodes.server(1).kill();
        nodes.server(2).kill();
        let down = [(Some(1), "redis"), (Some(2), "redis")];
        let error = mutex.extend().await.expect_err("one of three");
        assert_eq!(said(&error), down);
        let error = mutex.valid().await.expect_err("one of three");
        assert_eq!(said(&error), down);
        let error = mutex.unlock().await.expect_err("one of three");
        assert_eq!(said(&error), down);
        assert_eq!(nodes.value(0), None, "it is freed where it can be");
        let error = mutex.lock().await.expect_err("one of three");
        assert_eq!(said(&error), down);
        assert_eq!(nodes.value(0), None, "rolled back");
        assert!(nodes.takes(0, "theirs", 5_000));
        let error = mutex.lock().await.expect_err("none of three");
        assert_eq!(said(&error), [(Some(0), "taken"), down[0], down[1]]);
    });
}

/// A server that answers nothing delays a try by its part of the expiry, and an unlock by the
/// store's limit.
#[test]
fn all_nodes_are_waited_for_and_a_silent_one_for_a_part_of_the_expiry() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await;
        nodes.server(1).pause();
        let began = nodes.now();
        mutex.lock().await.expect("two of three have it");
        assert_eq!(nodes.now().since(began), ms(400));
        assert_eq!(mutex.until(), Some(began + ms(7_920)), "counted from before it was asked");
        assert!(mutex.unlock_within(ms(300)).await.expect("two of three had it"));
        assert_eq!(nodes.now().since(began), ms(700));
        nodes.server(1).resume();
        nodes.pass(ms(0)).await;
        assert_eq!(nodes.values(), [None, None, None], "the late grant is ended by the unlock");
        let short = nodes.mutex().await.with_timeout_factor(0.01);
        nodes.server(1).pause();
        let began = nodes.now();
        short.lock().await.expect("two of three have it");
        assert_eq!(nodes.now().since(began), ms(80));
        nodes.server(1).resume();
        assert!(short.unlock().await.expect("it is ours"));
        assert_eq!(nodes.values(), [None, None, None]);
    });
}

#[test]
fn a_silent_majority_fails_a_try_and_what_it_grants_later_is_given_back() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await;
        nodes.server(0).pause();
        nodes.server(1).pause();
        let began = nodes.now();
        let error = mutex.try_lock().await.expect_err("one of three");
        assert_eq!(said(&error), [(Some(0), "redis"), (Some(1), "redis")]);
        let unknown = |error: &Error| match error {
            Error::Redis { source, .. } => source.kind() == ErrorKind::Unknown,
            _ => false,
        };
        assert!(error.errors().iter().all(unknown), "{error:?}");
        assert_eq!(nodes.now().since(began), ms(800), "the try, and its roll-back");
        assert_eq!(nodes.value(2), None);
        nodes.server(0).resume();
        nodes.server(1).resume();
        nodes.pass(ms(0)).await;
        assert_eq!(nodes.values(), [None, None, None]);
    });
}

#[test]
fn a_mutex_that_fails_fast_waits_only_until_a_quorum_agrees() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await.with_fail_fast(true);
        let began = nodes.now();
        nodes.server(0).pause();
        mutex.lock().await.expect("two of three have it");
        assert!(mutex.valid().await.expect("two of three say so"));
        assert!(mutex.extend().await.expect("two of three have it"));
        assert!(mutex.unlock().await.expect("two of three had it"));
        for node in 1..3 {
            assert!(nodes.takes(node, "theirs", 5_000), "it is free");
        }
        let error = mutex.try_lock().await.expect_err("two of three are another's");
        assert_eq!(taken(&error), [1, 2]);
        let error = mutex.unlock().await.expect_err("two of three are another's");
        assert_eq!(taken(&error), [1, 2]);
        assert_eq!(nodes.now().since(began), NO_TIME);
        nodes.server(0).resume();
        nodes.pass(ms(0)).await;
        assert_eq!(nodes.value(0), None, "whatever it was asked, the last was to free it");
        assert!(nodes.releases(1, "theirs"));
        let error = mutex.try_lock().await;
        assert!(error.is_ok(), "two of three: {error:?}");
    });
}

/// Users should give the nodes of the quorum instead.
#[test]
fn a_node_that_is_a_quorum_is_refused() {
    play(3, async |nodes| {
        let quorum = Quorum::connect(nodes.stores().await, nodes.host.clone()).await;
        let redsync = Redsync::new_on(quorum.ok(), nodes.host.clone());
        let mutex = redsync.new_mutex(NAME).with_value("mine");
        for error in [
            mutex.lock().await.expect_err("a quorum"),
            mutex.extend().await.expect_err("a quorum"),
            mutex.valid().await.expect_err("a quorum"),
            mutex.unlock().await.expect_err("a quorum"),
        ] {
            let Error::Config { source } = error else { panic!("{error:?}") };
            assert_eq!((source.kind(), source.name()), (ErrorKind::Config, Some(NAME)));
        }
        assert_eq!(nodes.values(), [None, None, None]);
    });
}

/// Such a node cannot know whether another client has the lock. It answers neither *free* nor
/// *taken*.
#[test]
fn a_strict_node_that_may_have_forgotten_is_a_node_that_failed() {
    play(3, async |nodes| {
        let redsync = Redsync::new_on(nodes.stores_by("?strict=yes").await, nodes.host.clone());
        let mutex = redsync.new_mutex(NAME);
        let error = mutex.try_lock().await.expect_err("nobody knows");
        assert_eq!(said(&error), [(Some(0), "redis"), (Some(1), "redis"), (Some(2), "redis")]);
        let unavailable = |error: &Error| match error {
            Error::Redis { source, .. } => {
                source.kind() == ErrorKind::Unavailable && source.name() == Some(NAME)
            }
            _ => false,
        };
        assert!(error.errors().iter().all(unavailable), "{error:?}");
        assert_eq!(nodes.values(), [None, None, None]);
        nodes.pass(ms(65_001)).await;
        mutex.try_lock().await.expect("all know what they granted");
        mutex.unlock().await.expect("it is ours");
        nodes.tell(2, &["FLUSHALL"]);
        mutex.try_lock().await.expect("two of three have it");
        assert_eq!(nodes.value(2), None);
        mutex.unlock().await.expect("it is ours");
        assert!(nodes.takes(1, "theirs", 5_000));
        let error = mutex.try_lock().await.expect_err("one of three");
        assert_eq!(said(&error), [(Some(1), "taken"), (Some(2), "redis")]);
    });
}

#[test]
fn a_key_that_is_no_string_is_an_error_and_stays() {
    play(3, async |nodes| {
        for node in 0..2 {
            nodes.tell(node, &["HSET", NAME, "field", "value"]);
        }
        let mutex = nodes.mutex().await;
        let error = mutex.try_lock().await.expect_err("one of three");
        assert_eq!(said(&error), [(Some(0), "redis"), (Some(1), "redis")]);
        assert_eq!(nodes.tell(0, &["TYPE", NAME]).text(), "hash");
        assert_eq!(nodes.value(2), None);
    });
}

/// In real time: one server is behind a bad network, the others are normal.
#[tokio::test]
async fn a_slow_node_is_waited_for_or_done_without() {
    let servers = [RedisServer::start(), RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::to(servers[2].port());
    let mut stores = Vec::new();
    for url in [servers[0].url(), servers[1].url(), proxy.url()] {
        let store = RedisStore::connect(&url, SystemHost::shared()).await;
        stores.push(store.expect("the server is there"));
    }
    let held = |server: &RedisServer| {
        let value = server.command(&["GET", NAME]);
        (value != Reply::Nil).then(|| value.text())
    };
    let redsync = Redsync::new(stores);
    let mutex = redsync.new_mutex(NAME).with_expiry(Duration::from_secs(60));
    proxy.delay(Way::Both, ms(30));
    mutex.lock().await.expect("it is free");
    for server in &servers {
        assert_eq!(held(server), mutex.value(), "the slow one too, when this says so");
    }
    assert!(mutex.extend().await.expect("it is ours"));
    assert!(mutex.unlock().await.expect("it is ours"));
    for server in &servers {
        assert_eq!(held(server), None, "the slow one too, when this says so");
    }
    proxy.delay(Way::Both, NO_TIME);
    proxy.hold(Way::ToServer);
    let mutex = redsync.new_mutex(NAME).with_timeout_factor(0.01);
    mutex.lock().await.expect("two of three have it");
    assert_eq!(held(&servers[2]), None, "its request has not arrived");
    proxy.go_on(Way::ToServer);
    assert!(mutex.unlock().await.expect("it is ours"));
    for server in &servers {
        assert_eq!(held(server), None, "the late grant is ended by the unlock behind it");
    }
}
