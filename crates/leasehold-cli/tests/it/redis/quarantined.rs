//! Strict servers that may have forgotten their grants: no holder is known, and the server grants
//! nothing.

use std::process::Command;

use super::{info, url_of};
use crate::harness::{Done, World, finish, start};

const EPOCH: &str = ":lh:epoch";

/// A strict server that has forgotten nothing.
fn strict() -> World {
    let world = World::redis();
    let run_id = info(&world, "server", "run_id");
    world.server().command(&["HSET", EPOCH, "run", &run_id]);
    world
}

/// Makes the server grant nothing new for `seconds` from now on.
fn quarantine(world: &World, seconds: i64) {
    let time = world.server().command(&["TIME"]);
    let now: i64 = time.array()[0].text().parse().expect("seconds");
    let until = ((now + seconds) * 1_000).to_string();
    world.server().command(&["HSET", EPOCH, "until", &until]);
}

fn leasehold(world: &World, args: &[&str]) -> Command {
    let mut command = world.bare();
    command.args(["--url", &url_of(world, "", "/0?strict=yes")]).args(args);
    command
}

/// Asserts that no command was started, and that the message does not blame a holder.
#[track_caller]
fn assert_refused(world: &World, flag: &[&str], code: i32, words: &[&str]) -> Done {
    let args = [&["run", "x"][..], flag, &["--", "touch", "began"]].concat();
    let done = finish(leasehold(world, &args));
    done.code(code).says("`x` is not granted: the store is new, was restarted, or forgot its data");
    for part in words.iter().chain(&["nothing was acquired"]) {
        done.says(part);
    }
    assert!(!done.stderr.contains("who holds it"), "{}", done.stderr);
    assert!(!world.path("began").exists());
    done
}

#[test]
fn a_try_during_a_quarantine_is_told_to_wait_and_a_waiter_gets_the_lock_in_the_end() {
    let world = strict();
    quarantine(&world, 60);
    assert_refused(&world, &["-n"], 69, &["no new locks for", "use -w 2m to wait"]);
    // `-q` must not hide this, since the work was not done, and nobody else does it.
    assert_refused(&world, &["-qn"], 69, &["no new locks for"]);
    assert_refused(&world, &["-w", "1s"], 75, &["gave up after", "use -w 2m to wait"]);
    quarantine(&world, 4);
    let mut waiting = start(leasehold(&world, &["run", "x", "-w", "2m", "--", "echo", "mine"]));
    waiting.expect_message("`x` is not granted");
    waiting.expect("mine");
    waiting.end().code(0);
}

#[test]
fn a_quarantine_that_is_longer_than_meant_is_shown_as_it_is_and_ended_by_hand() {
    let world = strict();
    quarantine(&world, 86_400);
    for (flag, code) in [(&["-n"][..], 69), (&["-w", "1s"], 75)] {
        let words = ["`HDEL :lh:epoch until`", "longer than any quarantine", "no new locks for 86"];
        let done = assert_refused(&world, flag, code, &words);
        assert!(!done.stderr.contains("-w 2m"), "{}", done.stderr);
    }
    let seen = finish(leasehold(&world, &["inspect", "x"]));
    assert!(seen.code(0).stdout.starts_with("x: quarantined\n"), "{}", seen.stdout);
    assert!(seen.stdout.contains("`HDEL :lh:epoch until`"), "{}", seen.stdout);
    world.server().command(&["HDEL", EPOCH, "until"]);
    finish(leasehold(&world, &["run", "x", "-n", "--", "true"])).code(0);
}

#[test]
fn a_look_begins_no_quarantine_and_shows_the_one_to_come() {
    let world = World::redis();
    for _ in 0..2 {
        let seen = finish(leasehold(&world, &["inspect", "x", "--json"]));
        let lock: serde_json::Value = serde_json::from_str(&seen.code(0).stdout).expect("JSON");
        assert_eq!(lock["state"], "quarantined");
        let quarantine = serde_json::json!({ "since_ms": null, "left_ms": 65_000 });
        assert_eq!(lock["quarantine"], quarantine);
    }
    assert_eq!(world.server().command(&["EXISTS", EPOCH]).int(), 0);
}

/// An empty list alone would look as if no lock were held.
#[test]
fn a_list_of_a_quarantined_store_says_that_locks_may_be_missing() {
    let world = strict();
    quarantine(&world, 60);
    for args in [&["ls"][..], &["ls", "job:*"], &["ls", "--json"]] {
        let listed = finish(leasehold(&world, args));
        listed.code(0).says("no new locks for").says("not show locks that the store forgot");
        assert_eq!(listed.stdout, "");
    }
    let mut watch = start(leasehold(&world, &["ls", "--watch=100ms"]));
    watch.expect_message("no new locks for");
    drop(watch);
    world.server().command(&["HDEL", EPOCH, "until"]);
    assert_eq!(finish(leasehold(&world, &["ls"])).code(0).stderr, "");
}

#[test]
fn strict_and_other_servers_are_no_quorum() {
    let world = World::redis();
    let other = url_of(&world, "", "/1?strict=no");
    let mut command = leasehold(&world, &["--url", &other, "inspect", "x"]);
    command.arg("--json");
    finish(command).code(78).says("write the same `strict` in all URLs or in none");
}
