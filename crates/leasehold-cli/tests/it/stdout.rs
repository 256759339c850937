//! `acquire` prints the token, without which nobody can release its lock.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Done, World, finish, finish_as_it_is, full_pipe, until};

on_every_store! {
    acquire_takes_nothing_if_its_token_cannot_be_printed,
    a_lock_whose_token_cannot_be_printed_is_given_back,
    a_lock_whose_token_nobody_reads_is_given_back_after_its_ttl_or_at_a_signal,
    a_caller_that_discards_the_token_gets_the_lock,
}

/// `acquire x` in a shell with this redirection.
fn acquire(world: &World, redirect: &str, flags: &str) -> Done {
    let mut command = Command::new("sh");
    let script = format!("exec \"$0\" acquire x --ttl 1h {flags} {redirect}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_leasehold")]);
    command.env("LEASEHOLD_URL", world.url());
    finish(command)
}

fn acquire_takes_nothing_if_its_token_cannot_be_printed(world: &World) {
    for redirect in [">&-", "1</dev/null", "<&- >&-"] {
        for flags in ["", "--json"] {
            let done = acquire(world, redirect, flags);
            done.code(78).says("cannot print the token to stdout").says("nothing was acquired");
            assert_eq!(world.state("x"), "free", "{redirect} {flags}");
        }
    }
}

fn a_lock_whose_token_cannot_be_printed_is_given_back(world: &World) {
    for flags in ["", "--json"] {
        let done = acquire(world, ">/dev/full", flags);
        done.code(125).says("No space left").says("the lock was released");
        assert_eq!(world.state("x"), "free", "{flags}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = world.leasehold(["acquire", "x", "--ttl", "1h"]);
    command.stdout(writer).stderr(Stdio::piped());
    finish_as_it_is(command).code(125).says("Broken pipe").says("the lock was released");
    assert_eq!(world.state("x"), "free");
}

/// A script has the reading end of our stdout, and stands still.
fn a_lock_whose_token_nobody_reads_is_given_back_after_its_ttl_or_at_a_signal(world: &World) {
    let (_reader, full) = full_pipe();
    let mut command = world.leasehold(["acquire", "x", "--ttl", "1s"]);
    command.stdout(full).stderr(Stdio::piped());
    let done = finish_as_it_is(command);
    done.code(125).says("nobody read it for 1.0s").says("the lock was released");
    assert_eq!(world.state("x"), "free");

    let (_reader, full) = full_pipe();
    let mut command = world.leasehold(["acquire", "x", "--ttl", "1h"]);
    let mut child = command.stdout(full).stderr(Stdio::null()).spawn().expect("it starts");
    until("it has the lock", || world.state("x") == "held");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::TERM.as_raw()));
    assert_eq!(world.state("x"), "free");
}

/// A cron job does this if it only wants to know whether it is the first.
fn a_caller_that_discards_the_token_gets_the_lock(world: &World) {
    acquire(world, ">/dev/null", "").code(0);
    assert_eq!(world.state("x"), "held");
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "the test"];
    finish(world.leasehold(unlock)).code(0);
    // A daemon uses one stream for all three.
    let null = || OpenOptions::new().read(true).write(true).open("/dev/null").expect("a device");
    let mut command = world.leasehold(["acquire", "x", "--ttl", "1h"]);
    command.stdin(null()).stdout(null()).stderr(null());
    finish_as_it_is(command).code(0);
    assert_eq!(world.state("x"), "held");
}
