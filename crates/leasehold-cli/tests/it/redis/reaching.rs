//! The locks that a URL, a namespace and a database reach, and their keys on the server.

use serde_json::Value;

use super::url_of;
use crate::harness::{World, finish, start, until};

fn names(world: &World, flags: &[&str]) -> Vec<String> {
    let mut command = world.leasehold(flags);
    command.args(["ls", "--json"]);
    let done = finish(command);
    let name = |line: &str| {
        let lock: Value = serde_json::from_str(line).expect("JSON");
        lock["name"].as_str().expect("a name").to_owned()
    };
    done.code(0).stdout.lines().map(name).collect()
}

#[test]
fn a_lock_is_a_string_that_expires_and_so_does_all_that_is_beside_it() {
    let world = World::redis();
    let mut holder = start(world.run("x", &["--why", "because"], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut waiter = start(world.run("x", &[], "exit 0"));
    waiter.expect_message("why: because");
    let server = world.server();
    assert_eq!(server.command(&["TYPE", "x"]).text(), "string");
    let keys = server.command(&["KEYS", "*"]).texts();
    let companions =
        ["fence", "grant", "line", "ends", "places"].map(|is| format!("{{x}}:lh:{is}"));
    for companion in &companions {
        assert!(keys.contains(companion), "{companion} is not in {keys:?}");
    }
    let clients = keys.iter().filter(|key| key.starts_with(":lh:client:")).count();
    assert_eq!(clients, 2, "{keys:?}");
    assert_eq!(keys.len(), 1 + companions.len() + clients, "{keys:?}");
    for key in &keys {
        assert_ne!(server.command(&["PTTL", key]).int(), -1, "`{key}` never expires");
    }
    holder.tell("end");
    holder.end().code(0);
    waiter.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn calls_inside_a_run_reach_its_server_wherever_they_are() {
    let world = World::redis();
    let exe = env!("CARGO_BIN_EXE_leasehold");
    std::fs::write(world.path("url"), format!("{}\n", url_of(&world, "", "/3"))).expect("a file");
    let script =
        format!("cd /; echo $LEASEHOLD_STORE; {exe} inspect x --json; {exe} run inner -- {exe} ls");
    let mut command = world.bare();
    command.args(["--url-file", "url", "run", "x", "--", "sh", "-c", &script]);
    let done = finish(command);
    let mut lines = done.code(0).stdout.lines();
    assert_eq!(lines.next(), Some(&*url_of(&world, "", "/3")));
    let lock: Value = serde_json::from_str(lines.next().expect("a lock")).expect("JSON");
    assert_eq!(lock["state"], "held");
    let held: Vec<_> = lines.skip(1).map(|line| line.split(' ').next().expect("a name")).collect();
    assert_eq!(held, ["inner", "x"]);
    assert_eq!(done.stderr, "");
}

#[test]
fn a_socket_and_a_port_of_one_server_are_one_store() {
    let world = World::redis();
    let mut holder = start(world.run("x", &[], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut command = world.bare();
    command.args(["--url", &world.server().unix_url(), "run", "x", "-n", "--", "true"]);
    finish(command).code(75).says("is held by");
    holder.tell("end");
    holder.end().code(0);
}

#[test]
fn databases_do_not_meet() {
    let world = World::redis();
    let mut holder = start(world.run("x", &[], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", url_of(&world, "", "/1")).args(["run", "x", "-n", "--", "true"]);
    finish(command).code(0);
    holder.tell("end");
    holder.end().code(0);
}

#[test]
fn a_namespace_stands_before_the_key_and_hides_what_others_hold() {
    let world = World::redis();
    let held = |namespace: &str, name: &str| {
        let flags = ["--namespace", namespace, "run", name, "--", "sh", "-c", "echo up; read line"];
        let mut holder = start(world.leasehold(flags));
        holder.expect("up");
        holder
    };
    let _holders = [held("a", "x"), held("b", "x"), held("b", "y")];
    assert_eq!(world.server().command(&["EXISTS", "a:x", "b:x", "b:y", "x"]).int(), 3);
    assert_eq!(names(&world, &["--namespace", "a"]), ["x"]);
    assert_eq!(names(&world, &["--namespace", "b"]), ["x", "y"]);
    assert_eq!(names(&world, &[]), ["a:x", "b:x", "b:y"]);
    let unlock = ["--namespace", "b", "unlock", "x", "--force", "--yes", "--why", "the test"];
    finish(world.leasehold(unlock)).code(0);
    assert_eq!(names(&world, &[]), ["a:x", "b:y"]);
}

#[test]
fn a_lock_of_another_client_is_respected_shown_and_unlocked_only_on_demand() {
    let world = World::redis();
    let foreign = ["SET", "x", "somebody-else", "NX", "PX", "3600000"];
    world.server().command(&foreign);
    finish(world.run("x", &["-n"], "exit 0")).code(75).says("is held by");
    assert_eq!(world.state("x"), "held");
    let token = finish(world.leasehold(["release", "x", "--token", "another"]));
    token.code(79);
    assert_eq!(world.server().command(&["GET", "x"]).text(), "somebody-else");
    let mut waiter = start(world.run("x", &["-w", "10m"], "echo mine"));
    waiter.expect_message("is held by");
    world.server().command(&["DEL", "x"]);
    waiter.expect("mine");
    waiter.end().code(0);
    world.server().command(&foreign);
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    world.assert_nothing_left();
}

#[test]
fn a_foreign_lock_that_never_expires_is_waited_for_until_it_is_gone() {
    let world = World::redis();
    world.server().command(&["SET", "x", "somebody-else"]);
    let seen = finish(world.leasehold(["inspect", "x"]));
    assert!(seen.code(0).stdout.contains("held"), "{}", seen.stdout);
    assert_eq!(world.inspect("x")["holders"][0]["ttl_left_ms"], Value::Null);
    let tried = finish(world.run("x", &["-n"], "exit 0"));
    tried.code(75).says("its lease has no end").says("check what the key holds");
    assert!(!tried.stderr.contains("use -w"), "{}", tried.stderr);
    let unlock = finish(world.leasehold(["unlock", "x", "--force", "--why", "the test"]));
    unlock.code(64).says("or not a lock").says("nothing was done");
    let mut waiter = start(world.run("x", &[], "echo mine"));
    waiter.expect_message("is held by");
    world.server().command(&["PEXPIRE", "x", "1"]);
    waiter.expect("mine");
    waiter.end().code(0);
    world.assert_nothing_left();
}

/// While nobody waits, that user sees the holder, and the inner command joins.
#[test]
fn an_inner_run_of_a_user_without_the_right_to_see_holders_does_not_wait_for_the_outer_one() {
    let world = World::redis();
    let rights = "ACL SETUSER blind on >word +@all ~x ~{x}:* &* -zmscore -mget";
    world.server().command(&rights.split(' ').collect::<Vec<_>>());
    let as_blind = |script: &str| {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", url_of(&world, "blind:word@", ""));
        command.args(["run", "x", "--", "sh", "-c", script]);
        command
    };
    let inner = format!("{} run x -- echo inside; echo code $?", env!("CARGO_BIN_EXE_leasehold"));
    let mut outer = start(as_blind(&format!("echo up; read line; {inner}")));
    outer.expect("up");
    let waiter = start(world.run("x", &[], "echo mine"));
    until("it waits", || world.inspect("x")["waiters"].as_array().is_some_and(|it| !it.is_empty()));
    outer.tell("go on");
    outer.expect("code 78");
    outer.end().code(0).says("lacks a right to inspect");
    waiter.end().code(0);
}

/// The user has the rights of GUARANTEES.md without those of the tools. The waiter must not report
/// an outage.
#[test]
fn a_user_without_the_right_to_see_holders_still_waits() {
    let world = World::redis();
    let rights = "ACL SETUSER blind on >word +@all ~x ~{x}:* &* -zmscore -mget";
    world.server().command(&rights.split(' ').collect::<Vec<_>>());
    let mut holder = start(world.run("x", &["--ttl", "1h"], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", url_of(&world, "blind:word@", ""));
    command.args(["run", "x", "--", "echo", "my turn"]);
    let mut waiter = start(command);
    until("it has tried to look", || {
        // Before Redis 7.0, only this log shows a command that was denied inside a script.
        let denied = format!("{:?}", world.server().command(&["ACL", "LOG"]));
        ["mget", "zmscore"].iter().any(|look| denied.contains(look))
    });
    holder.tell("end");
    holder.end().code(0);
    waiter.expect("my turn");
    let done = waiter.end();
    assert!(!done.stderr.contains("does not answer"), "{}", done.stderr);
    done.code(0);
}
