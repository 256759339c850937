//! A server that is stopped in the middle, and the effect on holders and waiters.

use leasehold_testkit::servers::RedisServer;
use rustix::process::Signal;

use super::{time_left, time_left_at, uptime};
use crate::harness::{World, finish, is_alive, start, until, until_dead};

/// A command that ignores every request to stop. It writes the time again and again while it lives,
/// on the machine's clock (CLOCK_BOOTTIME; /proc/uptime shows it in hundredths).
pub(super) const STUBBORN: &str = "trap '' TERM INT HUP; echo $$; \
    while :; do read up idle < /proc/uptime; echo $up >> $1/alive; sleep 0.02; done";

/// Stops the server and returns when the server will free `x`, on the machine's clock. No renewal
/// came between the question and the stop, since the question came just after a renewal, and
/// renewals are due every third of the ttl.
pub(super) fn pause_and_know_the_end(server: &RedisServer, ttl: f64) -> f64 {
    let mut ends = None;
    until("the server is stopped between two renewals", || {
        let asked = uptime();
        let left = time_left_at(server, "x").expect("the lease");
        server.pause();
        let passed = ttl - left + (uptime() - asked);
        if passed < ttl / 4.0 {
            ends = Some(asked + left);
        } else {
            server.resume();
        }
        ends.is_some()
    });
    ends.expect("it was just found")
}

/// The times that a stubborn command wrote.
pub(super) fn signs_of_life(world: &World) -> Vec<f64> {
    world.read("alive").lines().map(|up| up.parse().expect("a time")).collect()
}

#[test]
fn a_command_that_ignores_term_is_dead_before_a_stopped_server_frees_the_lock() {
    let world = World::redis();
    let mut run = start(world.run("x", &["--ttl", "6s"], STUBBORN));
    let pid: i32 = run.line().parse().expect("a pid");
    let ends = pause_and_know_the_end(world.server(), 6.0);
    let line = run.expect_message("the lease was not renewed in time");
    assert!(line.contains("could not be reached within 1s; no request was sent"), "{line}");
    assert_eq!(line.matches("`x`").count(), 1, "{line}");
    run.expect_message("telling the command to stop");
    let before = signs_of_life(&world).len();
    run.expect_message("killing the command");
    run.end().code(79);
    assert!(!is_alive(pid));
    let alive = signs_of_life(&world);
    assert!(alive.len() > before, "it did live on after TERM");
    let last = alive[alive.len() - 1];
    assert!(last < ends, "alive at {last}, while the server keeps the lock until {ends}");
    world.server().resume();
    until("what was left of the lease is over", || world.state("x") == "free");
    world.assert_nothing_left();
}

/// Stops the server under a command. Returns whether the test saw it dead before the server would
/// have freed the lock. On a slow machine the test may see that too late.
fn is_seen_dead_in_time(world: &World) -> bool {
    let mut run = start(world.run("x", &["--ttl", "2s"], "echo $$; exec sleep 60"));
    let pid: i32 = run.line().parse().expect("a pid");
    let ends = pause_and_know_the_end(world.server(), 2.0);
    until_dead(pid);
    let died = uptime();
    world.server().resume();
    run.end().code(79).says("telling the command to stop");
    until("the lease is over", || world.state("x") == "free");
    died < ends
}

#[test]
fn a_command_is_gone_before_a_stopped_server_would_free_the_lock() {
    const ROUNDS: usize = 10;
    let world = World::redis();
    assert!((0..ROUNDS).any(|_| is_seen_dead_in_time(&world)), "late in each of {ROUNDS} rounds");
    world.assert_nothing_left();
}

#[test]
fn a_server_that_comes_back_in_time_is_no_reason_to_stop() {
    let world = World::redis();
    let script = "trap 'echo told to stop; exit 9' TERM; echo up; read line; exit 0";
    let mut run = start(world.run("x", &["--ttl", "20s"], script));
    run.expect("up");
    // The server is away for longer than a renewal waits, and for less than the lease lasts.
    let ends = pause_and_know_the_end(world.server(), 20.0);
    run.expect_message("the lease was not renewed in time");
    world.server().resume();
    run.expect_message("the lease is renewed again");
    assert!(time_left(&world, "x").is_some_and(|left| uptime() + left > ends), "it was renewed");
    run.tell("end");
    run.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn connections_that_are_cut_are_made_again_and_nobody_notices() {
    let world = World::redis();
    let mut holder = start(world.run("x", &["--ttl", "9s"], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut waiter = start(world.run("x", &[], "echo mine"));
    until("it waits", || world.waiters("x") == 1);
    for kind in ["normal", "pubsub"] {
        world.server().command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
    let left = time_left(&world, "x").expect("the lease");
    let asked = uptime();
    until("it is renewed", || {
        let ends = time_left(&world, "x").map(|left| uptime() + left);
        ends.expect("the lease") > asked + left + 1.0
    });
    holder.tell("end");
    assert_eq!(holder.end().code(0).stderr, "");
    waiter.expect("mine");
    waiter.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn a_server_that_stops_answering_is_told_once_with_its_cause_and_so_is_its_return() {
    let world = World::redis();
    let mut first = start(world.run("x", &["--ttl", "1h"], "echo up; read line; exit 0"));
    first.expect("up");
    let mut command = world.leasehold(["-q", "run", "x", "--", "true"]);
    command.env("LEASEHOLD_LOG", "");
    let mut quiet = start(command);
    let mut waiter = start(world.run("x", &[], "true"));
    until("both wait", || world.waiters("x") == 2);
    world.server().pause();
    for waiter in [&mut waiter, &mut quiet] {
        let line = waiter.expect_message("the store does not answer");
        assert!(line.contains("did not answer within"), "{line}");
        assert!(line.contains("still waiting"), "{line}");
    }
    world.server().resume();
    waiter.expect_message("the store answers again");
    first.tell("end");
    first.end().code(0);
    let done = waiter.end();
    done.code(0);
    assert_eq!(done.stderr.matches("does not answer:").count(), 1, "{}", done.stderr);
    quiet.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn a_signal_while_a_stopped_server_is_told_of_the_release_changes_nothing() {
    let world = World::redis();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut holder = start(world.run("x", &["--ttl", "1m"], "echo $$; read line; exit 6"));
        let pid: i32 = holder.line().parse().expect("a pid");
        world.server().pause();
        holder.tell("end");
        until_dead(pid);
        holder.kill(signal);
        let end = holder.end();
        end.code(6).says("the store did not confirm the release").says("the lock frees itself");
        world.server().resume();
        // A request that was on its way may still arrive.
        let token = world.inspect("x")["holders"][0]["token_hint"].clone();
        if let Some(token) = token.as_str() {
            let args = ["unlock", "x", "--token", token, "--why", "left by the test", "--yes"];
            let done = finish(world.leasehold(args));
            assert!([0, 75].contains(&done.status.code().expect("a code")), "{done:?}");
        }
    }
    world.assert_nothing_left();
}

#[test]
fn a_killed_holder_is_followed_when_its_lease_ends_and_not_before() {
    let world = World::redis();
    let mut holder = start(world.run("x", &["--ttl", "2s"], "echo up; exec sleep 1000"));
    holder.expect("up");
    let mut waiter = start(world.run("x", &[], "cat /proc/uptime"));
    until("it waits", || world.waiters("x") == 1);
    holder.kill(Signal::KILL);
    holder.exit();
    let asked = uptime();
    let ends = asked + time_left(&world, "x").expect("the process that would renew is dead");
    let line = waiter.line();
    let held: f64 = line.split(' ').next().and_then(|up| up.parse().ok()).expect("a time");
    // The system rounds down to hundredths, and the server to milliseconds.
    assert!(held + 0.012 >= ends, "held at {held}, the old lease ended at {ends}");
    waiter.end().code(0);
    world.assert_nothing_left();
}
