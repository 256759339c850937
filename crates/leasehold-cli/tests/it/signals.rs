//! TERM, INT, HUP and QUIT during a wait, a hold and a release; and other signals.

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{World, finish, is_alive, start, state_of, until, until_dead};

on_every_store! {
    a_signal_while_waiting_leaves_the_line_and_starts_nothing,
    a_signal_while_holding_is_forwarded_and_the_commands_answer_is_ours,
    a_command_that_dies_of_a_forwarded_signal_takes_us_along,
    a_second_signal_kills,
    other_signals_reach_the_command,
    signals_that_arrive_together_all_reach_the_command,
    a_signal_that_was_ignored_stays_ignored_by_the_command_too,
    ctrl_z_stops_the_command_with_us_and_both_go_on,
    a_command_continued_after_its_lease_lapsed_is_killed,
}

const FATAL: [(Signal, &str); 4] =
    [(Signal::TERM, "TERM"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::QUIT, "QUIT")];

fn a_signal_while_waiting_leaves_the_line_and_starts_nothing(world: &World) {
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    for (signal, name) in FATAL {
        let waiter = start(world.run("x", &[], "touch $1/began"));
        until("it waits", || world.waiters("x") == 1);
        waiter.kill(signal);
        waiter.end().signal(signal);
        assert_eq!(world.waiters("x"), 0, "{name}: the place is left when we are gone");
    }
    drop(holder.end());
    assert!(!world.path("began").exists(), "a command was started after the signal");
    world.assert_nothing_left();
}

fn a_signal_while_holding_is_forwarded_and_the_commands_answer_is_ours(world: &World) {
    for (signal, name) in FATAL {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo up; {IDLE}");
        let mut holder = start(world.run("x", &[], &script));
        holder.expect("up");
        holder.kill(signal);
        holder.expect(&format!("got {name}"));
        holder.end().code(5);
        world.assert_nothing_left();
    }
}

fn a_command_that_dies_of_a_forwarded_signal_takes_us_along(world: &World) {
    for (signal, _) in FATAL {
        let mut holder = start(world.run("x", &[], &format!("echo up; {IDLE}")));
        holder.expect("up");
        holder.kill(signal);
        holder.end().signal(signal);
        world.assert_nothing_left();
    }
}

/// For example, a terminal stops a command in the background that reads from it.
#[test]
fn a_stopped_command_is_continued_when_it_is_asked_to_end() {
    let world = World::sqlite();
    for (signal, name) in FATAL {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo $$; {IDLE}");
        let mut holder = start(world.run("x", &[], &script));
        let pid: i32 = holder.line().parse().expect("a pid");
        let command = Pid::from_raw(pid).expect("a pid");
        kill_process(command, Signal::STOP).expect("it is ours");
        until("it is stopped", || state_of(pid) == 'T');
        holder.kill(signal);
        holder.expect(&format!("got {name}"));
        holder.end().code(5);
        world.assert_nothing_left();
    }
}

/// The command has ended, and a writer that has the file locked delays the release.
#[test]
fn a_signal_while_releasing_changes_nothing() {
    let world = World::sqlite();
    for (signal, _) in FATAL {
        let mut holder = start(world.run("x", &["--ttl", "1m"], "echo $$; read line; exit 6"));
        let pid: i32 = holder.line().parse().expect("a pid");
        let writer = Connection::open(world.database()).expect("the store's file");
        until("the file is ours", || writer.execute_batch("BEGIN IMMEDIATE").is_ok());
        holder.tell("end");
        until_dead(pid);
        holder.kill(signal);
        let end = holder.end();
        end.code(6).says("the store did not confirm the release").says("the lock frees itself");
        writer.execute_batch("ROLLBACK").expect("our transaction");
        let token = world.inspect("x")["holders"][0]["token_hint"].clone();
        if let Some(token) = token.as_str() {
            let args = ["unlock", "x", "--token", token, "--why", "left by the test", "--yes"];
            finish(world.leasehold(args)).code(0);
        }
    }
}

fn a_second_signal_kills(world: &World) {
    let script = format!("trap 'echo got' TERM; trap '' INT; echo $$; {IDLE}");
    let mut holder = start(world.run("x", &[], &script));
    let pid: i32 = holder.line().parse().expect("a pid");
    holder.kill(Signal::TERM);
    holder.expect("got");
    assert!(is_alive(pid));
    holder.kill(Signal::INT);
    holder.expect_message("second signal: killing the command");
    holder.end().signal(Signal::KILL);
    assert!(!is_alive(pid));
    world.assert_nothing_left();
}

fn other_signals_reach_the_command(world: &World) {
    let script = format!("trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo up; {IDLE}");
    let mut holder = start(world.run("x", &[], &script));
    holder.expect("up");
    holder.kill(Signal::USR1);
    holder.expect("usr1");
    holder.kill(Signal::USR2);
    holder.expect("usr2");
    holder.end().code(0);
}

/// They wait for us while we are stopped.
fn signals_that_arrive_together_all_reach_the_command(world: &World) {
    let script = format!("trap 'echo usr1' USR1; trap 'echo usr2' USR2; echo up; {IDLE}");
    let mut holder = start(world.run("x", &["--ttl", "10m"], &script));
    holder.expect("up");
    holder.kill(Signal::STOP);
    until("we are stopped", || state_of(holder.pid()) == 'T');
    for signal in [Signal::USR1, Signal::USR2, Signal::CONT] {
        holder.kill(signal);
    }
    let mut came = [holder.line(), holder.line()];
    came.sort();
    assert_eq!(came, ["usr1", "usr2"]);
    holder.kill(Signal::TERM);
    holder.end().signal(Signal::TERM);
}

/// The command is like a server that reads its settings again, and whose workers do not expect the
/// signal.
#[test]
fn a_signal_that_asks_for_no_end_goes_to_the_command_and_not_to_its_children() {
    let world = World::sqlite();
    let others = [
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ];
    let traps: String = others.iter().map(|(_, it)| format!("trap 'echo {it}' {it}; ")).collect();
    // A worker that such a signal has killed shows another code.
    let script = format!(
        "sleep 1000 & worker=$!; {traps} trap 'wait $worker; echo worker $?; exit 5' TERM; \
         echo up; {IDLE}"
    );
    let mut holder = start(world.run("x", &[], &script));
    holder.expect("up");
    for (signal, name) in others {
        holder.kill(signal);
        holder.expect(name);
    }
    holder.kill(Signal::TERM);
    holder.expect("worker 143");
    holder.end().code(5);
    world.assert_nothing_left();
}

fn a_signal_that_was_ignored_stays_ignored_by_the_command_too(world: &World) {
    let inner = world.run("x", &[], "kill -HUP $PPID; kill -HUP $$; echo alive");
    let mut outer = std::process::Command::new("sh");
    outer.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(world.path(""));
    assert_eq!(finish(outer).code(0).stdout, "alive\n");
}

fn ctrl_z_stops_the_command_with_us_and_both_go_on(world: &World) {
    let mut holder =
        start(world.run("x", &["--ttl", "10m"], "echo $$; read line; echo on; exit 4"));
    let pid: i32 = holder.line().parse().expect("a pid");
    holder.kill(Signal::TSTP);
    holder.expect_message("the lease is not renewed and ends in");
    until("both are stopped", || state_of(pid) == 'T' && state_of(holder.pid()) == 'T');
    holder.tell("go");
    holder.kill(Signal::CONT);
    holder.expect("on");
    holder.end().code(4);
}

fn a_command_continued_after_its_lease_lapsed_is_killed(world: &World) {
    let script = "echo $$; read line; echo acted";
    let mut holder = start(world.run("x", &["--ttl", "1s"], script));
    let pid: i32 = holder.line().parse().expect("a pid");
    holder.kill(Signal::TSTP);
    until("both are stopped", || state_of(pid) == 'T' && state_of(holder.pid()) == 'T');
    holder.tell("go");
    until("the lease lapses", || world.state("x") == "free");
    holder.kill(Signal::CONT);
    let done = holder.end();
    done.code(79).says("the lock is lost");
    assert!(!done.stdout.contains("acted"), "it acted after the lease had lapsed");
    assert!(!is_alive(pid));
}

/// A shell that waits for signals, and handles them between two short sleeps.
const IDLE: &str = "while :; do sleep 0.02; done";
