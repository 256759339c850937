//! Servers that never answer, that are not Redis servers, or that disconnect in mid-reply.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_testkit::servers::FakeServer;

use crate::harness::{Done, World, start, until};

/// Copies bytes from one side to the other, at most `limit` of them, and then closes both.
fn copy(mut from: TcpStream, mut to: TcpStream, mut limit: usize) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let passed = length.min(limit);
        limit -= passed;
        if to.write_all(&bytes[..passed]).is_err() || limit == 0 {
            break;
        }
    }
    for side in [from, to] {
        let _ = side.shutdown(Shutdown::Both);
    }
}

/// A proxy to the server of the world. It cuts the first connection after `limit` bytes of answers,
/// and lives as long as the test process.
fn cut_off_after(world: &World, limit: usize, cut: &Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let port = world.server().port();
    let cut = Arc::clone(cut);
    std::thread::spawn(move || {
        for (number, client) in listener.incoming().enumerate() {
            let Ok(client) = client else { break };
            let is_first = number == 0;
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it runs");
            let copies = (client.try_clone(), server.try_clone());
            let (from, to) = (copies.0.expect("a socket"), copies.1.expect("a socket"));
            let cut = Arc::clone(&cut);
            std::thread::spawn(move || copy(from, to, usize::MAX));
            std::thread::spawn(move || {
                copy(server, client, if is_first { limit } else { usize::MAX });
                cut.fetch_add(usize::from(is_first), Ordering::SeqCst);
            });
        }
    });
    url
}

fn run_at(world: &World, url: &str, flags: &[&str]) -> Done {
    let mut command = world.bare();
    command.args(["--url", url, "run", "x"]).args(flags).args(["--", "touch", "began"]);
    start(command).end()
}

/// The command does end, since we have a limit of our own.
#[test]
fn a_server_that_never_answers_ends_with_69() {
    let world = World::sqlite();
    let silent = FakeServer::silent();
    let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let unaccepted = format!("redis://{}", full.local_addr().expect("an address"));
    for url in [silent.url(), unaccepted] {
        for flags in [&[][..], &["-n"], &["-w", "10m"]] {
            let done = run_at(&world, &url, flags);
            done.code(69).says("does not answer within 2s").says("no request was sent");
            assert!(!done.stderr.contains("take effect"), "{}", done.stderr);
        }
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_server_of_another_kind_ends_with_an_error_that_says_so() {
    let world = World::sqlite();
    let greeting = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nhunter2\r\n";
    let none = "this is not a Redis or Valkey server";
    for (nonsense, code, words) in [
        (greeting, 78, none),
        ("SSH-2.0-OpenSSH_9.2p1\r\n", 78, none),
        (":1\r\n", 78, none),
        ("$-1\r\n", 78, none),
        ("*1000000000\r\n", 78, none),
        ("$99999999999999999999\r\n", 78, none),
        ("\0\u{1}\u{2}\u{3}\r\n", 78, none),
        ("-ERR unknown command 'PING', with args beginning with: \r\n", 78, "command `PING`"),
        ("-LOADING the dataset\r\n", 69, "loading its data"),
        ("+PONG\r\n", 78, none),
    ] {
        let server = FakeServer::answering(nonsense);
        let done = run_at(&world, &server.url(), &["-n"]);
        done.code(code).says(words);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
    let done = run_at(&world, &FakeServer::closing().url(), &[]);
    done.code(69).says("ended the connection before it answered").says("no request was sent");
    assert!(!world.path("began").exists());
}

/// Wherever the first connection ends, the command takes and releases the lock, or says that it did
/// not. No lock is held for longer than its ttl.
#[test]
fn a_connection_that_ends_in_mid_reply_is_repaired_or_told() {
    let world = World::redis();
    let cut = Arc::new(AtomicUsize::new(0));
    let (mut repaired, mut told) = (0, 0);
    for limit in 1..80 {
        let began = world.path("began");
        let _ = std::fs::remove_file(&began);
        let done = run_at(&world, &cut_off_after(&world, limit, &cut), &["--ttl", "1s"]);
        match done.status.code() {
            Some(0) => {
                assert!(began.exists(), "{limit}: {done:?}");
                repaired += 1;
            }
            Some(69) => {
                assert!(!began.exists(), "{limit}: {done:?}");
                told += 1;
            }
            _ => panic!("{limit}: {done:?}"),
        }
        if world.server().command(&["EXISTS", "x"]).int() == 1 {
            assert_ne!(world.server().command(&["PTTL", "x"]).int(), -1, "{limit}");
            until("it frees itself", || world.server().command(&["EXISTS", "x"]).int() == 0);
        }
    }
    assert!(cut.load(Ordering::SeqCst) > 0 && repaired > 0 && told > 0, "{repaired} {told}");
    world.assert_nothing_left();
}
