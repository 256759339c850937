//! A primary that sentinels name, its failover, and the errors if they name none.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard, Release};
use leasehold_testkit::servers::{Authority, RedisServer, Sentinels};

use super::connecting::{check, connect};

const MINUTE: Duration = Duration::from_mins(1);

async fn client(url: &str) -> Client {
    let store = connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    Client::with_store(store).connect().await.expect("the store is open")
}

/// Locks as soon as the new primary can be reached.
async fn lock(client: &Client, name: &str) -> Guard {
    loop {
        match client.mutex(name).ttl(MINUTE).lock_timeout(MINUTE).await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Whether a client of this library uses the server.
fn is_used(server: &RedisServer) -> bool {
    server.command(&["CLIENT", "LIST"]).text().contains("cmd=eval")
}

#[tokio::test]
async fn a_lock_whose_data_survived_is_kept_over_a_failover() {
    let all = Sentinels::builder().start();
    let (one, other) = (client(&all.url()).await, client(&all.url()).await);
    let held = one.mutex("a").ttl(MINUTE).lock().await.expect("it is free");
    let before = all.primary();
    before.command(&["WAIT", "1", "0"]);
    all.fail_over();
    assert_ne!(all.primary().port(), before.port());
    while held.renew().await.is_err() {
        assert!(held.is_held(), "the new primary has the lock");
    }
    assert!(is_used(all.primary()));
    assert!(other.mutex("a").try_lock().await.is_ok_and(|guard| guard.is_none()));
    let first = held.fencing_token();
    assert_eq!(held.release().await.expect("answered"), Release::Released);
    assert!(lock(&other, "a").await.fencing_token() > first);
}

/// The sentinel that leads the failover has the new epoch, but some of its answers have the old
/// address.
#[tokio::test]
async fn in_the_middle_of_a_failover_everybody_locks_on_one_server() {
    let all = Sentinels::builder().replicas(3).start();
    let before = all.primary();
    let old = client(&all.url()).await;
    drop(lock(&old, "a").await);
    all.ask_to_fail_over();
    let new = all.until_one_names_another(before);
    // Use a client that was there before, and a client that comes now.
    let late = client(&all.url()).await;
    loop {
        let held = lock(&old, "b").await;
        if new.command(&["EXISTS", "b"]).int() == 1 {
            assert!(late.mutex("b").try_lock().await.is_ok_and(|guard| guard.is_none()));
            assert!(held.is_held());
            break;
        }
    }
}

#[tokio::test]
async fn a_waiter_goes_on_waiting_when_its_primary_is_killed() {
    let all = Sentinels::builder().start();
    let (one, other) = (client(&all.url()).await, client(&all.url()).await);
    let held = one.mutex("a").ttl(Duration::from_secs(2)).lock().await.expect("it is free");
    all.servers()[0].command(&["WAIT", "1", "0"]);
    let waiting = tokio::spawn(async move { lock(&other, "a").await });
    all.servers()[0].kill();
    all.until_switched(all.servers()[0].port());
    // The data may or may not have survived. Either way, the holder knows, and the waiter gets the
    // lock.
    drop(held);
    let next = waiting.await.expect("no panic");
    assert!(next.is_held() && is_used(all.primary()));
}

#[tokio::test]
async fn a_client_leaves_an_old_primary_that_still_answers() {
    let all = Sentinels::builder().replicas(0).start();
    let (old, new) = (all.primary(), RedisServer::start());
    let client = client(&all.url()).await;
    drop(lock(&client, "a").await);
    assert!(is_used(old) && !is_used(&new));
    all.name_instead(&new);
    while !is_used(&new) {
        drop(lock(&client, "b").await);
    }
    // The sentinels have not told the old primary, so only the client can have ended the
    // connection.
    assert_eq!(old.command(&["ROLE"]).array()[0].text(), "master");
}

#[tokio::test]
async fn silent_sentinels_hold_nobody_up_and_one_that_answers_is_enough() {
    let all = Sentinels::builder().start();
    all.sentinels()[0].kill();
    all.sentinels()[1].pause();
    connect(&all.url()).await.expect("the third one answers");
    all.sentinels()[2].kill();
    check(connect(&all.url()).await, ErrorKind::Unavailable, "no sentinel names the primary");
    all.sentinels()[1].resume();
    connect(&all.url()).await.expect("the second one answers");
}

#[tokio::test]
async fn sentinels_and_servers_have_logins_of_their_own() {
    let all = Sentinels::builder()
        .password("p@ss")
        .config("requirepass", "server")
        .config("masterauth", "server")
        .line("sentinel auth-pass locks server")
        .start();
    let with_login = all.url().replace("//", "//:server@");
    let url = format!("{with_login}?sentinel_password=p%40ss");
    connect(&url).await.expect("both logins are right");
    check(connect(&with_login).await, ErrorKind::Denied, "requires a password");
    let wrong = connect(&format!("{with_login}?sentinel_password=x")).await;
    check(wrong, ErrorKind::Denied, "see what they say");
    let without = format!("{}?sentinel_password=p%40ss", all.url());
    check(connect(&without).await, ErrorKind::Denied, "requires a password");
}

#[tokio::test]
async fn a_name_that_no_sentinel_knows_and_servers_that_are_none_are_refused() {
    let all = Sentinels::builder().replicas(0).start();
    let unknown = all.url().replace("/locks", "/lokcs");
    check(connect(&unknown).await, ErrorKind::Config, "the sentinels know no primary `lokcs`");
    let server = RedisServer::start();
    let no_sentinel = format!("redis+sentinel://127.0.0.1:{}/locks", server.port());
    check(connect(&no_sentinel).await, ErrorKind::Config, "this is not a sentinel");
    let sentinel = client(&format!("redis://127.0.0.1:{}", all.sentinels()[0].port())).await;
    let error = sentinel.mutex("a").try_lock().await.expect_err("it has no scripts");
    assert!(error.to_string().contains("write `redis+sentinel://` for sentinels"), "{error}");
    server.kill();
    check(connect(&no_sentinel).await, ErrorKind::Unavailable, "no server listens there");
}

/// An operator may be about to name the primary to them again.
#[tokio::test]
async fn sentinels_that_forgot_the_primary_are_asked_again() {
    let all = Sentinels::builder().replicas(0).start();
    let client = client(&all.url()).await;
    drop(lock(&client, "a").await);
    let server = all.primary();
    all.forget_primary();
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let error = loop {
        match client.mutex("a").try_lock().await {
            Err(error) if error.to_string().contains("sentinel") => break error,
            _ => {}
        }
    };
    // The error is `Unknown` if the connection ended under the first request.
    assert!(error.is_retryable(), "{error}");
}

/// As long as the sentinels have not noticed, they name a server that is a replica by now.
#[tokio::test]
async fn a_replica_is_refused_though_the_sentinels_name_it() {
    let all = Sentinels::builder().replicas(0).start();
    let other = RedisServer::start();
    all.primary().command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    let refused = connect(&all.url()).await;
    check(refused, ErrorKind::Unavailable, "the server that the sentinels name is a replica");
}

#[tokio::test]
async fn servers_and_sentinels_speak_tls_or_not_as_the_url_says() {
    let authority = Authority::new();
    let all = Sentinels::builder()
        .with_tls(&authority.issue("server", &["127.0.0.1"]), &authority)
        .start();
    let url = all.url().replace("redis+", "rediss+");
    let url = format!("{url}?ca={}", authority.ca().display());
    let client = client(&url).await;
    drop(lock(&client, "a").await);
    let plain_sentinels = connect(&format!("{url}&sentinel_tls=no")).await;
    check(plain_sentinels, ErrorKind::Unavailable, "see what they say");
}

#[tokio::test]
async fn servers_with_tls_may_have_sentinels_without_and_the_reverse() {
    let authority = Authority::new();
    let identity = authority.issue("server", &["127.0.0.1"]);
    let ca = format!("ca={}", authority.ca().display());

    let all = Sentinels::builder().with_tls(&identity, &authority).start();
    let plain: Vec<_> =
        all.sentinels().iter().map(|it| format!("127.0.0.1:{}", it.port())).collect();
    let url = format!("rediss+sentinel://{}/locks?{ca}&sentinel_tls=no", plain.join(","));
    survives_a_failover(&all, &url).await;

    let all = Sentinels::builder().with_tls_at_the_sentinels(&identity, &authority).start();
    survives_a_failover(&all, &format!("{}?{ca}&sentinel_tls=yes", all.url())).await;
}

/// The certificate is only for the name.
#[tokio::test]
async fn a_certificate_for_tls_may_be_for_the_host_name_that_sentinels_announce() {
    let authority = Authority::new();
    let identity = authority.issue("server", &["localhost"]);
    let all = Sentinels::builder().with_tls(&identity, &authority).with_host_names().start();
    let url = all.url().replace("redis+", "rediss+").replace("127.0.0.1", "localhost");
    survives_a_failover(&all, &format!("{url}?ca={}", authority.ca().display())).await;
}

async fn survives_a_failover(all: &Sentinels, url: &str) {
    let client = client(url).await;
    let before = lock(&client, "a").await.fencing_token();
    all.fail_over();
    assert!(lock(&client, "a").await.fencing_token() > before);
}
