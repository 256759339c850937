//! `unlock --ask`: an operator asks a holder to let go, and it does so in its own time.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{World, finish, start, until};

on_every_store! {
    a_command_whose_lock_is_asked_for_is_told_to_stop_and_ends_as_it_likes,
    a_command_that_does_not_stop_keeps_its_lock_and_is_not_killed,
    work_that_was_asked_to_stop_does_not_count_as_done,
    a_lease_of_a_script_is_told_by_renew,
    a_request_to_let_go_chooses_and_shows_its_holders,
    an_instance_that_leads_resigns_when_asked_and_stands_again,
}

/// Asks the holders of `x` to let go.
fn ask(world: &World, extra: &[&str]) -> std::process::Command {
    let mut command = world.leasehold(["unlock", "x", "--ask", "--why", "deploy at noon"]);
    command.args(extra);
    command
}

/// The output of a command with `--json`.
fn json(world: &World, args: &[&str]) -> Value {
    let done = finish(world.leasehold(args.iter().copied().chain(["--json"])));
    done.code(0);
    serde_json::from_str(&done.stdout).expect("JSON")
}

fn a_command_whose_lock_is_asked_for_is_told_to_stop_and_ends_as_it_likes(world: &World) {
    let script = "trap 'echo stopping; exit 7' TERM; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1s"], script));
    run.expect("up");
    let asked = finish(ask(world, &["--wait", "1m"]));
    asked.code(0).says("was asked to let go (why: deploy at noon)").says("has let go");
    run.expect("stopping");
    run.end().code(7).says("asked to let go by").says("(why: deploy at noon)");
    assert_eq!(world.state("x"), "free");
    finish(ask(world, &[])).code(0).says("nobody holds it");
    world.assert_nothing_left();
}

fn a_command_that_does_not_stop_keeps_its_lock_and_is_not_killed(world: &World) {
    let script = "trap 'echo no' TERM; trap 'exit 3' USR1; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1s"], script));
    run.expect("up");
    let waited = finish(ask(world, &["--wait", "2s"]));
    waited.code(75).says("`x` is still held by").says("the request stays");
    let again = finish(world.leasehold(["unlock", "x", "--ask", "--why", "now", "--wait", "1s"]));
    again.code(75).says("had been asked to let go by").says("(why: deploy at noon)");
    run.expect("no");
    assert_eq!(world.state("x"), "held", "longer than its ttl and its grace");
    run.kill(Signal::USR1);
    assert_eq!(run.rest_of_stdout(), [""; 0], "a second request changes nothing");
    run.end().code(3);
    assert_eq!(world.state("x"), "free");
    world.assert_nothing_left();
}

fn work_that_was_asked_to_stop_does_not_count_as_done(world: &World) {
    let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1s", "--once-per", "1h"], script));
    run.expect("up");
    finish(ask(world, &["--wait", "1m"])).code(0).says("has let go");
    run.end().code(0);
    assert_eq!(world.state("x"), "free", "another process may do the work");
    world.assert_nothing_left();
}

/// A client of another library never looks at requests, and notices the end of its lease only if it
/// renews.
#[test]
fn an_operator_is_not_promised_that_another_library_listens() {
    let world = World::redis();
    world.server().command(&["SET", "x", "somebody-elses-token", "PX", "3600000"]);
    let asked = finish(ask(&world, &[]));
    asked.code(0).says("does not see requests, and only --force frees the lock early");
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "it is dead"];
    let ended = finish(world.leasehold(unlock));
    ended.code(0).says("if it uses another library, it may never learn of this");
    for said in [&asked.stderr, &ended.stderr] {
        assert!(!said.contains("at its next renewal"), "{said}");
    }
}

fn a_lease_of_a_script_is_told_by_renew(world: &World) {
    let grant = json(world, &["acquire", "x", "--ttl", "1m"]);
    let token = grant["token"].as_str().expect("a token");
    finish(ask(world, &[])).code(0);
    let renew = ["renew", "x", "--ttl", "1m", "--token", token];
    let renewed = finish(world.leasehold(renew));
    renewed.code(0).says("asked to let go by").says("the lock is still held");
    let renewed = json(world, &renew);
    assert_eq!(renewed["asked"]["why"], "deploy at noon");
    finish(world.leasehold(["release", "x", "--token", token])).code(0);
    world.assert_nothing_left();
}

fn a_request_to_let_go_chooses_and_shows_its_holders(world: &World) {
    let take = || json(world, &["acquire", "x", "--shared", "--ttl", "1m"]);
    let (one, other) = (take(), take());
    let token = |grant: &Value| grant["token"].as_str().expect("a token").to_owned();
    for none in ["nope", ""] {
        finish(ask(world, &["--token", none])).code(75).says("nothing was done");
    }
    finish(ask(world, &["--token", &token(&one)])).code(0);
    let asked = |world: &World| {
        let holders = world.inspect("x")["holders"].as_array().expect("a list").clone();
        holders.iter().filter(|holder| holder["asked"]["why"] == "deploy at noon").count()
    };
    assert_eq!(asked(world), 1);
    let shown = finish(world.leasehold(["inspect", "x"])).code(0).stdout.clone();
    assert_eq!(shown.matches("  revoke   asked to let go by ").count(), 1, "{shown}");
    let all = json(world, &["unlock", "x", "--ask", "--why", "deploy at noon"]);
    assert_eq!((&all["asked"], &all["ended"]), (&2.into(), &0.into()), "{all}");
    assert_eq!(asked(world), 2);
    finish(ask(world, &["--why", " "])).code(64);
    finish(world.leasehold(["unlock", "x", "--ask", "--why", " "])).code(78);
    for grant in [&one, &other] {
        finish(world.leasehold(["release", "x", "--token", &token(grant)])).code(0);
    }
    world.assert_nothing_left();
}

fn an_instance_that_leads_resigns_when_asked_and_stands_again(world: &World) {
    let script = "trap 'echo down; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut elect = start(world.elect("x", &["--ttl", "1s"], script));
    elect.expect("up");
    finish(ask(world, &["--wait", "1m"])).code(0);
    elect.expect("down");
    elect.expect_message("asked to let go: resigned");
    elect.expect("up");
    elect.kill(Signal::TERM);
    elect.end().code(0);
    until("it is free", || world.state("x") == "free");
    world.assert_nothing_left();
}
