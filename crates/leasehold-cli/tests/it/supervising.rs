//! The command and its processes: what they receive, and that none outlives the lock.

use leasehold_testkit::not_run;
use rustix::process::Signal;

use crate::harness::{World, finish, is_alive, start, until, until_dead};

on_every_store! {
    the_command_gets_the_environment_and_inner_runs_see_their_own,
    the_command_finds_descriptors_and_signals_as_it_would_without_us,
    stdin_and_stdout_are_the_commands,
    a_command_that_closes_its_streams_ends_them_for_others,
    no_shell_touches_the_arguments,
    killing_us_takes_the_command_along,
    processes_that_the_command_leaves_behind_keep_the_lock,
    a_signal_reaches_what_the_command_left_behind,
    background_jobs_of_the_shell_that_became_us_are_none_of_our_business,
    many_ends_at_once_are_all_seen,
    as_process_1_we_reap_what_comes_to_us_and_end_with_a_code,
}

fn the_command_gets_the_environment_and_inner_runs_see_their_own(world: &World) {
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TTL_MS $LEASEHOLD_STORE; echo $LEASEHOLD_URL; \
                  echo $LEASEHOLD_FENCE; echo $LEASEHOLD_TOKEN; echo $LEASEHOLD_EXPIRES_AT_MS";
    let done = finish(world.run("a:b", &["--ttl", "3s"], script));
    let lines: Vec<&str> = done.code(0).stdout.lines().collect();
    assert_eq!(lines[0], format!("a:b 3000 {}", world.label()));
    assert_eq!(lines[1], world.url());
    let fence: u64 = lines[2].parse().expect("a decimal number");
    assert!(lines[3].len() >= 22, "{lines:?}");
    assert!(lines[4].parse::<u64>().expect("milliseconds") > 1_700_000_000_000);
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let nested = format!("{exe} run inner -- sh -c 'echo $LEASEHOLD_NAME'; echo $LEASEHOLD_NAME");
    assert_eq!(finish(world.run("outer", &[], &nested)).stdout, "inner\nouter\n");
    let again = finish(world.run("a:b", &[], "echo $LEASEHOLD_FENCE"));
    assert!(again.stdout.trim().parse::<u64>().expect("a number") > fence, "fences rise");
}

fn the_command_finds_descriptors_and_signals_as_it_would_without_us(world: &World) {
    let script = "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let mut direct = std::process::Command::new("sh");
    direct.args(["-c", script]).stdin(std::process::Stdio::null());
    assert_eq!(finish(world.run("x", &[], script)).stdout, finish(direct).stdout);
}

fn stdin_and_stdout_are_the_commands(world: &World) {
    let mut run = start(world.leasehold(["run", "x", "--", "cat"]));
    run.tell("one");
    run.expect("one");
    run.tell("two");
    run.expect("two");
    let done = run.end();
    done.code(0);
    assert_eq!(done.stderr, "", "uncontended use is silent");
}

fn a_command_that_closes_its_streams_ends_them_for_others(world: &World) {
    let script = "exec < /dev/null > /dev/null; until [ -e $1/produced ] && [ -e $1/consumed ]; \
                  do sleep 0.02; done; echo done > $1/log";
    let inner = world.run("x", &[], script);
    // The producer ends when no process reads, and the consumer when no process writes.
    let pipeline = "{ yes; touch produced; } | \"$@\" | { cat; touch consumed; }";
    let mut outer = std::process::Command::new("sh");
    outer.args(["-c", pipeline, "sh"]).current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    finish(outer).code(0);
    until("the command has ended", || world.read("log") == "done\n");
}

fn no_shell_touches_the_arguments(world: &World) {
    let words = ["$HOME", "a  b", "*", "", "-n", "--json"];
    let mut command = world.leasehold(["run", "x", "--", "printf", "[%s]"]);
    command.args(words);
    let done = finish(command);
    assert_eq!(done.stdout, "[$HOME][a  b][*][][-n][--json]");
}

/// None of our code runs when we are killed, but the keeper sees the socket close.
fn killing_us_takes_the_command_along(world: &World) {
    let mut run = start(world.run("x", &["--ttl", "1s"], "echo $$; exec sleep 1000"));
    let pid: i32 = run.line().parse().expect("a pid");
    assert!(is_alive(pid));
    run.kill(Signal::KILL);
    until_dead(pid);
    until("the lease runs out", || world.state("x") == "free");
}

fn processes_that_the_command_leaves_behind_keep_the_lock(world: &World) {
    let fifo = world.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    // This is a typical daemon: it has a session of its own and none of our streams, and its parent
    // has ended.
    let script = "setsid sh -c 'read line < $0/fifo; echo daemon > $0/log' $1 \
                  < /dev/null > /dev/null 2>&1 & exit 3";
    let mut run = start(world.run("x", &[], script));
    run.expect_message("the lock is held until they end");
    assert_eq!(world.state("x"), "held");
    std::fs::write(&fifo, "go\n").expect("the daemon reads");
    run.end().code(3);
    assert_eq!(world.read("log"), "daemon\n", "it was waited for");
    world.assert_nothing_left();
}

fn a_signal_reaches_what_the_command_left_behind(world: &World) {
    let script = "setsid sh -c 'trap \"echo daemon got it; exit\" TERM; \
                  while :; do sleep 0.02; done' & exit 3";
    let mut run = start(world.run("x", &[], script));
    run.expect_message("the lock is held until they end");
    // Its default action would kill the daemon, which the signal is not meant for.
    run.kill(Signal::USR1);
    run.kill(Signal::TERM);
    run.expect("daemon got it");
    run.end().code(3);
    world.assert_nothing_left();
}

fn background_jobs_of_the_shell_that_became_us_are_none_of_our_business(world: &World) {
    let inner = world.run("x", &[], "exit 3");
    let mut outer = std::process::Command::new("sh");
    outer.args(["-c", "sleep 1000 & echo $! > pid; exec \"$@\"", "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(world.path(""));
    outer.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut outer = outer.spawn().expect("a shell");
    assert_eq!(outer.wait().expect("it ends").code(), Some(3));
    let pid: i32 = world.read("pid").trim().parse().expect("a pid");
    assert!(is_alive(pid), "it was killed or waited for");
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("it is ours");
}

fn many_ends_at_once_are_all_seen(world: &World) {
    let script = "i=0; while [ $i -lt 200 ]; do (exit 1) & i=$((i+1)); done; exit 8";
    finish(world.run("x", &[], script)).code(8);
    world.assert_nothing_left();
}

/// In a container we may be process 1. Then orphans become our children, and default signal actions
/// do not end us.
fn as_process_1_we_reap_what_comes_to_us_and_end_with_a_code(world: &World) {
    let inside = |script: &str| {
        let inner = world.run("x", &[], script);
        let mut outer = std::process::Command::new("unshare");
        outer.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
        outer.arg(inner.get_program()).args(inner.get_args()).current_dir(world.path(""));
        finish(outer)
    };
    // The keeper is between us and the command.
    let script = "read pid name state parent rest < /proc/$PPID/stat; \
                  test $parent = 1 && (setsid sleep 0.5 &) ; exit 4";
    let done = inside(script);
    if done.stderr.starts_with("unshare: ") {
        not_run(&format!("this machine gives no namespaces to its users: {}", done.stderr));
        return;
    }
    done.code(4).says("1 of its processes still run");
    inside("kill -TERM $$").code(143);
    world.assert_nothing_left();
}
