//! Forks: the copied state of a client in a child process, and the child's own clients.

use std::process::Command;

use leasehold_testkit::servers::{RedisServer, pool};

/// How often parent and child try for one lock.
const TRIES: usize = 20;

/// Runs a scenario, in which both sides of a fork check their results.
fn run(scenario: &str, url: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_forks")).args([scenario, url]).output();
    let output = output.expect("it was built with the tests");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {}\n{said}", output.status);
}

fn sqlite_url(directory: &tempfile::TempDir) -> String {
    format!("sqlite:{}", directory.path().join("locks.db").display())
}

#[test]
fn parent_and_child_never_both_have_a_lock_on_redis() {
    for _ in 0..TRIES {
        run("both-try", &pool::lend().url());
    }
}

#[test]
fn a_child_is_refused_on_sqlite_where_its_parent_has_the_lock() {
    for _ in 0..TRIES {
        let directory = tempfile::tempdir().expect("a directory");
        run("both-try", &sqlite_url(&directory));
    }
}

#[test]
fn a_copied_client_refuses_and_its_guards_hold_nothing_on_redis() {
    let server = RedisServer::start();
    run("copied", &server.url());
    run("copied", &server.unix_url());
}

#[test]
fn a_copied_client_refuses_and_its_guards_hold_nothing_in_memory() {
    run("copied", "memory:");
}

#[test]
fn a_copied_client_refuses_and_its_guards_hold_nothing_on_sqlite() {
    let directory = tempfile::tempdir().expect("a directory");
    run("copied", &sqlite_url(&directory));
}

#[test]
fn a_child_that_runs_and_ends_a_copied_runtime_leaves_the_connections_alone() {
    run("copied-runtime", &RedisServer::start().url());
}

#[test]
fn a_child_that_drops_copied_futures_leaves_those_of_its_parent_alone() {
    run("in-flight", &RedisServer::start().url());
}

#[test]
fn a_client_opened_in_a_child_renews_waits_and_names_its_process() {
    run("fresh", &pool::lend().url());
}

#[test]
fn a_client_works_in_a_fork_of_a_fork() {
    run("nested", &pool::lend().url());
}

#[test]
fn a_copied_memory_store_refuses_and_a_fresh_one_is_empty() {
    run("memory", "memory:");
}

#[test]
fn a_child_of_a_process_that_used_sqlite_opens_no_sqlite_file() {
    let directory = tempfile::tempdir().expect("a directory");
    run("sqlite-refused", &sqlite_url(&directory));
}

#[test]
fn a_child_of_a_process_that_used_no_sqlite_opens_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    run("sqlite-unused", &sqlite_url(&directory));
}
