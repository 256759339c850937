//! A counter in a file: read it, add one, write it.

use std::process::Command;

use crate::harness::{World, finish, start};

on_every_store! {
    no_update_is_lost_by_eight_processes_under_the_lock,
}

const PROCESSES: usize = 8;
const RUNS_EACH: usize = 250;

const ADD_ONE: &str = "read n < $1/count; echo $((n + 1)) > $1/count";

fn no_update_is_lost_by_eight_processes_under_the_lock(world: &World) {
    std::fs::write(world.path("count"), "0\n").expect("a file");
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..RUNS_EACH {
                    let done = finish(world.run("counter", &["-q"], ADD_ONE));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    assert_eq!(world.read("count"), format!("{}\n", PROCESSES * RUNS_EACH));
    world.assert_nothing_left();
}

/// Each waiter gets the lock from the one before it, and removes its own bell.
#[test]
fn a_crowd_that_wants_one_lock_of_a_file_is_served_to_the_last() {
    let world = World::sqlite();
    std::thread::scope(|scope| {
        for _ in 0..48 {
            scope.spawn(|| {
                finish(world.leasehold(["run", "-q", "x", "--", "true"])).code(0);
            });
        }
    });
    let bells = world.path("").join(format!("{}-bells", world.database().display()));
    let left = std::fs::read_dir(bells).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nobody waits");
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
