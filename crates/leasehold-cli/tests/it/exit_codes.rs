//! The table of exit codes, end to end.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use leasehold::ErrorKind;
use rustix::process::Signal;

use crate::harness::{World, finish, start};

on_every_store! {
    the_commands_own_code_is_ours_whatever_it_is,
    a_signal_that_kills_the_command_kills_us,
    a_command_that_is_not_there_ends_with_127_and_one_that_cannot_run_with_126,
    a_script_that_names_no_interpreter_is_run_by_sh_also_by_a_run_that_joins,
    a_program_for_another_machine_is_not_run_by_sh,
    a_taken_lock_ends_with_75_or_the_code_of_choice,
    a_run_that_waits_for_the_lock_of_its_own_outer_run_says_so,
}

fn the_commands_own_code_is_ours_whatever_it_is(world: &World) {
    for code in [0, 1, 64, 75, 79, 124, 125, 126, 127, 255] {
        let done = finish(world.run("x", &[], &format!("exit {code}")));
        done.code(code);
        assert_eq!(done.stderr, "", "a message about a code of the command's own");
    }
    world.assert_nothing_left();
}

fn a_signal_that_kills_the_command_kills_us(world: &World) {
    // signal-hook takes SIGIO for one that does nothing.
    let signals =
        [Signal::TERM, Signal::KILL, Signal::SEGV, Signal::USR1, Signal::PIPE, Signal::IO];
    for signal in signals {
        let script = format!("kill -{} $$", signal.as_raw());
        finish(world.run("x", &[], &script)).signal(signal);
    }
    world.assert_nothing_left();
}

fn a_command_that_is_not_there_ends_with_127_and_one_that_cannot_run_with_126(world: &World) {
    finish(world.leasehold(["run", "x", "--", "no-such-command"]))
        .code(127)
        .says("leasehold: `no-such-command` was not found; the lock was released");
    for (command, tip) in [
        (&["cd", "/"][..], "run without a shell"),
        (&["curl -H secret"], "-- sh -c 'curl ...'"),
        (&["curl -H secret", "secret"], "-- sh -c 'curl ...'"),
        (&["PGPASSWORD=secret", "psql"], "-- env PGPASSWORD=... CMD"),
    ] {
        let mut run = world.leasehold(["run", "x", "--"]);
        run.env("PATH", world.path("nothing")).args(command);
        let done = finish(run);
        assert!(!done.stderr.contains("secret"), "{}", done.stderr);
        done.code(127).says(tip).says("the lock was released");
    }
    finish(world.leasehold(["run", "x", "--", ""]))
        .code(127)
        .says("the command is empty; no lock was asked for");
    std::fs::write(world.path("plain"), "echo hello").expect("a file");
    finish(world.leasehold(["run", "x", "--", "./plain"])).code(126).says("the lock was released");
    finish(world.leasehold(["run", "x", "--", "/"])).code(126).says("cannot execute `/`");
    program(world, "stray", "#!/no/such/shell\n");
    for command in ["./stray", "stray"] {
        let mut run = world.leasehold(["run", "x", "--", command]);
        run.env("PATH", world.path(""));
        finish(run).code(127).says("its interpreter was not found; the lock was released");
    }
    world.assert_nothing_left();
}

/// Makes a program from this text in the directory of the world.
fn program(world: &World, name: &str, text: &str) {
    std::fs::write(world.path(name), text).expect("a file");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.path(name), all).expect("our file");
}

fn a_script_that_names_no_interpreter_is_run_by_sh_also_by_a_run_that_joins(world: &World) {
    program(world, "script", "echo \"hi $1\"; exit 4\n");
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let path = format!("{}:{}", world.path("").display(), std::env::var("PATH").expect("a PATH"));
    for outer in [&[][..], &[exe, "run", "x", "--"]] {
        for script in ["./script", "script"] {
            let mut command = world.leasehold(["run", "x", "--"]);
            command.args(outer).args([script, "there"]).env("PATH", &path);
            assert_eq!(finish(command).code(4).stdout, "hi there\n", "{outer:?} {script}");
        }
    }
    world.assert_nothing_left();
}

fn a_program_for_another_machine_is_not_run_by_sh(world: &World) {
    program(world, "foreign", "\u{7f}ELF\u{2}\u{1}\u{1}\0\nexit 0\n");
    finish(world.leasehold(["run", "x", "--", "./foreign"])).code(126).says("./foreign");
    world.assert_nothing_left();
}

fn a_taken_lock_ends_with_75_or_the_code_of_choice(world: &World) {
    let mut holder = start(world.run("x", &["--why", "release 2"], "echo up; read line"));
    holder.expect("up");
    let refused = finish(world.leasehold(["run", "x", "-n", "--", "true"]));
    refused.code(75).says("is held by").says("use -w 1m to wait");
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    finish(world.leasehold(["run", "x", "-w", "0", "--", "true"])).code(75);
    // Cron mails all output of a job, and all hosts except one fail to get the lock.
    for command in [&["run", "x", "-qn", "--", "true"][..], &["acquire", "x", "-qn", "--ttl", "1s"]]
    {
        let quiet = finish(world.leasehold(command));
        assert_eq!(quiet.code(75).stderr, "", "{command:?}");
    }
    finish(world.leasehold(["run", "x", "-n", "-E", "0", "--", "false"])).code(0);
    finish(world.leasehold(["run", "x", "-w", "2s", "-E", "9", "--", "true"]))
        .code(9)
        .says("gave up after 2.0s")
        .says("why: release 2")
        .says(&format!("`leasehold inspect --url {} x`", world.url()));
    finish(world.leasehold(["acquire", "x", "--ttl", "1s", "-n"])).code(75);
    finish(world.leasehold(["acquire", "x", "--ttl", "1s", "-n", "-E", "9"])).code(9);
    assert_eq!(world.waiters("x"), 0, "the command that gave up left the line");
    holder.end().code(1);
    world.assert_nothing_left();
}

#[test]
fn usage_errors_end_with_64() {
    let world = World::sqlite();
    for args in [&["run", "x"][..], &["jump"], &[], &["run", "x", "-w", "soon", "--", "true"]] {
        let done = finish(world.leasehold(args));
        done.code(64).says("leasehold: ");
    }
    finish(world.leasehold(["run", "x", "-w", "soon", "--", "true"])).says("10s, 1m30s, 2h");
}

#[test]
fn an_empty_command_line_is_answered_with_the_help_and_64() {
    let done = finish(World::sqlite().bare());
    assert!(done.code(64).stdout.contains("Exit codes:"), "{}", done.stdout);
    assert_eq!(done.stderr, "");
}

#[test]
fn help_goes_to_stdout_and_has_the_table() {
    let done = finish({
        let mut command = World::sqlite().bare();
        command.current_dir("/").arg("--help");
        command
    });
    done.code(0);
    assert!(done.stdout.contains("treat an unknown code as a failure"), "{}", done.stdout);
    assert!(!done.stdout.contains("__child"), "{}", done.stdout);
}

fn a_run_that_waits_for_the_lock_of_its_own_outer_run_says_so(world: &World) {
    let exe = env!("CARGO_BIN_EXE_leasehold");
    for flags in ["", "-w 1h"] {
        let script = format!("{exe} acquire x {flags} --ttl 1m");
        let done = finish(world.run("x", &[], &script));
        done.code(78).says("already held by an outer leasehold command");
        assert_eq!(done.stdout, "");
    }
    // This holds for any number of runs in between, and for any variables that a script has set.
    for between in ["", "eval \"$($0 acquire v --ttl 1m)\"; "] {
        let script = format!("{between}$0 run y -- $0 run z -- $0 acquire x --ttl 1m");
        let mut command = world.leasehold(["run", "x", "--", "sh", "-c"]);
        command.args([&script, exe]);
        let done = finish(command);
        done.code(78).says("`x` is already held by an outer leasehold command");
        assert_eq!(done.stdout, "");
        let unlock = ["unlock", "v", "--force", "--yes", "--why", "the test"];
        finish(world.leasehold(unlock)).code(0);
    }
    let script = format!("{exe} run y -- {exe} acquire -n x --ttl 1m");
    let refused = finish(world.run("x", &[], &script));
    refused.code(75).says("already held by an outer").says("would wait for itself");
    assert!(!refused.stderr.contains("use -w"), "{}", refused.stderr);
    let script = format!("{exe} run y -- {exe} run z -- echo inner");
    assert_eq!(finish(world.run("x", &[], &script)).code(0).stdout, "inner\n");
    world.assert_nothing_left();
}

/// The numbers at the beginning of a text such as `130,143 interrupted` or `69 |`.
fn codes(text: &str) -> BTreeSet<u8> {
    let word = |c: char| c.is_ascii_digit() || c == ',' || c == ' ';
    let numbers = text.split(|c: char| !word(c)).next().unwrap_or_default();
    numbers.split([',', ' ']).filter_map(|number| number.parse().ok()).collect()
}

#[test]
fn the_page_of_the_command_has_the_codes_of_its_help() {
    let world = World::sqlite();
    let help = finish(world.leasehold(["--help"])).stdout;
    let (_, table) = help.split_once("Exit codes:\n").expect("the help has a table");
    let rows = table.lines().take_while(|line| line.starts_with("  "));
    let of_help: BTreeSet<u8> =
        rows.filter(|row| !row.contains("0..255")).flat_map(|row| codes(row.trim())).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command.md");
    let page = std::fs::read_to_string(page).expect("the page of the command");
    let rows_below = |head: &str| {
        let (_, table) = page.split_once(head).expect("the page has this table");
        let rows: Vec<&str> = table.lines().skip(2).take_while(|l| l.starts_with('|')).collect();
        rows
    };
    let of_page: BTreeSet<u8> = rows_below("| Exit code | Meaning |")
        .iter()
        .flat_map(|row| codes(row.trim_start_matches("| ")))
        .collect();
    assert_eq!(of_page, of_help);
    let rows = rows_below("| The `kind` of an error | Exit code |");
    let of_kinds: BTreeMap<&str, u8> = rows
        .iter()
        .flat_map(|row| {
            let mut cells = row.trim_matches('|').split('|');
            let kinds = cells.next().expect("a cell of kinds").split('`').skip(1).step_by(2);
            let code = cells.next().and_then(|cell| cell.trim().parse().ok()).expect("a code");
            kinds.map(move |kind| (kind, code))
        })
        .collect();
    for kind in ErrorKind::ALL {
        assert_eq!(of_kinds.get(kind.as_str()), Some(&kind.exit_code()), "{}", kind.as_str());
    }
}
