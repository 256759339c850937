//! Connections with TLS to real servers, and the errors if a certificate is refused.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;

use leasehold::host::SystemHost;
use leasehold::store::redis::{RedisConnector, RedisStore};
use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::servers::{Authority, FakeServer, Identity, RedisServer};

use super::connecting::{check, connect, told};

/// A server with a certificate for these hosts.
fn server(authority: &Authority, hosts: &[&str]) -> RedisServer {
    RedisServer::builder().with_tls(&authority.issue("server", hosts), authority).start()
}

/// The URL of a server, with the authority to trust.
fn url(server: &RedisServer, authority: &Authority) -> String {
    format!("{}?ca={}", server.tls_url(), authority.ca().display())
}

fn url_with(server: &RedisServer, authority: &Authority, client: &Identity) -> String {
    let Identity { cert, key } = client;
    format!("{}&cert={}&key={}", url(server, authority), cert.display(), key.display())
}

async fn client(url: &str) -> Client {
    let store = connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    Client::with_store(store).connect().await.expect("the store is open")
}

#[tokio::test]
async fn locks_are_renewed_and_handed_over_and_work_under_every_name_of_the_certificate() {
    let authority = Authority::new();
    let server = server(&authority, &["127.0.0.1", "localhost"]);
    let by_address = url(&server, &authority);
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let (one, other) = (client(&by_address).await, client(&by_name).await);
    let held = one.mutex("a").lock().await.expect("it is free");
    held.renew().await.expect("renewed");
    assert!(other.mutex("a").try_lock().await.expect("answered").is_none());
    let before = held.fencing_token();
    // This reason is longer than one TLS record.
    let why = "x".repeat(60_000);
    let mutex = other.mutex("a").why(why);
    let (released, next) = tokio::join!(held.release(), mutex.lock());
    assert_eq!(released.expect("answered"), Release::Released);
    assert!(next.expect("handed over").fencing_token() > before);
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_the_client_gets_it() {
    let authority = Authority::new();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let server = RedisServer::builder()
            .with_tls(&authority.issue("server", &["127.0.0.1"]), &authority)
            .config("tls-auth-clients", "yes")
            .config("tls-protocols", version)
            .start();
        let ours = authority.issue("client", &[]);
        connect(&url_with(&server, &authority, &ours)).await.expect(version);
        let without = connect(&url(&server, &authority)).await;
        check(without, ErrorKind::Unavailable, "add `?cert=PATH&key=PATH`");
        let stranger = Authority::new();
        let theirs = stranger.issue("client", &[]);
        let refused = connect(&url_with(&server, &authority, &theirs)).await;
        check(refused, ErrorKind::Unavailable, "refuses the certificate of this client");
    }
}

#[tokio::test]
async fn a_certificate_that_proves_nothing_is_refused_with_the_reason() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let host = &["127.0.0.1"];
    let unsigned = authority.itself();
    let cases = [
        (authority.issue_for("old", host, -2..-1), "has expired"),
        (authority.issue_for("early", host, 1..2), "not valid yet"),
        (authority.issue("other", &["localhost", "10.0.0.1"]), "for another host"),
        // Both authorities have the same name.
        (stranger.issue("strange", host), "has a wrong signature"),
        (unsigned, "with `CA:FALSE`"),
    ];
    for (identity, says) in cases {
        let server = RedisServer::builder().with_tls(&identity, &authority).start();
        check(connect(&url(&server, &authority)).await, ErrorKind::Unavailable, says);
    }
    // This system does not trust the authority of a test.
    let server = server(&authority, host);
    check(connect(&server.tls_url()).await, ErrorKind::Unavailable, "not trusted here");
}

#[tokio::test]
async fn a_certificate_may_be_for_the_name_that_the_url_gives() {
    let authority = Authority::new();
    let server = server(&authority, &["locks.internal"]);
    let url = url(&server, &authority);
    check(connect(&url).await, ErrorKind::Unavailable, "for another host");
    connect(&format!("{url}&tls_name=locks.internal")).await.expect("its name");
    let wrong = connect(&format!("{url}&tls_name=a..b")).await;
    check(wrong, ErrorKind::Config, "correct the host or `tls_name`");
}

/// The requests are larger than the buffers of TLS and of the sockets, so that writing has to wait.
#[tokio::test]
async fn requests_wait_until_a_server_that_stood_still_goes_on() {
    let authority = Authority::new();
    let server = server(&authority, &["127.0.0.1"]);
    let client = client(&url(&server, &authority)).await;
    let why = "x".repeat(8_000);
    let held = client.mutex("a").ttl(Duration::from_secs(30)).lock().await.expect("it is free");
    server.pause();
    let mutexes: Vec<_> =
        (0..2_000).map(|i| client.mutex(format!("b{i}")).why(why.clone())).collect();
    let asked = join_all(mutexes.iter().map(leasehold::Mutex::try_lock));
    let resumed = async { server.resume() };
    let (asked, ()) = tokio::join!(asked, resumed);
    let granted = asked.into_iter().filter(|asked| matches!(asked, Ok(Some(_)))).count();
    assert_eq!(granted, 2_000);
    assert!(held.is_held());
}

#[tokio::test]
async fn tls_and_no_tls_notice_each_other() {
    let authority = Authority::new();
    let server = server(&authority, &["127.0.0.1"]);
    let (plain, with_tls) = (server.url(), server.tls_url());
    let to_plain =
        format!("{}?ca={}", plain.replace("redis:", "rediss:"), authority.ca().display());
    check(connect(&to_plain).await, ErrorKind::Unavailable, "whether it has TLS at this port");
    let other = FakeServer::speaking_http();
    let to_http = other.url().replace("redis:", "rediss:");
    check(connect(&to_http).await, ErrorKind::Unavailable, "does not speak TLS");
    let to_tls = with_tls.replace("rediss:", "redis:");
    // Some versions answer with an alert, and others just close the connection.
    let error = connect(&to_tls).await.expect_err("it wants TLS").to_string();
    assert!(error.contains("`rediss://`") && error.contains("no request was sent"), "{error}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named_and_no_content_is_shown() {
    let authority = Authority::new();
    let server = server(&authority, &["127.0.0.1"]);
    let (one, other) = (authority.issue("one", &[]), authority.issue("other", &[]));
    let at = |name: &str| server.path(name);
    fs::write(at("text"), "p@ss").expect("room");
    fs::write(at("torn"), "-----BEGIN CERTIFICATE-----\np@ss\n").expect("room");
    // One key has lost its line ends, and the other key was cut.
    let pem = fs::read_to_string(&one.key).expect("text");
    fs::write(at("line"), pem.replace('\n', " ")).expect("room");
    fs::write(at("cut"), pem.split("-----END").next().expect("a beginning")).expect("room");
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), 0o600.into());
    made.expect("a pipe");
    let ca = |name: &str| format!("{}?ca={}", server.tls_url(), at(name).display());
    let with = |cert: &Path, key: &Path| {
        url_with(&server, &authority, &Identity { cert: cert.into(), key: key.into() })
    };
    let cases = [
        (ca("missing"), "the file `ca` of the URL cannot be read"),
        (ca("fifo"), "it is not a regular file"),
        (ca(""), "it is not a regular file"),
        (ca("text"), "the file `ca` of the URL has no certificate"),
        (ca("torn"), "the file `ca` of the URL has no certificate"),
        (with(&at("text"), &one.key), "the file `cert` of the URL has no certificate"),
        (with(&one.cert, &at("text")), "the file `key` of the URL has no private key"),
        (with(&one.cert, &at("line")), "the file `key` of the URL has no private key"),
        (with(&one.cert, &at("cut")), "the file `key` of the URL has no private key"),
        (with(&at("line"), &one.key), "the file `cert` of the URL has no certificate"),
        (with(&one.cert, &one.cert), "the file `key` of the URL has no private key"),
        (with(&one.cert, &other.key), "name the key that belongs to the certificate"),
    ];
    let base64 = pem.lines().nth(1).expect("a key has three lines");
    let secret = &base64[base64.len() / 2..];
    let numbers: Vec<_> = secret.bytes().take(4).map(|byte| byte.to_string()).collect();
    for (url, says) in cases {
        let error = connect(&url).await.expect_err(&url);
        let shown = format!("{} {error:?} {error:#?}", told(&error));
        assert!(!shown.contains(secret) && !shown.contains(&numbers.join(", ")), "{shown}");
        check(Err(error), ErrorKind::Config, says);
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_from_the_next_connection_on() {
    let authority = Authority::new();
    let client = authority.issue("client", &[]);
    let server = RedisServer::builder()
        .with_tls(&authority.issue("server", &["127.0.0.1"]), &authority)
        .config("tls-auth-clients", "yes")
        .start();
    let connector = RedisConnector::new(&url_with(&server, &authority, &client)).expect("a URL");
    let again =
        async || RedisStore::connect_with(connector.clone(), SystemHost::shared()).await.map(drop);
    again().await.expect("all is in order");

    // Only one of the two files is there yet, so the old ones stay in use.
    let next = authority.issue("next", &[]);
    fs::copy(&next.key, &client.key).expect("room");
    again().await.expect("with the old pair");

    // This pair has expired. The server's refusal shows that the pair is in use.
    let old = authority.issue_for("old", &[], -2..-1);
    fs::copy(&old.cert, &client.cert).expect("room");
    fs::copy(&old.key, &client.key).expect("room");
    let error = again().await.expect_err("expired").to_string();
    assert!(error.contains("refuses the certificate of this client"), "{error}");

    fs::copy(&next.cert, &client.cert).expect("room");
    fs::copy(&next.key, &client.key).expect("room");
    again().await.expect("renewed");
}

#[tokio::test]
async fn a_renewed_authority_is_trusted_from_the_next_connection_on_and_the_old_one_no_more() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = server(&new, &["127.0.0.1"]);
    let connector = RedisConnector::new(&url(&server, &old)).expect("a URL");
    let again =
        async || RedisStore::connect_with(connector.clone(), SystemHost::shared()).await.map(drop);
    again().await.expect_err("the authority is another one");
    // The file has both authorities, as in the middle of a change.
    let pem = |authority: &Authority| fs::read_to_string(authority.ca()).expect("text");
    let (of_old, of_new) = (pem(&old), pem(&new));
    fs::write(old.ca(), [of_old.as_str(), &of_new].concat()).expect("room");
    again().await.expect("one of both has signed");
    fs::write(old.ca(), &of_old).expect("room");
    again().await.expect_err("the new one is trusted no more");
    fs::write(old.ca(), of_new).expect("room");
    again().await.expect("it has signed");
}
