//! The fencing counter beside a lock: how long it stays, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::FencingBlock;
use leasehold::store::redis::Strict;
use leasehold::store::{Acquired, AnyStore, Evicted, FENCE_IDLE, RedisStore, Released};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{fence, granted, kept, released, renewed, taken};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{RedisServer, ServerOutside, pool};

use super::fake::{Fake, numbers};
use crate::stores::redis_on;

const COUNTER: &str = "{a}:lh:fence";

/// A ttl shorter and a ttl longer than the time for which an unused counter stays.
const TTLS_MS: [u64; 2] = [10_000, 2 * 3_600_000];

fn play(test: impl AsyncFnOnce(&World, &RedisServer)) {
    let outside = ServerOutside::new(pool::lend());
    let host = VirtualHost::new(1);
    let opener = redis_on(&outside, &host);
    host.run(async {
        let world = World::open(host.clone(), opener).await;
        test(&world, outside.server()).await;
    });
    host.drop_tasks();
}

/// Asserts that the counter stays from now on for the longer of its idle time and the ttl.
#[track_caller]
fn assert_stays(server: &RedisServer, ttl_ms: u64, step: &str) {
    let idle_ms = i64::try_from(FENCE_IDLE.as_millis()).expect("minutes");
    let left = server.command(&["PTTL", COUNTER]).int();
    assert_eq!(left, idle_ms.max(ttl_ms.cast_signed()), "{step}, ttl {ttl_ms} ms");
}

#[track_caller]
fn number(server: &RedisServer, command: &[&str]) -> u64 {
    server.command(command).text().parse().expect("a number")
}

/// Lets time pass between two steps, so that a step that does not restart the counter is noticed.
async fn pass(world: &World) {
    world.pass(ms(1_000)).await;
}

#[test]
fn every_grant_and_every_renewal_keeps_the_counter_for_longer_than_the_lease() {
    for ttl_ms in TTLS_MS {
        play(async |world, server| {
            let anna = world.actor_here();
            let cold = granted(anna.ask(&key("a")).ttl(ttl_ms).send().await);
            assert_stays(server, ttl_ms, "the first grant of a connection");
            pass(world).await;
            granted(anna.ask(&key("a")).ttl(ttl_ms).send().await);
            assert_stays(server, ttl_ms, "the same ask again");
            for (at_least, reserve) in
                [(None, 0), (None, 4), (cold.map(|it| it.first.get() + (1 << 40)), 0)]
            {
                pass(world).await;
                renewed(anna.renew_at_least(&key("a"), ttl_ms, at_least, reserve).await);
                assert_stays(server, ttl_ms, "a renewal");
            }
            pass(world).await;
            renewed(anna.renew_idle(&key("a"), ttl_ms).await);
            assert_stays(server, ttl_ms, "a renewal of an idle lease");
            pass(world).await;
            let heir = anna.another();
            kept(anna.keep_for(&heir, &key("a"), ttl_ms, 4).await);
            assert_stays(server, ttl_ms, "a release that keeps it");
            released(heir.release(&key("a")).await, Released::Freed);
        });
    }
}

#[test]
fn the_note_of_a_reader_that_renews_ends_with_the_lock() {
    play(async |world, server| {
        let anna = world.actor_here();
        granted(anna.ask(&key("a")).shared().reserve(0).send().await);
        renewed(anna.renew_at_least(&key("a"), 10_000, None, 1).await);
        let left = server.command(&["PTTL", "{a}:lh:grant"]).int();
        assert_eq!(left, server.command(&["PTTL", "a"]).int());
    });
}

/// The second grant of a connection skips every step that this grant does not need.
#[test]
fn a_grant_over_a_warm_connection_keeps_the_counter_for_longer_than_a_long_lease() {
    for ttl_ms in TTLS_MS {
        for reserve in [1, 4] {
            play(async |world, server| {
                let anna = world.actor_here();
                granted(anna.ask(&key("a")).send().await);
                released(anna.release(&key("a")).await, Released::Freed);
                pass(world).await;
                let again = anna.another();
                granted(again.ask(&key("a")).ttl(ttl_ms).reserve(reserve).send().await);
                assert_stays(server, ttl_ms, "a warm grant");
            });
        }
    }
}

#[test]
fn a_hand_over_keeps_the_counter_for_longer_than_the_lease_that_is_handed_over() {
    for ttl_ms in TTLS_MS {
        // The fast script reserves one token, and the other script several.
        for reserve in [1, 4] {
            play(async |world, server| {
                let (anna, bert) = (world.actor_here(), world.actor_here());
                granted(anna.ask(&key("a")).send().await);
                let ask = bert.ask(&key("a")).reserve(reserve);
                taken(ask.join_as(1, 3_000, ttl_ms).send().await);
                pass(world).await;
                released(anna.release(&key("a")).await, Released::HandedOver);
                assert_stays(server, ttl_ms, "a hand-over");
                let left = server.command(&["PTTL", "a"]).int();
                assert_eq!(left, ttl_ms.cast_signed(), "the lock delay of the place is in it");
            });
        }
    }
}

#[test]
fn blocks_that_are_handed_over_one_after_the_other_share_no_number() {
    for (reserve, counts) in [(4, [4, 4]), (1_000, [1_000, 300])] {
        play(async |world, server| {
            let [anna, bert, carl] = [(); 3].map(|()| world.actor_here());
            granted(anna.ask(&key("a")).send().await);
            for waiter in [&bert, &carl] {
                taken(waiter.ask(&key("a")).reserve(reserve).join().send().await);
            }
            pass(world).await;
            let (mut used, mut had) = (0, Vec::new());
            for holder in [&anna, &bert] {
                world.pass(Duration::from_micros(300)).await;
                released(holder.release(&key("a")).await, Released::HandedOver);
                let [first, count] =
                    ["f", "n"].map(|field| number(server, &["HGET", "{a}:lh:grant", field]));
                assert!(first > used, "{first} was given already: {used} was the last");
                used = first + count - 1;
                assert_eq!(number(server, &["GET", COUNTER]), used, "the counter is the last");
                had.push(count);
            }
            assert_eq!(had, counts, "no number is ahead of the clock, or far behind it");
        });
    }
}

/// The counter must stay, so that the next fencing token is above it.
#[test]
fn a_release_and_an_eviction_leave_the_counter_for_its_idle_time() {
    play(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        let before = fence(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).watch(3_000).send().await);
        pass(world).await;
        released(anna.release(&key("a")).await, Released::Freed);
        assert_stays(server, 0, "a release that wakes");
        pass(world).await;
        granted(bert.ask(&key("a")).send().await);
        pass(world).await;
        let seen = bert.owner().as_str().as_bytes().to_vec();
        let evicted = world.browse().evict(key("a"), seen, "why".to_owned()).await;
        assert_eq!(evicted.expect("answered"), Evicted::Evicted);
        assert_stays(server, 0, "an eviction");
        assert!(fence(anna.another().ask(&key("a")).send().await) > before);
    });
}

/// A lease is held for hours by renewals, each of them shorter than the counter's idle time.
#[test]
fn a_lease_that_is_renewed_for_hours_keeps_its_fencing_token() {
    play(async |world, server| {
        let anna = world.actor_here();
        let token = fence(anna.ask(&key("a")).ttl(60_000).send().await);
        for _ in 0..3 * 60 {
            world.pass(ms(55_000)).await;
            let (block, _) = renewed(anna.renew(&key("a"), 60_000).await);
            assert_eq!(block.expect("it has one").first.get(), token);
        }
        assert_eq!(server.command(&["GET", COUNTER]).text(), token.to_string());
    });
}

/// Counters at or beyond the end. No clock shows such a number.
const BEYOND: [&str; 4] =
    ["9007199254740991", "9007199254740992", "9223372036854775807", "99999999999999999999999"];

/// Asserts that the error says what is wrong, the state of the lock, and what to do.
#[track_caller]
fn assert_told(answer: Result<Acquired, Error>, counter: &str) {
    let error = answer.expect_err("no token is left");
    assert_eq!(error.kind(), ErrorKind::Config, "{counter}: {error}");
    let text = error.to_string();
    for part in ["`{a}:lh:fence`", "nothing was granted", "`DEL`"] {
        assert!(text.contains(part), "{counter}: {text}");
    }
}

#[test]
fn a_counter_at_its_end_refuses_an_ask_for_a_token_and_says_so() {
    for counter in BEYOND {
        play(async |world, server| {
            let (warm, cold) = (world.actor_here(), world.actor());
            granted(warm.ask(&key("a")).send().await);
            released(warm.release(&key("a")).await, Released::Freed);
            server.command(&["SET", COUNTER, counter, "PX", "600000"]);
            for reserve in [1, 4] {
                for actor in [&warm, &cold] {
                    let ask = actor.another().ask(&key("a")).reserve(reserve);
                    assert_told(ask.send().await, counter);
                    let ask = actor.another().ask(&key("a")).reserve(reserve).join();
                    assert_told(ask.send().await, counter);
                }
            }
            assert_eq!(server.command(&["EXISTS", "a"]).int(), 0, "nobody has it");
            assert_eq!(server.command(&["GET", COUNTER]).text(), counter, "it is untouched");
            // An ask without fencing does not need the counter.
            granted(warm.another().ask(&key("a")).reserve(0).send().await);
        });
    }
}

#[test]
fn at_the_end_of_the_counter_nothing_is_handed_over_or_kept_without_the_tokens_that_are_wanted() {
    play(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        granted(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).join().send().await);
        server.command(&["SET", COUNTER, BEYOND[0], "PX", "600000"]);
        released(anna.release(&key("a")).await, Released::Freed);
        assert_told(bert.ask(&key("a")).join().send().await, BEYOND[0]);
        released(bert.release(&key("a")).await, Released::NotHeld);
        let carl = anna.another();
        granted(carl.ask(&key("a")).reserve(0).send().await);
        let heir = carl.another();
        released(carl.keep_for(&heir, &key("a"), 10_000, 4).await, Released::Freed);
    });
}

/// Asserts that a block is above another one, and that it is the block of the lease from now on.
async fn assert_begins_anew(
    server: &RedisServer,
    actor: &Actor,
    before: FencingBlock,
    again: FencingBlock,
) {
    assert!(again.first.get() >= before.first.get() + u64::from(before.count), "it rises");
    assert_eq!(again.count, 1, "as every counter that was missing");
    assert_eq!(number(server, &["GET", COUNTER]), again.first.get());
    assert_stays(server, 10_000, "the ask");
    assert_eq!(renewed(actor.renew(&key("a"), 10_000).await).0, Some(again));
    assert_eq!(granted(actor.ask(&key("a")).send().await), Some(again));
}

/// The client repeats an ask whose answer was lost.
#[test]
fn an_ask_that_is_repeated_after_the_counter_was_lost_gets_a_higher_token() {
    for reserve in [1, 4] {
        for why in [None, Some("why")] {
            play(async |world, server| {
                let anna = world.actor_here();
                // After this, a block may have several tokens, and the server notes the block.
                granted(anna.ask(&key("a")).send().await);
                released(anna.release(&key("a")).await, Released::Freed);
                pass(world).await;
                let anna = anna.another();
                let ask = || {
                    let ask = anna.ask(&key("a")).reserve(reserve);
                    if let Some(why) = why { ask.why(why) } else { ask }
                };
                let before = granted(ask().send().await).expect("tokens");
                pass(world).await;
                server.command(&["DEL", COUNTER]);
                let again = granted(ask().send().await).expect("tokens");
                assert_begins_anew(server, &anna, before, again).await;
                released(anna.release(&key("a")).await, Released::Freed);
                assert!(fence(anna.another().ask(&key("a")).send().await) > again.first.get());
            });
        }
    }
}

#[test]
fn a_waiter_that_missed_its_hand_over_gets_a_higher_token_if_the_counter_was_lost_too() {
    play(async |world, server| {
        let (anna, bert) = (world.actor_here(), world.actor_here());
        let before = granted(anna.ask(&key("a")).send().await).expect("tokens");
        taken(bert.ask(&key("a")).join_as(1, 3_000, 10_000).send().await);
        released(anna.release(&key("a")).await, Released::HandedOver);
        pass(world).await;
        server.command(&["DEL", COUNTER]);
        let ask = bert.ask(&key("a")).join_as(2, 3_000, 10_000);
        let again = granted(ask.send().await).expect("tokens");
        assert_begins_anew(server, &bert, before, again).await;
    });
}

/// The same ask may come twice. A late copy must not end the lease that the first ask got.
#[test]
fn an_ask_that_is_repeated_beyond_the_end_of_the_counter_is_refused_and_ends_nothing() {
    // The first of these counters is a token itself.
    for counter in BEYOND.into_iter().skip(1) {
        play(async |world, server| {
            let anna = world.actor_here();
            granted(anna.ask(&key("a")).send().await);
            server.command(&["SET", COUNTER, counter, "PX", "600000"]);
            assert_told(anna.ask(&key("a")).send().await, counter);
            assert_eq!(server.command(&["GET", "a"]).text(), anna.owner().as_str());
            released(anna.release(&key("a")).await, Released::Freed);
        });
    }
}

/// The ask finds the key free, and the head of the line needs tokens that the counter cannot give.
#[test]
fn an_ask_wakes_a_head_that_cannot_be_given_its_tokens() {
    play(async |world, server| {
        let (anna, bert, carl) = (world.actor_here(), world.actor_here(), world.actor_here());
        granted(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).join().send().await);
        server.command(&["SET", COUNTER, BEYOND[0], "PX", "600000"]);
        server.command(&["DEL", "a"]);
        taken(carl.ask(&key("a")).reserve(0).send().await);
        assert_eq!(server.command(&["EXISTS", "a"]).int(), 0);
        released(bert.release(&key("a")).await, Released::NotHeld);
        granted(carl.ask(&key("a")).reserve(0).send().await);
    });
}

/// A client of the fake server, and the world that it needs.
async fn actor_at(fake: &Fake, host: &Arc<VirtualHost>) -> (World, Actor) {
    let store = RedisStore::connect_with(fake.clone(), host.clone()).await;
    let store = AnyStore::new(store.expect("connected"));
    let opened = store.clone();
    let opener = Box::new(move || Box::pin(std::future::ready(opened.clone())) as _);
    let world = World::open(host.clone(), opener).await;
    let anna = world.actor().through(&store);
    (world, anna)
}

/// A connection that the store has left still answers requests that are on their way. Those answers
/// are about another server.
#[test]
fn answers_of_an_old_connection_say_nothing_about_the_counters_of_the_next() {
    let host = VirtualHost::new(1);
    let fake = Fake::on_terms(Strict::STANDARD);
    host.run(async {
        let (_world, anna) = actor_at(&fake, &host).await;
        host.advance(ms(2_000)).await;
        // The first answer makes the store leave the connection. The next answer comes late.
        fake.answer(numbers(&[5]));
        let late = fake.answer_late(numbers(&[1, 7, 1]));
        fake.answer(numbers(&[1, 8, 1]));
        let other = anna.another();
        fake.set_silent(true);
        let moved = host.task(other.ask(&key("b")).send());
        host.settle().await;
        let slow = host.task(anna.ask(&key("a")).send());
        host.settle().await;
        fake.set_silent(false);
        granted(moved.await);
        assert!(!slow.is_finished());
        late.say();
        granted(slow.await);
        let _before = fake.seen();
        fake.answer(numbers(&[1, 9, 1]));
        granted(anna.another().ask(&key("a")).send().await);
        assert_eq!(cold_in(&fake), "1", "the counter is looked at anew");
    });
    host.drop_tasks();
}

/// The server may be another one than at the first ask, and its counter may be old.
#[test]
fn an_ask_that_finds_an_earlier_grant_says_nothing_of_the_counter() {
    let (host, fake) = (VirtualHost::new(1), Fake::default());
    host.run(async {
        let (_world, anna) = actor_at(&fake, &host).await;
        // The first answers are about earlier grants.
        let table: [(&[i64], &str); 4] =
            [(&[1, 7, 1, 1], "1"), (&[1, 7, 1, 1], "1"), (&[1, 8, 1], "1"), (&[1, 9, 1], "0")];
        for (answer, is_cold) in table {
            fake.answer(numbers(answer));
            granted(anna.another().ask(&key("a")).send().await);
            assert_eq!(cold_in(&fake), is_cold);
        }
    });
    host.drop_tasks();
}

/// The argument `cold` of the latest ask. It says whether the server must check its counter anew.
fn cold_in(fake: &Fake) -> String {
    let seen = fake.seen();
    let words = &seen.last().expect("an ask").1;
    // The words after the script and its keys are: owner, ttl, reserve, cold.
    let keys: usize = words[2].parse().expect("a number");
    words[3 + keys + 3].clone()
}

/// A counter that is no number counts as missing.
#[test]
fn nobody_is_refused_for_a_counter_that_is_no_number() {
    play(async |world, server| {
        for rubbish in ["", "-1", "x", "0", "1e3", "9.5"] {
            server.command(&["SET", COUNTER, rubbish, "PX", "600000"]);
            let anna = world.actor();
            let token = fence(anna.ask(&key("a")).send().await);
            assert!(token > 1_000_000_000_000_000, "it begins at the clock: {rubbish:?}");
            released(anna.release(&key("a")).await, Released::Freed);
        }
    });
}
