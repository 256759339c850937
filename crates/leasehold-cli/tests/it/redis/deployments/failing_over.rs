//! A failover while a command runs. The command goes on if the data survive, or else it is dead in
//! time.

use leasehold_testkit::servers::RedisServer;

use super::forms::{Alone, Deployment, Sharded, Watched};
use super::run;
use crate::harness::{World, finish, is_alive, start, until};
use crate::redis::losing::{STUBBORN, pause_and_know_the_end, signs_of_life};
use crate::redis::{time_left_at, uptime};

/// A command that writes the time again and again until the test ends it.
pub(super) const WORKS: &str = "trap 'exit 9' TERM; echo up $LEASEHOLD_FENCE; \
    while [ ! -e $1/end ]; do read up idle < /proc/uptime; echo $up >> $1/alive; sleep 0.02; done; \
    exit 0";

/// When the lease ends at a server, on the machine's clock.
pub(super) fn lease_ends(server: &RedisServer) -> Option<f64> {
    let asked = uptime();
    time_left_at(server, "x").map(|left| asked + left)
}

/// The data survive: the command goes on, is renewed at the new server, and excludes others.
#[track_caller]
fn goes_on(it: &impl Deployment, fail_over: impl FnOnce(&RedisServer)) {
    let world = World::sqlite();
    let mut holder = start(run(&world, &it.url(), &["--ttl", "30s"], WORKS));
    let first = holder.line();
    let mut waiter =
        start(run(&world, &it.url(), &[], "cat /proc/uptime; echo up $LEASEHOLD_FENCE"));
    waiter.expect_message("is held by");
    it.keep();
    let before = it.server();
    let ends = lease_ends(before).expect("the lease");
    fail_over(before);
    it.until_failed_over(before);
    until("it is renewed at the new server", || {
        lease_ends(it.server()).expect("the data survived") > ends + 1.0
    });
    finish(run(&world, &it.url(), &["-n"], "touch $1/began")).code(75).says("is held by");
    let renewed = uptime();
    until("it goes on", || signs_of_life(&world).last().is_some_and(|alive| *alive > renewed));
    std::fs::write(world.path("end"), "").expect("our own directory");
    holder.end().code(0);
    let alive = signs_of_life(&world);
    let line = waiter.line();
    let next: f64 = line.split(' ').next().and_then(|up| up.parse().ok()).expect("a time");
    let last = alive[alive.len() - 1];
    assert!(last <= next, "alive at {last}, and the next one began at {next}");
    let second = waiter.line();
    waiter.end().code(0);
    let fence = |line: &str| line.strip_prefix("up ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(fence(&first).expect("a number") < fence(&second).expect("a number"));
    assert!(!world.path("began").exists());
}

/// The data are lost: the command ignores TERM, and is dead before its lease would have ended.
#[track_caller]
fn is_dead_in_time(it: &impl Deployment, fail: impl FnOnce(&RedisServer)) {
    let world = World::sqlite();
    let mut holder = start(run(&world, &it.url(), &["--ttl", "6s"], STUBBORN));
    let pid: i32 = holder.line().parse().expect("a pid");
    until("it works", || !signs_of_life(&world).is_empty());
    it.forget();
    let before = it.server();
    let ends = pause_and_know_the_end(before, 6.0);
    fail(before);
    it.until_failed_over(before);
    // The command would be in its way if it lived.
    finish(run(&world, &it.url(), &["-w", "1m"], "exit 5")).code(5);
    holder.end().code(79).says("killing the command");
    assert!(!is_alive(pid));
    let alive = signs_of_life(&world);
    let last = alive[alive.len() - 1];
    assert!(last < ends, "alive at {last}, while the server kept the lock until {ends}");
}

fn kill(server: &RedisServer) {
    server.kill();
}

#[test]
fn over_a_socket_a_command_goes_on_when_its_server_comes_back_with_its_data() {
    goes_on(&Alone::with_a_socket(), kill);
}

#[test]
fn over_a_socket_a_command_is_dead_in_time_when_its_server_comes_back_without_data() {
    is_dead_in_time(&Alone::with_a_socket(), kill);
}

#[test]
fn over_tls_a_command_goes_on_when_its_server_comes_back_with_its_data() {
    goes_on(&Alone::with_tls(), kill);
}

#[test]
fn over_tls_a_command_is_dead_in_time_when_its_server_comes_back_without_data() {
    is_dead_in_time(&Alone::with_tls(), kill);
}

#[test]
fn a_command_goes_on_when_sentinels_are_told_to_fail_over() {
    let it = Watched::start();
    goes_on(&it, |_| it.all.fail_over());
}

#[test]
fn a_command_goes_on_when_a_primary_with_sentinels_is_killed() {
    goes_on(&Watched::start(), kill);
}

#[test]
fn a_command_is_dead_in_time_when_sentinels_promote_a_replica_without_the_lock() {
    is_dead_in_time(&Watched::start(), kill);
}

/// The old primary comes back after another server has taken over.
#[test]
fn a_command_is_dead_in_time_when_its_primary_stands_still_and_another_one_takes_over() {
    let it = Watched::start();
    is_dead_in_time(&it, |_| {});
    it.all.servers()[0].resume();
    it.all.repair();
}

#[test]
fn a_command_goes_on_when_a_primary_with_sentinels_and_tls_is_killed() {
    goes_on(&Watched::with_tls(), kill);
}

#[test]
fn a_command_is_dead_in_time_when_sentinels_with_tls_promote_a_replica_without_the_lock() {
    is_dead_in_time(&Watched::with_tls(), kill);
}

#[test]
fn a_command_goes_on_when_a_primary_of_a_cluster_is_killed() {
    goes_on(&Sharded::start(), kill);
}

#[test]
fn a_command_is_dead_in_time_when_a_replica_of_a_cluster_without_the_lock_takes_over() {
    is_dead_in_time(&Sharded::start(), kill);
}

#[test]
fn a_command_goes_on_when_a_primary_of_a_cluster_with_tls_is_killed() {
    goes_on(&Sharded::with_tls(), kill);
}

#[test]
fn a_command_is_dead_in_time_when_a_replica_of_a_cluster_with_tls_without_the_lock_takes_over() {
    is_dead_in_time(&Sharded::with_tls(), kill);
}
