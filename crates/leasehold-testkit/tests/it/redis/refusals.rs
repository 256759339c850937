//! Refusals of real servers, and their errors. A refused step has granted nothing, in any state of
//! the server.
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

use std::error::Error as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Instant;

use leasehold::core::token::ClientId;
use leasehold::host::SystemHost;
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Acquired, AnyStore, Ask, Claim, LeaseId, OnRelease, Released, Renewal, Renewed, Store,
};
use leasehold::{Client, Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_testkit::servers::{PATIENCE, Proxy, RedisServer, Reply, version};

use super::connecting::cluster_node;

const SECRET: &str = "sesame";

async fn store(url: &str) -> RedisStore {
    let store = RedisStore::connect(url, SystemHost::shared()).await;
    store.unwrap_or_else(|error| panic!("not connected: {error}"))
}

fn lease(name: &str) -> LeaseId {
    let client = ClientId::from_random([1; ClientId::CHARS]);
    let owner = OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client);
    LeaseId { key: Key::new(name).expect("a good name"), owner, claim: Claim::Exclusive }
}

fn wish(name: &str) -> Ask {
    let LeaseId { key, owner, claim } = lease(name);
    let mut ask = Ask::new(key, owner, claim, Ttl::DEFAULT);
    ask.reserve = 1;
    ask
}

async fn ask(store: &RedisStore, name: &str) -> Result<Acquired, Error> {
    store.acquire(wish(name)).await
}

async fn renew(store: &RedisStore, name: &str) -> Result<Renewed, Error> {
    store.renew(Renewal::new(lease(name), Ttl::DEFAULT)).await
}

async fn release(store: &RedisStore, name: &str) -> Result<Released, Error> {
    store.release(lease(name), OnRelease::Free).await
}

/// Asserts that the outcome is this refusal, with its cause and without a secret.
#[track_caller]
fn check<T: std::fmt::Debug>(outcome: Result<T, Error>, kind: ErrorKind, says: &str) {
    let error = outcome.expect_err(says);
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let all = format!("{error} | {cause} | {error:?}");
    assert_eq!(error.kind(), kind, "{all}");
    assert!(error.to_string().contains(says), "{all}");
    let says_the_state = ["nothing was changed", "nothing was granted"];
    assert!(says_the_state.iter().any(|state| all.contains(state)), "{all}");
    assert!(cause.starts_with("the server said `"), "{all}");
    assert!(!all.contains(SECRET) && !all.contains(lease("x").owner.as_str()), "{all}");
}

/// Asserts that an ask is refused in this way, and leaves no lock behind.
async fn check_ask(store: &RedisStore, server: &RedisServer, kind: ErrorKind, says: &str) {
    check(ask(store, "refused").await, kind, says);
    if let Ok(exists) = server.try_command(&["EXISTS", "refused"]) {
        assert_eq!(exists.int(), 0, "{says}");
    }
}

async fn hold(store: &RedisStore, name: &str) {
    let granted = ask(store, name).await.expect("answered");
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
}

#[tokio::test]
async fn a_key_of_another_type_is_no_lock_and_stays_as_it_is() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    server.command(&["RPUSH", "data", "a", "b"]);
    let says = "not a lock of this kind";
    check(ask(&store, "data").await, ErrorKind::Config, says);
    check(renew(&store, "data").await, ErrorKind::Config, says);
    check(release(&store, "data").await, ErrorKind::Config, says);
    assert_eq!(server.command(&["LRANGE", "data", "0", "-1"]).texts(), ["a", "b"]);
    assert_eq!(server.command(&["DBSIZE"]).int(), 1, "nothing was written beside it");
}

/// Removes one right of a user after another.
#[tokio::test]
async fn a_missing_right_is_named_as_far_as_the_server_tells() {
    let server = RedisServer::start();
    let user = |rights: &[&str]| {
        let base = ["ACL", "SETUSER", "u", "reset", "on", ">sesame"];
        server.command(&[&base[..], rights].concat());
    };
    user(&["~*", "&*", "+@all"]);
    let url = server.url().replace("redis://", "redis://u:sesame@");
    let store = store(&url).await;
    hold(&store, "held").await;
    // The server reports a missing right at the command itself, or inside a script.
    let inside = |command| {
        if version() >= (7, 2) { command } else { "one of the commands" }
    };
    let rights: [(&[&str], &str); 5] = [
        (&["~*", "&*", "+@all", "-eval", "-evalsha"], "the command `eval"),
        (&["~*", "&*", "+@all", "-set"], inside("the command `set`")),
        (&["~*", "&*", "+@all", "-get"], inside("the command `get`")),
        (&["~held*", "&*", "+@all"], "the key of this lock"),
        (&["~refused", "&*", "+@all"], "the key of this lock"),
    ];
    for (rights, says) in rights {
        user(rights);
        // Resetting a user closes its connections.
        let store = self::store(&url).await;
        check_ask(&store, &server, ErrorKind::Denied, says).await;
    }
}

/// A server does not end the connections of its clients when another server takes over. Only new
/// connections then reach the other server by the name of the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_has_become_a_replica_is_left() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::to(server.port());
    let store = store(&proxy.url()).await;
    hold(&store, "held").await;
    for name in ["asked", "dropped"] {
        let before = proxy.counts();
        server.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
        if name == "asked" {
            check_ask(&store, &server, ErrorKind::Unavailable, "takes no writes").await;
        } else {
            // The caller is gone when the answer comes.
            drop(store.acquire(wish(name)));
            proxy.until(|counts| counts.replies > before.replies);
        }
        server.command(&["REPLICAOF", "NO", "ONE"]);
        let began = Instant::now();
        while ask(&store, name).await.is_err() || proxy.counts().connections == before.connections {
            assert!(began.elapsed() < PATIENCE, "{name}: it stays");
        }
    }
}

#[tokio::test]
async fn a_replica_grants_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    hold(&store, "held").await;
    // This is a replica of a primary that is down.
    let primary = RedisServer::start();
    primary.kill();
    server.command(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let unavailable = ErrorKind::Unavailable;
    check_ask(&store, &server, unavailable, "is a replica and takes no writes").await;
    check(renew(&store, "held").await, unavailable, "is a replica and takes no writes");
    check(release(&store, "held").await, unavailable, "is a replica and takes no writes");
    // Its data may be old, so it cannot tell which leases exist.
    check(renew(&store, "elsewhere").await, unavailable, "is a replica and takes no writes");
    check(release(&store, "elsewhere").await, unavailable, "is a replica and takes no writes");
    server.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
    check_ask(&store, &server, unavailable, "lost its primary").await;
    let late = RedisStore::connect(&server.url(), SystemHost::shared()).await;
    // Before Redis 7.0 such a replica answers a PING.
    match late {
        Ok(late) if version() < (7, 0) => {
            check_ask(&late, &server, unavailable, "lost its primary").await;
        }
        Ok(_) => panic!("a replica without its primary answers"),
        Err(late) => assert_eq!(late.kind(), unavailable, "{late}"),
    }
}

#[tokio::test]
async fn a_server_out_of_memory_grants_nothing_and_still_renews_and_releases() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    hold(&store, "held").await;
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    check_ask(&store, &server, ErrorKind::Unavailable, "out of memory").await;
    let renewed = renew(&store, "held").await.expect("renewed");
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    assert_eq!(release(&store, "held").await.expect("released"), Released::Freed);
}

/// The server refuses the record too, and the client writes it again later.
#[tokio::test]
async fn a_holder_is_recorded_once_the_server_has_memory_again() {
    let server = RedisServer::start();
    let store = AnyStore::new(store(&server.url()).await);
    let client = Client::with_store(store).connect().await.expect("the store is open");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = client.mutex("a").try_lock().await.expect_err("out of memory");
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let held = client.mutex("a").lock().await.expect("it is free");
    let mut is_recorded = false;
    for _ in 0..1_000 {
        let seen = client.inspect("a").await.expect("answered");
        is_recorded |= seen.holders[0].client.is_some();
        if is_recorded {
            break;
        }
        held.renew().await.expect("renewed");
    }
    assert!(is_recorded);
}

#[tokio::test]
async fn a_server_that_cannot_save_grants_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    // A directory is in the place of the snapshot file.
    std::fs::create_dir(server.path("dump.rdb")).expect("there is none yet");
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    server.command(&["BGSAVE"]);
    let has_failed = || {
        let info = server.command(&["INFO", "persistence"]).text();
        info.contains("rdb_last_bgsave_status:err")
    };
    wait_for(&server, |_| has_failed());
    check_ask(&store, &server, ErrorKind::Unavailable, "cannot save its data").await;
}

#[tokio::test]
async fn a_server_without_its_replicas_grants_nothing() {
    let server = RedisServer::start();
    let store = store(&server.url()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    check_ask(&store, &server, ErrorKind::Unavailable, "`min-replicas-to-write`").await;
}

/// Sends a command whose answer nobody awaits.
fn send(server: &RedisServer, command: &str) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    client.write_all(command.as_bytes()).expect("it listens");
    client
}

/// Waits until the server answers a PING as `is_so` demands.
fn wait_for(server: &RedisServer, is_so: impl Fn(&Result<Reply, String>) -> bool) {
    let began = Instant::now();
    while !is_so(&server.try_command(&["PING"])) {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
    }
}

fn refuses(code: &str) -> impl Fn(&Result<Reply, String>) -> bool {
    move |answer| answer.as_ref().is_err_and(|text| text.starts_with(code))
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_grants_nothing() {
    let server = RedisServer::builder().config("lua-time-limit", "1").start();
    let store = store(&server.url()).await;
    let _endless = send(&server, "EVAL \"while true do end\" 0\r\n");
    wait_for(&server, refuses("BUSY"));
    check(ask(&store, "refused").await, ErrorKind::Unavailable, "SCRIPT KILL");
    server.command(&["SCRIPT", "KILL"]);
    wait_for(&server, Result::is_ok);
    hold(&store, "refused").await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_grants_nothing() {
    // While loading, the server answers clients only after this many bytes. Before Redis 7.0, that
    // is always 2 MiB.
    let (builder, bytes, delay_us) = if version() >= (7, 0) {
        let name = "loading-process-events-interval-bytes";
        (RedisServer::builder().config(name, "1024"), 2_000, "100000")
    } else {
        (RedisServer::builder(), 200_000, "30000")
    };
    let server = builder.with_debug().start();
    let store = store(&server.url()).await;
    let value = "x".repeat(bytes);
    for number in 0..400 {
        server.command(&["SET", &format!("data:{number}"), &value]);
    }
    server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
    // Loading lasts until the test has ended.
    server.command(&["CONFIG", "SET", "key-load-delay", delay_us]);
    let _loading = send(&server, "DEBUG RELOAD\r\n");
    wait_for(&server, refuses("LOADING"));
    check(ask(&store, "refused").await, ErrorKind::Unavailable, "is loading its data");
    let late = RedisStore::connect(&server.url(), SystemHost::shared()).await;
    let Err(late) = late else { panic!("a server that loads its data answers") };
    assert_eq!(late.kind(), ErrorKind::Unavailable, "{late}");
    assert!(late.to_string().contains("is loading its data"), "{late}");
}

#[tokio::test]
async fn a_server_without_scripts_or_of_a_cluster_is_not_supported() {
    let server = RedisServer::builder()
        .config("rename-command", "EVAL \"\"")
        .config("rename-command", "EVALSHA \"\"")
        .start();
    let store = store(&server.url()).await;
    check_ask(&store, &server, ErrorKind::Unsupported, "does not know the command `EVAL").await;

    let (server, _port) = cluster_node();
    let store = self::store(&server.url()).await;
    check_ask(&store, &server, ErrorKind::Unavailable, "Redis Cluster").await;
}
