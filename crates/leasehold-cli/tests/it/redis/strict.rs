//! `leasehold strict`: switches databases to strict mode, and shows who did it.

use std::process::Command;

use leasehold_testkit::servers::RedisServer;
use serde_json::{Value, json};

use super::url_of;
use crate::harness::{Done, World, finish};

/// `leasehold strict ARGS` on these URLs.
fn strict(world: &World, urls: &[&str], args: &[&str]) -> Done {
    let mut command = world.bare();
    for url in urls {
        command.args(["--url", url]);
    }
    command.arg("strict").args(args);
    finish(command)
}

/// The nodes in the answer of `--json`.
#[track_caller]
fn nodes(done: &Done) -> Vec<Value> {
    let answer: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(answer["schema"], "leasehold.v1.strict");
    answer["nodes"].as_array().expect("nodes").clone()
}

#[track_caller]
fn shows(done: &Done, parts: &[&str]) {
    for part in parts {
        assert!(done.stdout.contains(part), "{part}:\n{}", done.stdout);
    }
}

fn run(world: &World, options: &str, flags: &[&str]) -> Command {
    let mut command = world.bare();
    command.args(["--url", &url_of(world, "", options), "run", "x"]).args(flags);
    command.args(["--", "true"]);
    command
}

#[test]
fn a_database_is_switched_on_shown_and_switched_off() {
    let world = World::redis();
    let url = world.url();
    let status = |parts: &[&str]| shows(strict(&world, &[&url], &["status"]).code(0), parts);
    status(&["strict mode is off", "never", "does not set `strict`: its clients are not strict"]);
    let on = strict(&world, &[&url], &["on", "--why", "no file"]);
    shows(on.code(0), &["strict mode is now on", "on at ", " by ", "no file", "What this means"]);
    shows(&on, &["quarantine", "no new locks for 65 s more, from the first lock that"]);
    let again = strict(&world, &[&url], &["on", "--why", "another"]);
    shows(again.code(0), &["was on already, and nothing was changed", "no file"]);
    status(&["strict mode is on", "no file", "does not set `strict`: its clients are strict"]);
    let no = format!("{url}/0?strict=no");
    shows(strict(&world, &[&no], &["status"]).code(0), &["its clients are refused"]);
    // All clients follow: a long ttl is refused, and the first request begins a quarantine.
    finish(run(&world, "/0?strict=no", &["-n"])).code(78).says("`leasehold strict status`");
    finish(run(&world, "", &["-n", "--ttl", "61s"])).code(78).says("61s");
    finish(run(&world, "", &["-n"])).code(69).says("no new locks for");
    let off = strict(&world, &[&url], &["off"]);
    shows(off.code(0), &["strict mode is now off", "off at ", "What this means"]);
    finish(run(&world, "", &["-n"])).code(0);
    finish(run(&world, "/0?strict=no", &["-n"])).code(0);
    let again = strict(&world, &[&url], &["off"]);
    shows(again.code(0), &["was off already"]);
}

#[test]
fn programs_read_the_state_as_json() {
    let world = World::redis();
    let url = format!("{}/0?strict=yes", world.url());
    let before = nodes(strict(&world, &[&url], &["status", "--json"]).code(0));
    let label = format!("{}/0?strict=yes", world.url());
    assert_eq!(
        before,
        [json!({
            "node": label, "on": false, "changed": false, "since": null, "who": null, "why": null,
            "expected": "yes", "quarantine": null, "quarantine_error": null, "error": null,
        })]
    );
    let on = nodes(strict(&world, &[&url], &["on", "--json", "--why", "disks"]).code(0));
    let [node] = &on[..] else { panic!("one URL") };
    assert_eq!(
        (&node["on"], &node["changed"], &node["why"]),
        (&json!(true), &json!(true), &json!("disks"))
    );
    assert!(node["who"].as_str().is_some_and(|who| who.contains('@')), "{node}");
    assert!(node["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{node}");
    assert_eq!(node["quarantine"], json!({ "since_ms": null, "left_ms": 65_000 }));
    let again = nodes(strict(&world, &[&url], &["on", "--json"]).code(0));
    assert_eq!((&again[0]["changed"], &again[0]["since"]), (&json!(false), &node["since"]));
}

#[test]
fn a_switch_of_a_quorum_reaches_each_server_that_answers_and_names_the_others() {
    let world = World::sqlite();
    let (one, two, gone) = (RedisServer::start(), RedisServer::start(), RedisServer::start());
    gone.kill();
    let urls = [one.url(), gone.url(), two.url()];
    let urls = urls.each_ref().map(String::as_str);
    let done = strict(&world, &urls, &["on"]);
    done.code(69).says("1 of 3 servers failed").says(&gone.port().to_string());
    done.says("the others are as shown").says("run the same command again");
    shows(&done, &["strict mode is now on", ": failed\n"]);
    for server in [&one, &two] {
        let record = server.command(&["HGET", ":lh:epoch", "switch"]).text();
        assert!(record.starts_with("on "), "{record}");
    }
    let done = strict(&world, &urls, &["status", "--json"]);
    let seen = nodes(done.code(69));
    let on: Vec<_> = seen.iter().map(|node| &node["on"]).collect();
    assert_eq!(on, [&json!(true), &json!(null), &json!(true)]);
    assert_eq!(seen[1]["error"]["kind"], "unavailable");
    assert!(!done.stderr.contains("run the same command again"), "{}", done.stderr);
    // All clients of the quorum follow, and it works.
    let urls = [one.url(), two.url()].join(" ");
    let mut inspect = world.bare();
    inspect.env("LEASEHOLD_URL", &urls).args(["inspect", "x"]);
    let seen = finish(inspect);
    assert!(seen.code(0).stdout.contains("quarantined"), "{}", seen.stdout);
    // With half of the nodes switched there is no quorum.
    two.command(&["DEL", ":lh:epoch"]);
    let mut inspect = world.bare();
    inspect.env("LEASEHOLD_URL", &urls).args(["inspect", "x"]);
    finish(inspect).code(78).says("all nodes of a quorum must agree");
}

#[test]
fn a_store_without_strict_mode_says_so() {
    let world = World::sqlite();
    for (url, words) in [
        (world.url(), "an SQLite store has no strict mode"),
        ("memory:".to_owned(), "a store in memory has no strict mode"),
        ("redis+cluster://127.0.0.1:1".to_owned(), "a cluster has no strict mode"),
    ] {
        for act in ["on", "off", "status"] {
            strict(&world, &[&url], &[act]).code(78).says(words).says("no request was sent");
        }
    }
}

#[test]
fn a_node_of_a_cluster_is_not_switched() {
    let world = World::sqlite();
    let node = RedisServer::builder().config("cluster-enabled", "yes").start();
    for act in ["on", "off", "status"] {
        let done = strict(&world, &[&node.url()], &[act]);
        done.code(78).says("a cluster has no strict mode").says("nothing was changed");
        assert_eq!(done.stdout, "", "it is told once");
    }
}

#[test]
fn a_user_without_the_rights_to_switch_is_told_which_ones() {
    let world = World::redis();
    let rule = ["ACL", "SETUSER", "bare", "on", ">p", "~x", "+ping", "+info", "+hmget"];
    world.server().command(&rule);
    let url = world.url().replace("redis://", "redis://bare:p@");
    for act in ["on", "off", "status"] {
        let done = strict(&world, &[&url], &[act]);
        done.code(77).says("allow the user `+eval +hset +hget +hmget +time ~:lh:epoch`");
    }
    // The switch is done, although its effect cannot be seen.
    world.server().command(&["ACL", "SETUSER", "bare", "~:lh:epoch", "+eval", "+hset", "+hget"]);
    world.server().command(&["ACL", "SETUSER", "bare", "+time", "-info"]);
    let on = nodes(strict(&world, &[&url], &["on", "--json"]).code(0));
    assert_eq!((&on[0]["on"], &on[0]["changed"]), (&json!(true), &json!(true)));
    assert_eq!((&on[0]["why"], &on[0]["quarantine"]), (&json!(null), &json!(null)));
    assert_eq!(on[0]["quarantine_error"]["kind"], "denied");
}

#[test]
fn a_reason_or_a_key_that_cannot_be_used_is_refused() {
    let world = World::redis();
    let url = world.url();
    for why in ["two\nlines".to_owned(), "x".repeat(201)] {
        strict(&world, &[&url], &["on", "--why", &why]).code(78).says("write one short line");
    }
    strict(&world, &[&url], &[]).code(64);
    strict(&world, &[&url], &["status", "--why", "x"]).code(64);
    world.server().command(&["SET", ":lh:epoch", "x"]);
    for act in ["on", "off", "status"] {
        strict(&world, &[&url], &[act]).code(78).says("`TYPE :lh:epoch`");
    }
    // A record that somebody else wrote does no harm to a terminal.
    world.server().command(&["DEL", ":lh:epoch"]);
    world.server().command(&["HSET", ":lh:epoch", "switch", "on 1 \u{1b}[31m red\u{7}"]);
    let seen = strict(&world, &[&url], &["status"]);
    shows(seen.code(0), &["strict mode is on", "red"]);
    assert!(!seen.stdout.contains(['\u{1b}', '\u{7}']), "{:?}", seen.stdout);
}

#[test]
fn a_client_that_is_strict_where_others_are_not_is_warned_once() {
    let world = World::redis();
    let warnings = |options: &str| {
        let mut command = world.bare();
        command.args(["--url", &url_of(&world, "", options), "-v", "inspect", "x"]);
        let done = finish(command);
        done.code(0).stderr.matches("clients without `strict=yes` are not kept out").count()
    };
    assert_eq!([warnings("/0?strict=yes"), warnings(""), warnings("/0?strict=no")], [1, 0, 0]);
    // Renewals use their own connection.
    let run_id = super::info(&world, "server", "run_id");
    world.server().command(&["HSET", ":lh:epoch", "run", &run_id]);
    let mut command = world.bare();
    let url = url_of(&world, "", "/0?strict=yes");
    command.args(["--url", &url, "-v", "run", "x", "--ttl", "1s", "--", "sleep", "1"]);
    let done = finish(command);
    assert_eq!(done.code(0).stderr.matches("are not kept out").count(), 1, "{}", done.stderr);
    strict(&world, &[&world.url()], &["on"]).code(0);
    assert_eq!(warnings("/0?strict=yes"), 0);
}
