//! The requests of a handshake, and the outcome of each answer.

use std::error::Error as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::store::redis::connect::RedisConnector;
use crate::store::redis::connector::Connector as _;
use crate::store::redis::connector::Settling;

/// Separates the answers to the first requests from the answers to later ones.
const LATER: &str = "\0";

/// The requests and the outcome, for a URL and the answers of a server that then closes.
async fn answered(url: &str, answers: &[u8]) -> (String, Result<ServerFacts, Error>) {
    async fn serve(mut server: DuplexStream, answers: &[u8]) -> String {
        let mut words = Vec::new();
        for (number, answers) in answers.split(|byte| *byte == LATER.as_bytes()[0]).enumerate() {
            while number > 0 && !words.ends_with(b"replication\r\n") {
                server.read_buf(&mut words).await.expect("the client asks");
            }
            server.write_all(answers).await.expect("there is room");
        }
        server.shutdown().await.expect("it is open");
        server.read_to_end(&mut words).await.expect("the client closes");
        String::from_utf8(words).expect("text")
    }
    let connector = RedisConnector::new(url).expect("a good URL");
    let access = Settling::new(Arc::new(connector)).access();
    let (mut ours, server) = tokio::io::duplex(1 << 20);
    let handshake = async move { handshake_on_terms(&mut ours, &access).await };
    tokio::join!(serve(server, answers), handshake)
}

/// The answer of a database that nobody has switched.
const OFF: &str = "*1\r\n$-1\r\n";

/// The answer of a database that is switched to strict mode.
const ON: &str = "*1\r\n$13\r\non 1 anna@web\r\n";

/// The answers to INFO of a server with the ids `a1` and `b2`.
const IDS: &str = "$35\r\n# Server\r\nredis_mode:x\r\nrun_id:a1\r\n\r\n\
                   $34\r\nmaster_replid2:0\r\nmaster_replid:b2\r\n";

/// The requests, as words.
fn words(sent: &str) -> String {
    let is_argument = |line: &&str| !line.is_empty() && !line.starts_with(['*', '$']);
    let sent: Vec<_> = sent.split("\r\n").filter(is_argument).collect();
    sent.join(" ").replace("HMGET :lh:epoch switch", "RECORD")
}

#[tokio::test]
async fn the_handshake_follows_the_url_and_a_missing_right_to_ping_does_no_harm() {
    let no_right = "-NOPERM this user has no permissions to run 'ping'\r\n";
    let no_ping = "-ERR unknown command 'PING', with args beginning with: \r\n";
    let (pong, ok) = ("+PONG\r\n", "+OK\r\n");
    let replicas = "$33\r\nrole:master\r\nconnected_slaves:4\r\n\r\n";
    let fsync = "*2\r\n:1\r\n:0\r\n";
    let ids = "INFO server INFO replication";
    let table: [(&str, &[&str], &str); 10] = [
        ("redis://h", &[pong, OFF], "PING RECORD"),
        ("redis://h/0", &[no_right, OFF], "PING RECORD"),
        ("redis://h", &[no_ping, OFF], "PING RECORD"),
        ("redis://:p%20w@h", &[ok, pong, OFF], "AUTH p w PING RECORD"),
        ("redis://u:p@h/3", &[ok, ok, pong, OFF], "AUTH u p SELECT 3 PING RECORD"),
        ("redis://h/3?strict=yes", &[ok, pong, ON, IDS], &format!("SELECT 3 PING RECORD {ids}")),
        ("redis://h?replicas=2", &[pong, OFF, ":0\r\n"], "PING RECORD WAIT 0 1"),
        (
            "redis://h?replicas=majority",
            &[pong, OFF, ":0\r\n", replicas],
            "PING RECORD WAIT 0 1 INFO replication",
        ),
        ("redis://h?fsync=yes", &[pong, OFF, fsync], "PING RECORD WAITAOF 1 0 1"),
        (
            "redis://h?fsync=yes&replicas=majority&strict=yes",
            &[pong, OFF, IDS, fsync, replicas],
            &format!("PING RECORD {ids} WAITAOF 1 0 1 INFO replication"),
        ),
    ];
    for (url, answers, expected) in table {
        let (sent, outcome) = answered(url, answers.concat().as_bytes()).await;
        assert_eq!(words(&sent), expected, "{url}");
        let heard = outcome.unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(heard.run_id.as_deref(), url.contains("strict").then_some("a1"), "{url}");
        assert_eq!(heard.replid.as_deref(), url.contains("strict").then_some("b2"), "{url}");
        assert_eq!(heard.replicas, url.contains("majority").then_some(4), "{url}");
    }
}

/// The answer of the database, and whether a client is then strict, not strict, or refused.
#[tokio::test]
async fn a_client_is_strict_by_its_url_or_by_what_its_database_says() {
    let off_again = "*1\r\n$14\r\noff 1 anna@web\r\n";
    let by_hand = "*1\r\n$2\r\non\r\n";
    let denied = "-NOPERM No permissions to access a key\r\n";
    let first = "PING RECORD";
    let more = "PING RECORD INFO server INFO replication";
    for (url, record, outcome, expected) in [
        ("redis://h?strict=yes", OFF, Some(true), more),
        ("redis://h?strict=yes", ON, Some(true), more),
        ("redis://h?strict=yes", denied, Some(true), more),
        ("redis://h", OFF, Some(false), first),
        ("redis://h", off_again, Some(false), first),
        // The second round trip is only for this case.
        ("redis://h", ON, Some(true), more),
        ("redis://h", by_hand, Some(true), more),
        ("redis://h", denied, Some(false), first),
        ("redis://h?strict=no", OFF, Some(false), first),
        ("redis://h?strict=no", off_again, Some(false), first),
        ("redis://h?strict=no", denied, Some(false), first),
        ("redis://h?strict=no", ON, None, first),
    ] {
        let is_strict = outcome == Some(true);
        let later = if url.contains("yes") { "" } else { LATER };
        let ids = if is_strict { [later, IDS].concat() } else { String::new() };
        let answers = ["+PONG\r\n", record, &ids];
        let (sent, heard) = answered(url, answers.concat().as_bytes()).await;
        assert_eq!(words(&sent), expected, "{url} {record}");
        match heard {
            Ok(heard) => {
                assert_eq!(Some(heard.strict.is_some()), outcome, "{url} {record}");
                assert_eq!(heard.run_id.is_some(), is_strict, "{url} {record}");
                assert_eq!(heard.is_off, [OFF, off_again].contains(&record), "{url} {record}");
            }
            Err(error) => {
                assert_eq!(outcome, None, "{url} {record}: {error}");
                assert_eq!(error.kind(), ErrorKind::Config);
            }
        }
    }
}

#[tokio::test]
async fn a_cluster_is_asked_for_no_record() {
    let (sent, heard) = answered("redis+cluster://h", b"+PONG\r\n").await;
    assert_eq!(words(&sent), "PING");
    assert_eq!(heard.expect("it answers"), ServerFacts::default());
}

/// URL, answer, kind, the described mistake, and the next step in the message.
const REFUSALS: &[(&str, &str, ErrorKind, &str, &str)] = &[
    (
        "redis://h",
        "-NOAUTH Authentication required.",
        ErrorKind::Denied,
        "requires a password",
        "write it into the URL",
    ),
    (
        "redis://:secret@h",
        "-WRONGPASS invalid",
        ErrorKind::Denied,
        "does not accept",
        "correct them in the URL",
    ),
    (
        "redis://:secret@h",
        "-ERR AUTH x without any password configured",
        ErrorKind::Denied,
        "password",
        "remove the password",
    ),
    (
        "redis://:secret@h",
        "-ERR unknown command 'AUTH', with args beginning with: 'secret'",
        ErrorKind::Denied,
        "refuses the user and the password",
        "correct the URL",
    ),
    (
        "redis://u:secret@h",
        "-ERR wrong number of arguments for 'auth' command",
        ErrorKind::Denied,
        "refuses the user and the password",
        "correct the URL",
    ),
    (
        "redis://:secret@h",
        "-ERR max number of clients reached",
        ErrorKind::Unavailable,
        "`maxclients`",
        "raise the limit",
    ),
    (
        "redis://h/9",
        "-ERR DB index is out of range",
        ErrorKind::Config,
        "no database",
        "correct the number",
    ),
    (
        "redis://h/9",
        "-ERR SELECT is not allowed in cluster mode",
        ErrorKind::Config,
        "Cluster",
        "write `redis+cluster://`",
    ),
    (
        "redis://h/9",
        "-NOPERM this user has no permissions to run the 'select' command",
        ErrorKind::Denied,
        "the command `select`",
        "have the right added",
    ),
    ("redis://h/9", "-ERR no", ErrorKind::Config, "refuses the database", "correct the URL"),
    (
        "redis://h",
        "-LOADING Redis is loading",
        ErrorKind::Unavailable,
        "loading",
        "try again in a moment",
    ),
    (
        "redis://h",
        "-DENIED Redis is running in protected mode",
        ErrorKind::Denied,
        "protected",
        "set a password on the server",
    ),
    (
        "redis://h",
        "-ERR no",
        ErrorKind::Unavailable,
        "does not answer a PING",
        "try again, and read the log",
    ),
    (
        "redis://h",
        "HTTP/1.1 400 Bad Request",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
    ("redis://h", "\x15\x03\x01", ErrorKind::Config, "is not a Redis", "correct the host"),
    ("redis://h", "SSH-2.0-OpenSSH", ErrorKind::Config, "is not a Redis", "correct the host"),
    ("redis://h", "+PONG\r\n+PONG", ErrorKind::Config, "is not a Redis", "correct the host"),
    (
        "redis://h",
        "+PONG\r\n*1\r\n$-1\r\n:0",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
    (
        "redis://h?strict=no",
        "+PONG\r\n*1\r\n$2\r\non",
        ErrorKind::Config,
        "this database is switched to strict mode",
        "`leasehold strict status`",
    ),
    (
        "redis://h?strict=no&replicas=1",
        "+PONG\r\n*1\r\n$2\r\non",
        ErrorKind::Config,
        "`strict=no`",
        "connect by a URL without `strict=no`",
    ),
    (
        "redis://h",
        "+PONG\r\n-WRONGTYPE Operation against a key holding the wrong kind of value",
        ErrorKind::Config,
        "`:lh:epoch` of this database is not the hash",
        "`DEL :lh:epoch`",
    ),
    (
        "redis://h",
        "+PONG\r\n*1\r\n$2\r\non\r\n\0-NOPERM this user has no permissions to run 'info'",
        ErrorKind::Denied,
        "strict mode needs INFO",
        "allow the user `+info`",
    ),
    (
        "redis://h",
        "+PONG\r\n-MASTERDOWN Link with MASTER",
        ErrorKind::Unavailable,
        "replica",
        "connect to the primary",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n-NOPERM this user has no permissions to run the 'info' command",
        ErrorKind::Denied,
        "strict mode needs INFO",
        "allow the user `+info`",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n-ERR unknown command 'INFO', with args beginning with: 'server'",
        ErrorKind::Config,
        "`run_id`",
        "allow the command, or do without",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n$10\r\n# Server\r\n",
        ErrorKind::Config,
        "`run_id`",
        "allow the command, or do without",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n$9\r\nrun_id:\r\n",
        ErrorKind::Config,
        "`run_id`",
        "allow the command, or do without",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n$14\r\n# S\r\nrun_id:a1\r\n$24\r\n# R\r\nmaster_replid2:1111",
        ErrorKind::Config,
        "`master_replid`",
        "allow the command, or do without",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n\
         $14\r\n# S\r\nrun_id:a1\r\n-NOPERM this user has no permissions to run 'info'",
        ErrorKind::Denied,
        "strict mode needs INFO",
        "allow the user `+info`",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n-NOPERM this user has no permissions to run the 'wait' command",
        ErrorKind::Denied,
        "needs WAIT,",
        "allow the user `+wait`",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n-ERR WAIT cannot be used with replica instances. Please also note",
        ErrorKind::Config,
        "is a replica of a primary",
        "name the primary in the URL",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n-ERR unknown command 'WAIT', with args beginning with: '0'",
        ErrorKind::Unsupported,
        "needs WAIT",
        "leave `replicas` out of the URL of every client",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n-ERR no",
        ErrorKind::Config,
        "copies of a write",
        "see the cause, or leave",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n-LOADING no",
        ErrorKind::Unavailable,
        "loading",
        "try again in a moment",
    ),
    (
        "redis://h?replicas=1",
        "+PONG\r\n*1\r\n$-1\r\n+OK",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
    (
        "redis://h?replicas=majority",
        "+PONG\r\n*1\r\n$-1\r\n\
         :0\r\n-NOPERM this user has no permissions to run the 'info' command",
        ErrorKind::Denied,
        "`replicas=majority` needs INFO",
        "allow the user `+info`",
    ),
    (
        "redis://h?replicas=majority",
        "+PONG\r\n*1\r\n$-1\r\n:0\r\n$13\r\n# Replication",
        ErrorKind::Config,
        "its number of replicas",
        "allow the command, or write",
    ),
    (
        "redis://h?fsync=yes",
        "+PONG\r\n*1\r\n$-1\r\n\
         -ERR WAITAOF cannot be used when numlocal is set but appendonly is off.",
        ErrorKind::Config,
        "needs an append-only file",
        "set `appendonly yes` on the server, or leave `fsync` out",
    ),
    (
        "redis://h?fsync=yes",
        "+PONG\r\n*1\r\n$-1\r\n\
         -ERR unknown command 'WAITAOF', with args beginning with: '1' '0' '1'",
        ErrorKind::Unsupported,
        "needs WAITAOF",
        "use Redis 7.2 or later, or leave `fsync` out",
    ),
    (
        "redis://h?fsync=yes",
        "+PONG\r\n*1\r\n$-1\r\n-NOPERM this user has no permissions to run the 'waitaof' command",
        ErrorKind::Denied,
        "needs WAITAOF,",
        "allow the user `+waitaof`",
    ),
    (
        "redis://h?fsync=yes",
        "+PONG\r\n*1\r\n$-1\r\n:1",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n$-1",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
    (
        "redis://h?strict=yes",
        "+PONG\r\n*1\r\n$-1\r\n$99999999",
        ErrorKind::Config,
        "is not a Redis",
        "correct the host",
    ),
];

#[tokio::test]
async fn each_refusal_of_a_connection_says_what_to_do_and_shows_no_password() {
    for &(url, answer, kind, says, next) in REFUSALS {
        let (_, outcome) = answered(url, format!("{answer}\r\n").as_bytes()).await;
        let error = outcome.expect_err(answer);
        let message = error.to_string();
        assert_eq!(error.kind(), kind, "{answer}: {message}");
        let states = ["no request was sent", "nothing was changed", "nothing was granted"];
        let state = states.iter().find(|state| message.contains(**state)).expect(&message);
        let (what, what_next) = message.split_once(state).expect(&message);
        assert!(what.contains(says), "{answer}: {message}");
        assert!(what_next.contains(next), "{answer}: {message}");
        let is_of_the_url = what_next.contains("correct the URL");
        assert_eq!(is_of_the_url, next.contains("correct the URL"), "{answer}: {message}");
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(!format!("{message} {cause} {error:?}").contains("secret"), "{error:?}");
    }
}

/// Users without the newer rights, and servers with slots.
#[tokio::test]
async fn a_client_that_cannot_read_whether_others_are_strict_is_let_in() {
    for answer in [
        "-NOPERM this user has no permissions to access one of the keys used as arguments",
        "-NOPERM No permissions to access a key",
        "-MOVED 3999 127.0.0.1:6381",
        "-CLUSTERDOWN Hash slot not served",
        "-TRYAGAIN no",
        "-CROSSSLOT Keys in request don't hash to the same slot",
        "-ERR unknown command 'HMGET', with args beginning with: ':lh:epoch'",
    ] {
        let (_, outcome) = answered("redis://h", format!("+PONG\r\n{answer}\r\n").as_bytes()).await;
        assert_eq!(outcome.expect(answer), ServerFacts::default());
    }
}

/// The server may answer differently later, so such an answer does not prove that a client is not
/// strict.
#[tokio::test]
async fn a_server_that_does_not_say_whether_it_is_strict_is_asked_again() {
    for answer in ["-ERR no", "-STRANGE"] {
        for url in ["redis://h", "redis://h?strict=no"] {
            let (_, outcome) = answered(url, format!("+PONG\r\n{answer}\r\n").as_bytes()).await;
            let error = outcome.expect_err(answer);
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            let text = "the server does not say whether the database is switched to strict mode; \
                        no request was sent; try again";
            assert_eq!(error.to_string(), text);
        }
        let answers = format!("+PONG\r\n{answer}\r\n{IDS}");
        let (_, outcome) = answered("redis://h?strict=yes", answers.as_bytes()).await;
        assert!(outcome.expect(answer).strict.is_some(), "strict whatever the database says");
    }
}

#[tokio::test]
async fn a_server_that_closes_or_never_ends_its_line_is_told_from_one_that_answers() {
    for answers in ["", "+PO", "+PONG\r", "+OK\r\n", "+OK\r\n+PONG\r\n"] {
        let (_, outcome) = answered("redis://:p@h", answers.as_bytes()).await;
        let error = outcome.expect_err("no PONG");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("ended the connection"), "{error}");
        assert!(!error.to_string().contains("proxy"), "{error}");
    }
    let (_, outcome) = answered("redis://:p@h/1", b"+OK\r\n").await;
    let error = outcome.expect_err("no answer to SELECT").to_string();
    assert!(
        error.ends_with(
            "a proxy without SELECT: then leave the database out of the URL of every client"
        ),
        "{error}"
    );
    let (_, outcome) = answered("redis://h", &b"+".repeat(10 * ANSWER_MAX)).await;
    assert_eq!(outcome.expect_err("no end").kind(), ErrorKind::Config);
}
