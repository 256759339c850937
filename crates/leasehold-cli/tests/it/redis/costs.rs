//! The cost of the command for a server.

use super::monitor::{Asked, Monitor};
use super::{info, url_of};
use crate::harness::{Running, World, finish, start, until};

/// The most requests per second of a waiter.
const REQUESTS_PER_SECOND_MAX: f64 = 1.5;

/// The poll interval of a waiter that gets no wake-ups, in seconds.
const POLL_EVERY: f64 = 1.0;

/// A ttl so long that its holder sends no renewals during a test.
const SILENT: [&str; 2] = ["--ttl", "1h"];

fn holder(world: &World) -> Running {
    let mut holder = start(world.run("x", &SILENT, "echo up; read line; exit 0"));
    holder.expect("up");
    holder
}

fn connections_made(world: &World) -> u64 {
    info(world, "stats", "total_connections_received").parse().expect("a number")
}

#[test]
fn an_uncontended_run_opens_one_connection() {
    let world = World::redis();
    let before = connections_made(&world);
    for _ in 0..3 {
        finish(world.run("x", &SILENT, "exit 0")).code(0);
    }
    assert_eq!(connections_made(&world) - before, 3, "three runs");
    holder(&world).end();
    assert_eq!(connections_made(&world) - before, 4, "one more, which took its time");
}

#[test]
fn a_waiter_opens_one_more_connection_for_its_hints() {
    let world = World::redis();
    let mut holder = holder(&world);
    let before = connections_made(&world);
    let waiter = start(world.run("x", &SILENT, "exit 0"));
    until("it listens", || {
        let channels = world.server().command(&["PUBSUB", "CHANNELS", ":lh:inbox:*"]);
        channels.texts().len() == 1
    });
    holder.tell("end");
    holder.end().code(0);
    waiter.end().code(0);
    // A third connection is for renewals, if the command outlasts the short ttl of the hand-over.
    let made = connections_made(&world) - before;
    assert!((2..=3).contains(&made), "{made}");
}

/// Counts over whole rounds of a waiter, from one inspection to the next, on the server's clock.
#[test]
fn a_waiter_asks_seldom() {
    const ROUNDS: usize = 2;
    let world = World::redis();
    let mut holder = holder(&world);
    let mut waiter = start(world.run("x", &["--ttl", "3s"], "exit 0"));
    waiter.expect_message("is held by");
    let mut monitor = Monitor::start(world.server());
    // The last request of an inspection reads the records of the clients.
    let began = loop {
        let asked = monitor.next_request();
        if asked.is("MGET") {
            break asked.at;
        }
    };
    let (mut requests, mut looks) = (0_u32, 0);
    let ended = loop {
        let asked = monitor.next_request();
        requests += 1;
        looks += usize::from(asked.is("MGET"));
        if looks == ROUNDS {
            break asked.at;
        }
    };
    let per_second = f64::from(requests) / (ended - began);
    assert!(per_second <= REQUESTS_PER_SECOND_MAX, "{requests} in {} s", ended - began);
    assert!(requests as usize > 2 * looks, "it kept its place meanwhile");
    holder.tell("end");
    holder.end().code(0);
    waiter.end().code(0);
    world.assert_nothing_left();
}

/// The seconds between the waiter's last ask that found the lock taken and the start of its work,
/// on the server's clock. The holder releases right after such an ask.
fn seconds_from_ask_to_work(world: &World, url: &str) -> f64 {
    let run = |script: &str| {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", url).args(["run", "x"]).args(SILENT);
        command.args(["--", "sh", "-c", script]);
        start(command)
    };
    let mut holder = run("echo up; read line; exit 0");
    holder.expect("up");
    let mut waiter = run("echo mine; read line; exit 0");
    until("it waits", || world.waiters("x") == 1);
    let mut monitor = Monitor::start(world.server());
    // The waiter's ask refreshes its place in a sorted set.
    let is_ask = |asked: &Asked| asked.is_of_script() && asked.is("ZADD");
    let mut last_ask = monitor.next();
    while !is_ask(&last_ask) {
        last_ask = monitor.next();
    }
    world.server().command(&["ECHO", "released"]);
    holder.tell("end");
    waiter.expect("mine");
    world.server().command(&["ECHO", "begun"]);
    let mut seen = monitor.next();
    while !seen.is("ECHO") {
        if is_ask(&seen) {
            last_ask = seen;
        }
        seen = monitor.next();
    }
    let mut begun = monitor.next_request();
    while !begun.is("ECHO") {
        begun = monitor.next_request();
    }
    waiter.tell("end");
    for process in [holder, waiter] {
        process.end().code(0);
    }
    begun.at - last_ask.at
}

/// In each round, a polling waiter starts at least one poll interval after its ask. A waiter that
/// is told starts at once, if the machine is not too slow.
#[test]
fn a_waiter_of_another_process_is_told_and_need_not_look() {
    const ROUNDS: usize = 20;
    let world = World::redis();
    let is_told = |_| seconds_from_ask_to_work(&world, &world.url()) < POLL_EVERY;
    assert!((0..ROUNDS).any(is_told), "in none of {ROUNDS} rounds it began before its next poll");
}

/// Shows that the test above can fail.
#[test]
fn a_waiter_that_cannot_be_told_looks_once_in_a_poll_interval() {
    let world = World::redis();
    let mute = "ACL SETUSER mute on >word resetchannels +@all ~*";
    world.server().command(&mute.split(' ').collect::<Vec<_>>());
    let waited = seconds_from_ask_to_work(&world, &url_of(&world, "mute:word@", ""));
    assert!(waited >= POLL_EVERY, "it began after {waited} s");
}
