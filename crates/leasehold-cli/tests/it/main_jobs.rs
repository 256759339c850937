//! The main jobs of the command on the locks at a URL that no other test uses, and URLs with
//! mistakes.

use std::process::Command;

use serde_json::Value;

use crate::harness::{World, finish, start, until};

const COMMANDS: usize = 8;
const RUNS_EACH: usize = 5;

/// `leasehold` on the locks at that URL.
pub(crate) fn on(world: &World, url: &str, args: &[&str]) -> Command {
    let mut command = world.bare();
    command.args(["--url", url]).args(args);
    command
}

/// A second command waits for the end of the first, and `inspect` and `ls` show both.
pub(crate) fn wait_for_the_turn(url: &str) {
    let world = World::sqlite();
    let script = ["run", "deploy", "--why", "a test", "--", "sh", "-c", "echo up; read line"];
    let mut holder = start(on(&world, url, &script));
    holder.expect("up");
    finish(on(&world, url, &["run", "-n", "deploy", "--", "true"])).code(75);
    let mut waiter = start(on(&world, url, &["run", "deploy", "--", "echo", "mine"]));
    let inspect = || -> Value {
        let shown = finish(on(&world, url, &["inspect", "deploy", "--json"]));
        serde_json::from_str(&shown.code(0).stdout).expect("JSON")
    };
    until("it waits", || inspect()["waiters"].as_array().map(Vec::len) == Some(1));
    let shown = inspect();
    assert_eq!(shown["state"], "held");
    assert_eq!(shown["holders"][0]["why"], "a test");
    let listed = finish(on(&world, url, &["ls"]));
    assert!(listed.code(0).stdout.contains("deploy"), "{}", listed.stdout);
    holder.tell("go on");
    holder.end().code(0);
    waiter.expect("mine");
    waiter.end().code(0);
}

/// `unlock --force` ends the lease, and the command under it is stopped.
pub(crate) fn unlock_by_force(url: &str) {
    let world = World::sqlite();
    let script = ["run", "x", "--ttl", "3s", "--", "sh", "-c", "echo up; exec sleep 600"];
    let mut holder = start(on(&world, url, &script));
    holder.expect("up");
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "a test"];
    finish(on(&world, url, &unlock)).code(0);
    holder.end().code(79);
}

/// `unlock --ask` has the command under the lock stop, and waits until it has let go.
pub(crate) fn unlock_by_request(url: &str) {
    let world = World::sqlite();
    let stops = "trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done";
    let mut holder = start(on(&world, url, &["run", "x", "--ttl", "2s", "--", "sh", "-c", stops]));
    holder.expect("up");
    let unlock = ["unlock", "x", "--ask", "--why", "deploy at noon", "--wait", "1m"];
    finish(on(&world, url, &unlock)).code(0).says("has let go");
    holder.end().code(7).says("(why: deploy at noon)");
}

/// Each URL is refused with that exit code and that text. No message shows its password, which is
/// `wrong-secret`.
#[track_caller]
pub(crate) fn refuse_in_silence(mistakes: &[(&str, i32, &str)]) {
    let world = World::sqlite();
    for (url, code, part) in mistakes {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", url).args(["run", "a", "--", "true"]);
        let done = finish(command);
        done.code(*code).says(part).says_that_nothing_happened();
        assert!(!done.stderr.contains("wrong-secret"), "{}", done.stderr);
    }
}

/// Commands that add one to a number in a file lose no step.
pub(crate) fn count_together(url: &str) {
    let world = World::sqlite();
    std::fs::write(world.path("count"), "0\n").expect("a file");
    let file = world.path("count").display().to_string();
    let add_one = "read n < \"$1\"; echo $((n + 1)) > \"$1\"";
    std::thread::scope(|scope| {
        for _ in 0..COMMANDS {
            scope.spawn(|| {
                for _ in 0..RUNS_EACH {
                    let run = ["run", "-q", "counter", "--", "sh", "-c", add_one, "sh", &file];
                    finish(on(&world, url, &run)).code(0);
                }
            });
        }
    });
    assert_eq!(world.read("count"), format!("{}\n", COMMANDS * RUNS_EACH));
}
