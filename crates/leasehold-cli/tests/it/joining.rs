//! A `leasehold run` below another one that holds the same lock joins that lock.

use std::process::Command;

use rustix::process::Signal;

use crate::harness::{World, finish, is_alive, start, until, until_dead};

on_every_store! {
    a_run_below_a_run_of_the_same_name_joins_its_lease,
    a_process_that_left_its_parents_joins,
    a_joined_command_sees_the_lock_that_it_names_however_many_runs_are_between,
    the_claim_of_a_run_decides_which_inner_runs_join,
    the_locks_of_outer_runs_are_joined_and_the_others_taken,
    a_process_elsewhere_with_the_same_environment_is_refused,
    a_command_is_not_started_under_a_lock_that_the_outer_run_has_lost,
    commands_that_join_again_and_again_while_they_are_killed_are_dead_at_the_end,
}

const EXE: &str = env!("CARGO_BIN_EXE_leasehold");

/// Long enough that no renewal comes during a test. No counter stays for longer than usual.
const LONG: [&str; 2] = ["--ttl", "5m"];

const TOKENS: &str = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_FENCE $LEASEHOLD_TTL_MS";

fn unlock(world: &World) {
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", "the test"])).code(0);
}

fn a_run_below_a_run_of_the_same_name_joins_its_lease(world: &World) {
    for flags in ["", "-n", "-w 1h --ttl 1m", "--shared"] {
        let script = format!("{TOKENS}; {EXE} run x {flags} -- sh -c '{TOKENS}; exit 7'");
        let done = finish(world.run("x", &[], &script));
        done.code(7).says("`x`: joined the lock of the outer leasehold command");
        let shown: Vec<_> = done.stdout.lines().collect();
        assert_eq!(shown[0].split(' ').count(), 4, "{shown:?}");
        assert_eq!(shown, [shown[0]; 2], "{flags}");
    }
    // If a signal killed the last command, a shell shows 128 plus the number of the signal.
    let script = format!("{EXE} run x -- sh -c 'kill -KILL $$'; echo $?; {EXE} inspect x --json");
    let done = finish(world.run("x", &[], &script));
    let shown: Vec<_> = done.code(0).stdout.lines().collect();
    assert_eq!(shown[0], "137");
    assert!(shown[1].contains("\"state\":\"held\""), "an inner end releases nothing: {shown:?}");
    let script = format!("{EXE} run x -- no-such-command");
    let done = finish(world.run("x", &[], &script));
    done.code(127).says("was not found; the outer command still holds the lock");
    world.assert_nothing_left();
}

/// It would ask for a lease of its own, and might wait for its own outer run for ever.
#[test]
fn a_run_that_cannot_see_the_lock_of_the_outer_one_among_many_is_refused() {
    let world = World::redis();
    // Of many holders, `inspect` shows those whose leases end first.
    for _ in 0..101 {
        finish(world.leasehold(["acquire", "x", "--shared", "--ttl", "1m"])).code(0);
    }
    let script = format!("{EXE} run x -- echo inner");
    let done = finish(world.run("x", &["--shared", "--ttl", "5m"], &script));
    done.code(78).says("so many holders").says("nothing was changed");
    assert_eq!(done.stdout, "");
    for inner in ["acquire x --ttl 5m", "elect x -- true", "run x --shared -- true"] {
        let script = format!(
            "out=$({EXE} acquire x --shared --ttl 5m) && eval \"$out\" && {EXE} {inner}; \
             code=$?; {EXE} release x; exit $code"
        );
        finish(world.run("other", &[], &script)).code(78).says("so many holders");
    }
    // A shell keeps the variables of a lock that it released.
    let script = format!(
        "take() {{ out=$({EXE} acquire x --shared --ttl 5m) && eval \"$out\"; }}; \
         take && {EXE} release x && take && {EXE} release x && {EXE} run x --shared -- echo again"
    );
    let done = finish(world.run("other", &[], &script));
    assert_eq!(done.code(0).stdout, "again\n");
}

fn a_process_that_left_its_parents_joins(world: &World) {
    for inner in ["(($0 &) &)", "setsid -f $0", "(setsid $0 & ) & "] {
        let inner = inner.replace("$0", &format!("{EXE} run x -- sh -c 'echo joined'"));
        let mut run = start(world.run("x", &[], &inner));
        run.expect("joined");
        run.end().code(0);
    }
    world.assert_nothing_left();
}

/// The fencing token of another lock would let a late write pass.
fn a_joined_command_sees_the_lock_that_it_names_however_many_runs_are_between(world: &World) {
    let script = format!(
        "{TOKENS}; {EXE} run y -- {EXE} run z w -- {EXE} run x -- sh -c \
         '{TOKENS}; {EXE} run y -- sh -c \"{}\"'",
        TOKENS.replace('$', "\\$")
    );
    let done = finish(world.run("x", &[], &script));
    let shown: Vec<_> = done.code(0).stdout.lines().collect();
    assert_eq!((shown.len(), shown[0]), (3, shown[1]), "{done:?}");
    assert!(shown[2].starts_with("y ") && shown[2].split(' ').count() == 4, "{shown:?}");
    world.assert_nothing_left();
}

fn the_claim_of_a_run_decides_which_inner_runs_join(world: &World) {
    let permits = "--permits 3 --weight 2";
    for (outer, inner, refused) in [
        ("", "", None),
        ("", "--shared", None),
        ("", "--permits 3", Some("uses the name as a semaphore")),
        ("--shared", "--shared", None),
        ("--shared", "", Some("a share cannot become the whole lock")),
        ("--shared", "-n", Some("already shared by an outer")),
        (permits, permits, None),
        (permits, "--permits 3", None),
        (permits, "--permits 3 --weight 3", Some("wants more permits than the outer one has")),
        (permits, "--permits 4", Some("name different numbers of permits")),
        (permits, "", Some("uses the name as a semaphore")),
        ("", "--once-per 1h", Some("need a lock of their own")),
        ("", "--max-hold 1h", Some("need a lock of their own")),
    ] {
        let outer: Vec<_> = outer.split_whitespace().collect();
        let name = format!("x{}", outer.len());
        let script = format!("{EXE} run {name} {inner} -- echo inner");
        let done = finish(world.run(&name, &outer, &script));
        match refused {
            None => assert_eq!(done.code(0).stdout, "inner\n", "{outer:?} {inner}"),
            Some(why) => {
                done.code(78).says(why).says_that_nothing_happened();
                assert_eq!(done.stdout, "", "{outer:?} {inner}");
            }
        }
    }
    for inner in ["elect x -- echo inner", "acquire x --ttl 1m"] {
        let done = finish(world.run("x", &[], &format!("{EXE} {inner}")));
        done.code(78).says("already held by an outer leasehold command");
        assert_eq!(done.stdout, "");
    }
    world.assert_nothing_left();
}

fn the_locks_of_outer_runs_are_joined_and_the_others_taken(world: &World) {
    let lines = "echo \"$LEASEHOLD_NAME\"; echo \"$LEASEHOLD_FENCE\"; $0 renew a; $0 renew b";
    let script = format!(
        "echo $LEASEHOLD_FENCE; {EXE} run b a -- sh -c '{lines}' {EXE}; \
         {EXE} inspect b --json | grep -c free; {EXE} inspect a --json | grep -c free"
    );
    let done = finish(world.run("a", &[], &script));
    let shown: Vec<_> = done.stdout.lines().collect();
    assert_eq!((shown.len(), &shown[1..3]), (7, &["b", "a"][..]), "{done:?}");
    assert_eq!(shown[0], shown[4], "the lines have the order of the names");
    assert_ne!(shown[3], shown[4]);
    assert_eq!(shown[5..], ["1", "0"], "only the own lock is released: {done:?}");
    // The outer lease is the first that ends.
    let left = "echo $((LEASEHOLD_EXPIRES_AT_MS - $(date +%s%3N)))";
    let script = format!("{EXE} run a b --ttl 1h -- sh -c '{left}'");
    let left = finish(world.run("a", &LONG, &script)).code(0).stdout.trim().parse::<u64>();
    assert!(left.as_ref().is_ok_and(|left| *left <= 300_000), "{left:?}");
    let script = format!("{EXE} run a a b -- true");
    finish(world.run("a", &[], &script)).code(78).says("named twice");
    // One lock is not free, so nothing is taken, and the outer run goes on.
    let mut holder = start(world.run("b", &[], "echo up; read line"));
    holder.expect("up");
    let script = format!("{EXE} run -n a b -- echo inner; echo $?");
    assert_eq!(finish(world.run("a", &[], &script)).code(0).stdout, "75\n");
    holder.end().code(1);
    world.assert_nothing_left();
}

fn a_process_elsewhere_with_the_same_environment_is_refused(world: &World) {
    let mut run = start(world.run("x", &LONG, "env | grep ^LEASEHOLD_; echo; read line; exit 0"));
    let mut copy = Command::new(EXE);
    loop {
        let line = run.line();
        let Some((name, value)) = line.split_once('=') else { break };
        copy.env(name, value);
    }
    copy.env("HOME", world.path("")).args(["run", "x", "--", "echo", "inner"]);
    let done = finish(copy);
    done.code(78).says("only a command that surely runs below").says_that_nothing_happened();
    assert_eq!(done.stdout, "");
    run.tell("end");
    run.end().code(0);
    world.assert_nothing_left();
}

fn a_command_is_not_started_under_a_lock_that_the_outer_run_has_lost(world: &World) {
    let run_inner = format!("read line; {EXE} run x -- echo inner; echo $?; exit 0");
    for is_taken in [false, true] {
        let mut run = start(world.run("x", &LONG, &format!("echo up; {run_inner}")));
        run.expect("up");
        unlock(world);
        let next = is_taken.then(|| {
            let mut next = start(world.run("x", &[], "echo up; read line"));
            next.expect("up");
            next
        });
        run.tell("go on");
        run.expect("79");
        run.end().code(79).says("the outer leasehold command has lost this lock");
        if let Some(next) = next {
            next.end().code(1);
        }
    }
    // The same name in another store or namespace is another lock.
    let script = format!("{EXE} --namespace n run x -- echo inner");
    assert_eq!(finish(world.run("x", &LONG, &script)).code(0).stdout, "inner\n");
    world.assert_nothing_left();
}

/// Each command begins in a session of its own, while the keeper kills the commands before it.
fn commands_that_join_again_and_again_while_they_are_killed_are_dead_at_the_end(world: &World) {
    for _ in 0..3 {
        let script = format!(
            "trap '' TERM; echo up; while :; do setsid {EXE} -q run x -- sh -c \
             'trap \"\" TERM; exec sleep 150' & sleep 0.01; done"
        );
        let mut run = start(world.run("x", &["--ttl", "1s"], &script));
        run.expect("up");
        unlock(world);
        assert_eq!(run.exit().code(), Some(79));
        run.rest_of_stdout();
    }
    world.assert_nothing_left();
}

/// A joined command that ignores every request to stop, in a session of its own.
fn stubborn() -> String {
    let script = "trap \"\" TERM; echo $$; while :; do sleep 0.02; done";
    format!("setsid {EXE} run x -- sh -c '{script}' & read line; wait")
}

#[test]
fn a_joined_command_is_dead_when_the_outer_run_can_no_longer_renew() {
    let world = World::redis();
    let mut run = start(world.run("x", &["--ttl", "3s"], &stubborn()));
    let pid: i32 = run.line().parse().expect("a pid");
    world.server().pause();
    run.expect_message("killing the command");
    assert_eq!(run.exit().code(), Some(79));
    assert!(!is_alive(pid), "it outlived the lease");
    world.server().resume();
    until("the lease is over", || world.state("x") == "free");
    world.assert_nothing_left();
}

#[test]
fn a_joined_command_dies_with_an_outer_run_that_is_killed() {
    let world = World::sqlite();
    let mut run = start(world.run("x", &["--ttl", "1s"], &stubborn()));
    let pid: i32 = run.line().parse().expect("a pid");
    run.kill(Signal::KILL);
    until_dead(pid);
    run.rest_of_stdout();
    until("the lease is over", || world.state("x") == "free");
    world.assert_nothing_left();
}

#[test]
fn a_signal_to_the_outer_run_reaches_the_joined_command() {
    let world = World::sqlite();
    let inner = "trap \"echo usr1\" USR1; trap \"echo term; exit 9\" TERM; echo up; \
                 while :; do sleep 0.02; done";
    let mut run = start(world.run("x", &[], &format!("exec {EXE} run x -- sh -c '{inner}'")));
    run.expect("up");
    run.kill(Signal::USR1);
    run.expect("usr1");
    run.kill(Signal::TERM);
    run.expect("term");
    run.end().code(9);
    world.assert_nothing_left();
}

/// A second request would kill the command at once.
#[test]
fn a_lost_outer_lock_tells_the_command_of_an_inner_run_to_stop_once() {
    let world = World::sqlite();
    let innermost = "trap \"echo term\" TERM; echo up; while :; do sleep 0.02; done";
    let inner = format!("exec {EXE} run y -- {EXE} run z -- sh -c '{innermost}'");
    let mut run = start(world.run("x", &["--ttl", "10s"], &inner));
    run.expect("up");
    unlock(&world);
    run.expect("term");
    let done = run.end();
    done.code(79).says("the lock is lost");
    assert!(!done.stderr.contains("second signal"), "{}", done.stderr);
}
