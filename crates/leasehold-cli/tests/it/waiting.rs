//! Waiting in line, and the messages meanwhile.

use rusqlite::Connection;
use rustix::process::Signal;

use crate::harness::{Running, World, finish, start, state_of, until};

on_every_store! {
    five_waiters_are_served_in_the_order_in_which_they_came,
    a_killed_first_waiter_does_not_hold_up_the_next,
    a_command_that_was_waited_for_begins_with_most_of_its_ttl,
    a_waiter_sees_its_position_and_who_holds_the_lock_since_when_and_why,
    a_new_holder_is_announced,
    quiet_waits_in_silence,
}

fn holder(world: &World, flags: &[&str]) -> Running {
    let mut holder = start(world.run("x", flags, "echo up; read line"));
    holder.expect("up");
    holder
}

fn five_waiters_are_served_in_the_order_in_which_they_came(world: &World) {
    let mut first = holder(world, &[]);
    let mut waiters = Vec::new();
    for number in 1..=5 {
        waiters.push(start(world.run("x", &[], &format!("echo {number} >> $1/order"))));
        until("it waits", || world.waiters("x") == number);
    }
    first.tell("end");
    first.end().code(0);
    for waiter in waiters {
        waiter.end().code(0);
    }
    assert_eq!(world.read("order"), "1\n2\n3\n4\n5\n");
    world.assert_nothing_left();
}

fn a_killed_first_waiter_does_not_hold_up_the_next(world: &World) {
    let mut first = holder(world, &[]);
    let mut dying = start(world.run("x", &[], "echo never"));
    until("it waits", || world.waiters("x") == 1);
    let mut next = start(world.run("x", &[], "echo next"));
    until("both wait", || world.waiters("x") == 2);
    dying.kill(Signal::KILL);
    dying.exit();
    first.tell("end");
    first.end().code(0);
    next.expect("next");
    next.end().code(0);
    world.assert_nothing_left();
}

/// After a hand-over, a lease lasts for only 3 s at first.
fn a_command_that_was_waited_for_begins_with_most_of_its_ttl(world: &World) {
    let mut first = holder(world, &[]);
    let script = "echo $((LEASEHOLD_EXPIRES_AT_MS - $(date +%s%3N)))";
    let mut waiter = start(world.run("x", &["--ttl", "1m"], script));
    until("it waits", || world.waiters("x") == 1);
    first.tell("end");
    first.end().code(0);
    let left_ms: i64 = waiter.line().parse().expect("a number");
    assert!(left_ms > 30_000, "{left_ms} ms are left");
    waiter.end().code(0);
}

fn a_waiter_sees_its_position_and_who_holds_the_lock_since_when_and_why(world: &World) {
    let first = holder(world, &["--why", "release \u{1b}[31m2.4.1"]);
    let ahead = start(world.run("x", &[], "true"));
    until("it waits", || world.waiters("x") == 1);
    let mut waiter = start(world.run("x", &["-w", "10m"], "true"));
    let line = waiter.expect_message("is held by");
    assert!(line.starts_with("leasehold: `x` is held by "), "{line}");
    for part in [&format!("pid {}", first.pid())[..], "(leasehold run sh, user ", " since "] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let line = waiter.expect_message("why: release");
    for part in ["release \\u{1b}[31m2.4.1", "free in", "fence ", "you are #2 of 2 in line"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    drop(first.end());
    ahead.end().code(0);
    waiter.end().code(0);
}

fn a_new_holder_is_announced(world: &World) {
    let mut first = holder(world, &["--why", "first"]);
    let mut second = start(world.run("x", &["--why", "second"], "echo up; read line"));
    until("it waits", || world.waiters("x") == 1);
    let mut third = start(world.run("x", &[], "echo mine"));
    third.expect_message("why: first");
    first.tell("end");
    first.end().code(0);
    second.expect("up");
    third.expect_message("why: second");
    second.tell("end");
    second.end().code(0);
    third.expect("mine");
    third.end().code(0);
}

#[test]
fn a_store_that_stops_answering_is_told_once_with_its_cause_and_so_is_its_return() {
    let world = World::sqlite();
    let mut first = holder(&world, &["--ttl", "1h"]);
    let mut command = world.leasehold(["-q", "run", "x", "--", "true"]);
    command.env("LEASEHOLD_LOG", "");
    let mut quiet = start(command);
    let mut waiter = start(world.run("x", &[], "true"));
    until("both wait", || world.waiters("x") == 2);
    let writer = Connection::open(world.database()).expect("the store's file");
    until("the file is ours", || writer.execute_batch("BEGIN IMMEDIATE").is_ok());
    for waiter in [&mut waiter, &mut quiet] {
        let line = waiter.expect_message("the store does not answer");
        assert!(line.contains("another process keeps the file locked"), "{line}");
        assert!(line.contains("still waiting"), "{line}");
    }
    writer.execute_batch("ROLLBACK").expect("our transaction");
    waiter.expect_message("the store answers again");
    first.tell("end");
    first.end().code(0);
    let done = waiter.end();
    done.code(0);
    assert_eq!(done.stderr.matches("does not answer").count(), 1, "{}", done.stderr);
    quiet.end().code(0);
}

/// The waiter learns of its grant. But the store answers no renewal of it until the lease has
/// ended.
#[test]
fn a_grant_that_the_store_cannot_renew_costs_no_run() {
    let world = World::redis();
    let mut first = holder(&world, &[]);
    let mut waiter = start(world.run("x", &[], "echo ran"));
    until("it waits", || world.waiters("x") == 1);
    waiter.kill(Signal::STOP);
    until("it is stopped", || state_of(waiter.pid()) == 'T');
    first.tell("end");
    first.end().code(0);
    world.server().pause();
    waiter.kill(Signal::CONT);
    let line = waiter.expect_message("the store ");
    assert!(line.contains("still "), "{line}");
    world.server().resume();
    waiter.expect("ran");
    waiter.end().code(0);
}

/// Two containers may have the same host name, and both may be process 1.
#[test]
fn a_holder_that_looks_like_the_waiter_is_told_apart_from_it() {
    let world = World::sqlite();
    let first = holder(&world, &[]);
    let mut shell = std::process::Command::new("sh");
    let script = "echo $$; read line; exec \"$0\" run x -- true";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_leasehold")]);
    shell.env("LEASEHOLD_URL", world.url());
    let mut waiter = start(shell);
    let pid: i32 = waiter.line().parse().expect("a pid");
    let records = Connection::open(world.database()).expect("the store's file");
    records.execute("UPDATE clients SET pid = ?1", [pid]).expect("the holder's record");
    waiter.tell("go on");
    let line = waiter.expect_message("is held by");
    assert!(line.contains(&format!("pid {pid} ")), "{line}");
    waiter.expect_message("you are #1 of 1 in line");
    drop(first.end());
    waiter.end().code(0);
}

fn quiet_waits_in_silence(world: &World) {
    let first = holder(world, &[]);
    let mut command = world.leasehold(["-q", "run", "x", "-w", "1s", "--", "true"]);
    command.env("LEASEHOLD_LOG", "");
    let done = finish(command);
    done.code(75).says("gave up after 1.0s");
    assert_eq!(done.stderr.matches("is held by").count(), 1, "{}", done.stderr);
    drop(first.end());
}
