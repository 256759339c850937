//! Data in `:lh:epoch`, the one key of a strict server that never expires, whoever wrote it.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{Claim, Quarantine, Released, Store as _};
use leasehold_testkit::conformance::check::{granted, released};
use leasehold_testkit::conformance::{key, ms};
use leasehold_testkit::servers::RedisServer;

use super::strict::{QUARANTINE, play, play_on};

/// A clock step or a person may change the end of a quarantine. The server obeys the stored end.
#[test]
fn a_quarantine_ends_when_its_end_says_so_and_is_shown_as_long_as_it_is() {
    play(async |scene| {
        let anna = scene.world.actor();
        let time = scene.server().command(&["TIME"]);
        let now: u64 = time.array()[0].text().parse().expect("seconds");
        for hours in [1, 1_000_000] {
            let until = (now + hours * 3_600) * 1_000;
            scene.server().command(&["HSET", ":lh:epoch", "until", &until.to_string()]);
            let quarantine = scene.assert_quarantined(&anna, &key("a")).await;
            assert_eq!(quarantine.since, None);
            assert!(quarantine.left.abs_diff(Duration::from_hours(hours)) < ms(2_000));
            let seen = scene.world.inspect(&key("a")).await.quarantine;
            assert_eq!(seen, Some(quarantine));
        }
        // This end is too large for a number.
        scene.server().command(&["HSET", ":lh:epoch", "until", &"9".repeat(400)]);
        let quarantine = scene.assert_quarantined(&anna, &key("a")).await;
        assert!(quarantine.left > Duration::from_hours(1_000_000));
        // This end is in the past, so the next ask removes it.
        scene.server().command(&["HSET", ":lh:epoch", "until", "1"]);
        assert_eq!(scene.world.inspect(&key("a")).await.quarantine, None);
        granted(anna.ask(&key("a")).send().await);
        assert_eq!(scene.server().command(&["HEXISTS", ":lh:epoch", "until"]).int(), 0);
    });
}

#[test]
fn an_end_that_is_no_moment_begins_the_quarantine_anew() {
    for until in ["", "soon", "-1", "1e3", " 1", "0x7"] {
        play(async |scene| {
            scene.server().command(&["HSET", ":lh:epoch", "until", until]);
            let ahead = Quarantine::new(None, QUARANTINE);
            assert_eq!(scene.world.inspect(&key("a")).await.quarantine, Some(ahead), "{until}");
            scene.assert_quarantined_to_its_end(&["a"]).await;
        });
    }
}

/// The expected message: what is wrong, the state of the lock, and what to do.
const NO_HASH: &str = "`:lh:epoch` of this database is not the hash of a strict server; nothing \
                       was granted and the key is untouched; find out what wrote it (`TYPE \
                       :lh:epoch`), then run `DEL :lh:epoch`, which begins a quarantine of 65 s";

#[test]
fn data_of_another_type_in_place_of_the_epoch_is_reported_and_nothing_is_granted() {
    for other in [&["SET", ":lh:epoch", "x"][..], &["RPUSH", ":lh:epoch", "x"]] {
        play(async |scene| {
            let anna = scene.world.actor();
            scene.server().command(&["DEL", ":lh:epoch"]);
            scene.server().command(other);
            for claim in [Claim::Exclusive, Claim::Plain] {
                let answer = anna.ask(&key("a")).claim(claim).reserve(0).send().await;
                let error = answer.expect_err("there is no telling");
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                assert!(error.to_string().contains(NO_HASH), "{error}");
            }
            let error = scene.world.store().inspect(key("a")).await.expect_err("the same");
            assert!(error.to_string().contains(NO_HASH), "{error}");
            assert_eq!(scene.server().command(&["EXISTS", "a"]).int(), 0);
            scene.server().command(&["DEL", ":lh:epoch"]);
            scene.assert_quarantined_to_its_end(&["a"]).await;
        });
    }
}

/// This policy evicts only keys with a time to live.
#[test]
fn a_full_server_that_evicts_what_expires_ends_no_quarantine() {
    let policy = "volatile-ttl";
    play_on(RedisServer::builder().config("maxmemory-policy", policy), async |scene| {
        let anna = scene.world.actor();
        scene.assert_quarantined(&anna, &key("a")).await;
        assert_eq!(scene.server().command(&["PTTL", ":lh:epoch"]).int(), -1);
        scene.server().command(&["SET", "filler", "x", "PX", "1000000"]);
        scene.server().command(&["CONFIG", "SET", "maxmemory", "1"]);
        // The first write evicts every key that may be evicted.
        let full = scene.server().try_command(&["SET", "b", "x"]).expect_err("no room");
        assert!(full.starts_with("OOM"), "{full}");
        assert_eq!(scene.server().command(&["EXISTS", "filler"]).int(), 0);
        scene.assert_quarantined(&anna, &key("a")).await;
        scene.server().command(&["CONFIG", "SET", "maxmemory", "0"]);
        scene.assert_quarantined_to_its_end(&["a"]).await;
    });
}

#[test]
fn a_strict_ask_that_finds_all_well_is_one_look_at_one_key_and_one_at_the_server() {
    play(async |scene| {
        let anna = scene.world.actor();
        // The first ask of a connection lifts the counter to the clock.
        granted(anna.ask(&key("a")).send().await);
        released(anna.release(&key("a")).await, Released::Freed);
        scene.server().command(&["CONFIG", "RESETSTAT"]);
        granted(anna.ask(&key("a")).send().await);
        let stats = scene.server().command(&["INFO", "commandstats"]).text();
        let counted = |line: &str| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.to_owned()))
        };
        let mut counted: Vec<_> = stats.lines().filter_map(counted).collect();
        let asides = ["config", "config|resetstat", "evalsha", "ping"];
        counted.retain(|(name, _)| !asides.contains(&&**name));
        counted.sort();
        let once = |name: &str| (name.to_owned(), "1".to_owned());
        assert_eq!(counted, ["exists", "hmget", "incr", "info", "pexpire", "set"].map(once));
    });
}
