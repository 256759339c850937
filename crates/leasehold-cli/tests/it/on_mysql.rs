//! The command on MariaDB: its main jobs, its tables, its doctor, and its errors.

use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

use crate::harness::{World, finish};
use crate::main_jobs::{self, on};

#[test]
fn a_command_waits_for_its_turn_and_tools_show_who_has_the_lock() {
    main_jobs::wait_for_the_turn(&MysqlDatabase::lend().url());
}

#[test]
fn an_operator_ends_a_lease_and_its_command_is_stopped() {
    main_jobs::unlock_by_force(&MysqlDatabase::lend().url());
}

#[test]
fn no_update_is_lost_by_commands_under_the_lock() {
    main_jobs::count_together(&MysqlDatabase::lend().url());
}

#[test]
fn a_migration_makes_the_tables_once_and_says_what_it_did() {
    let (world, server) = (World::sqlite(), MysqlServer::shared());
    server.sql("CREATE DATABASE by_command");
    let url = server.url("by_command");
    let early = finish(on(&world, &url, &["run", "x", "--", "true"]));
    early.code(78).says("leasehold migrate").says_that_nothing_happened();
    finish(on(&world, &url, &["migrate"])).code(0).says("the tables were made, version 3");
    finish(on(&world, &url, &["migrate"])).code(0).says("the tables are of version 3");
    finish(on(&world, &url, &["run", "x", "--", "true"])).code(0);
}

#[test]
fn a_doctor_examines_the_database() {
    let (world, database) = (World::sqlite(), MysqlDatabase::lend());
    let found = finish(on(&world, &database.url(), &["doctor"]));
    let make = if MysqlServer::shared().is_mariadb() { "MariaDB" } else { "MySQL" };
    for part in
        [make, "of version 3, as in this build", "a wrong token ended nothing", "round-trip"]
    {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
}

#[test]
fn errors_have_their_exit_codes_and_never_show_the_password() {
    let at = format!("127.0.0.1:{}", MysqlServer::shared().port());
    main_jobs::refuse_in_silence(&[
        (&format!("mysql://locked:wrong-secret@{at}/mysql"), 77, "user"),
        (&format!("mysql://app:wrong-secret@{at}/missing"), 77, "user"),
        ("mysql://x:wrong-secret@127.0.0.1:1/x", 69, "listens"),
        (&format!("mysql://x:wrong-secret@{at}/x?wrong=1"), 78, "no option `wrong`"),
    ]);
}
