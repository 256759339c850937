//! Connections to real servers: what a URL leads to, and the errors if it leads nowhere.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::error::Error as _;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::panic::catch_unwind;
use std::sync::Arc;

use leasehold::store::redis::{
    Command, Connected, Link, LinkConnector, Message, News, RedisConnector, Subscriber, Value,
};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::{RedisServer, version};

/// A text that no message may contain.
const SECRET: &str = "p@ss/w:rd%?#ä +[";
/// The same text in a URL.
const ENCODED: &str = "p%40ss%2Fw:rd%25%3F%23%C3%A4%20%2B%5B";

/// Connects by a URL, with input and output running.
async fn connect(url: &str) -> Result<Arc<dyn Link>, Error> {
    let Connected { link, io, .. } = RedisConnector::new(url)?.connect().await?;
    tokio::spawn(io);
    Ok(link)
}

async fn ask(link: &dyn Link, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    for word in &words[1..] {
        command = command.arg(word);
    }
    match link.submit(command).await.expect("an answer") {
        Value::Bytes(text) => String::from_utf8(text).expect("text"),
        other => panic!("{other:?}"),
    }
}

/// The error with all of its causes as text. Asserts that it contains no secret.
#[track_caller]
fn told(error: &Error) -> String {
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
fn check(outcome: Result<Arc<dyn Link>, Error>, kind: ErrorKind, says: &str) {
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

/// A server that is a cluster by itself, without any slots, and a stopped server whose port its bus
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
        let link = connect(&url).await.unwrap_or_else(|error| panic!("{url}: {error}"));
        let info = ask(&*link, &["CLIENT", "INFO"]).await;
        let has = |word: &str| info.split_whitespace().any(|other| other == word);
        // Redis before 7.0 does not report the protocol.
        let is_old = has("resp=2") || !info.contains("resp=");
        assert!(has(db) && is_old && has("user=default"), "{url}: {info}");
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
        let link = connect(&url).await.unwrap_or_else(|error| panic!("{}", told(&error)));
        assert_eq!(ask(&*link, &["ACL", "WHOAMI"]).await, user);
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
    check(connect(&url(&cluster, "", "/1")).await, ErrorKind::Config, "Redis Cluster");
}

#[tokio::test]
async fn a_user_with_no_right_but_to_what_is_sent_can_connect() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "poor", "on", ">pw", "+echo"]);
    let link = connect(&url(&server, "poor:pw@", "")).await.expect("connected");
    assert_eq!(ask(&*link, &["ECHO", "x"]).await, "x");
    check(connect(&url(&server, "poor:pw@", "/1")).await, ErrorKind::Denied, "`select`");
}

#[tokio::test]
async fn where_no_server_listens_is_said_so() {
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
async fn outcome_of(answer: &'static [u8]) -> Result<Arc<dyn Link>, Error> {
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
async fn what_is_no_redis_is_told_from_a_redis_that_goes_away() {
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    check(outcome_of(http).await, ErrorKind::Config, "is not a Redis");
    check(outcome_of(b"").await, ErrorKind::Unavailable, "ended the connection");
    check(outcome_of(b"+PO").await, ErrorKind::Unavailable, "ended the connection");
}

#[tokio::test]
async fn requests_of_one_task_are_carried_out_in_the_order_in_which_they_were_submitted() {
    let server = RedisServer::start();
    let link = connect(&server.url()).await.expect("connected");
    let push = |number: u64| link.submit(Command::new("RPUSH").arg("list").number(number));
    let mut answers: Vec<_> = (0..10_000).map(push).collect();
    let last = answers.pop().expect("the last");
    assert_eq!(last.await, Ok(Value::Int(10_000)));
    let list = server.command(&["LRANGE", "list", "0", "-1"]).texts();
    assert!(list.iter().enumerate().all(|(at, number)| *number == at.to_string()));
    for (at, answer) in (1..).zip(answers) {
        assert_eq!(answer.await, Ok(Value::Int(at)));
    }
}

/// Listens to one more channel, on which there are no messages yet.
async fn listen(subscriber: &mut Subscriber, channel: &str) -> Result<(), Error> {
    tokio::select! {
        added = subscriber.channels.add(channel) => added,
        news = subscriber.messages.next() => panic!("{news:?}"),
    }
}

#[tokio::test]
async fn messages_of_a_channel_come_in_until_the_connection_ends() {
    let server = RedisServer::start();
    for url in [server.url(), server.unix_url()] {
        let connector = RedisConnector::new(&url).expect("a good URL");
        let mut subscriber = connector.subscribe().await.expect("connected");
        for channel in ["inbox", "other"] {
            listen(&mut subscriber, channel).await.expect("confirmed");
        }
        assert_eq!(server.command(&["PUBLISH", "other", "a\r\n\u{0}"]).int(), 1);
        let expected = Message::new("other", b"a\r\n\0");
        assert_eq!(subscriber.messages.next().await, Some(News::Published(expected)));
        server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(subscriber.messages.next().await, None);
        let error = subscriber.channels.add("late").await.expect_err("the connection is gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[tokio::test]
async fn a_channel_without_the_right_to_it_is_denied() {
    let server = RedisServer::start();
    server.command(&[
        "ACL",
        "SETUSER",
        "deaf",
        "on",
        ">pw",
        "resetchannels",
        "&mine",
        "+subscribe",
    ]);
    let url = url(&server, "deaf:pw@", "");
    let mut subscriber =
        RedisConnector::new(&url).expect("a good URL").subscribe().await.expect("connected");
    let error = listen(&mut subscriber, "yours").await.expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(told(&error).contains("the channel"), "{error}");
    listen(&mut subscriber, "mine").await.expect("it has this right");
    server.command(&["ACL", "SETUSER", "deaf", "-subscribe"]);
    let mut subscriber =
        RedisConnector::new(&url).expect("a good URL").subscribe().await.expect("connected");
    let error = listen(&mut subscriber, "mine").await.expect_err("no right");
    assert!(told(&error).contains("`subscribe`"), "{error}");
}
