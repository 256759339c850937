//! What the command costs a server.

use super::info;
use super::monitor::Monitor;
use crate::harness::{Running, World, finish, start, until};

/// What a waiter may cost, in requests per second.
const REQUESTS_PER_SECOND_MAX: f64 = 1.5;

/// How often a waiter asks that is told nothing, in seconds.
const POLL_EVERY: f64 = 1.0;

/// A lease that is renewed so rarely that its holder is silent.
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
fn who_waits_opens_one_more_to_be_told() {
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
    assert_eq!(connections_made(&world) - before, 2);
}

/// Counted over whole rounds of what a waiter does, from one look at the holder to another, on the
/// server's clock.
#[test]
fn a_waiter_asks_seldom() {
    const ROUNDS: usize = 2;
    let world = World::redis();
    let mut holder = holder(&world);
    let mut waiter = start(world.run("x", &["--ttl", "3s"], "exit 0"));
    waiter.expect_message("is held by");
    let mut monitor = Monitor::start(world.server());
    // The last request of a look asks who the clients are.
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

/// One who finds out by polling begins at least one poll interval after the last ask that found the
/// lock taken, in each of the rounds. One who is told begins right away, where the machine lets it.
#[test]
fn a_waiter_of_another_process_is_told_and_need_not_look() {
    const ROUNDS: usize = 20;
    let world = World::redis();
    let is_told = |_: usize| {
        let mut holder = holder(&world);
        let mut waiter = start(world.run("x", &SILENT, "echo mine; read line; exit 0"));
        until("it waits", || world.waiters("x") == 1);
        let mut monitor = Monitor::start(world.server());
        // An ask that is answered *taken* refreshes a place.
        let mut asked_last = monitor.next();
        while !(asked_last.is_of_script() && asked_last.is("ZADD")) {
            asked_last = monitor.next();
        }
        world.server().command(&["ECHO", "release"]);
        holder.tell("end");
        waiter.expect("mine");
        world.server().command(&["ECHO", "mine"]);
        loop {
            let asked = monitor.next();
            if asked.is("ECHO") {
                break;
            } else if asked.is_of_script() && asked.is("ZADD") {
                asked_last = asked;
            }
        }
        let mut began = monitor.next_request();
        while !began.is("ECHO") {
            began = monitor.next_request();
        }
        holder.end().code(0);
        waiter.tell("end");
        waiter.end().code(0);
        began.at - asked_last.at < POLL_EVERY
    };
    assert!((0..ROUNDS).any(is_told), "in none of {ROUNDS} rounds it began before its next poll");
}
