//! `run a b c`: several locks, taken together or not at all.

use rustix::process::Signal;

use crate::harness::{World, finish, start, until};

on_every_store! {
    one_taken_lock_leaves_the_others_free,
    a_wait_names_the_lock_in_the_way_and_an_interrupted_one_leaves_nothing,
    the_command_learns_of_each_of_its_locks,
    a_lock_of_several_is_not_waited_for_inside_the_run_that_holds_it,
    the_loss_of_one_lock_stops_the_command_and_frees_the_others,
    several_names_that_cannot_be_taken_together_are_refused,
}

on_file_and_redis! {
    no_update_is_lost_by_eight_processes_that_take_overlapping_pairs_in_any_order,
}

const PROCESSES: usize = 8;
const RUNS_EACH: usize = 250;

/// Each run adds one to the two counters under its locks.
fn no_update_is_lost_by_eight_processes_that_take_overlapping_pairs_in_any_order(world: &World) {
    const PAIRS: [[&str; 2]; 6] =
        [["a", "b"], ["b", "a"], ["b", "c"], ["c", "b"], ["c", "a"], ["a", "c"]];
    for name in ["a", "b", "c"] {
        std::fs::write(world.path(name), "0\n").expect("a file");
    }
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            scope.spawn(move || {
                for round in 0..RUNS_EACH {
                    let [one, two] = PAIRS[(process + round) % PAIRS.len()];
                    let add = |name| format!("read n < $1/{name}; echo $((n + 1)) > $1/{name}");
                    let script = format!("{}; {}", add(one), add(two));
                    let done = finish(world.run(one, &[two, "-q"], &script));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    let count = |name| world.read(name).trim().parse::<usize>().expect("a number");
    assert_eq!(["a", "b", "c"].map(count).iter().sum::<usize>(), 2 * PROCESSES * RUNS_EACH);
    world.assert_nothing_left();
}

fn one_taken_lock_leaves_the_others_free(world: &World) {
    let mut holder = start(world.run("b", &[], "echo up; read line; exit 0"));
    holder.expect("up");
    for (flags, part) in [
        (&["-n"][..], "nothing was acquired; use -w 1m to wait"),
        (&["-w", "2s"], "gave up after 2.0s"),
        (&["-n", "-E", "3"], "nothing was acquired"),
    ] {
        let mut command = world.leasehold(["run", "a", "b", "c"]);
        command.args(flags).args(["--", "echo", "inner"]);
        let done = finish(command);
        let code = if flags.len() == 3 { 3 } else { 75 };
        done.code(code).says("`b` is held by").says(part);
        assert_eq!(done.stdout, "");
        for name in ["a", "c"] {
            assert_eq!(world.state(name), "free", "{name} after {flags:?}");
        }
        assert_eq!(world.waiters("b"), 0);
    }
    holder.tell("end");
    holder.end().code(0);
    finish(world.leasehold(["run", "a", "b", "c", "-n", "--", "true"])).code(0);
    world.assert_nothing_left();
}

fn a_wait_names_the_lock_in_the_way_and_an_interrupted_one_leaves_nothing(world: &World) {
    let mut holder = start(world.run("b", &[], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut waiter = start(world.leasehold(["run", "c", "b", "a", "--", "echo", "inner"]));
    waiter.expect_message("`b` is held by");
    assert_eq!((world.state("a"), world.waiters("b")), ("held".to_owned(), 1));
    assert_eq!(world.state("c"), "free", "it comes behind the one that is waited for");
    waiter.kill(Signal::TERM);
    waiter.end().signal(Signal::TERM);
    assert_eq!((world.state("a"), world.waiters("b")), ("free".to_owned(), 0));
    let mut waiter = start(world.leasehold(["run", "c", "b", "a", "--", "echo", "inner"]));
    until("it waits", || world.waiters("b") == 1);
    holder.tell("end");
    holder.end().code(0);
    waiter.expect("inner");
    waiter.end().code(0);
    world.assert_nothing_left();
}

/// Each variable has one line for each lock, in the order in which the locks were named.
fn the_command_learns_of_each_of_its_locks(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "echo \"$LEASEHOLD_NAME\"; echo \"$LEASEHOLD_FENCE\" | grep -c '^[0-9]*$'; \
         echo \"$LEASEHOLD_TOKEN\" | grep -c .; echo \"$LEASEHOLD_CHAIN\" | wc -w; \
         test \"$LEASEHOLD_EXPIRES_AT_MS\" -gt 0 && {exe} renew 'b c' && {exe} renew d"
    );
    let done = finish(world.run("e", &["b c", "d"], &script));
    let shown: Vec<_> = done.code(0).stdout.lines().map(str::trim).collect();
    assert_eq!(shown, ["e", "b c", "d", "3", "3", "3"]);
    world.assert_nothing_left();
}

fn a_lock_of_several_is_not_waited_for_inside_the_run_that_holds_it(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let inside = |script: &str| {
        let mut command = world.leasehold(["run", "a", "b", "--", "sh", "-c"]);
        command.args([script, exe]);
        finish(command)
    };
    for inner in ["run b", "run -n b a", "run -n x b", "run y -- $0 run a", "run c d"] {
        assert_eq!(inside(&format!("$0 {inner} -- echo inner")).code(0).stdout, "inner\n");
    }
    let done = inside("$0 acquire b --ttl 1m");
    done.code(78).says("already held by an outer leasehold command");
    assert_eq!(done.stdout, "");
    world.assert_nothing_left();
}

fn the_loss_of_one_lock_stops_the_command_and_frees_the_others(world: &World) {
    // The ttl is so long that only a release frees the others.
    let script = "trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut run = start(world.run("c", &["b", "a", "--ttl", "20s"], script));
    run.expect("up");
    finish(world.leasehold(["unlock", "b", "--force", "--yes", "--why", "the test"])).code(0);
    run.expect_message("`b`: the lock is lost: the store says that it is no longer ours");
    run.expect("term");
    run.end().code(79);
    world.assert_nothing_left();
    // Here, the release finds one of the locks gone.
    let mut run = start(world.run("a", &["b", "--ttl", "9m"], "echo up; read line; exit 0"));
    run.expect("up");
    finish(world.leasehold(["unlock", "b", "--force", "--yes", "--why", "the test"])).code(0);
    run.tell("end");
    run.end().code(79).says("`b`: the command has ended (exit code 0), but the lease had ended");
    world.assert_nothing_left();
}

fn several_names_that_cannot_be_taken_together_are_refused(world: &World) {
    let many: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    for (args, part) in [
        (&["a", "b", "a"][..], "`a`: this name is given twice"),
        (&["a", "b", "--shared"], "--shared is for one name, and 2 were given"),
        (&["a", "b", "--permits", "3"], "--permits is for one name, and 2 were given"),
        (&["a", "b", "--once-per", "1h"], "--once-per is for one name, and 2 were given"),
        (&["a", "b:lh:c"], "reserved"),
        (&many, "at most 64 locks can be taken together, not 65"),
    ] {
        let mut command = world.leasehold(["run"]);
        command.args(args).args(["--", "echo", "inner"]);
        let done = finish(command);
        done.code(78).says(part);
        assert_eq!(done.stdout, "");
    }
    world.assert_nothing_left();
}
