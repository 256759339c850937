//! The kernel counts every process that the command starts, and none outlives the lock.
//!
//! The processes of a command inherit its stdout. So a pipe there ends exactly when all of them are
//! dead.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use leasehold_testkit::not_run;
use rustix::process::Signal;

use crate::harness::{
    Done, Running, World, finish, is_alive, parent_of, start, state_of, tree, tree_in, until,
    until_dead,
};

/// How often to repeat a test for rare faults. `LEASEHOLD_SUPERVISION_ROUNDS` asks for more.
fn rounds(usual: usize) -> usize {
    let wanted = std::env::var("LEASEHOLD_SUPERVISION_ROUNDS").ok();
    wanted.map_or(usual, |wanted| wanted.parse().expect("a number"))
}

/// Runs a script whose background process writes "done" to a file at its end.
#[track_caller]
fn is_held_until_the_rest_is_done(world: &World, script: &str) -> Done {
    let _ = std::fs::remove_file(world.path("log"));
    // The background process has none of our streams, so we wait only for the end of `leasehold`.
    let script = format!("exec > /dev/null 2> /dev/null; {script}");
    let done = finish(world.run("x", &["-q"], &script));
    assert_eq!(world.read("log"), "done\n", "the lock was released too early: {script}");
    done
}

#[test]
fn a_process_that_a_shell_put_in_the_background_twice_keeps_the_lock() {
    let world = World::sqlite();
    for _ in 0..rounds(60) {
        let script = "((sleep 0.05; echo done > $1/log) &); exit 3";
        is_held_until_the_rest_is_done(&world, script).code(3);
    }
    world.assert_nothing_left();
}

#[test]
fn a_daemon_keeps_the_lock() {
    let world = World::sqlite();
    for _ in 0..rounds(60) {
        let script = format!("exec {}", tree_in("daemon $1/log 50"));
        is_held_until_the_rest_is_done(&world, &script).code(3);
    }
    world.assert_nothing_left();
}

#[test]
fn a_process_that_forks_and_ends_again_and_again_keeps_the_lock() {
    let world = World::sqlite();
    for _ in 0..rounds(3) {
        let script = format!("exec {}", tree_in("hops $1/log 500"));
        is_held_until_the_rest_is_done(&world, &script).code(3);
    }
    world.assert_nothing_left();
}

#[test]
fn a_process_without_its_main_thread_keeps_the_lock() {
    let world = World::sqlite();
    for _ in 0..rounds(3) {
        let script = format!("exec {}", tree_in("thread $1/log 500"));
        is_held_until_the_rest_is_done(&world, &script).code(0);
    }
    world.assert_nothing_left();
}

/// Starts a command that stays, ends its lease, and returns when all its processes are dead.
#[track_caller]
fn is_killed_at_loss(world: &World, script: &str) {
    let mut run = start(world.run("x", &["--ttl", "1s"], &format!("echo up; {script}")));
    run.expect("up");
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    assert_eq!(run.exit().code(), Some(79));
    run.rest_of_stdout();
}

#[test]
fn a_command_of_any_shape_is_killed_when_the_lock_is_lost() {
    let world = World::sqlite();
    for shape in ["daemon", "hops", "thread", "mixed"] {
        for _ in 0..rounds(3) {
            is_killed_at_loss(&world, &format!("exec {}", tree_in(shape)));
        }
    }
    world.assert_nothing_left();
}

/// Starts five processes in mixed shapes and waits until all are up.
#[track_caller]
fn five_processes(world: &World, name: &str) -> Running {
    // The ttl is long, so that a busy machine loses no lease meanwhile.
    let mut command = world.leasehold(["run", name, "--ttl", "1m", "--"]);
    command.arg(tree()).arg("mixed");
    let mut run = start(command);
    for _ in 0..5 {
        run.expect("up");
    }
    run
}

#[test]
fn nothing_outlives_a_leasehold_that_is_killed() {
    let world = World::sqlite();
    let rounds = rounds(20);
    let mut took: Vec<Duration> = (0..rounds)
        .map(|round| {
            let mut run = five_processes(&world, &round.to_string());
            let killed = Instant::now();
            run.kill(Signal::KILL);
            run.rest_of_stdout();
            killed.elapsed()
        })
        .collect();
    took.sort_unstable();
    let (median, slowest) = (took[rounds / 2], took[rounds - 1]);
    println!("{rounds} times killed: all dead after {median:?}, the slowest after {slowest:?}");
    let late = took.iter().filter(|took| **took > Duration::from_millis(100)).count();
    println!("in {late} of them somebody lived for longer than 100 ms");
}

#[test]
fn a_killed_keeper_takes_the_command_along_and_the_lock_is_released() {
    let world = World::sqlite();
    for shape in ["daemon", "hops", "thread", "mixed"] {
        let script = format!("echo $PPID; exec {}", tree_in(shape));
        let mut run = start(world.run("x", &["--ttl", "1h"], &script));
        let keeper: i32 = run.line().parse().expect("a pid");
        signal(keeper, Signal::KILL);
        run.rest_of_stdout();
        run.end().says("the keeper process of the command was killed");
        world.assert_nothing_left();
    }
}

/// Stopping the keeper saves no process. We kill the keeper, and its processes become our children.
#[test]
fn a_stopped_keeper_saves_no_process() {
    let world = World::sqlite();
    let script = format!("echo $PPID; exec {}", tree_in("mixed"));
    let mut run = start(world.run("x", &["--ttl", "1s"], &script));
    let keeper: i32 = run.line().parse().expect("a pid");
    signal(keeper, Signal::STOP);
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    assert_eq!(run.exit().code(), Some(79));
    run.rest_of_stdout();
}

/// Killing so many takes longer than the keeper has for its first answer. Even so, it must not be
/// taken for a keeper that hangs. On a machine so busy that the keeper does not run, that can
/// happen once.
#[test]
fn a_thousand_sessions_that_ignore_signals_are_killed_when_the_lock_is_lost() {
    let world = World::sqlite();
    let round_is_calm = |round: usize| {
        let name = round.to_string();
        let script = format!("exec {}", tree_in("many 1000 $1/alive"));
        let mut run = start(world.run(&name, &["--ttl", "3s"], &script));
        run.expect("up");
        finish(world.leasehold(["unlock", &name, "--force", "--yes", "--why", "the test"])).code(0);
        let done = run.end();
        done.code(79);
        world.assert_nothing_left();
        !done.stderr.contains("keeper")
    };
    assert!((0..5).any(round_is_calm), "each time, the keeper was taken for one that hangs");
}

#[track_caller]
fn signal(pid: i32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("it is ours");
}

/// Sends three stop signals in one moment. The keeper is stopped until we have left, so we leave at
/// the third signal before anything can have been killed. Returns whether we did leave. On a slow
/// machine the keeper may seem to hang, and then everything is killed first.
fn leaves_without_releasing(world: &World) -> bool {
    let script = "trap '' TERM INT QUIT; echo $$; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1h"], script));
    let pid: i32 = run.line().parse().expect("a pid");
    let keeper = parent_of(pid);
    signal(keeper, Signal::STOP);
    until("the keeper is stopped", || state_of(keeper) == 'T');
    run.kill(Signal::STOP);
    until("it is stopped", || state_of(run.pid()) == 'T');
    let fatal = [Signal::TERM, Signal::INT, Signal::QUIT];
    for signal in fatal {
        run.kill(signal);
    }
    run.kill(Signal::CONT);
    let exit = run.exit();
    // Each of our threads may handle some of the signals, so any of them may be the third.
    let left = fatal.iter().any(|third| exit.signal() == Some(third.as_raw()));
    assert!(left || !is_alive(pid), "we ended before the command without having left: {exit:?}");
    if left {
        assert_eq!(world.state("x"), "held", "released although the command may run");
        // The kernel continues the keeper, because its parent is gone.
        until_dead(pid);
        assert_eq!(world.state("x"), "held", "it is left to its ttl");
        finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    }
    left
}

#[test]
fn a_third_signal_does_not_release_the_lock_of_a_command_that_still_runs() {
    const ROUNDS: usize = 20;
    let world = World::sqlite();
    assert!((0..ROUNDS).any(|_| leaves_without_releasing(&world)), "never within {ROUNDS} rounds");
}

/// The keeper knows the end of the lease, and kills without an order.
#[test]
fn a_stopped_leasehold_does_not_keep_its_command_beyond_the_lease() {
    let world = World::sqlite();
    let script = "trap '' TERM INT HUP; echo $$; \
                  while :; do read up idle < /proc/uptime; echo $up >> $1/alive; sleep 0.02; done";
    let mut run = start(world.run("x", &["--ttl", "1s"], script));
    let pid: i32 = run.line().parse().expect("a pid");
    until("it works", || !world.read("alive").is_empty());
    run.kill(Signal::STOP);
    until("it is stopped", || state_of(run.pid()) == 'T');
    let store = rusqlite::Connection::open(world.database()).expect("the store's file");
    let expires: i64 = store
        .query_row("SELECT expires FROM locks WHERE key = 'x'", [], |row| row.get(0))
        .expect("the lease");
    until_dead(pid);
    let alive = world.read("alive");
    let last: f64 = alive.lines().next_back().and_then(|up| up.parse().ok()).expect("a time");
    #[allow(clippy::cast_precision_loss, reason = "hundredths of a second are compared")]
    let expires = expires as f64 / 1e9;
    assert!(last < expires, "alive at {last}, while the lock was free from {expires} on");
    run.kill(Signal::CONT);
    run.end().code(79);
}

#[test]
fn a_signal_to_the_parent_of_the_command_is_one_to_us() {
    let world = World::sqlite();
    let script = "trap 'echo got it; exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.02; done";
    let done = finish(world.run("x", &[], script));
    assert_eq!(done.code(5).stdout, "got it\n");
}

/// systemd does this: it signals every process of a service.
#[test]
fn a_request_to_us_and_to_the_keeper_counts_once() {
    let world = World::sqlite();
    for us_first in [true, false] {
        let mut run = start(world.run("x", &[], ENDS_CLEANLY));
        let pid: i32 = run.line().parse().expect("a pid");
        let keeper = parent_of(pid);
        let order = if us_first { [run.pid(), keeper] } else { [keeper, run.pid()] };
        order.into_iter().for_each(|pid| signal(pid, Signal::TERM));
        let done = run.end();
        assert_eq!(done.code(0).stdout, "clean\n", "it was killed");
    }
    world.assert_nothing_left();
}

/// timeout(1) does this: it signals its command, and immediately after that its whole group.
#[test]
fn a_request_that_one_process_sends_twice_at_once_counts_once() {
    let world = World::sqlite();
    for _ in 0..rounds(5) {
        let mut run = start(world.run("x", &[], ENDS_CLEANLY));
        run.line();
        for _ in 0..2 {
            signal(run.pid(), Signal::TERM);
        }
        assert_eq!(run.end().code(0).stdout, "clean\n", "it was killed");
    }
    world.assert_nothing_left();
}

#[test]
fn a_request_to_a_run_and_to_the_run_around_it_counts_once() {
    let world = World::sqlite();
    let inner = world.run("inner", &[], ENDS_CLEANLY);
    let mut outer = world.leasehold(["run", "outer", "--"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    let mut run = start(outer);
    let pid: i32 = run.line().parse().expect("a pid");
    let inner = parent_of(parent_of(pid));
    for pid in [run.pid(), inner] {
        signal(pid, Signal::TERM);
    }
    let done = run.end();
    assert_eq!(done.code(0).stdout, "clean\n", "it was killed");
    world.assert_nothing_left();
}

/// The inner command ignores the signal, which ends the inner run. Nobody renews its lease then.
/// The inner keeper may be out of the signal's way by chance, so the test is repeated.
#[test]
fn a_stop_signal_that_ends_an_inner_run_leaves_its_keeper_to_kill_the_command() {
    let world = World::sqlite();
    for round in 0..rounds(5) {
        let name = format!("inner-{round}");
        let script = "trap '' ABRT; echo up; while :; do sleep 0.02; done";
        let inner = world.run(&name, &["--ttl", "1h"], script);
        let flags = ["run", "outer", "--stop-signal", "ABRT", "--ttl", "1s", "--"];
        let mut outer = world.leasehold(flags);
        outer.args(["sh", "-c", "ulimit -c 0; exec \"$@\"", "sh"]);
        outer.arg(inner.get_program()).args(inner.get_args());
        let mut run = start(outer);
        run.expect("up");
        // A request to let go kills nobody by itself.
        finish(world.leasehold(["unlock", "outer", "--ask", "--why", "the test"])).code(0);
        run.rest_of_stdout();
        assert_eq!(run.exit().signal(), Some(Signal::ABORT.as_raw()));
        assert_eq!(world.state(&name), "held", "it is left to its ttl");
    }
}

/// A shell and its terminal each send a HUP when they are closed.
#[test]
fn a_second_hangup_kills_nothing() {
    let world = World::sqlite();
    let script = "trap 'echo hup' HUP; trap 'exit 5' USR1; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &[], script));
    run.expect("up");
    for _ in 0..3 {
        run.kill(Signal::HUP);
        run.expect("hup");
    }
    run.kill(Signal::USR1);
    run.end().code(5);
    world.assert_nothing_left();
}

/// A script that takes its time when it is told to stop. It prints its pid first.
const ENDS_CLEANLY: &str =
    "trap 'sleep 0.3; echo clean; exit 0' TERM; echo $$; while :; do sleep 0.02; done";

#[test]
fn the_background_jobs_of_the_shell_that_became_us_live_on_when_the_lock_is_lost() {
    let world = World::sqlite();
    let inner = world.run("x", &["--ttl", "4s"], "echo up; read line");
    let mut outer = std::process::Command::new("sh");
    outer.args(["-c", "sleep 1000 > /dev/null 2>&1 & echo $!; exec \"$@\"", "sh"]);
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(world.path(""));
    let mut run = start(outer);
    let pid: i32 = run.line().parse().expect("a pid");
    run.expect("up");
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
    assert_eq!(run.exit().code(), Some(79));
    assert!(is_alive(pid), "a process of somebody else's was killed");
    signal(pid, Signal::KILL);
}

/// Runs `leasehold` in new `namespaces`, after `setup`. `None` if users have no right to create
/// any.
fn inside(world: &World, (namespaces, setup): (&str, &str), script: &str) -> Option<Done> {
    let inner = world.run("x", &["--ttl", "1s"], script);
    let mut outer = std::process::Command::new("unshare");
    outer.args(["--user", "--map-root-user"]).args(namespaces.split(' ')).args(["sh", "-c"]);
    outer.arg(format!("{setup} && exec \"$@\"")).arg("sh");
    outer.arg(inner.get_program()).args(inner.get_args()).current_dir(world.path(""));
    let done = finish(outer);
    if ["unshare: ", "mount: "].iter().any(|denied| done.stderr.starts_with(denied)) {
        not_run(&format!("this machine gives no namespaces to its users: {}", done.stderr));
        return None;
    }
    Some(done)
}

const FOREIGN_PROC: (&str, &str) = ("--pid --fork", "true");
const NO_PROC: (&str, &str) = ("--mount", "mount -t tmpfs none /proc");

/// Two forms of /proc that hide processes from readers without the right to inspect them. The first
/// spares group 0, the second nobody. `leasehold` becomes a user without rights.
const HIDING_PROC: [(&str, &str); 2] = [
    (
        "--mount --pid --fork",
        "mount -t proc -o hidepid=2 none /proc && \
         set -- unshare --user --map-user=1000 --map-group=1000 \"$@\"",
    ),
    (
        "--mount --pid --fork",
        "mount -t proc -o hidepid=4 none /proc && \
         set -- unshare --user --map-user=1000 --map-group=1000 \"$@\"",
    ),
];

/// `tree` in this shape, as a program that may be run but not read. The kernel lets nobody look
/// into its processes.
fn unreadable_tree_in(world: &World, shape: &str) -> String {
    let program = world.path("tree");
    if !program.exists() {
        std::fs::copy(tree(), &program).expect("a copy");
        let only_run = std::fs::Permissions::from_mode(0o111);
        std::fs::set_permissions(&program, only_run).expect("our own file");
    }
    format!("{} {shape}", program.display())
}

#[test]
fn everything_is_counted_even_without_our_own_proc() {
    let world = World::redis();
    for place in [FOREIGN_PROC, NO_PROC].into_iter().chain(HIDING_PROC) {
        for shape in ["daemon", "hops", "thread"] {
            let _ = std::fs::remove_file(world.path("log"));
            let tree = unreadable_tree_in(&world, &format!("{shape} $1/log 300"));
            let script = format!("exec > /dev/null 2> /dev/null; exec {tree}");
            let Some(done) = inside(&world, place, &script) else { break };
            done.code(if shape == "thread" { 0 } else { 3 });
            assert_eq!(world.read("log"), "done\n", "{shape}, {place:?}");
        }
    }
    world.assert_nothing_left();
}

#[test]
fn everything_is_killed_even_without_proc() {
    let world = World::redis();
    for place in [NO_PROC].into_iter().chain(HIDING_PROC) {
        for shape in ["daemon", "hops", "thread", "mixed"] {
            // The command ends its own lease.
            let exe = env!("CARGO_BIN_EXE_leasehold");
            let unlock = format!("{exe} unlock x --force --yes --why test 2> /dev/null");
            let script = format!("{unlock}; exec {}", unreadable_tree_in(&world, shape));
            let Some(done) = inside(&world, place, &script) else { break };
            // The stdout of the command has ended, so all its processes are dead.
            assert_eq!(done.status.code(), Some(79), "{shape}, {place:?}: {done:?}");
        }
    }
    world.assert_nothing_left();
}
