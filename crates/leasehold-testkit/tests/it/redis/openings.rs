//! The openings, in which the line stands aside for clients of other libraries: what the scripts
//! decide and write.

use leasehold::store::Released;
use leasehold_testkit::conformance::check::{granted, kept, released, taken};
use leasehold_testkit::conformance::{Actor, World, key, ms};
use leasehold_testkit::servers::{RedisServer, Reply};

use super::scripts::{kept as keys_on, on_server};

/// After this many openings that nobody used, no foreign client counts as seen.
const MISSED_MAX: u64 = 7;

/// Two of our clients that want the key all the time, on a server with a virtual clock.
struct Pair<'w> {
    world: &'w World,
    server: &'w RedisServer,
    holds: Actor,
    waits: Actor,
}

impl<'w> Pair<'w> {
    async fn start(world: &'w World, server: &'w RedisServer) -> Self {
        let (holds, waits) = (world.actor(), world.actor());
        granted(holds.ask(&key("a")).send().await);
        taken(waits.ask(&key("a")).join().send().await);
        Self { world, server, holds, waits }
    }

    /// The holder releases the key. Returns whether the line opened. If not, the other client has
    /// the key.
    async fn opens(&mut self) -> bool {
        let answer = self.holds.open(&key("a")).await.expect("an answer");
        let next = self.holds.another();
        if answer == Released::HandedOver {
            self.holds = std::mem::replace(&mut self.waits, next);
            taken(self.waits.ask(&key("a")).join().send().await);
            return false;
        }
        assert_eq!(answer, Released::Freed);
        self.holds = next;
        true
    }

    /// Passes the key on until the line opens, and returns how long that took, to a tenth.
    async fn turn_ms(&mut self) -> u64 {
        let mut span = 0;
        while !self.opens().await {
            self.world.pass(ms(10)).await;
            span += 10;
            assert!(span < 5_000, "it never opens");
        }
        span
    }

    /// Waits until the line has the key again, and returns how long that took, to a tenth.
    async fn closed_ms(&mut self) -> u64 {
        let mut span = 0;
        while self.waits.ask(&key("a")).join().send().await.expect("an answer").is_taken() {
            self.world.pass(ms(5)).await;
            span += 5;
            assert!(span < 5_000, "it never ends");
        }
        let waits = std::mem::replace(&mut self.waits, self.holds.clone());
        self.holds = waits;
        taken(self.waits.ask(&key("a")).join().send().await);
        span
    }

    /// A client of another library takes the free key.
    fn is_taken_by_another(&self) -> bool {
        let words = ["SET", "a", "foreign", "NX", "PX", "60000"];
        self.server.command(&words) != Reply::Nil
    }

    fn is_freed_by_another(&self) {
        assert_eq!(self.server.command(&["GET", "a"]).text(), "foreign");
        self.server.command(&["DEL", "a"]);
    }
}

#[test]
fn a_line_without_others_opens_for_a_moment_once_a_second() {
    on_server(async |world, server| {
        let mut pair = Pair::start(world, server).await;
        for _ in 0..4 {
            assert_eq!(pair.turn_ms().await, 1_000);
            assert_eq!(pair.closed_ms().await, 30);
        }
    });
}

#[test]
fn a_client_that_was_seen_has_a_turn_every_tenth_of_a_second() {
    on_server(async |world, server| {
        let mut pair = Pair::start(world, server).await;
        pair.turn_ms().await;
        assert!(pair.is_taken_by_another());
        for _ in 0..20 {
            taken(pair.waits.ask(&key("a")).join().send().await);
            pair.is_freed_by_another();
            assert_eq!(pair.closed_ms().await, 30, "it ends soon after one was seen");
            assert_eq!(pair.turn_ms().await, 100);
            world.pass(ms(250)).await;
            assert!(pair.is_taken_by_another(), "it is open for long enough");
        }
    });
}

#[test]
fn a_client_that_does_not_come_back_is_waited_for_more_and_more_rarely() {
    on_server(async |world, server| {
        let mut pair = Pair::start(world, server).await;
        pair.turn_ms().await;
        assert!(pair.is_taken_by_another());
        taken(pair.waits.ask(&key("a")).join().send().await);
        pair.is_freed_by_another();
        pair.closed_ms().await;
        for missed in 0..MISSED_MAX {
            assert_eq!(pair.turn_ms().await, (100 << missed).min(2_000), "after {missed}");
            assert_eq!(pair.closed_ms().await, 300, "after {missed}");
        }
        for _ in 0..3 {
            assert_eq!(pair.turn_ms().await, 1_000, "nobody is there");
            assert_eq!(pair.closed_ms().await, 30);
        }
    });
}

/// A client passes its lease on among its tasks, none of which has a place in the line.
#[test]
fn a_lease_that_would_be_kept_opens_the_key_too() {
    on_server(async |world, server| {
        let mut pair = Pair::start(world, server).await;
        assert!(!pair.opens().await, "it is not due");
        world.pass(ms(1_000)).await;
        let answer = pair.waits.release(&key("a")).await;
        assert_eq!(answer.expect("an answer"), Released::NotHeld, "it leaves the line");
        let heir = pair.holds.another();
        assert!(kept(pair.holds.keep_for(&heir, &key("a"), 3_000, 4).await).is_some());
        let last = heir.another();
        released(heir.keep_or_open(&last, &key("a"), 3_000, 4).await, Released::Freed);
        assert!(pair.is_taken_by_another());
    });
}

#[test]
fn a_line_that_was_left_alone_keeps_no_openings() {
    on_server(async |world, server| {
        let mut pair = Pair::start(world, server).await;
        assert!(!pair.opens().await);
        pair.waits.release(&key("a")).await.expect("an answer");
        world.pass(ms(1_000)).await;
        released(pair.holds.open(&key("a")).await, Released::Freed);
        assert_eq!(keys_on(server), ["{a}:lh:fence"]);
    });
}

/// Between its uses, such a lock is free for as long as in an opening.
#[test]
fn a_lock_that_is_wanted_now_and_then_does_not_open() {
    // Columns: the pause between two uses, and whether the line opens within two seconds.
    for (pause_ms, opens) in [(500, false), (30, false), (29, true), (1, true)] {
        on_server(async |world, _| {
            let mut opened = 0;
            for _ in 0..2_000 / (pause_ms + 1) {
                let (anna, bert) = (world.actor(), world.actor());
                granted(anna.ask(&key("a")).send().await);
                taken(bert.ask(&key("a")).join().send().await);
                world.pass(ms(1)).await;
                let answer = anna.open(&key("a")).await.expect("an answer");
                if answer == Released::Freed {
                    opened += 1;
                    world.pass(ms(30)).await;
                    granted(bert.ask(&key("a")).join().send().await);
                }
                released(bert.open(&key("a")).await, Released::Freed);
                world.pass(ms(pause_ms)).await;
            }
            assert_eq!(opened > 0, opens, "{opened} openings with pauses of {pause_ms} ms");
        });
    }
}
