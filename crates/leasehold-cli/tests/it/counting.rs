//! A counter in a file: read it, add one, write it.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{CEILING, World, finish, start, until};

on_every_store! {
    a_crowd_that_wants_one_lock_is_served_to_the_last,
    a_holder_keeps_its_lease_while_a_crowd_waits,
    no_update_is_lost_by_eight_processes_under_the_lock,
}

const PROCESSES: usize = 8;
const RUNS_EACH: usize = 250;

const ADD_ONE: &str = "read n < $1/count; echo $((n + 1)) > $1/count";

/// A machine that starts hundreds of processes at the same time may connect some of them late.
const PATIENTLY: [&str; 3] = ["-q", "--wait-store", "10m"];

fn no_update_is_lost_by_eight_processes_under_the_lock(world: &World) {
    std::fs::write(world.path("count"), "0\n").expect("a file");
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..RUNS_EACH {
                    let done = finish(world.run("counter", &PATIENTLY, ADD_ONE));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    assert_eq!(world.read("count"), format!("{}\n", PROCESSES * RUNS_EACH));
    world.assert_nothing_left();
}

/// How many processes a crowd has. `LEASEHOLD_TEST_CROWD` asks for more.
fn crowd() -> usize {
    let wanted = std::env::var("LEASEHOLD_TEST_CROWD").ok();
    wanted.map_or(48, |wanted| wanted.parse().expect("a number"))
}

/// Processes that want one lock. Dropping this kills those that still run.
struct Crowd {
    left: BTreeSet<i32>,
    ended: Receiver<(i32, Output)>,
}

impl Crowd {
    fn start(world: &World) -> Self {
        let (sender, ended) = channel();
        let mut left = BTreeSet::new();
        for _ in 0..crowd() {
            let mut command = world.leasehold(["run"]);
            command
                .args(PATIENTLY)
                .args(["x", "--", "true"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let one = command.spawn().expect("the command starts");
            let pid = i32::try_from(one.id()).expect("a pid");
            left.insert(pid);
            let sender = sender.clone();
            std::thread::spawn(move || {
                sender.send((pid, one.wait_with_output().expect("it is ours")))
            });
        }
        Self { left, ended }
    }

    /// Waits until everybody had the lock.
    #[track_caller]
    fn served_to_the_last(mut self) {
        while !self.left.is_empty() {
            let Ok((pid, output)) = self.ended.recv_timeout(CEILING) else {
                panic!("nobody is served, and {} are left", self.left.len());
            };
            self.left.remove(&pid);
            assert!(output.status.success(), "{output:?}, and {} are left", self.left.len());
        }
    }

    /// Asserts that no process has ended.
    #[track_caller]
    fn still_waits(&self) {
        assert_eq!(self.ended.try_recv(), Err(TryRecvError::Empty), "one has ended");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // After a process has ended, its pid may belong to another process.
        for (pid, _) in self.ended.try_iter() {
            self.left.remove(&pid);
        }
        for pid in self.left.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Each waiter gets the lock from the one before it. With a store in a file, each waiter removes
/// its own bell.
fn a_crowd_that_wants_one_lock_is_served_to_the_last(world: &World) {
    let began = Instant::now();
    Crowd::start(world).served_to_the_last();
    println!("{} processes at {} were served in {:?}", crowd(), world.label(), began.elapsed());
    world.assert_no_bell_left();
    world.assert_nothing_left();
}

/// The lease is long, so that it does not end while the machine stands still.
fn a_holder_keeps_its_lease_while_a_crowd_waits(world: &World) {
    let mut holder = start(world.run("x", &["--ttl", "30s"], "echo up; read line; exit 0"));
    holder.expect("up");
    let began = Instant::now();
    let waiting = Crowd::start(world);
    until("all of them wait", || {
        waiting.still_waits();
        world.waiting("x") == crowd()
    });
    println!("{} processes wait after {:?}", crowd(), began.elapsed());
    let mut left_before = u64::MAX;
    until("the lease is renewed while they run", || {
        waiting.still_waits();
        let seen = world.inspect("x");
        let left = seen["holders"][0]["ttl_left_ms"].as_u64().expect("it is held");
        left > std::mem::replace(&mut left_before, left)
    });
    let began = Instant::now();
    holder.tell("end");
    holder.end().code(0);
    waiting.served_to_the_last();
    println!("{} processes at {} were served in {:?}", crowd(), world.label(), began.elapsed());
    world.assert_no_bell_left();
    world.assert_nothing_left();
}

/// The same steps without the lock, in an order that a scheduler may choose: both processes read
/// before either writes. It shows that the first test can fail.
#[test]
fn an_update_is_lost_without_the_lock() {
    let world = World::sqlite();
    std::fs::write(world.path("count"), "0\n").expect("a file");
    let slow = |world: &World| {
        let mut command = Command::new("sh");
        let script = "read n < count; echo read; read line; echo $((n + 1)) > count";
        command.args(["-c", script]).current_dir(world.path(""));
        start(command)
    };
    let (mut one, mut two) = (slow(&world), slow(&world));
    one.expect("read");
    two.expect("read");
    for mut process in [one, two] {
        process.tell("write");
        process.end().code(0);
    }
    assert_eq!(world.read("count"), "1\n", "two additions, one update");
}
