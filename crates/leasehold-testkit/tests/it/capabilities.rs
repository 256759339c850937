//! The promises of each store. A missing or new promise fails here first.

use leasehold::store::{Capabilities, Reach, Store};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Setup;

use crate::stores;

fn expected() -> Vec<(&'static str, Setup, Capabilities)> {
    let mut memory = Capabilities::NONE;
    memory.shared = true;
    memory.permits = true;
    memory.fencing = true;
    memory.line = true;
    memory.watching = true;
    memory.reask = true;
    (memory.detached, memory.frees) = (true, true);
    memory.hints = Reach::Process;
    memory.reach = Reach::Process;
    memory.browse = true;
    memory.revoke = true;
    let mut sqlite = memory;
    sqlite.hints = Reach::Machine;
    sqlite.reach = Reach::Machine;
    sqlite.durable = true;
    sqlite.calls_up = true;
    let mut redis = sqlite;
    redis.calls_up = false;
    redis.opens = true;
    redis.strict = Some(false);
    redis.hints = Reach::Network;
    redis.reach = Reach::Network;
    // There is no hand-over, which would be a grant by a release. A release does not check whether
    // the server forgot, and cannot undo a grant with too few copies.
    let mut strict = redis;
    (strict.line, strict.opens) = (false, false);
    (strict.shared, strict.permits) = (false, false);
    let mut copies = strict;
    strict.strict = Some(true);
    copies.reask = false;
    // The nodes are in memory. There is no hand-over, since each node would hand over to the head
    // of its own line. Late grants of nodes are released.
    let mut quorum = memory;
    (quorum.shared, quorum.permits) = (false, false);
    quorum.line = false;
    quorum.reask = false;
    let mut own = Capabilities::NONE;
    own.fencing = true;
    own.reask = true;
    (own.detached, own.frees) = (true, true);
    vec![
        ("own", stores::own, own),
        ("quorum", stores::quorum, quorum),
        ("memory", stores::memory, memory),
        ("sqlite", stores::sqlite, sqlite),
        ("redis", stores::redis, redis),
        ("strict", stores::strict, strict),
        ("copies", stores::copies, copies),
    ]
}

#[test]
fn the_store_on_postgres_promises_what_it_should_and_no_more() {
    let mut expected = Capabilities::NONE;
    (expected.shared, expected.permits) = (true, true);
    (expected.fencing, expected.line, expected.watching) = (true, true, true);
    (expected.reask, expected.durable) = (true, true);
    (expected.detached, expected.frees) = (true, true);
    (expected.browse, expected.revoke) = (true, true);
    (expected.hints, expected.reach) = (Reach::Network, Reach::Network);
    let host = VirtualHost::new(0);
    let opener = stores::postgres(&host);
    let store = host.run(opener());
    assert_eq!(store.capabilities(), expected);
    host.drop_tasks();
}

#[test]
fn each_store_promises_what_it_should_and_no_more() {
    for (name, setup, expected) in expected() {
        let host = VirtualHost::new(0);
        let opener = setup(&host);
        let store = host.run(opener());
        assert_eq!(store.capabilities(), expected, "{name}");
        host.drop_tasks();
    }
}
