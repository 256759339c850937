//! Compares each store with the reference: the same requests at the same times get the same
//! answers.
//!
//! The memory store is the reference. Any different answer fails, except those in [`EXCLUSIONS`].

mod play;
mod request;
mod side;

use std::ops::Range;
use std::sync::Arc;

use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;
use leasehold_testkit::servers::{RedisServer, ServerOutside, pool};

use self::play::play;
use self::request::{EXACT, Plan, SHARED, UNHURRIED, WHOLE};
use crate::stores;

/// A permitted difference from the reference, or a request that a store does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exclusion {
    LastMillisecond,
    LeapingTokens,
    Since,
    HoldersTtl,
    BareLocks,
    TokensThemselves,
    PlacesOfTheDead,
    OtherHints,
}

const ALL: &[&str] = &[SQLITE, REDIS];
const SQLITE: &str = "SQLite";
const REDIS: &str = "Redis";

/// All exclusions, with the stores to which they apply, and the reason.
const EXCLUSIONS: [(Exclusion, &[&str], &str); 8] = [
    (
        Exclusion::LastMillisecond,
        &[REDIS],
        "an expiry has whole milliseconds, and within the last of them a key may be gone or not: \
         time passes by spans after which nothing is about to end",
    ),
    (
        Exclusion::LeapingTokens,
        &[REDIS],
        "a counter is lifted to the server's clock, and no block runs ahead of that: tokens must \
         rise where the reference's rise, by how much is left open",
    ),
    (
        Exclusion::Since,
        &[REDIS],
        "since when somebody holds or waits is the server's time of day, and is written only \
         beside something else: it is not compared",
    ),
    (
        Exclusion::HoldersTtl,
        &[SQLITE],
        "the reference does not keep how long each renewal makes a lease last",
    ),
    (
        Exclusion::BareLocks,
        &[REDIS],
        "a list is made of companion keys: a lock without fencing, reason and waiters has none",
    ),
    (
        Exclusion::TokensThemselves,
        ALL,
        "where a counter begins is the affair of each store: tokens are compared with the highest \
         one known before",
    ),
    (
        Exclusion::PlacesOfTheDead,
        ALL,
        "each store decides when it drops a dead place: a client that had one leaves the line \
         before it comes again, and a client without a place is not told how many are ahead",
    ),
    (
        Exclusion::OtherHints,
        ALL,
        "no hint but that of a grant has to come: whether they do is held against each store by \
         the conformance suite",
    ),
];

fn excludes(store: &str, exclusion: Exclusion) -> bool {
    EXCLUSIONS.iter().any(|(what, stores, _)| *what == exclusion && stores.contains(&store))
}

/// A store that must answer as the reference does.
struct Contender {
    name: &'static str,
    setup: fn(&Arc<VirtualHost>) -> (Opener, Look),
}

/// Checks the data of a store after each request.
type Look = Box<dyn Fn()>;

const CONTENDERS: [Contender; 2] = [
    Contender { name: SQLITE, setup: |host| (stores::sqlite(host), Box::new(|| ())) },
    Contender {
        name: REDIS,
        setup: |host| {
            let outside = ServerOutside::new(pool::lend());
            let opener = stores::redis_on(&outside, host);
            (opener, Box::new(move || everything_ends(outside.server())))
        },
    },
];

/// Every key expires, and a lock is a plain string.
fn everything_ends(server: &RedisServer) {
    for name in server.command(&["KEYS", "*"]).texts() {
        assert!(server.command(&["PTTL", &name]).int() > 0, "{name} has no end");
        if !name.contains(":lh:") {
            assert_eq!(server.command(&["TYPE", &name]).text(), "string");
        }
    }
}

/// Plays these seeds, and returns how many hints of grants were equal.
fn play_all(plan: &Plan, seeds: Range<u64>) -> usize {
    let mut grants = 0;
    for seed in seeds {
        let host = VirtualHost::new(seed);
        grants += host.run(play(&host, seed, plan));
        host.drop_tasks();
    }
    grants
}

#[test]
fn every_store_answers_what_the_reference_answers_and_keeps_nothing_for_ever() {
    play_all(&WHOLE, 0..12);
}

/// On Redis, a short script grants and releases most shares of a key, and a long script the others.
#[test]
fn readers_and_writers_get_the_same_answers_from_every_store() {
    play_all(&SHARED, 0..12);
}

#[test]
fn every_store_tells_a_waiter_of_a_hand_over_in_the_same_way() {
    let grants = play_all(&UNHURRIED, 0..6);
    assert!(grants >= 20, "only {grants} keys were handed to somebody");
}

/// Requests also come at the exact moment when leases and places end.
#[test]
fn stores_that_count_in_nanoseconds_answer_what_the_reference_answers() {
    play_all(&EXACT, 0..60);
}

/// Otherwise an exclusion could excuse a store that is no longer compared.
#[test]
fn every_exclusion_is_of_a_store_that_is_compared() {
    for (exclusion, stores, _) in EXCLUSIONS {
        for store in stores {
            assert!(CONTENDERS.iter().any(|known| known.name == *store), "{exclusion:?} {store}");
        }
    }
}
