//! The data that the scripts write on the server, and the data that they leave.

use std::sync::Arc;

use leasehold::core::FencingBlock;
use leasehold::store::{Claim, FENCE_IDLE, Released, Store};
use leasehold::{Error, ErrorKind, Key, OwnerToken};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{
    fence, first, granted, lost, refused, released, renewed, taken,
};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{RedisServer, ServerOutside, pool};

use crate::stores::redis_on;

/// Runs a test in a world on this server, whose clock is the virtual one.
fn play(outside: &Arc<ServerOutside>, test: impl AsyncFnOnce(&World, &RedisServer)) {
    let host = VirtualHost::new(1);
    let opener = redis_on(outside, &host);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        test(&world, outside.server()).await;
    });
    host.drop_tasks();
}

pub(super) fn on_server(test: impl AsyncFnOnce(&World, &RedisServer)) {
    play(&ServerOutside::new(pool::lend()), test);
}

/// All keys on the server, in order.
pub(super) fn kept(server: &RedisServer) -> Vec<String> {
    let mut keys = server.command(&["KEYS", "*"]).texts();
    keys.sort_unstable();
    keys
}

/// How long a key lasts, in ms.
pub(super) fn left(server: &RedisServer, key: &str) -> i64 {
    server.command(&["PTTL", key]).int()
}

/// Makes the counter of a key known to both sides, and leaves the key free.
pub(super) async fn warm(actor: &Actor, key: &Key) {
    granted(actor.ask(key).send().await);
    released(actor.release(key).await, Released::Freed);
}

/// For clients that identify themselves, the store records the start of a lease at the first grant
/// and at every hand-over. So a program that takes a lock again and again does not pay for the
/// record.
#[test]
fn the_start_of_a_hold_is_noted_at_the_first_grant_and_at_a_hand_over() {
    on_server(async |world, _| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        let since = async || world.inspect(&key("a")).await.holders[0].since.is_some();
        granted(anna.ask(&key("a")).named().send().await);
        assert!(since().await, "the first time");
        released(anna.release(&key("a")).await, Released::Freed);
        granted(anna.another().ask(&key("a")).named().send().await);
        assert!(!since().await, "warm");
        world.pass(ms(10_001)).await;
        granted(anna.ask(&key("a")).named().send().await);
        taken(bert.ask(&key("a")).named().join().send().await);
        released(anna.release(&key("a")).await, Released::HandedOver);
        assert!(since().await, "handed over");
        assert_eq!(world.inspect(&key("a")).await.holders[0].why, None);
    });
}

/// Only the counter stays, for ten minutes, and then nothing.
#[test]
fn after_the_last_release_only_the_counter_stays_for_a_while() {
    on_server(async |world, server| {
        let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
        let day = 24 * 3_600_000;
        granted(anna.ask(&key("a")).ttl(day).why("long").reserve(8).send().await);
        assert!(left(server, "{a}:lh:fence") >= i64::try_from(day).expect("small"));
        assert_eq!(left(server, "{a}:lh:grant"), left(server, "a"));
        renewed(anna.renew(&key("a"), day).await);
        taken(bert.ask(&key("a")).join().why("next").send().await);
        taken(carl.ask(&key("a")).join().send().await);
        let all = ["a", "{a}:lh:ends", "{a}:lh:fence", "{a}:lh:grant", "{a}:lh:line"];
        assert_eq!(kept(server), [all.as_slice(), &["{a}:lh:places"]].concat());
        released(anna.release(&key("a")).await, Released::HandedOver);
        released(bert.release(&key("a")).await, Released::HandedOver);
        assert_eq!(kept(server), ["a", "{a}:lh:fence"], "carl gave no reason");
        released(carl.release(&key("a")).await, Released::Freed);
        assert_eq!(kept(server), ["{a}:lh:fence"]);
        let idle = i64::try_from(FENCE_IDLE.as_millis()).expect("small");
        assert_eq!(left(server, "{a}:lh:fence"), idle);
        world.pass(FENCE_IDLE + ms(1)).await;
        assert_eq!(kept(server), [""; 0]);
    });
}

/// Without that set, permits would count as free, and readers as gone.
#[test]
fn the_set_of_holders_that_share_a_key_stays_as_long_as_their_longest_lease() {
    on_server(async |world, server| {
        for (name, claim, reserve) in [
            ("a", Claim::Shared, 0),
            ("b", Claim::Shared, 1),
            ("c", Claim::Permits { want: 1, of: 2 }, 0),
            ("d", Claim::Permits { want: 1, of: 2 }, 1),
        ] {
            let (anna, bert) = (world.actor(), world.actor());
            let (hour, shares) = (3_600_000, format!("{{{name}}}:lh:shares"));
            let ask = |actor: &Actor| actor.ask(&key(name)).claim(claim).reserve(reserve);
            granted(ask(&anna).ttl(hour).send().await);
            let hour_left = i64::try_from(hour).expect("small");
            let both = || (left(server, name), left(server, &shares));
            assert_eq!(both(), (hour_left, hour_left));
            // A share that comes later, for a shorter time, shortens nothing.
            granted(ask(&bert).send().await);
            assert_eq!(both(), (hour_left, hour_left));
            renewed(bert.renew_as(&key(name), claim, 20_000).await);
            assert_eq!(both(), (hour_left, hour_left));
            renewed(anna.renew_as(&key(name), claim, 2 * hour).await);
            assert_eq!(both(), (2 * hour_left, 2 * hour_left));
        }
    });
}

/// The lock is stored under its own name, even if the name looks strange. The other keys are named
/// after it.
#[test]
fn a_name_with_a_hash_tag_keeps_it() {
    on_server(async |world, server| {
        granted(world.actor().ask(&key("{user:1}:cart")).send().await);
        assert_eq!(kept(server), ["{user:1}:cart", "{user:1}:cart:lh:t:fence"]);
    });
}

/// A lock without fencing is a single plain key.
#[test]
fn without_fencing_nothing_but_the_lock_is_written() {
    on_server(async |world, server| {
        let anna = world.actor();
        granted(anna.ask(&key("a")).reserve(0).send().await);
        renewed(anna.renew(&key("a"), 10_000).await);
        assert_eq!(kept(server), ["a"]);
        assert_eq!(server.command(&["GET", "a"]).text(), anna.owner().as_str());
        released(anna.release(&key("a")).await, Released::Freed);
        assert_eq!(kept(server), [""; 0]);
    });
}

/// A foreign client took the lock, with the same recipe.
#[test]
fn a_foreign_lock_is_taken_and_never_touched() {
    on_server(async |world, server| {
        let anna = world.actor();
        for (end, retry_in) in [(Some("500"), Some(ms(500))), (None, None)] {
            let set = ["SET", "a", "\u{1}another"];
            let set = [set.as_slice(), &end.map_or(vec![], |end| vec!["PX", end])].concat();
            server.command(&set);
            assert_eq!(taken(anna.ask(&key("a")).join().send().await).0, retry_in);
            lost(anna.renew(&key("a"), 10_000).await);
            released(anna.release(&key("a")).await, Released::NotHeld);
            assert_eq!(server.command(&["GET", "a"]).text(), "\u{1}another");
            let shown = &world.inspect(&key("a")).await.holders[0];
            assert_eq!((shown.ttl_left, shown.fencing), (retry_in, None));
        }
    });
}

/// Such a key is data that we must not turn into a lock.
#[test]
fn a_key_of_another_type_is_refused_and_left_as_it_is() {
    on_server(async |world, server| {
        server.command(&["HSET", "a", "field", "value"]);
        let anna = world.actor();
        let kind = anna.ask(&key("a")).join().send().await.expect_err("no lock").kind();
        assert_ne!(kind, ErrorKind::Unknown, "surely nothing was granted");
        refused(anna.renew(&key("a"), 10_000).await, kind);
        refused(anna.release(&key("a")).await, kind);
        refused(world.store().inspect(key("a")).await, kind);
        assert_eq!(kept(server), ["a"]);
        assert_eq!(server.command(&["HGET", "a", "field"]).text(), "value");
    });
}

/// Holders keep their locks, and waiters get them in turn.
#[test]
fn at_the_memory_limit_leases_are_renewed_released_and_handed_over() {
    let outside = ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
    play(&outside, async |world, server| {
        let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
        granted(anna.ask(&key("a")).why("hers").send().await);
        granted(carl.ask(&key("b")).send().await);
        taken(bert.ask(&key("a")).join().why("his").send().await);
        // Send one request of each kind, so that the server knows the scripts.
        renewed(anna.renew(&key("a"), 10_000).await);
        lost(anna.renew(&key("b"), 10_000).await);
        released(anna.release(&key("b")).await, Released::NotHeld);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let full = bert.another().ask(&key("c")).send().await.expect_err("no memory");
        assert_ne!(full.kind(), ErrorKind::Unknown, "surely nothing was granted: {full}");
        renewed(anna.renew_at_least(&key("a"), 20_000, None, 2).await);
        assert_eq!(left(server, "a"), 20_000);
        released(anna.release(&key("a")).await, Released::HandedOver);
        assert_eq!(server.command(&["GET", "a"]).text(), bert.owner().as_str());
        released(carl.release(&key("b")).await, Released::Freed);
        released(bert.release(&key("a")).await, Released::Freed);
        assert_eq!(kept(server), ["{a}:lh:fence", "{b}:lh:fence"]);
    });
}

#[test]
fn at_the_memory_limit_leases_that_several_share_are_renewed_and_released() {
    let outside = ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
    play(&outside, async |world, server| {
        for claim in [Claim::Shared, Claim::Permits { want: 1, of: 2 }] {
            let (anna, bert) = (world.actor(), world.actor());
            for actor in [&anna, &bert] {
                granted(actor.ask(&key("a")).claim(claim).send().await);
                renewed(actor.renew_as(&key("a"), claim, 10_000).await);
            }
            server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            renewed(anna.renew_as(&key("a"), claim, 20_000).await);
            assert_eq!(left(server, "a"), 20_000);
            released(anna.release_as(&key("a"), claim).await, Released::Freed);
            renewed(bert.renew_as(&key("a"), claim, 15_000).await);
            assert_eq!(left(server, "a"), 15_000);
            released(bert.release_as(&key("a"), claim).await, Released::Freed);
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        }
    });
}

#[track_caller]
fn kept_for(released: Result<Released, Error>) {
    assert!(matches!(released, Ok(Released::Kept { .. })), "{released:?}");
}

#[test]
fn at_the_memory_limit_a_release_that_may_open_the_line_is_not_refused() {
    let outside = ServerOutside::new(Box::new(RedisServer::builder().with_clock().start()));
    play(&outside, async |world, server| {
        let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
        for name in ["known", "a", "b", "c"] {
            granted(anna.ask(&key(name)).send().await);
        }
        // These requests make the server know the scripts.
        taken(bert.ask(&key("known")).join().send().await);
        released(anna.open(&key("known")).await, Released::HandedOver);
        kept_for(bert.keep_or_open(&heir, &key("known"), 5_000, 0).await);
        taken(bert.ask(&key("a")).join().send().await);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        released(anna.open(&key("a")).await, Released::HandedOver);
        kept_for(anna.keep_or_open(&heir, &key("b"), 5_000, 0).await);
        released(anna.open(&key("c")).await, Released::Freed);
    });
}

/// The next number comes from the clock, so it is higher than all earlier ones.
#[test]
fn a_counter_that_the_server_evicted_is_not_made_up() {
    on_server(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        let before = fence(anna.ask(&key("a")).send().await);
        world.pass(ms(1)).await;
        server.command(&["DEL", "{a}:lh:fence"]);
        assert_eq!(renewed(anna.renew(&key("a"), 10_000).await).0, None);
        assert_eq!(world.inspect(&key("a")).await.fencing, None);
        released(anna.release(&key("a")).await, Released::Freed);
        assert!(fence(bert.ask(&key("a")).send().await) > before);
        assert!(left(server, "{a}:lh:fence") > 0);
    });
}

/// The server's clock in µs, which moves only when the world passes time.
fn clock_us(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]).texts();
    let [seconds, micros] = [&time[0], &time[1]].map(|part| part.parse::<u64>());
    seconds.expect("a number") * 1_000_000 + micros.expect("a number")
}

fn last(block: FencingBlock) -> u64 {
    block.first.get() + u64::from(block.count) - 1
}

/// Otherwise a forgotten counter would start again below these tokens.
#[test]
fn a_block_never_runs_ahead_of_the_clock() {
    on_server(async |world, server| {
        warm(&world.actor_here(), &key("a")).await;
        for passed in [1, 5, 1_000] {
            world.pass(ms(passed)).await;
            let anna = world.actor_here();
            let block = granted(anna.ask(&key("a")).reserve(1_000_000).send().await);
            let block = block.expect("tokens");
            assert_eq!(u64::from(block.count), passed * 1_000, "as many as there were µs");
            assert_eq!(last(block), clock_us(server));
            released(anna.release(&key("a")).await, Released::Freed);
        }
    });
}

/// The block ends at the clock. It begins above the counter, and at most one millisecond back.
#[test]
fn a_counter_that_leaps_to_the_clock_gives_a_block_that_ends_there() {
    on_server(async |world, server| {
        for (passed_us, reserve, count) in [(10_000, 64, 64), (10_000, 5_000, 1_000), (9, 64, 9)] {
            let (anna, bert) = (world.actor_here(), world.actor());
            warm(&anna, &key("a")).await;
            let counter = (clock_us(server) - passed_us).to_string();
            server.command(&["SET", "{a}:lh:fence", &counter, "PX", "1000"]);
            let store = world.open_store().await;
            let cold = anna.another().through(&store);
            let block = granted(cold.ask(&key("a")).reserve(reserve).send().await);
            let block = block.expect("tokens");
            assert_eq!((block.count, last(block)), (count, clock_us(server)), "a cold ask");
            taken(bert.ask(&key("a")).reserve(reserve).join().send().await);
            server.command(&["SET", "{a}:lh:fence", &counter, "PX", "1000"]);
            released(cold.release(&key("a")).await, Released::HandedOver);
            let block = granted(bert.ask(&key("a")).reserve(reserve).send().await);
            let block = block.expect("tokens");
            assert_eq!((block.count, last(block)), (count, clock_us(server)), "a hand-over");
            released(bert.release(&key("a")).await, Released::Freed);
        }
    });
}

/// The counter may have been deleted right after a grant.
#[test]
fn a_counter_that_is_missing_begins_with_one_number_above_all_given_before() {
    on_server(async |world, server| {
        let anna = world.actor_here();
        warm(&anna, &key("a")).await;
        for _ in 0..3 {
            server.command(&["DEL", "{a}:lh:fence"]);
            let anna = anna.another();
            let block = granted(anna.ask(&key("a")).reserve(64).send().await).expect("tokens");
            assert_eq!((block.count, last(block)), (1, clock_us(server)));
            released(anna.release(&key("a")).await, Released::Freed);
        }
    });
}

/// On its first ask for a key, a handle does not know what the server forgot before.
#[test]
fn the_first_ask_of_a_connection_lifts_the_counter_to_the_clock() {
    on_server(async |world, server| {
        let anna = world.actor_here();
        warm(&anna, &key("a")).await;
        server.command(&["SET", "{a}:lh:fence", "5", "PX", "1000"]);
        let known = anna.another();
        assert_eq!(fence(known.ask(&key("a")).send().await), 6, "an INCR and no more");
        released(known.release(&key("a")).await, Released::Freed);
        let store = world.open_store().await;
        let other = anna.another().through(&store);
        assert!(fence(other.ask(&key("a")).send().await) > 1_000_000_000_000_000);
    });
}

/// An ask that finds the key taken reads neither the counter nor the clock. The grant does that.
#[test]
fn the_first_grant_of_a_connection_lifts_the_counter_also_after_asks_in_vain() {
    on_server(async |world, server| {
        let anna = world.actor_here();
        server.command(&["SET", "{a}:lh:fence", "5", "PX", "1000"]);
        server.command(&["SET", "a", "another"]);
        taken(anna.ask(&key("a")).send().await);
        server.command(&["DEL", "a"]);
        assert!(fence(anna.ask(&key("a")).send().await) > 1_000_000_000_000_000);
    });
}

/// One strange key must not hide all others.
#[test]
fn a_foreign_value_in_place_of_a_line_is_not_listed() {
    on_server(async |world, server| {
        granted(world.actor().ask(&key("a")).send().await);
        server.command(&["SET", "{b}:lh:ends", "rubbish"]);
        let page = world.browse().list("*", None).await.expect("a list");
        assert_eq!(page.keys, [key("a")]);
    });
}

/// A counter that is no number counts as missing.
#[test]
fn a_counter_that_is_no_number_is_begun_anew_also_by_a_client_that_knew_it() {
    on_server(async |world, server| {
        let anna = world.actor_here();
        for rubbish in ["rubbish", "", "-7", "0", "007", "1.5"] {
            warm(&anna.another(), &key("a")).await;
            server.command(&["SET", "{a}:lh:fence", rubbish, "PX", "1000"]);
            let again = anna.another();
            assert!(fence(again.ask(&key("a")).send().await) > 1_000_000_000_000_000, "{rubbish}");
            released(again.release(&key("a")).await, Released::Freed);
        }
    });
}

/// Foreign data in the keys beside the lock.
#[test]
fn hostile_companions_grant_nothing_twice_and_stay_for_no_longer() {
    on_server(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        let before = fence(anna.ask(&key("a")).send().await);
        server.command(&["HSET", "{a}:lh:grant", "o", anna.owner().as_str(), "f", "x", "n", "-3"]);
        server.command(&["HSET", "{a}:lh:places", "nobody", "rubbish"]);
        server.command(&["ZADD", "{a}:lh:line", "inf", "nobody"]);
        server.command(&["ZADD", "{a}:lh:ends", "inf", "nobody"]);
        assert_eq!(first(renewed(anna.renew(&key("a"), 10_000).await).0), before);
        taken(bert.ask(&key("a")).join().send().await);
        released(anna.release(&key("a")).await, Released::HandedOver);
        assert!(fence(bert.ask(&key("a")).send().await) > before);
        released(bert.release(&key("a")).await, Released::Freed);
        for name in kept(server) {
            assert!(left(server, &name) > 0, "{name} has no end");
        }
        let foreign = OwnerToken::new("short").expect("a token");
        granted(world.actor().with_token(foreign).ask(&key("a")).send().await);
    });
}
