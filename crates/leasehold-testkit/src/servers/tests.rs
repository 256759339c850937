//! Tests of the test servers.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::resp::Client;
use super::{RedisServer, pool};

/// The state letter of a process, as in proc(5); `X` without a process.
fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].trim_start().chars().next());
    state.unwrap_or('X')
}

#[test]
fn a_server_answers_keeps_what_it_is_told_and_forgets_it_when_flushed() {
    let server = RedisServer::start();
    server.command(&["SET", "key", "va\r\nlue"]);
    assert_eq!(server.command(&["GET", "key"]).text(), "va\r\nlue");
    server.command(&["RPUSH", "list", "a", "b"]);
    assert_eq!(server.command(&["LRANGE", "list", "0", "-1"]).texts(), ["a", "b"]);
    let refused = server.try_command(&["GET", "list"]).expect_err("a list is not a string");
    assert!(refused.starts_with("WRONGTYPE"), "{refused}");
    server.flush();
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_server_is_reached_through_its_socket_too() {
    let server = RedisServer::start();
    let url = server.unix_url();
    let socket = url.strip_prefix("unix:").expect("a url of a socket");
    std::os::unix::net::UnixStream::connect(socket).expect("somebody listens");
}

#[test]
fn a_server_is_gone_with_its_directory_when_it_is_dropped_also_by_a_panic() {
    let server = RedisServer::start();
    let (pid, dir) = (server.pid(), server.path(""));
    assert!(Path::new(&dir).exists());
    let panic = catch_unwind(AssertUnwindSafe(move || {
        let _server = server;
        panic!("a check fails");
    }));
    assert!(panic.is_err());
    assert_eq!((state_of(pid), dir.exists()), ('X', false));
}

#[test]
fn a_paused_server_is_stopped_and_its_connections_stay_open() {
    let server = RedisServer::start();
    let mut client = Client::connect(server.port()).expect("it listens");
    server.pause();
    assert_eq!(state_of(server.pid()), 'T');
    assert!(client.is_open());
    server.resume();
    assert_eq!(client.ask(&["PING"]).expect("an answer").text(), "PONG");
}

#[test]
fn a_killed_server_refuses_connections_and_comes_back_empty_on_its_port() {
    let server = RedisServer::start();
    server.command(&["SET", "key", "value"]);
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert_eq!(state_of(pid), 'X');
    assert!(Client::connect(port).is_err());
    server.restart();
    assert_eq!(server.port(), port);
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_server_with_a_log_of_its_data_comes_back_with_it() {
    let server = RedisServer::builder().config("appendonly", "yes").start();
    server.command(&["SET", "key", "value"]);
    server.restart();
    assert_eq!(server.command(&["GET", "key"]).text(), "value");
}

#[test]
fn a_server_is_configured_and_its_password_is_known_to_the_kit() {
    let server = RedisServer::builder()
        .config("maxmemory", "5mb")
        .config("requirepass", "\"open sesame\"")
        .start();
    assert_eq!(server.command(&["CONFIG", "GET", "maxmemory"]).texts()[1], "5242880");
    let mut stranger = Client::connect(server.port()).expect("it listens");
    let refused = stranger.ask(&["PING"]).expect("an answer");
    assert!(format!("{refused:?}").contains("NOAUTH"), "{refused:?}");
}

#[test]
#[should_panic(expected = "no-such-option")]
fn a_server_that_does_not_start_fails_the_test_with_its_log() {
    let _ = RedisServer::builder().config("no-such-option", "1").start();
}

#[test]
fn a_closed_connection_of_the_kit_is_opened_anew() {
    let server = RedisServer::start();
    server.command(&["PING"]);
    let mut other = Client::connect(server.port()).expect("it listens");
    other.ask(&["CLIENT", "KILL", "TYPE", "normal"]).expect("an answer");
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

const NEW_YEAR_2026_US: u64 = 1_767_225_600_000_000;

#[test]
fn a_standing_clock_makes_expiry_exact_to_the_millisecond() {
    let server = RedisServer::builder().with_clock().start();
    let clock = server.clock();
    clock.freeze_at(NEW_YEAR_2026_US + 7);
    assert_eq!(server.command(&["TIME"]).texts(), ["1767225600", "7"]);
    server.command(&["SET", "key", "value", "PX", "1000"]);
    assert_eq!(server.command(&["PTTL", "key"]).int(), 1_000);
    clock.step_by(999_000);
    assert_eq!(server.command(&["PTTL", "key"]).int(), 1);
    assert_eq!(server.command(&["GET", "key"]).text(), "value");
    let script = "local t = redis.call('TIME') return {t[1], t[2], redis.call('EXISTS', 'key')}";
    let seen = server.command(&["EVAL", script, "0"]);
    assert_eq!((seen.array()[0].text(), seen.array()[2].int()), ("1767225600".to_owned(), 1));
    // Redis keeps a key until the end of its last millisecond.
    clock.step_by(2_000);
    let seen = server.command(&["EVAL", script, "0"]);
    assert_eq!((seen.array()[0].text(), seen.array()[2].int()), ("1767225601".to_owned(), 0));
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_running_clock_steps_forward_and_back() {
    let server = RedisServer::builder().with_clock().start();
    server.command(&["SET", "key", "value", "PX", "100000"]);
    server.clock().step_by(-50_000_000);
    let left = server.command(&["PTTL", "key"]).int();
    assert!((100_000..=150_000).contains(&left), "{left} ms are left");
    server.clock().step_by(200_000_000);
    assert_eq!(server.command(&["EXISTS", "key"]).int(), 0);

    server.clock().step_by(86_400_000_000);
    server.clock().freeze_at(NEW_YEAR_2026_US);
    server.clock().run_free();
    let machine = Command::new("date").arg("+%s").output().expect("date runs").stdout;
    let machine: i64 = String::from_utf8_lossy(&machine).trim().parse().expect("a number");
    let shown = server.command(&["TIME"]).array()[0].int();
    assert!((shown - machine).abs() < 3_600, "{shown} beside {machine}");
}

/// Set if this program runs as a child of its own test.
const CHILD: &str = "LEASEHOLD_TESTKIT_CHILD";

/// Runs one test of this program in a new process. Returns the process and its output lines.
fn start_as_child(test: &str, temp: &Path) -> (Child, impl Iterator<Item = String>) {
    let mut command = Command::new(std::env::current_exe().expect("the program of this test"));
    command.args([&format!("servers::tests::{test}"), "--exact", "--nocapture"]);
    command.env(CHILD, "1").env("TMPDIR", temp).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    (child, output.lines().map_while(Result::ok))
}

/// The pid that the child printed.
fn told_pid(lines: &mut impl Iterator<Item = String>) -> Pid {
    let pid = lines.find_map(|line| line.split_once("server: ")?.1.parse().ok());
    pid.and_then(Pid::from_raw).expect("the child tells")
}

fn until_ended(server: &OwnedFd) {
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(server, PollFlags::IN)], Some(&limit));
    assert_eq!(ended, Ok(1), "the server outlives who started it");
}

#[test]
fn a_server_ends_with_the_process_of_the_tests_however_that_ends() {
    if std::env::var_os(CHILD).is_some() {
        let server = RedisServer::start();
        println!("server: {}", server.pid());
        std::io::stdin().read_line(&mut String::new()).expect("it is kept waiting");
        return;
    }
    let name = "a_server_ends_with_the_process_of_the_tests_however_that_ends";
    // A killed process does not clean up.
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (mut child, mut lines) = start_as_child(name, temp.path());
    let server = pidfd_open(told_pid(&mut lines), PidfdFlags::empty()).expect("it lives");
    child.kill().expect("it lives");
    child.wait().expect("it is ours");
    until_ended(&server);
}

#[test]
fn a_server_of_the_pool_comes_without_what_others_left_on_it() {
    let (pid, mut stale) = {
        let server = pool::lend();
        let sha = server.command(&["SCRIPT", "LOAD", "return 1"]).text();
        server.command(&["SET", "key", "value"]);
        server.clock().freeze_at(NEW_YEAR_2026_US);
        let connection = Client::connect(server.port()).expect("it listens");
        ((server.pid(), sha), connection)
    };
    // Other tests of this process may have borrowed the server meanwhile, so the test checks all
    // servers.
    let servers = pool::lend_all(3);
    for server in &servers {
        assert_eq!(server.command(&["DBSIZE"]).int(), 0);
        assert_eq!(server.command(&["SCRIPT", "EXISTS", &pid.1]).array()[0].int(), 0);
        assert!(server.command(&["TIME"]).array()[0].int() > 1_767_225_600);
        if server.pid() == pid.0 {
            assert!(stale.ask(&["PING"]).is_err(), "an old connection still speaks");
        }
    }
    let pids: HashSet<_> = servers.iter().map(|server| server.pid()).collect();
    assert_eq!(pids.len(), servers.len(), "a server is lent to one at a time");
}

#[test]
fn a_server_that_was_killed_or_paused_does_not_come_back_to_the_pool() {
    let (killed, paused) = (pool::lend(), pool::lend());
    let pids = [killed.pid(), paused.pid()];
    killed.kill();
    paused.pause();
    drop((killed, paused));
    assert_eq!(pids.map(state_of), ['X', 'X']);
    let servers = pool::lend_all(3);
    assert!(servers.iter().all(|server| !pids.contains(&server.pid())));
}

#[test]
fn the_servers_of_the_pool_end_with_the_process_and_leave_nothing() {
    if std::env::var_os(CHILD).is_some() {
        let server = pool::lend();
        println!("server: {}", server.pid());
        drop(server);
        std::io::stdin().read_line(&mut String::new()).expect("it is kept waiting");
        return;
    }
    let name = "the_servers_of_the_pool_end_with_the_process_and_leave_nothing";
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (mut child, mut lines) = start_as_child(name, temp.path());
    let server = pidfd_open(told_pid(&mut lines), PidfdFlags::empty()).expect("it lives");
    drop(child.stdin.take());
    assert!(child.wait().expect("it is ours").success());
    until_ended(&server);
    let left = std::fs::read_dir(temp.path()).expect("it is there").count();
    assert_eq!(left, 0, "files were left behind");
}
