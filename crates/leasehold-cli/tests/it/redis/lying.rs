//! Servers that never answer, that are no servers of this kind, or that go away in mid-reply.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Done, World, finish, until};

/// Listens on a free port, and gives every connection that comes to `serve`, with its number from 1.
fn listen(serve: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("redis://{}", listener.local_addr().expect("an address"));
    let serve = Arc::new(serve);
    // It ends with the process of the tests.
    std::thread::spawn(move || {
        for (stream, number) in listener.incoming().zip(1..) {
            let Ok(stream) = stream else { break };
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream, number));
        }
    });
    url
}

/// Copies what comes from one side to the other, `limit` bytes of it at most, and then closes both.
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

/// A way to the server of the world on which the first connection ends after so many bytes of
/// answers.
fn cut_off_after(world: &World, limit: usize, cut: &Arc<AtomicUsize>) -> String {
    let port = world.server().port();
    let cut = Arc::clone(cut);
    listen(move |client, number| {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it runs");
        let back = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
        std::thread::spawn(move || copy(back.0, back.1, usize::MAX));
        copy(server, client, if number == 1 { limit } else { usize::MAX });
        if number == 1 {
            cut.fetch_add(1, Ordering::SeqCst);
        }
    })
}

fn run_at(world: &World, url: &str, flags: &[&str]) -> Done {
    let mut command = world.bare();
    command.args(["--url", url, "run", "x"]).args(flags).args(["--", "touch", "began"]);
    finish(command)
}

/// It ends at all: the limit is on our side.
#[test]
fn a_server_that_never_answers_ends_with_69() {
    let world = World::sqlite();
    let silent = listen(|stream, _| {
        // Held open until the process ends.
        std::mem::forget(stream);
    });
    let full = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let unaccepted = format!("redis://{}", full.local_addr().expect("an address"));
    for url in [silent, unaccepted] {
        for flags in [&[][..], &["-n"], &["-w", "10m"]] {
            let done = run_at(&world, &url, flags);
            done.code(69).says("accepts connections and does not answer").says("nothing was asked");
        }
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_server_of_another_kind_ends_with_an_error_that_says_so() {
    let world = World::sqlite();
    for nonsense in [
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nhunter2\r\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "+OK\r\n",
        ":1\r\n",
        "$-1\r\n",
        "*1000000000\r\n",
        "$99999999999999999999\r\n",
        "\0\u{1}\u{2}\u{3}\r\n",
        "-ERR unknown command 'PING', with args beginning with: \r\n",
        "",
    ] {
        let url = listen(move |mut stream, _| {
            let mut bytes = [0; 4096];
            // Nonsense to everything that is asked; none is an end right away.
            while !nonsense.is_empty() && matches!(stream.read(&mut bytes), Ok(1..)) {
                if stream.write_all(nonsense.as_bytes()).is_err() {
                    break;
                }
            }
        });
        let done = run_at(&world, &url, &["-n"]);
        let code = done.status.code().expect("a code");
        assert!([69, 78].contains(&code), "{nonsense:?}: {done:?}");
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
    assert!(!world.path("began").exists());
}

/// Wherever the first connection ends, the lock is taken and released all the same, or it is said
/// that it was not; and nothing is held for longer than its ttl.
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
