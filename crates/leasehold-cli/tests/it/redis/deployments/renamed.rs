//! A host name that is gone, comes late, or gets another address while a command runs.

use std::process::Command;

use leasehold_testkit::servers::{RedisServer, Resolver};

use super::failing_over::{WORKS, lease_ends};
use crate::harness::{World, finish, is_alive, start, until};
use crate::redis::losing::{STUBBORN, pause_and_know_the_end, signs_of_life};

/// An address where no server listens.
const ELSEWHERE: &str = "127.0.0.9";

/// A server whose URL has a host name.
struct Named {
    world: World,
    server: RedisServer,
    resolver: Resolver,
}

impl Named {
    fn start() -> Self {
        let it = Self {
            world: World::sqlite(),
            server: RedisServer::start(),
            resolver: Resolver::default(),
        };
        it.resolver.points_to("127.0.0.1");
        it
    }

    fn run(&self, flags: &[&str], script: &str) -> Command {
        let url = format!("redis://{}:{}", self.resolver.host(), self.server.port());
        let mut command = super::run(&self.world, &url, flags, script);
        command.envs(self.resolver.env());
        command
    }

    /// Cuts all connections, since an open connection ignores changes of names.
    fn disconnect(&self) {
        for kind in ["normal", "pubsub"] {
            self.server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
    }
}

#[test]
fn a_command_goes_on_when_the_name_of_its_server_has_a_wrong_address_for_a_while() {
    let it = Named::start();
    let mut holder = start(it.run(&["--ttl", "30s"], WORKS));
    holder.line();
    it.resolver.points_to(ELSEWHERE);
    it.disconnect();
    finish(it.run(&["-n"], "touch $1/began")).code(69).says("no server listens there");
    it.resolver.points_to("127.0.0.1");
    let ends = lease_ends(&it.server).expect("the lease");
    until("it is renewed", || lease_ends(&it.server).expect("the lease") > ends + 1.0);
    std::fs::write(it.world.path("end"), "").expect("our own directory");
    holder.end().code(0);
    assert!(!it.world.path("began").exists());
}

#[test]
fn a_command_is_dead_in_time_when_the_name_of_its_server_is_gone() {
    let it = Named::start();
    let mut holder = start(it.run(&["--ttl", "6s"], STUBBORN));
    let pid: i32 = holder.line().parse().expect("a pid");
    until("it works", || !signs_of_life(&it.world).is_empty());
    let ends = pause_and_know_the_end(&it.server, 6.0);
    it.resolver.forgets();
    it.server.resume();
    it.disconnect();
    let line = holder.expect_message("the lease was not renewed in time");
    assert!(line.contains("cannot be resolved"), "{line}");
    holder.end().code(79).says("killing the command");
    assert!(!is_alive(pid));
    let alive = signs_of_life(&it.world);
    let last = alive[alive.len() - 1];
    assert!(last < ends, "alive at {last}, while the server kept the lock until {ends}");
}

#[test]
fn a_wait_for_a_name_that_comes_late_happens_on_request() {
    let it = Named::start();
    it.resolver.forgets();
    finish(it.run(&[], "touch $1/began")).code(69).says("cannot be resolved");
    let mut patient = start(it.run(&["--wait-store", "10m"], "echo mine"));
    patient.expect_message("the store cannot be used yet");
    it.resolver.points_to(ELSEWHERE);
    finish(it.run(&[], "touch $1/began")).code(69).says("no server listens there");
    it.resolver.points_to("127.0.0.1");
    patient.expect("mine");
    patient.end().code(0);
    assert!(!it.world.path("began").exists());
}
