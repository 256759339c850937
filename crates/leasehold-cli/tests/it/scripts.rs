//! The commands of scripts and operators: `acquire`, `renew`, `release`, `unlock`, `ls`, `inspect`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use crate::harness::{Done, World, finish, start, until};

on_every_store! {
    a_script_takes_renews_and_releases_through_its_environment,
    renew_does_not_guess_a_ttl,
    a_lease_that_is_not_ours_cannot_be_renewed_or_released,
    a_shell_finds_the_store_and_the_namespace_that_flags_of_acquire_chose,
    variables_of_an_earlier_lock_are_not_taken_for_those_of_the_next,
    an_unusable_token_is_named_with_its_lock_and_its_origin,
    a_shell_that_has_a_lock_does_not_wait_for_itself,
    a_token_of_another_lock_is_named_as_such_and_changes_nothing,
    a_token_by_flag_goes_before_the_one_in_the_environment,
    without_a_token_the_ways_to_give_one_are_named,
    unlock_ends_the_lease_that_was_seen_and_no_other,
    ls_lists_what_is_held_and_matches_the_pattern,
    ls_shows_what_is_held_for_longer_than_some_time,
    ls_watches_and_prints_what_has_changed,
    a_look_tells_when_the_lease_was_renewed,
    a_reader_that_leaves_early_is_no_error_of_ours,
    ls_that_watches_ends_with_its_reader,
    namespaces_do_not_meet,
    a_nested_call_inherits_the_namespace,
}

fn acquire(world: &World, name: &str, ttl: &str) -> Value {
    let done = finish(world.leasehold(["acquire", name, "--ttl", ttl, "--json"]));
    done.code(0);
    serde_json::from_str(&done.stdout).expect("JSON")
}

fn a_script_takes_renews_and_releases_through_its_environment(world: &World) {
    let script = "set -e; eval \"$($1 acquire x --ttl 1m --why script)\"; \
                  $1 renew x --ttl 2m; $1 renew x; $1 inspect x; \
                  echo $LEASEHOLD_TTL_MS; $1 release x; echo $LEASEHOLD_FENCE";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold")]);
    command.env("LEASEHOLD_URL", world.url());
    let done = finish(command);
    done.code(0);
    assert!(done.stdout.contains("why      script"), "{}", done.stdout);
    let fence = done.stdout.lines().next_back().expect("a line");
    assert!(fence.parse::<u64>().is_ok(), "{fence}");
    assert!(done.stdout.contains("\n60000\n"), "{}", done.stdout);
    world.assert_nothing_left();
}

/// `sh -c SCRIPT` in this world, with `leasehold` as `$1` and the URL of the store as `$2`.
fn shell(world: &World, script: &str) -> Done {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold"), &world.url()]);
    command.env("HOME", world.path("")).env_remove("XDG_STATE_HOME");
    finish(command)
}

/// Otherwise, `renew` would look in another store, and say that the lease is lost.
fn a_shell_finds_the_store_and_the_namespace_that_flags_of_acquire_chose(world: &World) {
    std::fs::write(world.path("url"), world.url()).expect("a file");
    for (before, flags) in [
        ("export LEASEHOLD_URL=$2", "--namespace ns"),
        (":", "--url $2"),
        ("export LEASEHOLD_URL_FILE=$HOME/url", "--url $2 --namespace ns"),
        ("export LEASEHOLD_URL=memory:", "--url-file $HOME/url"),
        ("export LEASEHOLD_URL=memory:", "--local"),
        ("export LEASEHOLD_URL=$2 LEASEHOLD_NAMESPACE=other", "--namespace="),
    ] {
        let script = format!(
            "{before}; out=$($1 {flags} acquire x --ttl 1m) || exit 1; eval \"$out\"; \
             $1 renew x && $1 release x"
        );
        let done = shell(world, &script);
        assert_eq!(done.code(0).stderr, "", "{before} {flags}");
    }
    world.assert_nothing_left();
}

fn variables_of_an_earlier_lock_are_not_taken_for_those_of_the_next(world: &World) {
    let script = "export LEASEHOLD_URL=$2 LEASEHOLD_EXPIRES_AT_MS=1; \
                  eval \"$($1 acquire a --ttl 1m)\"; echo ${LEASEHOLD_FENCE:+fenced}; \
                  $1 release a; eval \"$($1 acquire b --shared --ttl 1m)\"; \
                  echo \"$LEASEHOLD_NAME<$LEASEHOLD_FENCE$LEASEHOLD_EXPIRES_AT_MS>\"; $1 release b";
    assert_eq!(shell(world, script).code(0).stdout, "fenced\nb<>\n");
    world.assert_nothing_left();
}

fn an_unusable_token_is_named_with_its_lock_and_its_origin(world: &World) {
    for (args, variable, origin) in [
        (&["--token", ""][..], &b"t"[..], "--token is not usable"),
        (&[], b"", "LEASEHOLD_TOKEN is not usable"),
        (&[], b"\xff", "LEASEHOLD_TOKEN is not usable"),
    ] {
        let mut command = with_ttl(world, ["release", "x", "--json"]);
        command.args(args).env("LEASEHOLD_TOKEN", OsStr::from_bytes(variable));
        let done = finish(command);
        done.code(78).says(origin).says("\"name\":\"x\"");
    }
}

fn with_ttl<const N: usize>(world: &World, args: [&str; N]) -> std::process::Command {
    let mut command = world.leasehold(args);
    command.env("LEASEHOLD_TTL_MS", "60000");
    command
}

/// A holder that took an hour must not believe that a shorter renewal lasts an hour.
fn renew_does_not_guess_a_ttl(world: &World) {
    let grant = acquire(world, "x", "1s");
    let token = grant["token"].as_str().expect("a token");
    finish(world.leasehold(["renew", "x", "--token", token])).code(64).says("give --ttl");
    finish(with_ttl(world, ["renew", "x", "--token", token])).code(0);
    let left = world.inspect("x")["holders"][0]["ttl_left_ms"].as_u64().expect("a lease");
    assert!((1_001..=60_000).contains(&left), "milliseconds: {left}");
    for text in ["1m", "1h1", "", "-1", "1.5"] {
        let mut wrong = world.leasehold(["renew", "x", "--token", token]);
        wrong.env("LEASEHOLD_TTL_MS", text);
        finish(wrong).code(78).says("LEASEHOLD_TTL_MS is not a number of milliseconds");
    }
}

fn a_lease_that_is_not_ours_cannot_be_renewed_or_released(world: &World) {
    let grant = acquire(world, "x", "1m");
    let token = grant["token"].as_str().expect("a token");
    for command in ["renew", "release"] {
        let done = finish(with_ttl(world, [command, "x", "--token", "somebody-else"]));
        done.code(79).says("`x`");
        assert!(!done.stderr.contains(token), "{}", done.stderr);
    }
    assert_eq!(world.state("x"), "held", "nothing was lost");
    finish(world.leasehold(["release", "x", "--token", token])).code(0);
    finish(world.leasehold(["release", "x", "--token", token])).code(79);
    let lost = finish(with_ttl(world, ["renew", "x", "--token", token]));
    lost.code(79).says("stop the protected work, and acquire the lock again");
    world.assert_nothing_left();
}

/// It would wait for its own lease, which nobody would renew or release meanwhile.
fn a_shell_that_has_a_lock_does_not_wait_for_itself(world: &World) {
    let script = "set -e; eval \"$($1 acquire x --ttl 1m)\"; set +e; \
                  $1 acquire x --ttl 1m; echo $?; $1 acquire -n x --ttl 1m; echo $?; \
                  $1 acquire y --ttl 1m >/dev/null; echo $?; $1 release x; \
                  eval \"$($1 acquire x --ttl 1m)\"; echo $?";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold")]);
    command.env("LEASEHOLD_URL", world.url());
    let done = finish(command);
    assert_eq!(done.code(0).stdout, "78\n75\n0\n0\n", "{done:?}");
    done.says("`x` is already held by an outer leasehold command or by this shell");
    done.says("extend it by `leasehold renew x`, or release it first");
}

/// The second `acquire` in a shell overwrites the variables of the first.
fn a_token_of_another_lock_is_named_as_such_and_changes_nothing(world: &World) {
    let script = "set -e; eval \"$($1 acquire a --ttl 1m)\"; a=$LEASEHOLD_TOKEN; \
                  eval \"$($1 acquire b --ttl 1m)\"; set +e; \
                  $1 release a; echo $?; $1 renew a; echo $?; \
                  LEASEHOLD_NAME=a $1 release a; echo $?; $1 inspect a --json; \
                  LEASEHOLD_TOKEN=$a $1 release a; echo $?; $1 release b; echo $?";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_leasehold")]);
    command.env("LEASEHOLD_URL", world.url());
    let done = finish(command);
    let lines: Vec<_> = done.code(0).stdout.lines().collect();
    assert_eq!((&lines[..3], &lines[4..]), (&["79"; 3][..], &["0"; 2][..]), "{done:?}");
    assert!(lines[3].contains("\"state\":\"held\""), "{}", lines[3]);
    let said: Vec<_> = done.stderr.lines().collect();
    assert_eq!(said.len(), 3, "{}", done.stderr);
    for line in &said {
        assert!(line.contains("LEASEHOLD_TOKEN is not the token of this lock"), "{line}");
        assert!(line.contains("nothing was changed"), "{line}");
    }
    assert!(said[0].contains("it belongs to `b`"), "{}", said[0]);
    world.assert_nothing_left();
}

fn a_token_by_flag_goes_before_the_one_in_the_environment(world: &World) {
    let grant = acquire(world, "x", "1m");
    let token = grant["token"].as_str().expect("a token");
    let call = |command: &str, flag: &str, variable: &str| {
        let mut command = with_ttl(world, [command, "x", "--token", flag]);
        command.env("LEASEHOLD_TOKEN", variable);
        finish(command)
    };
    for command in ["renew", "release"] {
        let done = call(command, "somebody-else", token);
        done.code(79);
        assert!(!done.stderr.contains("LEASEHOLD_TOKEN"), "{}", done.stderr);
        assert_eq!(world.state("x"), "held");
        call(command, token, "somebody-else").code(0);
    }
    world.assert_nothing_left();
}

fn without_a_token_the_ways_to_give_one_are_named(world: &World) {
    for command in ["renew", "release"] {
        finish(world.leasehold([command, "x"])).code(78).says("--token").says("LEASEHOLD_TOKEN");
    }
}

fn unlock_ends_the_lease_that_was_seen_and_no_other(world: &World) {
    let grant = acquire(world, "x", "1m");
    let token = grant["token"].as_str().expect("a token").to_owned();
    let unlock = |extra: &[&str]| {
        let mut command = world.leasehold(["unlock", "x", "--why", "its host burned"]);
        command.args(extra);
        finish(command)
    };
    unlock(&["--force"]).code(64).says("add --yes");
    for none in ["nope", ""] {
        unlock(&["--token", none, "--yes"]).code(75).says("nothing was done");
    }
    assert_eq!(world.state("x"), "held");
    let hint = world.inspect("x")["holders"][0]["token_hint"].as_str().expect("hint").to_owned();
    assert!(hint.len() < token.len() && token.starts_with(&hint));
    unlock(&["--token", &hint, "--yes"])
        .code(0)
        .says("`x` is held by")
        .says("was ended (why: its host burned)");
    assert_eq!(world.state("x"), "free");
    unlock(&["--force", "--yes"]).code(0).says("nobody holds it");
    let again = acquire(world, "x", "1m");
    let fence = |grant: &Value| grant["fence"].as_str().and_then(|text| text.parse::<u64>().ok());
    assert!(fence(&again) > fence(&grant), "the fence rises over a forced end");
    unlock(&["--force", "--yes"]).code(0);
    finish(world.leasehold(["release", "x", "--token", &token])).code(79);
    world.assert_nothing_left();
}

fn ls_lists_what_is_held_and_matches_the_pattern(world: &World) {
    world.make_store();
    assert_eq!(finish(world.leasehold(["ls"])).code(0).stdout, "", "no heads over nothing");
    acquire(world, "deploy/prod", "1m");
    acquire(world, "deploy/test", "1m");
    acquire(world, "nightly", "1m");
    let all = finish(world.leasehold(["ls"]));
    let lines: Vec<&str> = all.code(0).stdout.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("NAME") && lines[1].starts_with("deploy/prod"), "{lines:?}");
    let some = finish(world.leasehold(["ls", "deploy/*", "--json"]));
    let names: Vec<Value> = some
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["name"].clone())
        .collect();
    assert_eq!(names, ["deploy/prod", "deploy/test"]);
}

fn ls_shows_what_is_held_for_longer_than_some_time(world: &World) {
    acquire(world, "x", "1h");
    let older = |than: &str| {
        let done = finish(world.leasehold(["ls", "--older-than", than, "--json"]));
        done.code(0).stdout.lines().count()
    };
    assert_eq!(older("1h"), 0);
    assert_eq!(older("0"), 1);
    until("it is held for a second", || older("1s") == 1);
    let table = finish(world.leasehold(["ls"])).stdout;
    for part in ["COMMAND", "HELD FOR", "TTL", "LEFT", "leasehold acquire (detached)"] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
}

fn ls_watches_and_prints_what_has_changed(world: &World) {
    world.make_store();
    let mistaken = finish(world.leasehold(["ls", "--watch", "500ms"]));
    mistaken.code(64).says("write `--watch=500ms`");
    let hasty = finish(world.leasehold(["ls", "--watch=99ms"]));
    hasty.code(64).says("the shortest interval is 100ms");
    let mut watch = start(world.leasehold(["ls", "--watch=100ms", "--json"]));
    let mut next = || serde_json::from_str::<Value>(&watch.line()).expect("JSON");
    let listing = next();
    assert_eq!(
        (&listing["schema"], &listing["locks"]),
        (&"leasehold.v1.listing".into(), &0.into())
    );
    acquire(world, "x", "1h");
    assert_eq!(next()["locks"], 1);
    assert_eq!(next()["name"], "x");
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    assert_eq!(next()["locks"], 0);
    acquire(world, "y", "1h");
    assert_eq!(next()["locks"], 1);
    let first = next()["holders"][0]["token_hint"].clone();
    assert!(first.is_string(), "{first}");
    // The same lock passes to another holder, so the number of locks stays.
    let waiter = start(world.run("y", &[], "read line"));
    until("it waits", || world.waiting("y") == 1);
    finish(world.leasehold(["unlock", "y", "--force", "--yes", "--why", "the test"])).code(0);
    until("its change is shown", || {
        let hint = &next()["holders"][0]["token_hint"];
        hint.is_string() && *hint != first
    });
    drop(waiter.end());
}

/// A living holder renews its lease every third of its ttl.
fn a_look_tells_when_the_lease_was_renewed(world: &World) {
    let mut holder = start(world.run("x", &["--ttl", "30s"], "echo up; read line"));
    holder.expect("up");
    let seen = world.inspect("x");
    let first = &seen["holders"][0];
    assert_eq!(first["ttl_ms"], 30_000, "{first}");
    let number = |field: &str| first[field].as_u64().unwrap_or_else(|| panic!("{first}"));
    let sum = number("renewed_ms_ago") + number("ttl_left_ms");
    assert!((29_999..=30_000).contains(&sum), "each is rounded down: {first}");
    assert!(first["since"].is_string(), "{first}");
    let text = finish(world.leasehold(["inspect", "x"])).stdout;
    assert!(text.contains("ttl 30s, renewed "), "{text}");
    drop(holder.end());
}

fn a_reader_that_leaves_early_is_no_error_of_ours(world: &World) {
    for number in 0..50 {
        acquire(world, &format!("name-{number:02}"), "1m");
    }
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "\"$0\" ls --json | head -1 | wc -l; echo ${PIPESTATUS[0]}"]);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_URL", world.url());
    let done = finish(command);
    // The code is 141 (128 + PIPE), or 0 if all was written before the reader left.
    assert!(["1\n141\n", "1\n0\n"].contains(&&done.stdout[..]), "{done:?}");
    assert_eq!(done.stderr, "");
}

/// `ls --watch` prints only changes, so it could go on for long before a write fails.
fn ls_that_watches_ends_with_its_reader(world: &World) {
    world.make_store();
    let mut command = std::process::Command::new("bash");
    command.args(["-c", "\"$0\" ls --watch=100ms | head -1; echo ${PIPESTATUS[0]}"]);
    command.arg(env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_URL", world.url());
    let done = finish(command);
    assert!(done.stdout.ends_with("0 locks\n141\n"), "{done:?}");
    assert_eq!(done.stderr, "");
}

fn namespaces_do_not_meet(world: &World) {
    let mut one = start({
        let mut command = world.leasehold(["--namespace", "a", "run", "x", "--"]);
        command.args(["sh", "-c", "echo up; read line"]);
        command
    });
    one.expect("up");
    finish(world.leasehold(["--namespace", "b", "run", "x", "-n", "--", "true"])).code(0);
    finish(world.leasehold(["--namespace", "a", "run", "x", "-n", "--", "true"])).code(75);
    let seen = finish(world.leasehold(["--namespace", "a", "ls", "--json"]));
    assert!(seen.stdout.contains("\"name\":\"x\""), "{}", seen.stdout);
    drop(one.end());
}

fn a_nested_call_inherits_the_namespace(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let run = |inner: &str| {
        let mut command = world.leasehold(["--namespace", "a", "run", "x", "--", "sh", "-c"]);
        command.arg(format!("{exe} {inner}"));
        finish(command)
    };
    let done = run("inspect x --json");
    assert!(done.code(0).stdout.contains("\"state\":\"held\""), "{}", done.stdout);
    run("run x -- true").code(0).says("joined the lock of the outer leasehold command");
    run("--namespace b run x -n -- true").code(0);
    run("--namespace '' run x -n -- true").code(0);
    let script = format!("{exe} run y -- sh -c 'echo \"[$LEASEHOLD_NAMESPACE]\"'");
    let mut without = world.run("x", &[], &script);
    without.env_remove("LEASEHOLD_NAMESPACE");
    assert_eq!(finish(without).code(0).stdout, "[]\n");
}
