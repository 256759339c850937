//! The JSON that scripts depend on.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{World, finish, start};

on_every_store! {
    inspect_and_ls_print_the_lock_object,
    acquire_prints_the_grant_object,
    unlock_says_how_many_holders_were_asked_also_if_that_is_none,
    every_object_begins_with_its_kind_and_an_error_says_who_holds_the_lock,
    with_json_every_message_is_an_object_and_stdout_is_the_commands,
}

fn fields(object: &Value) -> BTreeSet<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

fn is_rfc3339(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())
}

fn inspect_and_ls_print_the_lock_object(world: &World) {
    let mut holder = start(world.run("x", &["--why", "because"], "echo up; read line"));
    holder.expect("up");
    let mut waiter = start(world.run("x", &["--json"], "true"));
    let line = waiter.expect_message("leasehold.v1.waiting");
    let waiting: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(waiting["schema"], "leasehold.v1.waiting");
    assert_eq!(waiting["position"], 1);
    let lock = world.inspect("x");
    assert_eq!(fields(&waiting["lock"]), fields(&lock));
    let expected = ["fence", "holders", "name", "schema", "state", "waiters"];
    assert_eq!(fields(&lock), BTreeSet::from(expected));
    assert_eq!(lock["schema"], "leasehold.v1.lock");
    assert_eq!(lock["state"], "held");
    let expected = [
        "command",
        "fence",
        "host",
        "pid",
        "renewed_ms_ago",
        "since",
        "token_hint",
        "ttl_left_ms",
        "ttl_ms",
        "user",
        "why",
    ];
    let first = &lock["holders"][0];
    assert_eq!(fields(first), BTreeSet::from(expected));
    assert_eq!(first["pid"], holder.pid());
    assert_eq!(first["command"], "leasehold run sh", "the pid is that of leasehold");
    assert_eq!(first["why"], "because");
    assert!(first["fence"].is_string() && first["ttl_left_ms"].is_u64(), "{first}");
    assert!(is_rfc3339(&first["since"]), "{first}");
    let second = &lock["waiters"][0];
    assert_eq!(
        fields(second),
        BTreeSet::from(["command", "host", "pid", "position", "since", "user"])
    );
    assert_eq!(second["position"], 1);
    assert_eq!(second["pid"], waiter.pid());
    let listed = finish(world.leasehold(["ls", "--json"]));
    let listed: Value = serde_json::from_str(&listed.stdout).expect("one object");
    assert_eq!(fields(&listed), fields(&lock));
    drop(holder.end());
    waiter.end().code(0);
    assert_eq!(world.inspect("x")["state"], "free");
}

fn acquire_prints_the_grant_object(world: &World) {
    let done = finish(world.leasehold(["acquire", "x", "--ttl", "1m", "--json"]));
    let grant: Value = serde_json::from_str(&done.code(0).stdout).expect("JSON");
    let expected = ["expires_at", "fence", "name", "schema", "token", "ttl_ms", "valid_ms"];
    assert_eq!(fields(&grant), BTreeSet::from(expected));
    assert_eq!(grant["schema"], "leasehold.v1.grant");
    assert_eq!(grant["ttl_ms"], 60_000);
    assert!(grant["valid_ms"].as_u64().is_some_and(|ms| ms < 60_000), "{grant}");
    assert!(grant["fence"].is_string() && is_rfc3339(&grant["expires_at"]), "{grant}");
    let token = grant["token"].as_str().expect("a token");
    for (command, schema) in
        [("renew", "leasehold.v1.renewal"), ("release", "leasehold.v1.release")]
    {
        let done = finish({
            let mut command = world.leasehold([command, "x", "--token", token, "--json"]);
            command.env("LEASEHOLD_TTL_MS", "60000");
            command
        });
        let object: Value = serde_json::from_str(&done.code(0).stdout).expect("JSON");
        assert_eq!(object["schema"], schema);
        assert_eq!(object["name"], "x");
        let ttl = if command == "renew" { Value::from(60_000) } else { Value::Null };
        assert_eq!(object["ttl_ms"], ttl);
    }
}

fn unlock_says_how_many_holders_were_asked_also_if_that_is_none(world: &World) {
    world.make_store();
    let unlock = |how: &[&str]| {
        let mut command = world.leasehold(["unlock", "x", "--why", "the test", "--json"]);
        command.args(how);
        serde_json::from_str::<Value>(&finish(command).code(0).stdout).expect("JSON")
    };
    let asked = unlock(&["--ask"]);
    assert_eq!(fields(&asked), BTreeSet::from(["asked", "ended", "name", "schema"]));
    assert_eq!((&asked["asked"], &asked["ended"]), (&0.into(), &0.into()));
    let forced = unlock(&["--force", "--yes"]);
    assert_eq!(fields(&forced), BTreeSet::from(["ended", "name", "schema"]));
}

fn every_object_begins_with_its_kind_and_an_error_says_who_holds_the_lock(world: &World) {
    let grant = finish(world.leasehold(["acquire", "x", "--ttl", "1m", "--json"]));
    let refused = finish(world.leasehold(["run", "x", "-n", "--json", "--", "true"]));
    let seen = finish(world.leasehold(["ls", "--json"]));
    for (text, kind) in
        [(&grant.stdout, "grant"), (&refused.code(75).stderr, "error"), (&seen.stdout, "lock")]
    {
        let head = format!("{{\"schema\":\"leasehold.v1.{kind}\",");
        assert!(text.starts_with(&head), "{text}");
    }
    let error: Value = serde_json::from_str(&refused.stderr).expect("JSON");
    assert_eq!(error["kind"], "taken");
    assert_eq!(fields(&error["holder"]), fields(&world.inspect("x")["holders"][0]));
    assert_eq!(error["holder"]["command"], "leasehold acquire (detached)");
}

fn with_json_every_message_is_an_object_and_stdout_is_the_commands(world: &World) {
    for (args, code, kind) in [
        (&["run", "x", "--json", "--", "no-such-command"][..], 127, "not-found"),
        (&["run", "", "--json", "--", "true"], 78, "config"),
        (&["run", "x", "--json"], 64, "usage"),
        (&["release", "x", "--token", "t", "--json"], 79, "lost"),
    ] {
        let done = finish(world.leasehold(args));
        done.code(code);
        assert_eq!(done.stdout, "");
        let error: Value = serde_json::from_str(&done.stderr).expect("one object");
        assert_eq!(fields(&error), ["exit_code", "kind", "message", "name", "schema"].into());
        assert_eq!(error["schema"], "leasehold.v1.error");
        assert_eq!(error["exit_code"], code);
        assert_eq!(error["kind"], kind);
    }
    let done = finish(world.leasehold(["run", "x", "--json", "--", "echo", "data"]));
    assert_eq!(done.code(0).stdout, "data\n");
    assert_eq!(done.stderr, "");
    let done = finish(world.leasehold(["run", "x", "--json", "-vv", "--", "true"]));
    assert!(done.code(0).stderr.lines().count() > 0, "the log was asked for");
    for line in done.stderr.lines() {
        let event: Value = serde_json::from_str(line).expect("an object");
        assert_eq!(event["schema"], "leasehold.v1.log");
    }
}
