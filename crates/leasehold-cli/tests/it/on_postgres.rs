//! The parts that only PostgreSQL has: tables that must be made, its URLs, and its errors.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use leasehold_testkit::servers::PostgresServer;
use serde_json::Value;

use crate::harness::{World, finish, start, until};
use crate::main_jobs;

#[test]
fn a_migration_makes_the_tables_once_and_says_what_it_did() {
    let world = World::sqlite();
    let url = PostgresServer::shared().url("by_command");
    let migrate = |flags: &[&str]| {
        let mut command = world.bare();
        command.args(["--url", &url]).args(flags).arg("migrate");
        finish(command)
    };
    let mut early = world.bare();
    early.args(["--url", &url, "run", "x", "--", "true"]);
    finish(early).code(78).says("leasehold migrate").says_that_nothing_happened();
    migrate(&[]).code(0).says("the tables were made, version 2");
    migrate(&[]).code(0).says("the tables are of version 2");
    let done: Value = serde_json::from_str(&migrate(&["--json"]).code(0).stdout).expect("JSON");
    assert_eq!(done["schema"], "leasehold.v1.migration");
    assert_eq!((&done["nodes"][0]["version"], &done["nodes"][0]["serves"]), (&2.into(), &2.into()));
    let mut run = world.bare();
    run.args(["--url", &url, "run", "x", "--", "true"]);
    finish(run).code(0);
}

#[test]
fn a_migration_warns_about_the_choice_of_the_store_as_other_commands_do() {
    let world = World::sqlite();
    let url = PostgresServer::shared().url("by_careless_command");
    fs::write(world.path("url"), url).expect("a file");
    fs::set_permissions(world.path("url"), Permissions::from_mode(0o666)).expect("our file");
    let mut command = world.bare();
    command.args(["--url-file", "url", "migrate"]);
    finish(command).code(0).says("may change which store is used").says("the tables were made");
}

#[test]
fn a_store_without_tables_needs_no_migration_and_says_so() {
    let world = World::sqlite();
    finish(world.leasehold(["migrate"])).code(78).says("postgres://").says_that_nothing_happened();
}

#[test]
fn errors_have_their_exit_codes_and_never_show_the_password() {
    let at = format!("127.0.0.1:{}", World::postgres().schema().server().port());
    main_jobs::refuse_in_silence(&[
        (&format!("postgres://locked:wrong-secret@{at}/postgres"), 77, "pg_hba.conf"),
        (&format!("postgres://x:wrong-secret@{at}/missing"), 77, "x"),
        (&format!("postgres://postgres:wrong-secret@{at}/missing"), 78, "no such database"),
        ("postgres://x:wrong-secret@127.0.0.1:1/x", 69, "listens"),
        (&format!("postgres://x:wrong-secret@{at}/x?wrong=1"), 78, "no option `wrong`"),
    ]);
}

#[test]
fn a_doctor_examines_the_database() {
    let world = World::postgres();
    let found = finish(world.leasehold(["doctor"]));
    found.code(0);
    for part in ["PostgreSQL", "a wrong token ended nothing", "round-trip", "fsync = off"] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
    let missing = PostgresServer::shared().url("no_tables_here");
    let mut command = world.bare();
    command.args(["--url", &missing, "doctor"]);
    let found = finish(command);
    found.code(2);
    assert!(found.stdout.contains("leasehold migrate"), "{}", found.stdout);
}

#[test]
fn a_command_keeps_its_lock_while_every_connection_ends() {
    let world = World::postgres();
    let mut run = start(world.run("x", &["--ttl", "2s"], "echo up; read line; exit 0"));
    run.expect("up");
    let schema = world.schema();
    let fence = world.inspect("x")["fence"].clone();
    for _ in 0..5 {
        // Other tests use the server too.
        schema.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'leasehold' AND datname = current_database()",
        );
        until("it renews again", || {
            let renewed =
                schema.sql("SELECT touched > leasehold.clock() - 300000 FROM leasehold.locks");
            renewed[0][0] == "t"
        });
    }
    assert_eq!(world.inspect("x")["fence"], fence, "the same lease");
    run.tell("end");
    run.end().code(0);
    world.assert_nothing_left();
}
