//! `run --shared`, `run --permits` and `resize`.

use std::collections::VecDeque;

use rustix::process::Signal;

use crate::harness::{World, finish, start, until, until_dead};

on_every_store! {
    never_more_commands_run_than_there_are_permits,
    a_killed_reader_frees_only_itself,
    readers_share_the_lock_and_wait_behind_a_writer,
    another_number_of_permits_is_refused_with_both_numbers_until_it_is_changed,
    commands_that_wait_in_line_go_on_after_a_resize,
    a_name_is_a_lock_or_a_semaphore,
    a_share_does_not_become_the_whole_lock,
    a_script_takes_no_second_lease_below_its_own,
    acquire_takes_shares_and_permits_for_scripts,
    permits_are_shown_and_ended_one_by_one,
}

on_file_and_redis! {
    no_update_is_lost_by_eight_processes_that_take_the_lock_alone_beside_readers,
}

const PROCESSES: usize = 8;
const RUNS_EACH: usize = 250;

/// A reader that sees two different numbers had the lock together with a writer.
fn no_update_is_lost_by_eight_processes_that_take_the_lock_alone_beside_readers(world: &World) {
    const ADD_ONE: &str = "read n < $1/count; echo > $1/count; echo $((n + 1)) > $1/count";
    const LOOK: &str = "read n < $1/count; read m < $1/count; test \"$n\" -a \"$n\" = \"$m\"";
    std::fs::write(world.path("count"), "0\n").expect("a file");
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..RUNS_EACH {
                    let done = finish(world.run("counter", &["-q"], ADD_ONE));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..RUNS_EACH / 5 {
                    let done = finish(world.run("counter", &["-q", "--shared"], LOOK));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    assert_eq!(world.read("count"), format!("{}\n", PROCESSES * RUNS_EACH));
    world.assert_nothing_left();
}

/// Each command leaves a mark while it runs, two with a weight of 2, and counts all marks.
fn never_more_commands_run_than_there_are_permits(world: &World) {
    const ONE: &str = "touch $1/in/$$; ls $1/in | wc -l >> $1/seen; rm $1/in/$$";
    const TWO: &str = "touch $1/in/$$ $1/in/$$b; ls $1/in | wc -l >> $1/seen; rm $1/in/$$*";
    std::fs::create_dir(world.path("in")).expect("a directory");
    std::thread::scope(|scope| {
        for number in 0..PROCESSES {
            let (weight, script) = if number % 4 == 0 { ("2", TWO) } else { ("1", ONE) };
            scope.spawn(move || {
                for _ in 0..40 {
                    let flags = ["-q", "--permits", "3", "--weight", weight];
                    let done = finish(world.run("mail", &flags, script));
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    let seen = world.read("seen");
    let seen = seen.lines().map(|line| line.trim().parse::<u32>().expect("a number"));
    let most = seen.max().expect("some were seen");
    assert!((2..=3).contains(&most), "{most} permits were taken at a time");
    world.assert_nothing_left();
}

/// The reader is killed by `kill -9`. Its lease runs out, and the other reader's lease is renewed.
fn a_killed_reader_frees_only_itself(world: &World) {
    let flags = ["--shared", "--ttl", "1s"];
    let doomed = start(world.run("x", &flags, "echo up; exec sleep 60"));
    let mut other = start(world.run("x", &flags, "echo up; read line"));
    other.expect("up");
    until("both share it", || world.inspect("x")["holders"].as_array().map(Vec::len) == Some(2));
    doomed.kill(Signal::KILL);
    until("one of them is gone", || {
        world.inspect("x")["holders"].as_array().map(Vec::len) == Some(1)
    });
    until_dead(doomed.pid());
    let mut writer = start(world.run("x", &["--ttl", "1s"], "echo alone"));
    until("it waits", || world.waiters("x") == 1);
    // After this, more than a ttl has passed, and the other reader's lease has been renewed.
    let renewed = |seen: &serde_json::Value| seen["holders"][0]["ttl_left_ms"].as_u64();
    let mut last = renewed(&world.inspect("x"));
    let mut renewals = 0;
    until("it is renewed", || {
        let left = renewed(&world.inspect("x"));
        renewals += u32::from(left > last);
        last = left;
        renewals >= 4
    });
    assert_eq!(world.waiters("x"), 1, "it waits for the living reader");
    other.tell("end");
    other.end().code(0);
    writer.expect("alone");
    writer.end().code(0);
    world.assert_nothing_left();
}

fn readers_share_the_lock_and_wait_behind_a_writer(world: &World) {
    let hold = |flags: &[&str]| start(world.run("x", flags, "echo up; read line; exit 0"));
    let mut readers = [hold(&["--shared"]), hold(&["-s"])];
    readers.iter_mut().for_each(|reader| reader.expect("up"));
    let refused = finish(world.leasehold(["run", "x", "-n", "--", "true"]));
    refused.code(75).says("and 1 more");
    let mut writer = hold(&[]);
    until("it waits", || world.waiters("x") == 1);
    finish(world.leasehold(["run", "x", "-n", "--shared", "--", "true"])).code(75);
    let mut late = hold(&["--shared"]);
    until("it waits too", || world.waiters("x") == 2);
    // A reader could join the readers, if nobody waited.
    finish(world.run("x", &["--shared", "-n"], "true"))
        .code(75)
        .says("2 wait in line; nothing was");
    let shown = finish(world.leasehold(["inspect", "x"])).stdout;
    assert!(shown.starts_with("x: held, shared\n"), "{shown}");
    assert_eq!(shown.matches("(shared)").count(), 3, "{shown}");
    for mut reader in readers {
        reader.tell("end");
        reader.end().code(0);
    }
    writer.expect("up");
    assert_eq!(world.waiters("x"), 1, "the late reader");
    writer.tell("end");
    writer.end().code(0);
    late.expect("up");
    late.tell("end");
    late.end().code(0);
    world.assert_nothing_left();
}

fn another_number_of_permits_is_refused_with_both_numbers_until_it_is_changed(world: &World) {
    let run = |permits: &str, flags: &[&str]| {
        let mut command = world.leasehold(["run", "x", "--permits", permits]);
        command.args(flags).args(["--", "true"]);
        finish(command)
    };
    let mut holder = start(world.run("x", &["--permits", "2", "--weight", "2"], "echo up; read l"));
    holder.expect("up");
    let both = |done: &crate::harness::Done| {
        done.code(78).says("for 2 permits").says("for 3 permits");
        done.says("nothing was acquired");
    };
    both(&run("3", &[]));
    both(&run("3", &["-n"]));
    run("2", &["-n"]).code(75).says("2 of 2 permits taken");
    let resize = |permits: &str| finish(world.leasehold(["resize", "x", "--permits", permits]));
    resize("3").code(0).says("it has 3 permits from now on; it had 2");
    run("3", &["-n"]).code(0);
    run("2", &["-n"]).code(78).says("for 3 permits");
    // Holders keep what they have. Nobody gets more until enough of it is back.
    resize("1").code(0);
    run("1", &["-n"]).code(75).says("2 of 1 permits taken");
    holder.end().code(1);
    run("1", &[]).code(0);
    for (permits, flags, part) in [
        ("0", &[][..], "1 to 1000000 permits, not 0"),
        ("2", &["--weight", "3"], "3 of 2 permits"),
        ("2", &["--weight", "0"], "0 of 2 permits"),
        ("1000001", &[], "1 to 1000000 permits, not 1000001"),
    ] {
        run(permits, flags).code(78).says(part);
    }
    resize("0").code(78).says("permits, not 0");
    world.assert_nothing_left();
}

fn commands_that_wait_in_line_go_on_after_a_resize(world: &World) {
    let hold = || start(world.run("x", &["--permits", "1"], "echo up; read line"));
    let mut holders = VecDeque::from([hold()]);
    holders[0].expect("up");
    for waiting in 1..=3 {
        holders.push_back(hold());
        until("it waits", || world.waiters("x") == waiting);
    }
    finish(world.leasehold(["resize", "x", "--permits", "2"])).code(0);
    holders[1].expect("up");
    for _ in 0..2 {
        // Longer than the second in which each of them looks once more.
        let late = world.run("x", &["--permits", "2", "-w", "1500ms"], "true");
        finish(late).code(75);
        let mut first = holders.pop_front().expect("two hold permits");
        first.tell("end");
        first.end().code(0);
        holders[1].expect("up");
    }
    for mut last in holders {
        last.tell("end");
        last.end().code(0);
    }
    world.assert_nothing_left();
}

fn a_name_is_a_lock_or_a_semaphore(world: &World) {
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    for flags in [&["-n"][..], &[]] {
        let mut command = world.leasehold(["run", "x", "--permits", "2"]);
        command.args(flags).args(["--", "true"]);
        finish(command).code(78).says("for a lock").says("use another name");
    }
    finish(world.leasehold(["resize", "x", "--permits", "2"])).code(78).says("a lock");
    holder.end().code(1);
    let mut holder = start(world.run("x", &["--permits", "2"], "echo up; read line"));
    holder.expect("up");
    for flags in [&["-n"][..], &[], &["--shared"], &["--shared", "-n"]] {
        let mut command = world.leasehold(["run", "x"]);
        command.args(flags).args(["--", "true"]);
        finish(command).code(78).says("in use for 2 permits");
    }
    holder.end().code(1);
    world.assert_nothing_left();
}

fn a_script_takes_no_second_lease_below_its_own(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    for (flags, whole) in [(&["--shared"][..], "shared"), (&["--permits", "2"], "held")] {
        let flag = flags.join(" ");
        for (nonblock, code) in [("-n", 75), ("-n -E 3", 3), ("", 78)] {
            let inner = format!("{exe} acquire x {flag} --ttl 1m {nonblock}");
            let done = finish(world.run("x", flags, &inner));
            done.code(code).says(&format!("already {whole} by an outer")).says("another name");
            assert_eq!(done.stdout, "");
        }
    }
    world.assert_nothing_left();
}

fn a_share_does_not_become_the_whole_lock(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    for inner in ["run x -- echo inner", "run x -n -- echo inner", "acquire x --ttl 1m"] {
        let done = finish(world.run("x", &["--shared"], &format!("{exe} {inner}")));
        done.code(78).says("already shared by an outer").says("cannot become the whole lock");
        assert_eq!(done.stdout, "");
    }
    world.assert_nothing_left();
}

fn acquire_takes_shares_and_permits_for_scripts(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    for (flags, kept_out) in [("--shared", "run x -n"), ("--permits 1", "run x -n --permits 1")] {
        let script = format!(
            "out=$({exe} acquire x {flags} --ttl 30s) || exit 1; eval \"$out\"; {exe} renew x \
             && env -u LEASEHOLD_TOKEN {exe} {kept_out} -- true; test $? = 75 \
             && {exe} release x && {exe} {kept_out} -- echo free"
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).env("LEASEHOLD_URL", world.url());
        command.env("HOME", world.path(""));
        let done = finish(command);
        assert_eq!(done.code(0).stdout, "free\n", "{flags}");
    }
}

fn permits_are_shown_and_ended_one_by_one(world: &World) {
    let hold = |weight: &str| {
        let why = format!("of weight {weight}");
        let flags = ["--permits", "5", "--weight", weight, "--ttl", "1m", "--why", &why];
        start(world.run("x", &flags, "echo up; sleep 60"))
    };
    let mut holders = [hold("3"), hold("2")];
    holders.iter_mut().for_each(|holder| holder.expect("up"));
    let seen = world.inspect("x");
    assert_eq!((&seen["permits"], &seen["permits_taken"]), (&5.into(), &5.into()));
    let permits = |holder: &serde_json::Value| holder["permits"].as_u64().expect("a number");
    let shown = seen["holders"].as_array().expect("holders");
    assert_eq!(shown.iter().map(permits).sum::<u64>(), 5);
    let listed = finish(world.leasehold(["ls"])).stdout;
    assert!(listed.contains("held 5/5"), "{listed}");
    let large = shown.iter().find(|holder| permits(holder) == 3).expect("the first");
    let hint = large["token_hint"].as_str().expect("a hint");
    let unlock = ["unlock", "x", "--token", hint, "--yes", "--why", "the test"];
    let done = finish(world.leasehold(unlock));
    let others = done.stderr.contains("of weight 2");
    assert!(done.stderr.contains("of weight 3") && !others, "{}", done.stderr);
    done.code(0);
    let seen = world.inspect("x");
    assert_eq!((&seen["permits_taken"], &seen["state"]), (&2.into(), &"held".into()));
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "the test"];
    finish(world.leasehold(unlock)).code(0);
    assert_eq!(world.state("x"), "free");
    for holder in holders {
        holder.kill(Signal::KILL);
        until_dead(holder.pid());
    }
}
