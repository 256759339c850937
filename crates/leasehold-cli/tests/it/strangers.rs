//! A shell that became `leasehold run` may have left it background jobs. They do not belong to the
//! command.

use leasehold_testkit::not_run;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Running, World, finish, is_alive, parent_of, start, state_of, until};

/// Starts `leasehold run` from a shell that has done this before.
fn run_after(world: &World, before: &str, script: &str) -> Running {
    let inner = world.run("x", &["--ttl", "1h"], script);
    let mut outer = std::process::Command::new("sh");
    outer.args(["-c", &format!("{before}; exec \"$@\""), "sh"]).current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    start(outer)
}

#[track_caller]
fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a pid"), Signal::KILL).expect("it is ours");
}

#[track_caller]
fn pid_in(world: &World, file: &str) -> i32 {
    until(file, || world.read(file).ends_with('\n'));
    world.read(file).trim().parse().expect("a pid")
}

#[test]
fn a_background_job_whose_own_shell_has_ended_lives_on_when_the_keeper_is_killed() {
    let world = World::sqlite();
    let job = "sh -c 'sleep 1000 > /dev/null 2>&1 & echo $! > job; exec sleep 1000' & \
               echo $! > shell";
    let mut run = run_after(&world, job, "echo $PPID; exec sleep 1000");
    let keeper: i32 = run.line().parse().expect("a pid");
    let (job, shell) = (pid_in(&world, "job"), pid_in(&world, "shell"));
    kill(shell);
    until("it is reaped", || state_of(shell) == 'X');
    assert_eq!(parent_of(job), run.pid());
    kill(keeper);
    run.exit();
    assert!(is_alive(job), "a process of somebody else's was killed");
    kill(job);
}

/// The test runs in a pid namespace of its own, in which it can choose the next pid.
#[test]
fn a_process_with_the_pid_of_a_background_job_that_has_ended_is_the_commands() {
    let world = World::sqlite();
    // The process is the keeper's child, as a daemon is. A thread of ours may take the pid first,
    // and then the shell tries again.
    let script = "job=$(cat job); while kill -0 $job 2> /dev/null; do :; done; \
                  until [ \"$pid\" = $job ]; do \
                      rm -f again; \
                      (echo $((job - 1)) > /proc/sys/kernel/ns_last_pid; \
                       sh -c 'echo $$ > again; exec sleep 1000' &); \
                      until read pid < again; do :; done 2> /dev/null; \
                  done; kill -9 $PPID; wait";
    let inner = world.run("x", &[], script);
    let mut outer = std::process::Command::new("unshare");
    outer.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "sh", "-c"]);
    // The first process of the namespace stays, or all others would end with it.
    outer.arg(
        "(sleep 0.3 & echo $! > job; exec \"$@\"); code=$?; \
         kill -0 $(cat job) 2> /dev/null && echo alive; exit $code",
    );
    outer.arg("sh").current_dir(world.path(""));
    outer.arg(inner.get_program()).args(inner.get_args());
    let done = finish(outer);
    if done.stderr.starts_with("unshare: ") {
        not_run(&format!("this machine gives no namespaces to its users: {}", done.stderr));
        return;
    }
    assert_eq!(world.read("job"), world.read("again"), "{done:?}");
    done.code(125).says("the keeper process of the command was killed");
    assert_eq!(done.stdout, "", "a process of the command lives on");
}
