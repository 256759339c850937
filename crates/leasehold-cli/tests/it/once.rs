//! `run --once-per`: work that is done once per period, by one of many hosts.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{World, finish, start, until};

on_every_store! {
    a_command_that_succeeded_is_not_run_again_in_its_period,
    one_of_eight_hosts_runs_the_command,
    a_waiter_for_a_lock_that_no_work_holds_is_told_how_to_free_it,
    a_command_that_failed_or_was_killed_may_run_again_at_once,
    a_command_that_was_told_to_stop_may_run_again_at_once_whatever_its_exit_code,
    work_that_is_done_stays_done_though_what_it_left_behind_is_told_to_stop,
    the_command_of_a_killed_runner_runs_again_after_the_ttl,
    the_command_runs_again_when_the_period_is_over,
}

/// Adds a line to a file.
const WORK: &str = "echo done >> $1/log";

fn once(world: &World, script: &str) -> Command {
    world.run("report", &["--once-per", "1h"], script)
}

fn a_command_that_succeeded_is_not_run_again_in_its_period(world: &World) {
    let script = format!("{WORK}; read line");
    let mut running = start(once(world, &script));
    until("the command runs", || world.path("log").exists());
    finish(once(world, WORK)).code(75).says("is held by").says("; nothing was run");
    running.tell("");
    running.end().code(0);

    let skipped = finish(once(world, WORK));
    skipped.code(75).says("`report` was done by").says("nothing was run; it may run again in 59m");
    let unlock = format!("`leasehold unlock --url {} report --force --why TEXT`", world.url());
    skipped.says(&format!("or at once after {unlock}"));
    assert_eq!(world.state("report"), "idle");
    // Used as a lock, the name is taken, and there is nobody to ask to let go.
    let lock = finish(world.run("report", &["-n"], WORK));
    lock.code(75)
        .says("`report` is kept taken by")
        .says("at the latest; no work holds it; nothing");
    assert!(lock.stderr.contains(&format!("{unlock} frees it now")));
    let shown = finish(world.leasehold(["inspect", "report"])).code(0).stdout.clone();
    assert!(shown.contains("free in 59m") && shown.contains("no work holds it"), "{shown}");
    let asked = finish(world.leasehold(["unlock", "report", "--ask", "--why", "a test"]));
    asked.code(0).says("only --force frees the lock early");
    let quiet = finish(world.run("report", &["-q", "-E", "0", "--once-per", "1h"], WORK));
    assert_eq!((quiet.code(0).stderr.as_str(), &*world.read("log")), ("", "done\n"));

    // An operator may free the name, so that the work is done once more.
    let words = ["unlock", "report", "--force", "--yes", "--why", "a test"];
    finish(world.leasehold(words)).code(0).says("no work held it");
    finish(once(world, WORK)).code(0);
    assert_eq!(world.read("log"), "done\ndone\n");
}

fn one_of_eight_hosts_runs_the_command(world: &World) {
    let hosts: Vec<_> = (0..8).map(|_| start(once(world, WORK))).collect();
    let codes = hosts.into_iter().map(|host| host.end().status.code());
    let mut codes: Vec<_> = codes.collect();
    codes.sort_unstable();
    assert_eq!(codes, [[Some(0)].as_slice(), &[Some(75); 7]].concat());
    assert_eq!(world.read("log"), "done\n");
}

fn a_waiter_for_a_lock_that_no_work_holds_is_told_how_to_free_it(world: &World) {
    finish(once(world, WORK)).code(0);
    let url = world.url();
    let way_out = format!("`leasehold unlock --url {url} report --force --why TEXT` frees it now");
    let mut waiting = start(world.run("report", &[], WORK));
    waiting.expect_message(&way_out);
    waiting.kill(Signal::TERM);
    waiting.end().signal(Signal::TERM);
    finish(world.run("report", &["-w", "1s"], WORK)).code(75).says(&way_out);
    assert_eq!(world.read("log"), "done\n");
}

fn a_command_that_failed_or_was_killed_may_run_again_at_once(world: &World) {
    finish(once(world, "exit 3")).code(3);
    finish(once(world, "kill -9 $$")).signal(Signal::KILL);
    finish(world.leasehold(["run", "report", "--once-per", "1h", "--", "./absent"])).code(127);
    finish(once(world, WORK)).code(0);
    finish(once(world, WORK)).code(75);
    assert_eq!(world.read("log"), "done\n");
}

fn a_command_that_was_told_to_stop_may_run_again_at_once_whatever_its_exit_code(world: &World) {
    let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut told = start(once(world, script));
    told.expect("up");
    told.kill(Signal::TERM);
    told.end().code(0).says("the work does not count as done");
    let mut asked = start(once(world, script));
    asked.expect("up");
    finish(world.leasehold(["unlock", "report", "--ask", "--why", "a test"])).code(0);
    asked.end().code(0);
    // It needs more than a second to tidy up.
    let mut hung_up =
        start(once(world, "trap 'sleep 1.5; exit 0' HUP; echo up; while :; do sleep 0.02; done"));
    hung_up.expect("up");
    hung_up.kill(Signal::HUP);
    hung_up.end().code(0).says("the work does not count as done");
    finish(once(world, WORK)).code(0);
    assert_eq!(world.read("log"), "done\n");
}

fn work_that_is_done_stays_done_though_what_it_left_behind_is_told_to_stop(world: &World) {
    let script = format!("{WORK}; sleep 1000 & exit 0");
    let mut lingering = start(once(world, &script));
    lingering.expect_message("the command has ended");
    lingering.kill(Signal::TERM);
    lingering.end().code(0);
    finish(once(world, WORK)).code(75);
    assert_eq!(world.read("log"), "done\n");
}

fn the_command_of_a_killed_runner_runs_again_after_the_ttl(world: &World) {
    let flags = ["--ttl", "1s", "--once-per", "1h"];
    let mut killed = start(world.run("report", &flags, "echo started; sleep 60"));
    killed.expect("started");
    let killed_at = Instant::now();
    killed.kill(Signal::KILL);
    until("the command runs again", || finish(world.run("report", &flags, WORK)).status.success());
    // The last renewal was sent a third of the ttl before the end of the runner, or later.
    assert!(killed_at.elapsed() >= Duration::from_millis(500));
    assert_eq!(world.read("log"), "done\n");
}

fn the_command_runs_again_when_the_period_is_over(world: &World) {
    let flags = ["--ttl", "1s", "--once-per", "2s"];
    let began = Instant::now();
    finish(world.run("report", &flags, WORK)).code(0);
    until("the period is over", || finish(world.run("report", &flags, WORK)).status.success());
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(world.read("log"), "done\ndone\n");
}
