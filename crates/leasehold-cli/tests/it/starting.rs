//! A command begins under a lease that lasts, and with a keeper that knows when to kill it.
//!
//! Some of these tests speak to a keeper themselves, as `leasehold run` does.

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold_testkit::not_run;
use rustix::cmsg_space;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Running, World, finish, late, refuse, start, state_of, until};

const HOUR: Duration = Duration::from_secs(3600);

/// A message of `leasehold run` to its keeper: a letter, the length of its body, and the body.
fn frame(letter: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("a short body");
    [&[letter][..], &length.to_le_bytes(), body].concat()
}

/// The order to run a script in a shell, and to kill it at that moment.
fn start_until(kill_at: Moment, script: &str) -> Vec<u8> {
    let count_every: u64 = 100_000_000;
    let mut body = 0_i32.to_le_bytes().to_vec();
    body.extend([count_every, kill_at.as_nanos()].map(u64::to_le_bytes).concat());
    for word in ["sh", "-c", script] {
        body.extend(word.bytes().chain([0]));
    }
    frame(b's', &body)
}

fn kill_at(at: Moment) -> Vec<u8> {
    frame(b'a', &at.as_nanos().to_le_bytes())
}

fn kill() -> Vec<u8> {
    frame(b'k', &[])
}

/// A socket that contains these orders already, and its other end.
fn ordered(orders: &[Vec<u8>]) -> (UnixStream, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().expect("a socket");
    let nothing = std::fs::File::open("/dev/null").expect("a device");
    let descriptors = [nothing.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    sendmsg(&ours, &[IoSlice::new(&[0])], &mut control, SendFlags::empty()).expect("it fits");
    for order in orders {
        ours.write_all(order).expect("it fits");
    }
    (ours, theirs)
}

/// Lets a keeper obey the orders in its socket until it ends.
fn keep(world: &World, socket: UnixStream) -> ExitStatus {
    let mut keeper = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    keeper.arg0("lh-keeper").arg("__keep").current_dir(world.path(""));
    keeper.stdin(OwnedFd::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child: Child = keeper.process_group(0).spawn().expect("our own program");
    // Our copy of the socket would keep it open.
    drop(keeper);
    let mut ended = None;
    until("the keeper ends", || {
        ended = child.try_wait().expect("it is ours");
        ended.is_some()
    });
    ended.expect("it has ended")
}

/// The letters of the notes that a keeper wrote for these orders, while `leasehold run` lived.
fn notes(world: &World, orders: &[Vec<u8>]) -> String {
    let (mut ours, theirs) = ordered(orders);
    keep(world, theirs);
    let mut bytes = Vec::new();
    ours.read_to_end(&mut bytes).expect("the keeper has ended");
    let (mut letters, mut rest) = (String::new(), &bytes[..]);
    while let Some((head, body)) = rest.split_first_chunk::<5>() {
        let [letter, length @ ..] = *head;
        letters.push(char::from(letter));
        rest = &body[u32::from_le_bytes(length) as usize..];
    }
    letters
}

/// `leasehold run` was stopped right after the order to start.
#[test]
fn a_command_is_killed_at_the_moment_that_came_with_its_start() {
    let world = World::sqlite();
    // A slow machine may need longer than a second to start the command.
    let killed = [1, 4, 16].into_iter().find_map(|seconds| {
        let kill_at = SystemHost.now() + Duration::from_secs(seconds);
        let notes = notes(&world, &[start_until(kill_at, "exec sleep 1000")]);
        (notes != TOO_LATE).then_some(notes)
    });
    let killed = killed.expect("the command began");
    assert!(killed.starts_with(BEGUN) && killed.contains(KILLED_IN_TIME), "{killed}");
}

const BEGUN: &str = "b";
const KILLED_IN_TIME: &str = "a";
const TOO_LATE: &str = "l";

/// `leasehold run` or the machine was stopped before the keeper could begin.
#[test]
fn a_command_that_would_have_to_be_killed_at_once_does_not_begin() {
    let world = World::sqlite();
    let (past, future) = (SystemHost.now(), SystemHost.now() + HOUR);
    let script = ": > began";
    for (case, orders) in [
        ("its lease is over", vec![start_until(past, script)]),
        ("its lease became shorter", vec![start_until(future, script), kill_at(past)]),
        ("it must end anyway", vec![start_until(future, script), kill(), kill_at(future)]),
    ] {
        assert_eq!(notes(&world, &orders), TOO_LATE, "{case}");
        assert!(!world.path("began").exists(), "{case}");
    }
    let renewed = notes(&world, &[start_until(past, script), kill_at(future)]);
    assert!(renewed.starts_with(BEGUN) && world.path("began").exists(), "{renewed}");
}

/// The keeper was slow, and `leasehold run` was killed meanwhile.
#[test]
fn no_command_begins_for_a_run_that_is_dead() {
    let world = World::sqlite();
    let (ours, theirs) = ordered(&[start_until(SystemHost.now() + HOUR, ": > began")]);
    drop(ours);
    // A command that begins would be killed at once, and might leave no trace. In that case, its
    // keeper would end with success.
    assert!(!keep(&world, theirs).success());
    assert!(!world.path("began").exists());
}

/// Starts a `leasehold` that stands still with its keeper after the order to start, until its lease
/// is over. Then the keeper goes on, and ends.
#[track_caller]
fn stopped_at_the_start(world: &World, mut command: Command) -> Running {
    command.env("LD_PRELOAD", late()).env("LATE_ONCE", world.path("once"));
    let run = start(command);
    until("it is stopped", || state_of(run.pid()) == 'T');
    let children = format!("/proc/{pid}/task/{pid}/children", pid = run.pid());
    let keeper = std::fs::read_to_string(children).expect("the kernel tells");
    let keeper: i32 = keeper.trim().parse().expect("one child");
    until("the keeper is stopped", || state_of(keeper) == 'T');
    until("the lease is over", || world.state("x") == "free");
    kill_process(Pid::from_raw(keeper).expect("a pid"), Signal::CONT).expect("it is ours");
    until("the keeper has ended", || state_of(keeper) == 'Z');
    run
}

#[test]
fn a_run_that_stood_still_before_the_start_until_its_lease_was_over_runs_nothing() {
    let world = World::sqlite();
    let run = stopped_at_the_start(&world, world.run("x", &["-n", "--ttl", "1s"], ": > began"));
    run.kill(Signal::CONT);
    run.end().code(79).says("nothing was run");
    assert!(!world.path("began").exists());
    world.assert_nothing_left();
}

#[test]
fn a_run_that_waits_takes_the_lock_again_if_its_lease_was_over_before_the_start() {
    let world = World::sqlite();
    let script = "read line; echo got $line";
    let mut run = stopped_at_the_start(&world, world.run("x", &["--ttl", "4s"], script));
    run.kill(Signal::CONT);
    run.expect_message("; trying again in 100ms");
    run.tell("hello");
    run.expect("got hello");
    run.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn a_request_to_stop_before_the_start_ends_a_run_whose_lease_is_over() {
    let world = World::sqlite();
    let run = stopped_at_the_start(&world, world.run("x", &["--ttl", "1s"], ": > began"));
    run.kill(Signal::TERM);
    run.kill(Signal::CONT);
    run.end().signal(Signal::TERM);
    assert!(!world.path("began").exists());
    world.assert_nothing_left();
}

#[test]
fn an_instance_that_stood_still_before_the_start_until_its_term_was_over_campaigns_again() {
    let world = World::sqlite();
    let script = "echo up; exec sleep 1000";
    let mut instance = stopped_at_the_start(&world, world.elect("x", &["--ttl", "4s"], script));
    instance.kill(Signal::CONT);
    instance.expect_message("nothing was run");
    instance.expect("up");
    instance.kill(Signal::TERM);
    instance.end().signal(Signal::TERM);
    world.assert_nothing_left();
}

/// The kernel refuses one descriptor after the other.
#[test]
fn a_run_that_cannot_watch_a_descriptor_runs_its_command_or_says_that_it_did_not() {
    const DESCRIPTORS: std::ops::Range<u32> = 3..40;
    let world = World::sqlite();
    let mut was_refused = false;
    for descriptor in DESCRIPTORS {
        let inner = world.run("x", &[], ": > began");
        let mut outer = Command::new(refuse());
        outer.arg(descriptor.to_string()).current_dir(world.path(""));
        outer.arg(inner.get_program()).args(inner.get_args());
        let done = finish(outer);
        if done.stderr.starts_with("refuse: ") {
            not_run(&format!("this machine gives no seccomp to its users: {}", done.stderr));
            return;
        }
        let began = world.path("began");
        assert_eq!(done.status.success(), began.exists(), "descriptor {descriptor}: {done:?}");
        let _ = std::fs::remove_file(began);
        was_refused |= done.stderr.contains("nothing was run");
    }
    assert!(was_refused, "the socket to the keeper is another descriptor");
}
