//! Failovers there and back. A strict server becomes a replica of another server, takes that
//! server's data, and becomes the primary again. It stays the same process, and keeps its clients.

use std::sync::Arc;

use leasehold::core::FencingBlock;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Quarantine, Released};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{granted, released};
use leasehold_testkit::conformance::{World, key, ms};
use leasehold_testkit::servers::{PATIENCE, RedisServer, ServerOutside};

use super::strict::{QUARANTINE, Scene};
use crate::stores::{redis_by, run_id};

/// How often a failover there and back is tried, since real servers take part in it.
const TIMES: u32 = 5;

/// A server that has been strict for long, and another server.
fn play(test: impl AsyncFnOnce(&Scene, &RedisServer)) {
    let start = || RedisServer::builder().config("repl-diskless-sync-delay", "0");
    let outside = ServerOutside::new(Box::new(start().with_clock().start()));
    let other = start().start();
    let epoch = run_id(outside.server());
    outside.server().command(&["HSET", ":lh:epoch", "run", &epoch]);
    let host = VirtualHost::new(1);
    let opener = redis_by(&outside, &host, "/0?strict=yes");
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        test(&Scene { world, outside: Arc::clone(&outside) }, &other).await;
    });
    host.drop_tasks();
}

/// Makes one server follow another, and waits until it has that server's data.
fn follow(server: &RedisServer, of: &RedisServer) {
    server.command(&["REPLICAOF", "127.0.0.1", &of.port().to_string()]);
    until_it_says(server, "master_link_status:up");
}

fn until_it_says(server: &RedisServer, line: &str) {
    let begun = SystemHost.now();
    while !server.command(&["INFO", "replication"]).text().contains(line) {
        assert!(SystemHost.now().since(begun) < PATIENCE, "it never says `{line}`");
    }
}

fn until_it_has(server: &RedisServer, key: &str) {
    let begun = SystemHost.now();
    while server.command(&["EXISTS", key]).int() == 0 {
        assert!(SystemHost.now().since(begun) < PATIENCE, "it does not get `{key}`");
    }
}

fn lead(server: &RedisServer) {
    server.command(&["REPLICAOF", "NO", "ONE"]);
}

/// No client asked the other server, so its data still has the epoch of the first server.
#[test]
fn a_server_that_returns_with_the_data_of_another_grants_nothing_over_old_or_new_connections() {
    for time in 0..TIMES {
        play(async |scene, other| {
            let (anna, bert, carl) =
                (scene.world.actor(), scene.world.actor(), scene.world.actor());
            let before = granted(anna.ask(&key("b")).send().await);
            released(anna.release(&key("b")).await, Released::Freed);
            follow(other, scene.server());
            // The server's data has the same epoch as every connection.
            granted(bert.ask(&key("c")).send().await);
            until_it_has(other, "c");
            lead(other);
            granted(anna.ask(&key("a")).ttl(60_000).send().await);
            let last = granted(anna.ask(&key("b")).send().await);
            follow(scene.server(), other);
            lead(scene.server());
            assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0, "the grant is forgotten");
            // Alternately, an old connection or a new one asks first.
            let store = scene.world.open_store().await;
            let carl = carl.through(&store);
            let asking = if time % 2 == 0 { [&bert, &carl] } else { [&carl, &bert] };
            let mut ends = Vec::new();
            for actor in asking {
                let quarantine = scene.assert_quarantined(actor, &key("a")).await;
                ends.push(scene.world.now() + quarantine.left);
            }
            let apart = ends[1].since(ends[0]).max(ends[0].since(ends[1]));
            assert!(apart <= ms(1), "it does not begin anew: {apart:?}");
            scene.assert_quarantined_to_its_end(&["a"]).await;
            // The counter was forgotten too.
            let after = granted(bert.ask(&key("b")).send().await);
            let first = |block: Option<FencingBlock>| block.expect("it has one").first;
            assert!(first(before) < first(last) && first(last) < first(after));
        });
    }
}

#[test]
fn a_look_sees_that_the_server_was_a_replica_meanwhile() {
    play(async |scene, other| {
        granted(scene.world.actor().ask(&key("a")).send().await);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, None);
        follow(other, scene.server());
        lead(other);
        granted(scene.world.actor().ask(&key("b")).send().await);
        follow(scene.server(), other);
        lead(scene.server());
        let ahead = Quarantine::new(None, QUARANTINE);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(ahead));
    });
}

/// The first replica changes the replication id, but not the data.
#[test]
fn a_first_replica_that_comes_and_goes_begins_no_quarantine() {
    play(async |scene, other| {
        let anna = scene.world.actor();
        granted(anna.ask(&key("a")).send().await);
        follow(other, scene.server());
        granted(anna.ask(&key("b")).send().await);
        scene.server().command(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        lead(other);
        until_it_says(scene.server(), "connected_slaves:0");
        // This time passes on the server's own clock.
        scene.world.pass(ms(3_000)).await;
        until_it_says(scene.server(), "repl_backlog_active:0");
        granted(scene.world.actor().ask(&key("c")).send().await);
        assert_eq!(scene.world.inspect(&key("c")).await.quarantine, None);
    });
}
