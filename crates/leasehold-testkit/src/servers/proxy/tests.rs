//! Tests of the proxy.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::super::resp::Client;
use super::super::{FakeServer, RedisServer};
use super::{Proxy, Then, Way};

fn world() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let client = Client::connect(proxy.port()).expect("it listens");
    (server, proxy, client)
}

fn speak(proxy: &Proxy, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it takes requests");
    stream
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut read = String::new();
    // A connection with unread bytes may be reset.
    let _ = stream.read_to_string(&mut read);
    read
}

#[test]
fn bytes_pass_and_are_counted() {
    let (_server, proxy, mut client) = world();
    client.ask(&["SET", "key", "a\r\nb"]).expect("an answer");
    assert_eq!(client.ask(&["GET", "key"]).expect("an answer").text(), "a\r\nb");
    let mut pipelining =
        speak(&proxy, "PING\r\n*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n");
    let counts = proxy.until(|counts| counts.requests == 5 && counts.replies == 5);
    assert_eq!((counts.connections, counts.open), (2, 2));
    assert_eq!(counts.request_bytes, 32 + 22 + 6 + 14 + 21);
    let mut read = [0; 21];
    pipelining.read_exact(&mut read).expect("three replies");
    assert_eq!(&read, b"+PONG\r\n+PONG\r\n$1\r\nx\r\n");
    drop(pipelining);
    proxy.until(|counts| counts.open == 1);
}

#[test]
fn a_request_that_was_held_back_arrives_after_its_sender_gave_up() {
    let (server, proxy, _client) = world();
    proxy.hold(Way::ToServer);
    drop(speak(&proxy, "SET key late\r\n"));
    proxy.until(|counts| counts.connections == 2);
    assert_eq!(server.command(&["EXISTS", "key"]).int(), 0);
    proxy.go_on(Way::ToServer);
    proxy.until(|counts| counts.replies == 1);
    assert_eq!(server.command(&["GET", "key"]).text(), "late");
}

#[test]
fn a_stranded_request_is_overtaken_by_its_senders_next_connection() {
    let (server, proxy, client) = world();
    proxy.strand();
    drop(client);
    proxy.until(|counts| counts.connections == 1);
    let stream = speak(&proxy, "PING\r\n");
    proxy.until(|counts| counts.replies == 1);
    proxy.strand();
    (&stream).write_all(b"APPEND key late\r\n").expect("it takes requests");
    drop(stream);
    let mut next = Client::connect(proxy.port()).expect("it listens");
    next.ask(&["APPEND", "key", "first,"]).expect("an answer");
    proxy.land();
    proxy.until(|counts| counts.replies == 3);
    assert_eq!(server.command(&["GET", "key"]).text(), "first,late");
}

#[test]
fn a_reply_that_is_held_back_says_nothing_of_a_request_that_was_carried_out() {
    let (server, proxy, _client) = world();
    proxy.hold(Way::ToClient);
    let mut stream = speak(&proxy, "INCR key\r\n");
    proxy.until(|counts| counts.replies == 1);
    assert_eq!(server.command(&["GET", "key"]).int(), 1);
    stream.set_nonblocking(true).expect("a socket");
    let nothing = stream.read(&mut [0]).expect_err("nothing was passed on");
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("a socket");
    proxy.go_on(Way::Both);
    let mut read = [0; 4];
    stream.read_exact(&mut read).expect("a reply");
    assert_eq!(&read, b":1\r\n");
}

#[test]
fn a_reply_is_lost_after_its_request_was_carried_out() {
    let (server, proxy, mut client) = world();
    client.ask(&["SET", "key", "1"]).expect("an answer");
    proxy.swallow_next_reply();
    let lost = client.ask(&["INCR", "key"]).expect_err("the connection ends");
    assert!(matches!(lost.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{lost}");
    assert_eq!(server.command(&["GET", "key"]).int(), 2);
    let mut next = Client::connect(proxy.port()).expect("it listens");
    assert_eq!(next.ask(&["GET", "key"]).expect("an answer").int(), 2);
}

#[test]
fn a_connection_ends_in_the_middle_of_a_reply() {
    let (_server, proxy, mut client) = world();
    client.ask(&["SET", "key", "0123456789"]).expect("an answer");
    proxy.cut_next_reply_after(8);
    let read = read_to_end(speak(&proxy, "GET key\r\nGET key\r\n"));
    assert_eq!(read, "$10\r\n012");
    // A reply is cut once at most, and a cut does not continue in the next reply.
    proxy.cut_next_reply_after(1_000);
    assert_eq!(read_to_end(speak(&proxy, "PING\r\nPING\r\n")), "+PONG\r\n");
    assert_eq!(client.ask(&["GET", "key"]).expect("an answer").text(), "0123456789");
}

#[test]
fn connections_are_closed_with_what_was_held_back_in_them() {
    let (server, proxy, client) = world();
    proxy.hold(Way::ToServer);
    let stream = speak(&proxy, "SET key late\r\n");
    proxy.until(|counts| counts.open == 2);
    proxy.close_all();
    assert_eq!(read_to_end(stream), "");
    proxy.until(|counts| counts.open == 0);
    assert!(!client.is_open());
    proxy.go_on(Way::ToServer);
    assert_eq!(server.command(&["EXISTS", "key"]).int(), 0);
    assert_eq!(proxy.counts().requests, 0);
}

#[test]
fn connections_are_refused_for_a_while_and_open_ones_stay() {
    let (_server, proxy, mut client) = world();
    client.ask(&["PING"]).expect("an answer");
    proxy.refuse();
    let refused = Client::connect(proxy.port()).expect_err("nobody listens");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    client.ask(&["PING"]).expect("an answer");
    proxy.accept();
    let mut next = Client::connect(proxy.port()).expect("it listens again");
    next.ask(&["PING"]).expect("an answer");
    assert_eq!(proxy.counts().connections, 2);
}

#[test]
fn delayed_bytes_arrive_later() {
    let (_server, proxy, mut client) = world();
    let span = Duration::from_millis(50);
    proxy.delay(Way::Both, span);
    let began = Instant::now();
    client.ask(&["PING"]).expect("an answer");
    assert!(began.elapsed() >= 2 * span);
}

#[test]
fn bytes_with_different_delays_arrive_in_their_order() {
    let (_server, proxy, _client) = world();
    let (least, most) = (Duration::from_millis(5), Duration::from_millis(40));
    proxy.delay_between(Way::Both, least, most);
    let began = Instant::now();
    let mut stream = speak(&proxy, "ECHO 0\r\n");
    for number in 1..8 {
        // Each request is sent separately, because the reply before it has arrived.
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&reply), format!("$1\r\n{}\r\n", number - 1));
        stream.write_all(format!("ECHO {number}\r\n").as_bytes()).expect("it takes requests");
    }
    assert!(began.elapsed() >= 14 * least, "{:?}", began.elapsed());
}

#[test]
fn the_reply_of_choice_is_lost_and_nothing_gets_through_behind_it() {
    let (server, proxy, _client) = world();
    proxy.lose_reply_after(2, Then::Closed);
    let read = read_to_end(speak(&proxy, "INCR key\r\nINCR key\r\nINCR key\r\n"));
    assert_eq!(read, ":1\r\n:2\r\n");
    assert_eq!(server.command(&["GET", "key"]).int(), 3);
    assert_eq!(proxy.counts().lost, 1);

    proxy.lose_reply_after(1, Then::Silent);
    let mut stream = speak(&proxy, "INCR key\r\n");
    let mut read = [0; 4];
    stream.read_exact(&mut read).expect("the first reply");
    assert_eq!(&read, b":4\r\n");
    stream.write_all(b"INCR key\r\n").expect("it takes requests");
    proxy.until(|counts| counts.lost == 2);
    assert_eq!(server.command(&["GET", "key"]).int(), 5);
    stream.write_all(b"INCR key\r\n").expect("it takes requests");
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    assert_eq!(stream.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    assert_eq!(server.command(&["GET", "key"]).int(), 5);

    proxy.lose_reply_after(0, Then::Closed);
    proxy.be_faithful();
    let mut client = Client::connect(proxy.port()).expect("it listens");
    assert_eq!(client.ask(&["GET", "key"]).expect("an answer").int(), 5);
}

#[test]
fn scripts_are_run_twice_and_their_callers_hear_the_first_answer() {
    let (server, proxy, mut client) = world();
    proxy.repeat_scripts(2, Duration::from_millis(20));
    client.ask(&["INCR", "key"]).expect("an answer");
    let script = "return redis.call('INCRBY', 'key', 10)";
    for _ in 0..3 {
        client.ask(&["EVAL", script, "0"]).expect("an answer");
    }
    proxy.until(|counts| counts.repeated == 2);
    assert_eq!(server.command(&["GET", "key"]).int(), 51);
    // The next answer belongs to the next request.
    assert_eq!(client.ask(&["GET", "key"]).expect("an answer").int(), 51);
}

#[test]
fn the_end_of_a_server_ends_connections_and_the_next_server_is_reached() {
    let (server, proxy, mut client) = world();
    client.ask(&["PING"]).expect("an answer");
    server.kill();
    assert!(client.ask(&["PING"]).is_err());
    proxy.until(|counts| counts.open == 0);
    let mut early = Client::connect(proxy.port()).expect("the proxy listens");
    assert!(early.ask(&["PING"]).is_err());
    server.restart();
    let mut next = Client::connect(proxy.port()).expect("it listens");
    next.ask(&["PING"]).expect("an answer");
}

#[test]
fn nobody_listens_where_a_proxy_was() {
    let (_server, proxy, mut client) = world();
    let port = proxy.port();
    client.ask(&["PING"]).expect("an answer");
    drop(proxy);
    assert!(client.ask(&["PING"]).is_err());
    assert!(Client::connect(port).is_err());
}

#[test]
fn servers_that_are_none_do_as_they_are_named() {
    let connect = |server: &FakeServer| Client::connect(server.port()).expect("it listens");
    let silent = FakeServer::silent();
    let mut stream = TcpStream::connect(("127.0.0.1", silent.port())).expect("it listens");
    stream.write_all(b"PING\r\n").expect("it takes requests");
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    assert_eq!(stream.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    assert_eq!(silent.connections(), 1);
    drop(silent);
    assert_eq!(read_to_end(stream), "");

    let closing = FakeServer::closing();
    let closed = connect(&closing).ask(&["PING"]).expect_err("it was closed");
    // The connection ended, and the error is no timeout.
    assert_ne!(closed.kind(), ErrorKind::WouldBlock);

    let http = FakeServer::speaking_http();
    let nonsense = connect(&http).ask(&["PING"]).expect_err("it is not a reply");
    assert_eq!(nonsense.kind(), ErrorKind::InvalidData);

    let loading = FakeServer::answering("-LOADING Redis is loading the dataset in memory\r\n");
    let mut client = connect(&loading);
    for _ in 0..2 {
        let refused = client.ask(&["PING"]).expect("an answer");
        assert!(format!("{refused:?}").contains("LOADING"), "{refused:?}");
    }
}

#[test]
fn a_connection_outlives_the_server_behind_it() {
    let (before, proxy, mut client) = world();
    let after = RedisServer::start();
    before.command(&["SET", "name", "before"]);
    after.command(&["SET", "name", "after"]);
    let name = |client: &mut Client| client.ask(&["GET", "name"]).expect("an answer").text();
    assert_eq!(name(&mut client), "before");
    proxy.move_to(after.port());
    assert_eq!(name(&mut client), "after");
    assert_eq!(name(&mut Client::connect(proxy.port()).expect("it listens")), "after");
    drop(after);
    // If the second server ends, the connection ends.
    let _ended = client.ask(&["GET", "name"]).expect_err("it is gone");
}
