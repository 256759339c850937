//! Limits on a process: each leads to a clear error and never to a panic.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Done, World, start};

/// Limits of descriptors: from what the program loader needs to more than any command needs.
const DESCRIPTORS: std::ops::RangeInclusive<u32> = 4..=48;

/// Limits of processes: from none to about as many threads and processes as a command starts.
const PROCESSES: std::ops::RangeInclusive<u32> = 0..=12;

/// Certainly enough processes. Ended processes of earlier commands count until they are reaped.
const ENOUGH_PROCESSES: u32 = 4_096;

on_every_store! {
    too_few_descriptors_end_in_an_error,
    too_few_processes_end_in_an_error,
}

/// At the limit, the kernel sends a signal that would end us without a message.
#[test]
fn a_store_that_must_not_grow_ends_in_an_error() {
    let world = World::sqlite();
    let limit = ["sh", "-c", "ulimit -f 0 && exec \"$0\" \"$@\""];
    for args in commands() {
        start(under(&limit, &world.leasehold(args))).end().code(69).says("leasehold: ");
    }
}

fn too_few_descriptors_end_in_an_error(world: &World) {
    for args in commands() {
        let went_well = DESCRIPTORS.map(|most| {
            let limit = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
            let limited = under(&["sh", "-c", &limit], &world.leasehold(args));
            ends_clearly(&start(limited).end(), most)
        });
        assert_first_and_last(went_well);
    }
}

fn too_few_processes_end_in_an_error(world: &World) {
    // The other user must be able to run the command there, and to keep locks.
    fs::set_permissions(world.path("."), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let program = world.path("leasehold");
    fs::copy(env!("CARGO_BIN_EXE_leasehold"), &program).expect("there is room");
    let somebody = become_somebody();
    for args in commands() {
        let went_well = PROCESSES.chain([ENOUGH_PROCESSES]).map(|most| {
            let command = as_somebody(&program, &world.leasehold(args));
            let limit = format!("--nproc={most}");
            let mut words: Vec<&str> = somebody.iter().map(String::as_str).collect();
            words.extend(["prlimit", &limit]);
            let limited = under(&words, &command);
            ends_clearly(&start(limited).end(), most)
        });
        assert_first_and_last(went_well);
    }
}

/// Commands that end soon and leave no lock.
fn commands() -> [&'static [&'static str]; 3] {
    [&["run", "x", "--", "true"], &["run", "x", "--wait", "1s", "--", "true"], &["inspect", "x"]]
}

/// `command`, started by the program in `words`.
fn under(words: &[&str], command: &Command) -> Command {
    let mut limited = Command::new(words[0]);
    limited.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// The words that run a command as a user without other processes; none unless we are root. Root
/// has no limit. The limit counts all processes and threads of a user, including those of parallel
/// tests.
fn become_somebody() -> Vec<String> {
    static USERS: AtomicU32 = AtomicU32::new(0);
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let id = 100_000 + (std::process::id() % 100_000) * 16 + USERS.fetch_add(1, Ordering::Relaxed);
    let ids = [format!("--reuid={id}"), format!("--regid={id}")];
    ["setpriv".to_owned()].into_iter().chain(ids).chain(["--clear-groups".to_owned()]).collect()
}

/// The same command, with a program that every user may run.
fn as_somebody(program: &Path, command: &Command) -> Command {
    let mut copy = Command::new(program);
    copy.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => copy.env(name, value),
            None => copy.env_remove(name),
        };
    }
    copy
}

/// Whether the command succeeded. If not, it must have ended with a reason and without a panic.
fn ends_clearly(done: &Done, most: u32) -> bool {
    let text = format!("a limit of {most}: {:?}\n{}", done.status, done.stderr);
    assert!(!done.stderr.contains("panicked"), "{text}");
    let code = done.status.code();
    assert!(matches!(code, Some(0 | 69 | 125 | 126 | 127)), "{text}");
    assert!(code == Some(0) || !done.stderr.is_empty(), "{text}");
    code == Some(0)
}

fn assert_first_and_last(went_well: impl Iterator<Item = bool>) {
    let went_well: Vec<bool> = went_well.collect();
    assert_eq!(went_well.first(), Some(&false), "the limit is no limit: {went_well:?}");
    assert_eq!(went_well.last(), Some(&true), "the limit is enough: {went_well:?}");
}
