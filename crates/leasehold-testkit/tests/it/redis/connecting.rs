//! Connections to real servers: the server that a URL names, and the errors if no server answers.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::error::Error as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::panic::catch_unwind;
use std::sync::Arc;

use leasehold::core::token::ClientId;
use leasehold::host::SystemHost;
use leasehold::store::redis::{Connector as _, RedisConnector, RedisStore};
use leasehold::store::{Ask, Claim, Hint, HintSink, LeaseId, OnRelease, Store as _};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_testkit::conformance::check::fence;
use leasehold_testkit::servers::{RedisServer, version};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::on_event::warnings;

/// A text that no message may contain.
const SECRET: &str = "p@ss/w:rd%?#ä +[";
/// The same text in a URL.
const ENCODED: &str = "p%40ss%2Fw:rd%25%3F%23%C3%A4%20%2B%5B";

pub(super) async fn connect(url: &str) -> Result<RedisStore, Error> {
    RedisStore::connect(url, SystemHost::shared()).await
}

pub(super) fn key(name: &str) -> Key {
    Key::new(name).expect("a name")
}

/// The words that the server shows of the connection of a store.
async fn seen(server: &RedisServer, store: &RedisStore) -> Vec<String> {
    // A refusal is an answer too.
    let _answer = store.inspect(key("a")).await;
    let clients = server.command(&["CLIENT", "LIST"]).text();
    // The latest connection comes last.
    let ours = clients.lines().rev().find(|client| client.contains(" cmd=eval "));
    ours.expect("it sent a script").split_whitespace().map(str::to_owned).collect()
}

/// The error with all of its causes as text. Asserts that it contains no secret.
#[track_caller]
pub(super) fn told(error: &Error) -> String {
    let mut text = format!("{error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(" | {next}"));
        cause = next.source();
    }
    let all = format!("{text} {error:?}");
    for secret in [SECRET, ENCODED, "p@ss", "p%40ss"] {
        assert!(!all.contains(secret), "{all}");
    }
    text
}

#[track_caller]
pub(super) fn check(outcome: Result<RedisStore, Error>, kind: ErrorKind, says: &str) {
    let Err(error) = outcome else { panic!("connected, where `{says}` was to be said") };
    let text = told(&error);
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(says), "{text}");
    let says_the_state = ["no request was sent", "nothing was changed", "nothing was granted"];
    assert!(says_the_state.iter().any(|state| text.contains(state)), "{text}");
}

/// The URL of a server with credentials, and with `tail` after the port.
fn url(server: &RedisServer, credentials: &str, tail: &str) -> String {
    format!("redis://{credentials}127.0.0.1:{}{tail}", server.port())
}

/// A server that is a cluster of one node without slots, and a stopped server whose port its bus
/// uses. Before Redis 7.0 the bus listens 10 000 ports above the server.
pub(crate) fn cluster_node() -> (RedisServer, RedisServer) {
    let port = RedisServer::start();
    port.kill();
    let mut node = RedisServer::builder().config("cluster-enabled", "yes");
    if version() >= (7, 0) {
        node = node.config("cluster-port", &port.port().to_string());
        return (node.start(), port);
    }
    // Another process may have that port just now.
    let mut tries = (0..5).filter_map(|_| catch_unwind(|| node.clone().start()).ok());
    (tries.next().expect("a port with another one 10 000 above it"), port)
}

#[tokio::test]
async fn a_server_is_reached_over_tcp_and_over_its_socket_on_the_database_of_the_url() {
    let server = RedisServer::start();
    let socket = server.unix_url();
    let slashes = socket.replace("unix:", "unix://");
    let urls = [
        (url(&server, "", ""), "db=0"),
        (url(&server, "", "/3"), "db=3"),
        (url(&server, ":@", "/15").replace("127.0.0.1", "localhost"), "db=15"),
        (socket.clone(), "db=0"),
        (format!("{socket}?db=7"), "db=7"),
        (format!("{slashes}?db=1"), "db=1"),
    ];
    for (url, db) in urls {
        let store = connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        let seen = seen(&server, &store).await;
        let has = |word: &str| seen.iter().any(|other| other == word);
        // Redis before 7.0 does not report the protocol.
        let is_old = has("resp=2") || !seen.iter().any(|word| word.starts_with("resp="));
        assert!(has(db) && is_old && has("user=default"), "{url}: {seen:?}");
    }
}

#[tokio::test]
async fn users_and_passwords_of_any_characters_are_understood() {
    let server = RedisServer::builder().config("requirepass", &format!("\"{SECRET}\"")).start();
    let secret = format!(">{SECRET}");
    server.command(&["ACL", "SETUSER", "u@:/", "on", &secret, "~*", "+@all"]);
    server.command(&["ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all"]);
    let socket = server.unix_url().replace("unix:", "");
    let urls = [
        (url(&server, &format!(":{ENCODED}@"), "/2"), "default"),
        (url(&server, &format!("u%40%3a%2f:{ENCODED}@"), ""), "u@:/"),
        (url(&server, "open:@", ""), "open"),
        (format!("unix://u%40:%2F:{ENCODED}@{socket}?db=2"), "u@:/"),
    ];
    for (url, user) in urls {
        // A colon in a user name must be encoded too.
        let url = url.replace("u%40:%2F", "u%40%3A%2F");
        let connector = RedisConnector::new(&url).expect("a good URL");
        let shown = format!("{connector:?} {}", connector.label());
        let hidden = [SECRET, ENCODED, "p@", "p%40", "u@", "u%40", "open", ":@"];
        assert!(hidden.iter().all(|secret| !shown.contains(secret)), "{shown}");
        let store = connect(&url).await.unwrap_or_else(|error| panic!("{}", told(&error)));
        let seen = seen(&server, &store).await;
        assert!(seen.contains(&format!("user={user}")), "{user}: {seen:?}");
    }
}

#[tokio::test]
async fn wrong_credentials_are_denied_and_never_shown() {
    let server = RedisServer::builder().config("requirepass", "right").start();
    server.command(&["ACL", "SETUSER", "off", "off", &format!(">{SECRET}"), "+@all"]);
    let denied = ErrorKind::Denied;
    check(connect(&url(&server, "", "")).await, denied, "requires a password");
    check(connect(&url(&server, "", "/1")).await, denied, "requires a password");
    check(connect(&server.unix_url()).await, denied, "requires a password");
    for credentials in [format!(":{ENCODED}@"), format!("off:{ENCODED}@"), "nobody:x@".into()] {
        check(connect(&url(&server, &credentials, "/1")).await, denied, "does not accept");
    }
    let open = RedisServer::start();
    let credentials = format!(":{ENCODED}@");
    check(connect(&url(&open, &credentials, "")).await, denied, "remove the password");
}

#[tokio::test]
async fn a_server_that_does_not_know_auth_does_not_make_the_password_known() {
    let server = RedisServer::builder().config("rename-command", "AUTH \"\"").start();
    let outcome = connect(&url(&server, &format!("user:{ENCODED}@"), "")).await;
    check(outcome, ErrorKind::Denied, "refuses the user and the password");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_a_mistake_in_the_url() {
    let server = RedisServer::start();
    let outcome = connect(&url(&server, "", "/99")).await;
    check(outcome, ErrorKind::Config, "no database of this number");
    let outcome = connect(&format!("{}?db=16", server.unix_url())).await;
    check(outcome, ErrorKind::Config, "no database of this number");
    let (cluster, _port) = cluster_node();
    // Valkey 9 brought databases to clusters.
    let said = if version() >= (9, 0) { "no database of this number" } else { "Redis Cluster" };
    check(connect(&url(&cluster, "", "/1")).await, ErrorKind::Config, said);
}

#[tokio::test]
async fn a_user_with_no_right_but_to_what_is_sent_can_connect() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "poor", "on", ">pw", "+echo"]);
    let store = connect(&url(&server, "poor:pw@", "")).await.expect("connected");
    let seen = seen(&server, &store).await;
    assert!(seen.contains(&"user=poor".to_owned()), "{seen:?}");
    check(connect(&url(&server, "poor:pw@", "/1")).await, ErrorKind::Denied, "`select`");
}

#[tokio::test]
async fn an_address_without_a_server_is_reported() {
    let server = RedisServer::start();
    let (url, socket) = (url(&server, "", ""), server.unix_url());
    server.kill();
    let unavailable = ErrorKind::Unavailable;
    check(connect(&url).await, unavailable, "no server listens there");
    check(connect(&socket).await, unavailable, "no server listens at the socket");
    check(connect("unix:/nowhere/x.sock").await, unavailable, "no server listens at the socket");
    check(connect("unix:/etc/passwd").await, unavailable, "no server listens at the socket");
    // No resolver is asked for this name, because a part of it is too long.
    let nowhere = format!("redis://{}", "x".repeat(64));
    check(connect(&nowhere).await, unavailable, "cannot be resolved");
}

#[tokio::test]
async fn a_server_that_takes_no_more_clients_is_unavailable_with_a_password_too() {
    let server = RedisServer::start();
    // The connection for this command is the only permitted one.
    server.command(&["CONFIG", "SET", "maxclients", "1"]);
    check(connect(&url(&server, "", "")).await, ErrorKind::Unavailable, "`maxclients`");
    let outcome = connect(&url(&server, &format!(":{ENCODED}@"), "/1")).await;
    check(outcome, ErrorKind::Unavailable, "`maxclients`");
}

/// The result of connecting to a server that answers one connection with `answer` and closes it.
async fn outcome_of(answer: &'static [u8]) -> Result<RedisStore, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let server = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.read_exact(&mut [0; 14]).expect("it says PING");
        client.write_all(answer).expect("it listens");
    });
    let outcome = connect(&format!("redis://127.0.0.1:{port}")).await;
    server.join().expect("no panic");
    outcome
}

#[tokio::test]
async fn another_kind_of_server_is_told_from_a_redis_that_goes_away() {
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    check(outcome_of(http).await, ErrorKind::Config, "is not a Redis");
    check(outcome_of(b"").await, ErrorKind::Unavailable, "ended the connection");
    check(outcome_of(b"+PO").await, ErrorKind::Unavailable, "ended the connection");
}

#[tokio::test]
async fn requests_of_one_task_are_carried_out_in_the_order_in_which_they_were_submitted() {
    let server = RedisServer::start();
    let store = connect(&server.url()).await.expect("connected");
    // Each lock is free only if the server carried out the release before it first.
    let lock_and_release = |number: u32| {
        let random = std::array::from_fn(|at| number.to_le_bytes()[at % 4]);
        let owner = OwnerToken::from_random(random, &client(0));
        let mut ask = Ask::new(key("a"), owner.clone(), Claim::Exclusive, Ttl::DEFAULT);
        ask.reserve = 1;
        let lease = LeaseId { key: key("a"), owner, claim: Claim::Exclusive };
        (store.acquire(ask), store.release(lease, OnRelease::Free))
    };
    let mut answers: Vec<_> = (0..5_000).map(lock_and_release).collect();
    let (last, _release) = answers.pop().expect("the last");
    let last = fence(last.await);
    let mut before = 0;
    for (answer, released) in answers {
        let token = fence(answer.await);
        assert!(before < token && token < last, "{token} after {before}");
        before = token;
        released.await.expect("answered");
    }
}

fn client(byte: u8) -> ClientId {
    ClientId::from_random([byte; ClientId::CHARS])
}

/// Passes hints on.
pub(super) struct Told(pub(super) UnboundedSender<Hint>);

impl HintSink for Told {
    fn hint(&self, hint: Hint) {
        self.0.send(hint).expect("the test listens");
    }
}

/// Makes a store listen for a client.
fn listen(store: &RedisStore, client: &ClientId) -> (Arc<dyn HintSink>, UnboundedReceiver<Hint>) {
    let (sender, hints) = unbounded_channel();
    let sink: Arc<dyn HintSink> = Arc::new(Told(sender));
    store.watch(client, Arc::downgrade(&sink));
    store.listen(client);
    (sink, hints)
}

#[tokio::test]
async fn messages_of_a_channel_come_in_until_the_connection_ends() {
    let server = RedisServer::start();
    for url in [server.url(), server.unix_url()] {
        let store = connect(&url).await.expect("connected");
        let (_one, mut inbox) = listen(&store, &client(0));
        let (_two, mut other) = listen(&store, &client(1));
        for hints in [&mut inbox, &mut other] {
            assert_eq!(hints.recv().await, Some(Hint::Missed), "the channel is confirmed");
        }
        let channel = format!(":lh:inbox:{}", client(1).as_str());
        assert_eq!(server.command(&["PUBLISH", &channel, "f order 42 ü"]).int(), 1);
        let expected = Hint::MaybeFree { key: key("order 42 ü") };
        assert_eq!(other.recv().await, Some(expected));
        assert!(inbox.try_recv().is_err(), "it is for the other");
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        for hints in [&mut inbox, &mut other] {
            assert_eq!(hints.recv().await, Some(Hint::Missed), "over another connection");
        }
    }
}

#[tokio::test]
async fn a_channel_without_the_right_to_it_is_denied() {
    let server = RedisServer::start();
    let (mine, yours) = (client(0), client(1));
    let channel = format!("&:lh:inbox:{}", mine.as_str());
    let rights = ["on", ">pw", "resetchannels", &channel, "+subscribe"];
    server.command(&[["ACL", "SETUSER", "deaf"].as_slice(), &rights].concat());
    let url = url(&server, "deaf:pw@", "/0?strict=no");
    let (_warned, mut warnings) = warnings();
    let store = connect(&url).await.expect("connected");
    let (_mine, mut hints) = listen(&store, &mine);
    assert_eq!(hints.recv().await, Some(Hint::Missed), "it has this right");
    let (_yours, mut others) = listen(&store, &yours);
    let warning = warnings.recv().await.expect("the test holds the sender");
    assert!(warning.contains("sends no wake-ups") && warning.contains("the channel"), "{warning}");
    assert!(others.try_recv().is_err(), "nothing is confirmed");
    server.command(&["ACL", "SETUSER", "deaf", "-subscribe"]);
    let store = connect(&url).await.expect("connected");
    let (_mine, mut hints) = listen(&store, &mine);
    let warning = warnings.recv().await.expect("the test holds the sender");
    assert!(warning.contains("`subscribe`") && !warning.contains("pw"), "{warning}");
    assert!(hints.try_recv().is_err(), "nothing is confirmed");
}
