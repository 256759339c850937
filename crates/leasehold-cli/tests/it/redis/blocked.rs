//! A blocked stderr: the work for the lease does not wait for it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::losing::{STUBBORN, pause_and_know_the_end, signs_of_life};
use crate::harness::{World, full_pipe, is_alive, start_with_stderr, until};

/// A terminal that was stopped by Ctrl-S.
fn stopped_terminal() -> (OwnedFd, Stdio) {
    let master =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal of ours");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let slave = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().expect("plain text"))
        .expect("the terminal");
    let mut keys = File::from(master);
    keys.write_all(b"\x13").expect("somebody reads");
    (OwnedFd::from(keys), Stdio::from(slave))
}

/// Runs a test four times side by side, each time in a world of its own.
fn four_times(test: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(&test);
        }
    });
}

/// Stops the server under a command that ignores TERM. The command must be dead in time, and
/// `leasehold` must end soon.
#[track_caller]
fn is_dead_in_time((kept, stderr): (OwnedFd, Stdio), log: &str) {
    let world = World::redis();
    let mut command = world.run("x", &["--ttl", "2s"], STUBBORN);
    command.env("LEASEHOLD_LOG", log);
    let mut run = start_with_stderr(command, stderr);
    let pid: i32 = run.line().parse().expect("a pid");
    until("it works", || !signs_of_life(&world).is_empty());
    let ends = pause_and_know_the_end(world.server(), 2.0);
    assert_eq!(run.exit().code(), Some(79));
    assert!(!is_alive(pid));
    let last = *signs_of_life(&world).last().expect("it worked");
    assert!(last < ends, "alive at {last}, while the server keeps the lock until {ends}");
    world.server().resume();
    until("what was left of the lease is over", || world.state("x") == "free");
    world.assert_nothing_left();
    drop(kept);
}

#[test]
fn a_full_pipe_that_nobody_reads_holds_nothing_up() {
    four_times(|| is_dead_in_time(full_pipe(), ""));
}

#[test]
fn a_terminal_that_was_stopped_holds_nothing_up() {
    four_times(|| is_dead_in_time(stopped_terminal(), ""));
}

/// The log is so long that the queue for stderr is full as well.
#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    four_times(|| is_dead_in_time(full_pipe(), "trace"));
}

#[test]
fn a_command_that_ends_ends_us_although_messages_are_left() {
    four_times(ends_with_its_command);
}

fn ends_with_its_command() {
    let world = World::redis();
    let (kept, stderr) = full_pipe();
    // The command ends by itself, and leaves a process about which there is a message.
    let script = "sh -c 'read line; exit 0' < $1/fifo > /dev/null 2>&1 & echo up; exit 3";
    let made = std::process::Command::new("mkfifo").arg(world.path("fifo")).status();
    assert!(made.expect("mkfifo").success());
    let mut run = start_with_stderr(world.run("x", &[], script), stderr);
    run.expect("up");
    std::fs::write(world.path("fifo"), "go\n").expect("somebody reads");
    assert_eq!(run.exit().code(), Some(3));
    world.assert_nothing_left();
    drop(kept);
}
