//! The command on etcd: its main jobs, its doctor, and its errors.

use leasehold_testkit::servers::EtcdPrefix;

use crate::harness::{World, finish};
use crate::main_jobs::{self, on};

#[test]
fn a_command_waits_for_its_turn_and_tools_show_who_has_the_lock() {
    main_jobs::wait_for_the_turn(&EtcdPrefix::lend().url());
}

#[test]
fn an_operator_ends_a_lease_and_its_command_is_stopped() {
    main_jobs::unlock_by_force(&EtcdPrefix::lend().url());
}

#[test]
fn a_command_whose_lock_is_asked_for_stops_and_lets_go() {
    main_jobs::unlock_by_request(&EtcdPrefix::lend().url());
}

#[test]
fn no_update_is_lost_by_commands_under_the_lock() {
    main_jobs::count_together(&EtcdPrefix::lend().url());
}

#[test]
fn a_doctor_examines_the_cluster() {
    let (world, prefix) = (World::sqlite(), EtcdPrefix::lend());
    let found = finish(on(&world, &prefix.url(), &["doctor"]));
    for part in ["etcd 3.", "a wrong token ended nothing", "shortest-lease", "three members"] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
}

#[test]
fn errors_have_their_exit_codes_and_never_show_the_password() {
    main_jobs::refuse_in_silence(&[
        ("etcd://x:wrong-secret@127.0.0.1:1/x", 69, "listens"),
        ("etcd://x:wrong-secret@127.0.0.1:1/x?wrong=1", 78, "no option `wrong`"),
    ]);
}
