//! Switching databases of real servers to strict mode.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use leasehold::host::SystemHost;
use leasehold::store::redis::Strictness;
use leasehold::strict::{Node, Order, State, status, switch};
use leasehold::{Error, ErrorKind, Identity};
use leasehold_testkit::servers::RedisServer;

use super::connecting::{cluster_node, connect};
use crate::stores::run_id;

fn order(is_on: bool, why: &str) -> Order {
    let who = Identity::process();
    let order = if is_on { Order::on(&who, why) } else { Order::off(&who, why) };
    order.expect("a fine reason")
}

#[track_caller]
fn one(nodes: Result<Vec<Node>, Error>) -> Result<State, Error> {
    let mut nodes = nodes.expect("the URLs are fine");
    assert_eq!(nodes.len(), 1);
    nodes.remove(0).state
}

async fn set(url: &str, is_on: bool, why: &str) -> Result<State, Error> {
    one(switch(&[url], &order(is_on, why), SystemHost::shared()).await)
}

async fn see(url: &str) -> Result<State, Error> {
    one(status(&[url], SystemHost::shared()).await)
}

#[tokio::test]
async fn the_record_says_who_switched_a_database_last_and_when_and_why() {
    let server = RedisServer::start();
    let url = server.url();
    let new = see(&url).await.expect("answered");
    assert!(!new.is_on() && new.act.is_none() && !new.is_changed, "{new:?}");
    assert_eq!(new.quarantine.expect("it may ask"), None, "nobody is strict");
    assert_eq!(server.command(&["EXISTS", ":lh:epoch"]).int(), 0, "reading writes nothing");
    let on = set(&url, true, "the disk is slow").await.expect("switched");
    assert!(on.is_on() && on.is_changed, "{on:?}");
    let act = on.act.expect("a record");
    assert_eq!(act.why, "the disk is slow");
    assert!(act.who.contains('@'), "{act:?}");
    let time = server.command(&["TIME"]).array()[0].text().parse::<u64>().expect("seconds");
    let at = act.at.expect("a time").as_unix_millis() / 1_000;
    assert!(time.abs_diff(at) <= 60, "{time} {at}");
    // A strict request begins the quarantine, as on any new server.
    let left = on.quarantine.expect("it may ask").expect("one lies ahead");
    assert_eq!(left.since, None);
    // The first record stays.
    let again = set(&url, true, "another reason").await.expect("answered");
    assert!(again.is_on() && !again.is_changed, "{again:?}");
    assert_eq!(again.act.as_ref(), Some(&act));
    assert_eq!(see(&url).await.expect("answered").act, Some(act));
    connect(&(url.clone() + "/0?strict=no")).await.expect_err("it is strict");
    let off = set(&url, false, "").await.expect("switched");
    assert!(!off.is_on() && off.is_changed, "{off:?}");
    assert_eq!(off.act.expect("a record").why, "");
    assert!(!set(&url, false, "x").await.expect("answered").is_changed);
    connect(&(url + "/0?strict=no")).await.expect("it is not strict");
}

/// Strict clients rely on the other fields.
#[tokio::test]
async fn a_switch_leaves_the_rest_of_the_record_alone_and_needs_no_strict_url() {
    let server = RedisServer::start();
    let run_id = run_id(&server);
    server.command(&["HSET", ":lh:epoch", "run", &run_id, "replid", "x"]);
    for (options, expected) in [
        ("", Strictness::AsDatabase),
        ("/0?strict=no", Strictness::No),
        ("/0", Strictness::AsDatabase),
    ] {
        let url = server.url() + options;
        for is_on in [true, false] {
            let state = set(&url, is_on, "").await.expect("switched");
            assert_eq!((state.is_on(), state.is_changed, state.expected), (is_on, true, expected));
            assert_eq!(see(&url).await.expect("answered").is_on(), is_on);
        }
    }
    let fields = server.command(&["HMGET", ":lh:epoch", "run", "replid"]);
    let fields: Vec<_> = fields.array().iter().map(|field| field.text()).collect();
    assert_eq!(fields, [run_id.as_str(), "x"]);
    assert_eq!(server.command(&["PTTL", ":lh:epoch"]).int(), -1);
    // The server has forgotten nothing.
    let url = server.url() + "/0?strict=yes";
    let state = set(&url, true, "").await.expect("switched");
    assert_eq!(state.quarantine.expect("it may ask"), None);
    assert!(matches!(state.expected, Strictness::Yes(_)));
}

#[tokio::test]
async fn several_switches_at_once_leave_one_record_and_all_callers_are_told_of_it() {
    let server = RedisServer::start();
    let url = server.url();
    let all = (0..16).map(|number| {
        let url = url.clone();
        async move { set(&url, true, &format!("reason {number}")).await.expect("answered") }
    });
    let all = futures_util::future::join_all(all).await;
    let changed: Vec<_> = all.iter().filter(|state| state.is_changed).collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    for state in &all {
        assert_eq!(state.act, changed[0].act);
    }
}

#[tokio::test]
async fn a_database_that_cannot_be_switched_says_why() {
    let server = RedisServer::start();
    server.command(&["SET", ":lh:epoch", "x"]);
    let url = server.url();
    for error in [see(&url).await, set(&url, true, "").await, set(&url, false, "").await] {
        let error = error.expect_err("data of another type");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("TYPE :lh:epoch"), "{error}");
    }
    assert_eq!(server.command(&["GET", ":lh:epoch"]).text(), "x");
    server.command(&["DEL", ":lh:epoch"]);
    // Every user of locks that may write the key may switch.
    let lock = "+eval +evalsha +get +set +del +exists +incr +incrby +decr +pexpire +pttl +time \
                +hset +hget +hmget +zrank +zcard ~app:* ~{app:*";
    let mut rule = vec!["ACL", "SETUSER", "app", "on", "nopass"];
    rule.extend(lock.split_whitespace());
    server.command(&rule);
    let theirs = url.replace("//", "//app:any@");
    let denied = set(&theirs, true, "").await.expect_err("it may not write the key");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    server.command(&["ACL", "SETUSER", "app", "~:lh:epoch"]);
    let state = set(&theirs, true, "").await.expect("it may");
    assert!(state.is_on());
    let unknown = state.quarantine.expect_err("it may not run INFO");
    assert_eq!(unknown.kind(), ErrorKind::Denied, "{unknown}");
    // A replica accepts no writes.
    let replica = RedisServer::builder().config("replicaof", "127.0.0.1 1").start();
    let error = set(&replica.url(), true, "").await.expect_err("only the primary may be written");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let gone = replica.url();
    drop(replica);
    assert_eq!(set(&gone, true, "").await.expect_err("gone").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn only_servers_have_a_strict_mode() {
    let (node, _port) = cluster_node();
    let cluster = node.url().replace("redis:", "redis+cluster:");
    let server = RedisServer::start();
    for url in ["memory:", "sqlite:/nowhere/x.db", &cluster] {
        // Nothing is switched if one of the URLs cannot be switched.
        let urls = [server.url(), url.to_owned()];
        let error = switch(&urls, &order(true, ""), SystemHost::shared()).await.expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("no request was sent"), "{error}");
    }
    assert_eq!(server.command(&["EXISTS", ":lh:epoch"]).int(), 0);
    let none = status(&[] as &[&str], SystemHost::shared()).await.expect_err("no URL");
    assert_eq!(none.kind(), ErrorKind::Config);
}
