//! The costs of the scripts: the commands that the server carries out for each step.

use std::collections::BTreeMap;

use leasehold::store::{Claim, Released};
use leasehold_testkit::conformance::check::{fence, granted, released, taken};
use leasehold_testkit::conformance::{Actor, key, ms};
use leasehold_testkit::servers::RedisServer;

use super::scripts::{kept, on_server, warm};

/// The commands that the server carried out for `step`, with their counts.
async fn commands_of(server: &RedisServer, step: impl Future) -> BTreeMap<String, u64> {
    server.command(&["CONFIG", "RESETSTAT"]);
    step.await;
    let stats = server.command(&["INFO", "commandstats"]).text();
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let (calls, _) = rest.split_once(',')?;
        // The others are commands of the test and of the virtual clock.
        let is_ours = !["info", "config", "ping", "echo"].iter().any(|own| name.starts_with(own));
        is_ours.then(|| (name.to_owned(), calls.parse().expect("a number")))
    };
    stats.lines().filter_map(calls).collect()
}

#[track_caller]
fn assert_commands(found: &BTreeMap<String, u64>, expected: &[(&str, u64)]) {
    let expected = expected.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect();
    assert_eq!(*found, expected);
}

/// Each step costs one request, with the fewest possible commands in it.
#[test]
fn a_lock_and_its_release_cost_what_they_must() {
    on_server(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        warm(&anna, &key("a")).await;
        let ask = anna.another();
        let found = commands_of(server, async { fence(ask.ask(&key("a")).send().await) }).await;
        let hot = [("evalsha", 1), ("exists", 1), ("incr", 1), ("pexpire", 1), ("set", 1)];
        assert_commands(&found, &hot);
        let carl = anna.another();
        let unfenced = async { granted(carl.ask(&key("b")).reserve(0).send().await) };
        let found = commands_of(server, unfenced).await;
        assert_commands(&found, &[("evalsha", 1), ("exists", 1), ("set", 1)]);
        taken(bert.ask(&key("a")).send().await);
        let found = commands_of(server, async { taken(bert.ask(&key("a")).send().await) }).await;
        assert_commands(
            &found,
            &[
                ("evalsha", 1),
                ("exists", 1),
                ("get", 1),
                ("pttl", 1),
                ("set", 1),
                ("zcard", 1),
                ("zrank", 1),
            ],
        );
        let release = async { released(ask.release(&key("a")).await, Released::Freed) };
        let found = commands_of(server, release).await;
        let hot = [("del", 1), ("evalsha", 1), ("exists", 1), ("get", 1)];
        assert_commands(&found, &hot);
    });
}

/// A share and its release, first of a key that nobody else has, then while another holder has it.
#[test]
fn a_reader_that_nobody_waits_for_costs_what_it_must() {
    on_server(async |world, server| {
        let anna = world.actor_here();
        let share = async |who: &Actor| {
            let ask = async { granted(who.ask(&key("a")).shared().reserve(0).send().await) };
            commands_of(server, ask).await
        };
        let leave = async |who: &Actor| {
            // A release is sent when it is called, not when it is polled.
            let leave = async {
                released(who.release_as(&key("a"), Claim::Shared).await, Released::Freed);
            };
            commands_of(server, leave).await
        };
        share(&anna).await; // The scripts in full.
        leave(&anna).await;
        let [anna, carl] = [(); 2].map(|()| anna.another());
        let found = share(&anna).await;
        let each = [("evalsha", 1), ("exists", 1), ("get", 1), ("time", 1), ("zadd", 1)];
        assert_commands(&found, &[&each[..], &[("pexpire", 1), ("set", 1)]].concat());
        world.pass(ms(1)).await;
        let found = share(&carl).await;
        let beside = [("pexpire", 2), ("pttl", 2), ("zcount", 1), ("zscore", 1)];
        assert_commands(&found, &[&each[..], &beside].concat());
        let found = leave(&anna).await;
        let each = [("evalsha", 1), ("exists", 2), ("get", 1), ("zcard", 1), ("zrank", 1)];
        let beside = [("time", 1), ("zrem", 1), ("zscore", 1)];
        assert_commands(&found, &[&each[..], &beside].concat());
        assert_commands(&leave(&carl).await, &[&each[..], &[("del", 1)]].concat());
        assert_eq!(kept(server), [] as [String; 0]);
    });
}

/// The release carries out the hand-over, and the waiter only waits.
#[test]
fn a_hand_over_costs_what_it_must() {
    on_server(async |world, server| {
        let [anna, bert, carl] = [(); 3].map(|()| world.actor_here());
        let hand_over = async |from: &Actor| {
            let release = async { released(from.release(&key("a")).await, Released::HandedOver) };
            let mut found = commands_of(server, release).await;
            // Leave out the messages to the waiters, and their subscriptions.
            found.retain(|name, _| !name.ends_with("publish") && !name.ends_with("subscribe"));
            found
        };
        granted(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).join().send().await);
        world.pass(ms(1)).await;
        let each = [("evalsha", 1), ("exists", 1), ("get", 2), ("hget", 1), ("set", 2)];
        let each = [each.as_slice(), &[("time", 1), ("zrange", 1), ("del", 1)]].concat();
        hand_over(&anna).await; // The script in full.
        taken(carl.ask(&key("a")).join().send().await);
        world.pass(ms(1)).await;
        assert_commands(&hand_over(&bert).await, &each);
        taken(anna.another().ask(&key("a")).join().send().await);
        taken(bert.another().ask(&key("a")).join().send().await);
        world.pass(ms(1)).await;
        let of_two = [each.as_slice(), &[("hdel", 1), ("zrem", 2)]].concat();
        assert_commands(&hand_over(&carl).await, &of_two);
    });
}
