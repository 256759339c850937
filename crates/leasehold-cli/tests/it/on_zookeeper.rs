//! The command on ZooKeeper: its main jobs, its doctor, and its errors.

use std::time::{Duration, Instant};

use leasehold_testkit::servers::{Proxy, ZookeeperPath, ZookeeperServer};
use rustix::process::Signal;

use crate::harness::{World, finish, start, until};
use crate::main_jobs::{self, on};

/// The time of a session, unless a test needs another.
const SESSION: &str = "15s";

#[test]
fn a_command_waits_for_its_turn_and_tools_show_who_has_the_lock() {
    main_jobs::wait_for_the_turn(&ZookeeperPath::lend().url(SESSION));
}

#[test]
fn an_operator_ends_a_lease_and_its_command_is_stopped() {
    main_jobs::unlock_by_force(&ZookeeperPath::lend().url(SESSION));
}

#[test]
fn a_command_whose_lock_is_asked_for_stops_and_lets_go() {
    main_jobs::unlock_by_request(&ZookeeperPath::lend().url(SESSION));
}

#[test]
fn no_update_is_lost_by_commands_under_the_lock() {
    let path = ZookeeperPath::lend();
    main_jobs::count_together(&path.url(SESSION));
    until("no node is left", || path.nodes("counter").is_empty());
}

#[test]
fn a_lock_of_a_killed_process_is_free_when_its_session_ends() {
    let (world, path) = (World::sqlite(), ZookeeperPath::lend());
    let mut command = world.bare();
    command.args(["--url", &path.url("4s"), "run", "a", "--ttl", "2s", "--", "sh", "-c"]);
    command.arg("echo up; exec sleep 600");
    let mut holder = start(command);
    holder.expect("up");
    let mut waiter = start(on(&world, &path.url(SESSION), &["run", "a", "--", "echo", "mine"]));
    until("it waits", || path.waiters("a") == 1);
    holder.kill(Signal::KILL);
    waiter.expect("mine");
    waiter.end().code(0);
}

/// The session may be about to end, since the server got no request meanwhile. A new connection
/// restarts the time of the session.
#[test]
fn a_client_that_stood_still_connects_anew_before_it_renews() {
    let (world, path) = (World::sqlite(), ZookeeperPath::lend());
    let port = ZookeeperServer::shared().port(0);
    let proxy = Proxy::to(port);
    let url = path.url(SESSION).replace(&port.to_string(), &proxy.port().to_string());
    let mut command = world.bare();
    command.args(["--url", &url, "run", "a", "--", "sh", "-c", "echo up; read line"]);
    let mut holder = start(command);
    holder.expect("up");
    assert_eq!(proxy.counts().connections, 1);
    holder.kill(Signal::STOP);
    let stopped = Instant::now();
    // This is a little more than a third of the margin.
    until("it stood still", || stopped.elapsed() > Duration::from_millis(1_500));
    let nodes = path.nodes("a");
    holder.kill(Signal::CONT);
    proxy.until(|counts| counts.connections == 2);
    assert_eq!(path.nodes("a"), nodes, "the same session");
    holder.tell("go on");
    holder.end().code(0);
}

#[test]
fn a_lock_is_not_left_to_a_script() {
    let (world, path) = (World::sqlite(), ZookeeperPath::lend());
    let done = finish(on(&world, &path.url(SESSION), &["acquire", "a", "--ttl", "10s"]));
    done.code(78).says("leasehold run").says_that_nothing_happened();
    finish(on(&world, &path.url(SESSION), &["run", "-n", "a", "--", "true"])).code(0);
}

#[test]
fn a_doctor_examines_the_ensemble() {
    let (world, path) = (World::sqlite(), ZookeeperPath::lend());
    let found = finish(on(&world, &path.url(SESSION), &["doctor"]));
    for part in ["ZooKeeper 3.", "a wrong token ended nothing", "11.25s", "three members"] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
    // The lease that the doctor tries fits into a short session.
    let url = path.url("4s");
    let found = finish(on(&world, &url, &["doctor", "--ttl", "2s"]));
    assert!(found.stdout.contains("a wrong token ended nothing"), "{}", found.stdout);
}

#[test]
fn errors_have_their_exit_codes_and_never_show_the_password() {
    main_jobs::refuse_in_silence(&[
        ("zookeeper://x:wrong-secret@127.0.0.1:1/x", 69, "listens"),
        ("zookeeper://x:wrong-secret@127.0.0.1:1/x?wrong=1", 78, "no option `wrong`"),
    ]);
}
