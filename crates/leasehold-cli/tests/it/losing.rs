//! A lease that is lost while the command runs.

use rusqlite::Connection;
use rustix::process::Signal;

use crate::harness::{World, finish, is_alive, start, until};

on_every_store! {
    the_stop_signal_is_the_one_of_choice,
    a_command_that_stands_still_is_asked_to_end_and_can,
    a_lock_taken_by_an_operator_stops_the_command_and_is_not_released_by_us,
    everything_that_the_command_started_is_stopped_also_in_a_session_of_its_own,
    a_release_that_finds_the_lock_gone_ends_with_79,
    a_command_that_takes_too_long_is_dead_when_its_longest_hold_is_over_and_the_next_one_runs,
}

/// A command that ignores every request to stop. It writes the time again and again while it lives,
/// on the clock of the store (CLOCK_BOOTTIME; /proc/uptime shows it in hundredths).
const STUBBORN: &str = "trap '' TERM INT HUP; echo $$; \
    while :; do read up idle < /proc/uptime; echo $up >> $1/alive; sleep 0.02; done";

/// Renewals fail because another writer has the file locked. The last sign of life must lie before
/// the instant at which the store frees the lock, on the store's own clock.
#[test]
fn a_command_that_ignores_term_is_dead_before_the_store_frees_the_lock() {
    let world = World::sqlite();
    let mut run = start(world.run("x", &["--ttl", "6s"], STUBBORN));
    let pid: i32 = run.line().parse().expect("a pid");
    let writer = Connection::open(world.database()).expect("the store's file");
    until("the file is ours", || writer.execute_batch("BEGIN IMMEDIATE").is_ok());
    let expires: i64 = writer
        .query_row("SELECT expires FROM locks WHERE key = 'x'", [], |row| row.get(0))
        .expect("the lease");
    let line = run.expect_message("the lease was not renewed in time");
    assert!(line.contains("another process keeps the file locked"), "{line}");
    run.expect_message("telling the command to stop");
    let before = world.read("alive").lines().count();
    run.expect_message("killing the command");
    run.end().code(79);
    assert!(!is_alive(pid));
    let alive = world.read("alive");
    assert!(alive.lines().count() > before, "it did live on after TERM");
    let last: f64 = alive.lines().next_back().and_then(|up| up.parse().ok()).expect("a time");
    #[allow(clippy::cast_precision_loss, reason = "hundredths of a second are compared")]
    let expires = expires as f64 / 1e9;
    assert!(last < expires, "alive at {last}, while the lock was free from {expires} on");
}

#[test]
fn a_command_that_obeys_is_stopped_before_the_deadline_and_the_lock_is_released() {
    let world = World::sqlite();
    let script = "trap 'echo stopping; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "4s"], script));
    run.expect("up");
    let writer = Connection::open(world.database()).expect("the store's file");
    until("the file is ours", || writer.execute_batch("BEGIN IMMEDIATE").is_ok());
    run.expect("stopping");
    writer.execute_batch("ROLLBACK").expect("our transaction");
    run.end().code(79).says("telling the command to stop");
}

fn the_stop_signal_is_the_one_of_choice(world: &World) {
    let script = "trap 'echo usr1; exit 0' USR1; trap 'echo term; exit 0' TERM; echo up; \
                  while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1s", "--stop-signal", "USR1"], script));
    run.expect("up");
    unlock(world);
    run.expect("usr1");
    run.end().code(79);
}

fn a_command_that_stands_still_is_asked_to_end_and_can(world: &World) {
    let script = "trap 'echo term; exit 0' TERM; echo $$; kill -STOP $$; \
                  while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "3s"], script));
    let pid: i32 = run.line().parse().expect("a pid");
    until("it stands still", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    });
    unlock(world);
    run.expect("term");
    run.end().code(79);
}

fn a_lock_taken_by_an_operator_stops_the_command_and_is_not_released_by_us(world: &World) {
    let mut run = start(world.run("x", &["--ttl", "2s"], STUBBORN));
    let pid: i32 = run.line().parse().expect("a pid");
    unlock(world);
    let mut next = start(world.run("x", &[], "echo up; read line"));
    next.expect("up");
    run.expect_message("the lock is lost: the store says that it is no longer ours");
    run.end().code(79);
    assert!(!is_alive(pid));
    assert_eq!(world.state("x"), "held", "the new holder's lease is untouched");
    next.end().code(1);
    world.assert_nothing_left();
}

fn everything_that_the_command_started_is_stopped_also_in_a_session_of_its_own(world: &World) {
    let script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.02; done' & \
                  read line; read line";
    let mut run = start(world.run("x", &["--ttl", "1s"], script));
    let pid: i32 = run.line().parse().expect("a pid");
    unlock(world);
    run.exit();
    assert!(!is_alive(pid), "a daemon outlived the lease");
}

fn a_release_that_finds_the_lock_gone_ends_with_79(world: &World) {
    // Renewals are so rare that the release is the first to find the lease gone.
    let mut run = start(world.run("x", &["--ttl", "1h"], "echo up; read line; exit 0"));
    run.expect("up");
    unlock(world);
    run.tell("end");
    run.end().code(79).says("the lease had ended before the release");
}

fn a_command_that_takes_too_long_is_dead_when_its_longest_hold_is_over_and_the_next_one_runs(
    world: &World,
) {
    let limit = ["--ttl", "1s", "--max-hold", "2s"];
    let mut run = start(world.run("x", &limit, STUBBORN));
    let pid: i32 = run.line().parse().expect("a pid");
    let mut next = start(world.run("x", &limit, "echo up"));
    let line = run.expect_message("--max-hold is over in");
    assert!(line.contains("telling what still runs to stop"), "{line}");
    run.expect_message("killing the command: --max-hold is over");
    run.end().code(124);
    assert!(!is_alive(pid));
    next.expect("up");
    next.end().code(0);
    let short = finish(world.leasehold(["run", "x", "--max-hold", "9s", "--", "echo", "inner"]));
    short.code(78).says("must be at least the ttl (10s)").says_that_nothing_happened();
    world.assert_nothing_left();
}

#[test]
fn a_killed_holder_is_followed_when_its_lease_ends_and_not_before() {
    let world = World::sqlite();
    let mut holder = start(world.run("x", &["--ttl", "1s"], "echo up; exec sleep 1000"));
    holder.expect("up");
    let mut waiter = start(world.run("x", &[], "cat /proc/uptime"));
    until("it waits", || world.waiters("x") == 1);
    holder.kill(Signal::KILL);
    holder.exit();
    let store = Connection::open(world.database()).expect("the store's file");
    // No more renewals come, since the holder is dead.
    let expires: i64 = store
        .query_row("SELECT expires FROM locks WHERE key = 'x'", [], |row| row.get(0))
        .expect("the lease");
    let held: f64 = waiter
        .line()
        .split(' ')
        .next()
        .and_then(|up| up.parse().ok())
        .expect("hundredths of seconds");
    #[allow(clippy::cast_precision_loss, reason = "hundredths of a second are compared")]
    let expires = expires as f64 / 1e9;
    // The system rounds down to hundredths.
    assert!(held + 0.01 >= expires, "held at {held}, the old lease ended at {expires}");
    waiter.end().code(0);
    world.assert_nothing_left();
}

fn unlock(world: &World) {
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
}
