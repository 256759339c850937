//! `elect --serve`: bad requests, slow clients, and many of them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::harness::{CEILING, Instance, World};

/// As many connections as are served at a time, and some more.
const CROWD: usize = 100;

fn instance(world: &World) -> Instance {
    let mut instance = Instance::start(world, &["--ttl", "5m"], "echo up; exec sleep 1000");
    instance.running.expect("up");
    instance
}

fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default().strip_prefix("HTTP/1.1 ").unwrap_or_default()
}

#[test]
fn a_bad_request_gets_its_reason_and_the_next_client_an_answer() {
    let world = World::sqlite();
    let instance = instance(&world);
    let long = format!("GET /leader HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(10_000));
    let posted = format!("POST /leader HTTP/1.1\r\nContent-Length: 50000\r\n\r\n{long:>50000}");
    for (request, expected) in [
        ("hello\r\n\r\n", "400 Bad Request"),
        // RFC 9112, 2.2: empty lines before a request do not matter.
        ("\r\nhello\r\n\r\n", "400 Bad Request"),
        ("\u{16}\u{3}\u{1}\r\n\r\n", "400 Bad Request"),
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("GET /metrics HTTP/1.1\r\n\r\n", "404 Not Found"),
        ("DELETE /leader HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (&posted, "405 Method Not Allowed"),
        (&long, "431 Request Header Fields Too Large"),
        ("GET /leader HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("HEAD /leader HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"),
    ] {
        let answer = instance.ask(request.as_bytes());
        assert_eq!(status(&answer), expected, "{request:.40}");
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        let has_body = !answer.ends_with("\r\n\r\n");
        assert_eq!(has_body, !request.starts_with("HEAD"), "{answer}");
    }
    instance.running.kill(Signal::TERM);
    instance.running.end().signal(Signal::TERM);
}

#[test]
fn clients_that_send_half_a_request_keep_nobody_out() {
    let world = World::sqlite();
    let instance = instance(&world);
    let slow: Vec<TcpStream> = (0..CROWD)
        .map(|_| {
            let mut stream = instance.connect();
            stream.write_all(b"GET /leader HT").expect("it is read");
            stream
        })
        .collect();
    assert_eq!(instance.get("/leader").0, 200);
    // The server ends each of these connections: the oldest because there are too many, and the
    // others when their time is over.
    for mut stream in slow {
        stream.set_read_timeout(Some(CEILING)).expect("a time");
        let answer = stream.read(&mut [0; 64]);
        assert!(!matches!(answer, Ok(1..)), "an answer to half a request");
        let is_over =
            !matches!(&answer, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(is_over, "it is open after {CEILING:?}");
    }
    assert_eq!(instance.get("/leader").0, 200);
    instance.running.kill(Signal::TERM);
    instance.running.end().signal(Signal::TERM);
}

#[test]
fn a_request_that_comes_in_pieces_is_answered() {
    let world = World::sqlite();
    let instance = instance(&world);
    let mut stream = instance.connect();
    for byte in b"GET /leader HTTP/1.1\r\nHost: x\r\n\r\n" {
        stream.write_all(&[*byte]).expect("it is read");
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(status(&answer), "200 OK");
}
