//! `elect`: one of many instances leads, and the others follow it.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Instance, Running, World, finish, is_alive, start, until, until_dead};

on_every_store! {
    a_killed_leader_is_followed_soon_after_its_ttl_and_its_command_is_dead_by_then,
    a_leader_that_is_told_to_stop_is_followed_at_once,
    a_command_that_fails_hands_the_leadership_on_and_its_instance_stands_again,
    a_command_that_is_done_ends_its_instance_and_the_next_leads,
    an_instance_that_is_told_to_stop_while_it_waits_leaves_the_line,
    a_lost_term_is_followed_by_a_campaign_for_a_higher_one,
    a_second_signal_kills_the_command_and_no_campaign_follows,
    a_daemon_that_reads_its_settings_again_is_still_stopped_cleanly_and_led_again,
    a_command_that_cannot_start_ends_its_instance,
    at_most_one_of_two_instances_says_that_it_leads,
    a_question_shows_the_term_and_no_secret,
    an_instance_whose_term_is_lost_says_so_before_its_command_is_gone,
}

/// So long that an instance that waits for its end fails the test.
const LONG: [&str; 2] = ["--ttl", "5m"];

/// Prints the term, and stays until it is told to stop.
const STAY: &str = "echo $LEASEHOLD_FENCE; exec sleep 1000";

fn term(running: &mut Running) -> u64 {
    running.line().parse().expect("a fencing token")
}

/// An instance that leads, and its term.
fn leader(world: &World, flags: &[&str], script: &str) -> (Running, u64) {
    let mut leader = start(world.elect("x", flags, script));
    let term = term(&mut leader);
    (leader, term)
}

/// An instance that waits behind the leader.
fn follower(world: &World, flags: &[&str], script: &str) -> Running {
    let follower = start(world.elect("x", flags, script));
    until("it waits", || world.waiters("x") == 1);
    follower
}

/// Tells an instance to stop. Its command is a shell or `sleep`.
#[track_caller]
fn stop(instance: Running) {
    instance.kill(Signal::TERM);
    instance.end().signal(Signal::TERM);
}

fn unlock(world: &World) {
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
}

fn a_killed_leader_is_followed_soon_after_its_ttl_and_its_command_is_dead_by_then(world: &World) {
    let ttl = ["--ttl", "2s"];
    let (mut first, before) = leader(world, &ttl, "echo $LEASEHOLD_FENCE; echo $$; exec sleep 99");
    let pid: i32 = first.line().parse().expect("a pid");
    let mut second = follower(world, &ttl, STAY);
    let killed = Instant::now();
    first.kill(Signal::KILL);
    assert!(term(&mut second) > before);
    assert!(killed.elapsed() < Duration::from_secs(20), "the ttl is 2 s");
    assert!(!is_alive(pid), "two commands run");
    stop(second);
    world.assert_nothing_left();
}

fn a_leader_that_is_told_to_stop_is_followed_at_once(world: &World) {
    let (first, before) = leader(world, &LONG, STAY);
    let mut second = follower(world, &LONG, STAY);
    stop(first);
    assert!(term(&mut second) > before);
    stop(second);
    world.assert_nothing_left();
}

fn a_command_that_fails_hands_the_leadership_on_and_its_instance_stands_again(world: &World) {
    let script = "echo $LEASEHOLD_FENCE; read line; exit 3";
    let (mut first, before) = leader(world, &LONG, script);
    let mut second = follower(world, &LONG, STAY);
    first.tell("fail");
    let line = first.expect_message("failed with exit code 3: resigned");
    assert!(line.contains("campaigning again in 1.0s"), "{line}");
    let between = term(&mut second);
    until("it waits again", || world.waiters("x") == 1);
    let children = format!("/proc/{pid}/task/{pid}/children", pid = first.pid());
    until("nothing of the first term is left", || {
        std::fs::read_to_string(&children).unwrap_or_default().is_empty()
    });
    stop(second);
    let after = term(&mut first);
    assert!(before < between && between < after, "{before}, {between}, {after}");
    first.tell("fail");
    first.expect_message("campaigning again in 2.0s");
    first.kill(Signal::TERM);
    first.end().signal(Signal::TERM);
    world.assert_nothing_left();
}

fn a_command_that_is_done_ends_its_instance_and_the_next_leads(world: &World) {
    let (mut first, before) = leader(world, &LONG, "echo $LEASEHOLD_FENCE; read line; exit 0");
    let mut second = follower(world, &LONG, STAY);
    first.tell("done");
    first.end().code(0);
    assert!(term(&mut second) > before);
    stop(second);
    world.assert_nothing_left();
}

fn an_instance_that_is_told_to_stop_while_it_waits_leaves_the_line(world: &World) {
    let (first, _) = leader(world, &LONG, STAY);
    let second = follower(world, &LONG, "touch $1/began");
    stop(second);
    assert_eq!(world.waiters("x"), 0);
    stop(first);
    assert!(!world.path("began").exists());
    world.assert_nothing_left();
}

fn a_lost_term_is_followed_by_a_campaign_for_a_higher_one(world: &World) {
    let (mut first, before) = leader(world, &["--ttl", "1s"], STAY);
    for lost in 0..3 {
        unlock(world);
        first.expect_message("the lock is lost: the store says that it is no longer ours");
        first.expect_message("this instance no longer leads; campaigning again");
        let line = first.expect_message("this instance leads, with fencing token");
        let after = term(&mut first);
        assert!(after > before && line.ends_with(&after.to_string()), "{lost}: {line}");
    }
    stop(first);
    world.assert_nothing_left();
}

fn a_second_signal_kills_the_command_and_no_campaign_follows(world: &World) {
    let script = "trap 'echo got' TERM; echo $LEASEHOLD_FENCE; while :; do sleep 0.02; done";
    let (mut first, _) = leader(world, &LONG, script);
    first.kill(Signal::TERM);
    first.expect("got");
    first.kill(Signal::INT);
    first.end().signal(Signal::KILL);
    world.assert_nothing_left();
}

/// An old HUP does not count as the first request to stop, and ends no instance.
fn a_daemon_that_reads_its_settings_again_is_still_stopped_cleanly_and_led_again(world: &World) {
    // The command lives on for more than the second in which its end would count as caused by the
    // HUP.
    let reload = "echo reloaded; sleep 1.1; echo goes on";
    let script = format!(
        "trap '{reload}' HUP; trap 'sleep 0.2; echo clean; exit 0' TERM; echo up; \
                  while :; do sleep 0.02; if [ -e $1/fail ]; then rm $1/fail; exit 3; fi; done"
    );
    let mut first = start(world.elect("x", &LONG, &script));
    for fails in [true, false] {
        first.expect("up");
        first.kill(Signal::HUP);
        first.expect("reloaded");
        first.expect("goes on");
        if fails {
            std::fs::write(world.path("fail"), "").expect("a file");
            first.expect_message("failed with exit code 3: resigned; campaigning again");
        }
    }
    first.kill(Signal::TERM);
    first.expect("clean");
    first.end().code(0);
    world.assert_nothing_left();
}

fn a_command_that_cannot_start_ends_its_instance(world: &World) {
    let done = finish(world.leasehold(["elect", "x", "--", "no-such-command"]));
    done.code(127).says("`no-such-command` was not found; the lock was released");
    let inner = format!("{} elect x -- true", env!("CARGO_BIN_EXE_leasehold"));
    finish(world.run("x", &[], &inner)).code(78).says("already held by an outer leasehold");
    world.assert_nothing_left();
}

/// Whether `one` leads. Asserts that `other` does not lead at the same time: asks `one` before and
/// after `other`, and compares the terms.
#[track_caller]
fn leads(one: &Instance, other: &Instance) -> bool {
    let (before, seen, after) = (one.term(), other.term(), one.term());
    let both = before.is_some() && before == after && seen.is_some();
    assert!(!both, "{before:?} and {seen:?} at the same time");
    after.is_some()
}

fn at_most_one_of_two_instances_says_that_it_leads(world: &World) {
    let mut instances = [(); 2].map(|()| Instance::start(world, &LONG, "read line; exit 1"));
    for _ in 0..4 {
        until("the other one waits", || world.waiters("x") == 1);
        let [one, other] = &instances;
        until("one leads", || leads(one, other) || leads(other, one));
        let before = one.term().or_else(|| other.term());
        let leading = &mut instances[usize::from(other.term().is_some())];
        leading.running.tell("end");
        let [one, other] = &instances;
        until("the next term begins", || {
            let _ = (leads(one, other), leads(other, one));
            one.term().or_else(|| other.term()) > before
        });
    }
}

fn a_question_shows_the_term_and_no_secret(world: &World) {
    let script = "echo $LEASEHOLD_FENCE; echo $LEASEHOLD_TOKEN; exec sleep 1000";
    let mut first = Instance::start(world, &LONG, script);
    let (before, token) = (term(&mut first.running), first.running.line());
    let second = Instance::start(world, &LONG, "exec sleep 1000");
    until("it waits", || world.waiters("x") == 1);
    until("it says so", || second.get("/readyz").1["state"] == "campaigning");

    let (status, page) = first.get("/leader");
    assert_eq!((status, &page["is_leader"], &page["name"]), (200, &true.into(), &"x".into()));
    assert_eq!(page["schema"], "leasehold.v1.leader");
    assert_eq!(page["fence"], before.to_string());
    let since = page["since"].as_str().expect("a time");
    assert!(since.parse::<jiff::Timestamp>().is_ok(), "{since}");
    let (status, page) = second.get("/leader");
    assert_eq!((status, &page["is_leader"]), (503, &false.into()));
    assert!(page["fence"].is_null() && page["since"].is_null(), "{page}");
    for (instance, state) in [(&first, "leading"), (&second, "campaigning")] {
        let (status, page) = instance.get("/readyz");
        assert_eq!((status, &page["ready"]), (200, &true.into()), "{page}");
        assert_eq!(
            (&page["schema"], &page["state"]),
            (&"leasehold.v1.ready".into(), &state.into())
        );
    }
    for path in ["/leader", "/readyz"] {
        let text = first.ask(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
        assert!(!text.contains(&token), "{text}");
    }
    stop(second.running);
    stop(first.running);
    world.assert_nothing_left();
}

/// The command ignores the request to stop, so it lives for 2 s more.
fn an_instance_whose_term_is_lost_says_so_before_its_command_is_gone(world: &World) {
    let script = "trap 'echo told' TERM; echo up; while :; do sleep 0.02; done";
    let mut first = Instance::start(world, &["--ttl", "8s"], script);
    first.running.expect("up");
    assert_eq!(first.get("/leader").0, 200);
    unlock(world);
    first.running.expect("told");
    let (status, page) = first.get("/leader");
    assert_eq!((status, &page["is_leader"]), (503, &false.into()), "it lost the lock");
    first.running.expect("up");
    assert_eq!(first.get("/leader").0, 200, "it leads again");
}

/// Processes that the command left behind keep the lock, and serve nobody.
#[test]
fn an_instance_whose_command_has_ended_says_so_while_a_process_of_it_still_runs() {
    let world = World::sqlite();
    let script = "sleep 1000 & echo up; read line; exit 7";
    let mut instance = Instance::start(&world, &LONG, script);
    instance.running.expect("up");
    assert_eq!((instance.get("/leader").0, instance.get("/readyz").0), (200, 200));
    instance.running.tell("end");
    instance.running.expect_message("the command has ended");
    let (status, page) = instance.get("/leader");
    assert_eq!((status, &page["is_leader"]), (503, &false.into()));
    let (status, page) = instance.get("/readyz");
    assert_eq!((status, &page["state"]), (503, &"stopping".into()));
    assert_eq!(world.state("x"), "held");
    instance.running.kill(Signal::TERM);
    instance.running.end().code(7);
    world.assert_nothing_left();
}

#[test]
fn a_leader_steps_down_in_an_outage_and_returns_after_it() {
    let world = World::redis();
    let script = "echo $LEASEHOLD_FENCE; echo $$; exec sleep 1000";
    let mut first = Instance::start(&world, &["--ttl", "3s"], script);
    let before = term(&mut first.running);
    let pid: i32 = first.running.line().parse().expect("a pid");
    until("it is ready", || first.get("/readyz").0 == 200);
    world.server().pause();
    first.running.expect_message("telling the command to stop");
    until_dead(pid);
    first.running.expect_message("campaigning again");
    let (status, page) = first.get("/leader");
    assert_eq!((status, &page["is_leader"]), (503, &false.into()));
    until("it knows of the outage", || first.get("/readyz").0 == 503);
    first.running.expect_message("the lock is not acquired, still trying");
    assert_eq!(first.get("/readyz").1["store_answers"], false);
    world.server().resume();
    assert!(term(&mut first.running) > before);
    until("it leads", || first.get("/leader").0 == 200);
    until("it is ready", || first.get("/readyz").0 == 200);
    stop(first.running);
}

#[test]
fn an_instance_is_not_ready_until_its_store_answers() {
    let world = World::redis();
    world.server().kill();
    let first = Instance::start(&world, &["--wait-store", "1m"], "exec sleep 1000");
    let (status, page) = first.get("/readyz");
    assert_eq!((status, &page["state"]), (503, &"connecting".into()));
    world.server().restart();
    until("it is ready", || first.get("/readyz").0 == 200);
    until("it leads", || first.get("/leader").0 == 200);
    stop(first.running);
    world.server().kill();
    finish(world.elect("x", &[], "true")).code(69);
}

#[test]
fn an_address_that_is_taken_is_refused_before_the_store_is_asked() {
    let world = World::sqlite();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let done = finish(world.elect("x", &["--serve", &address], "touch $1/began"));
    done.code(78).says(&address).says("the store was not contacted");
    assert!(!world.database().exists() && !world.path("began").exists());
    finish(world.elect("x", &["--serve", "localhost"], "true")).code(64).says("0.0.0.0:8080");
}
