//! The behaviour of go-zero's `RedisLock`.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::host::Host as _;
use leasehold::store::{MemoryStore, Quorum, RedisStore};
use leasehold_compat::gozero::RedisLock;
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, Request};

use crate::world::{World, ms, play};

async fn lock(world: &World, seconds: u32) -> RedisLock<RedisStore> {
    let lock = RedisLock::new_on(world.store().await, "job", world.host());
    lock.set_expire(seconds);
    lock
}

/// The holder of the key before the call.
#[derive(Clone, Copy, Debug)]
enum Before {
    Free,
    Mine,
    Anothers,
}

/// Makes a call in one of its two forms.
macro_rules! called {
    ($lock:expr, $call:ident, $call_within:ident, $by_timeout:expr) => {
        if $by_timeout {
            $lock.$call_within(Duration::from_secs(2)).await.expect("an answer")
        } else {
            $lock.$call().await.expect("an answer")
        }
    };
}

/// G1 and G2, and what they leave out: both calls in every state, with and without a timeout.
#[test]
fn g1_g2_acquire_and_release_answer_by_the_owner_of_the_key() {
    use Before::{Anothers, Free, Mine};
    // holder before, acquire (or release), answer, holder after
    let table = [
        (Free, true, true, Mine),
        (Mine, true, true, Mine),
        (Anothers, true, false, Anothers),
        (Free, false, false, Free),
        (Mine, false, true, Free),
        (Anothers, false, false, Anothers),
    ];
    for (before, acquires, expected, after) in table {
        for by_timeout in [false, true] {
            play(async |world| {
                let (mine, another) = (lock(world, 5).await, lock(world, 5).await);
                match before {
                    Free => {}
                    Mine => assert!(mine.acquire().await.expect("an answer")),
                    Anothers => assert!(another.acquire().await.expect("an answer")),
                }
                let stood_there = world.value("job");
                let answer = if acquires {
                    called!(mine, acquire, acquire_within, by_timeout)
                } else {
                    called!(mine, release, release_within, by_timeout)
                };
                let row = format!("{before:?} acquires {acquires} by timeout {by_timeout}");
                assert_eq!(answer, expected, "{row}");
                let stands_there = world.value("job");
                match after {
                    Free => assert_eq!(stands_there, None, "{row}"),
                    Mine => {
                        assert!(!another.release().await.expect("an answer"), "{row}");
                        assert!(mine.release().await.expect("an answer"), "{row}");
                    }
                    Anothers => {
                        assert_eq!(stands_there, stood_there, "{row}");
                        assert!(another.release().await.expect("an answer"), "{row}");
                    }
                }
            });
        }
    }
}

/// G1, G2: in the order of go-zero's test. That test also names both calls with a context, but
/// never makes them.
#[test]
fn g1_g2_one_after_the_other_has_it() {
    for by_timeout in [false, true] {
        play(async |world| {
            let (first, second) = (lock(world, 5).await, lock(world, 5).await);
            assert!(called!(first, acquire, acquire_within, by_timeout), "G1");
            assert!(!called!(second, acquire, acquire_within, by_timeout), "G1");
            assert!(called!(first, release, release_within, by_timeout), "G2");
            assert!(called!(second, acquire, acquire_within, by_timeout), "G2");
            assert!(!called!(first, release, release_within, by_timeout), "it is another's now");
        });
    }
}

/// G3 and G4: a context that has ended corresponds to a timeout that has elapsed.
#[test]
fn g3_g4_a_timeout_that_has_elapsed_is_an_error_and_asks_nothing() {
    play(async |world| {
        let mine = lock(world, 5).await;
        let error = mine.acquire_within(Duration::ZERO).await.expect_err("G3");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, Some("job")));
        assert_eq!(world.value("job"), None, "no request was sent");
        assert!(mine.acquire().await.expect("an answer"));
        let error = mine.release_within(Duration::ZERO).await.expect_err("G4");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(world.value("job").is_some(), "no request was sent");
    });
}

#[test]
fn the_key_lasts_for_the_seconds_and_half_a_second_more() {
    // seconds, lifetime in ms
    for (seconds, lasts) in
        [(None, 500), (Some(0), 500), (Some(5), 5_500), (Some(3_600), 3_600_500)]
    {
        play(async |world| {
            let mine = RedisLock::new_on(world.store().await, "job", world.host());
            if let Some(seconds) = seconds {
                mine.set_expire(seconds);
            }
            assert!(mine.acquire().await.expect("an answer"));
            assert_eq!(world.lasts("job"), lasts);
            world.pass(ms(lasts.unsigned_abs() - 1)).await;
            let another = lock(world, 1).await;
            assert!(!another.acquire().await.expect("an answer"), "a millisecond before");
            // Redis keeps a key for the whole of its last millisecond.
            world.pass(ms(2)).await;
            assert!(another.acquire().await.expect("an answer"), "it ended by itself");
            assert!(!mine.release().await.expect("an answer"), "it is not ours any more");
        });
    }
}

#[test]
fn acquiring_again_restarts_the_ttl_and_takes_an_ended_lock_anew() {
    play(async |world| {
        let mine = lock(world, 5).await;
        assert!(mine.acquire().await.expect("an answer"));
        let value = world.value("job");
        world.pass(ms(4_000)).await;
        assert_eq!(world.lasts("job"), 1_500);
        assert!(mine.acquire().await.expect("an answer"));
        assert_eq!(world.lasts("job"), 5_500);
        mine.set_expire(60);
        assert_eq!(world.lasts("job"), 5_500, "from the next time on");
        assert!(mine.acquire().await.expect("an answer"));
        assert_eq!(world.lasts("job"), 60_500);
        world.pass(ms(70_000)).await;
        assert_eq!(world.value("job"), None);
        assert!(mine.acquire().await.expect("an answer"), "without a word about the gap");
        assert_eq!(world.value("job"), value, "an object has one value for its life");
        assert!(mine.release().await.expect("an answer"), "and one release ends it");
        assert_eq!(world.value("job"), None);
    });
}

/// In go-zero, the ttl becomes the shorter one.
#[test]
fn acquiring_again_for_less_time_leaves_the_longer_ttl() {
    play(async |world| {
        let mine = lock(world, 60).await;
        assert!(mine.acquire().await.expect("an answer"));
        mine.set_expire(1);
        assert!(mine.acquire().await.expect("an answer"));
        assert_eq!(world.lasts("job"), 60_500);
    });
}

/// go-zero accepts a day and more, and a negative number means ages.
#[test]
fn a_ttl_beyond_a_day_and_a_bad_key_are_refused_before_anything_is_asked() {
    play(async |world| {
        let mine = lock(world, 86_400).await;
        let error = mine.acquire().await.expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(world.value("job"), None);
        mine.set_expire(86_399);
        assert!(mine.acquire().await.expect("an answer"), "the longest");
        for name in ["", "a\nb", "a:lh:fence"] {
            let bad = RedisLock::new_on(world.store().await, name, world.host());
            assert_eq!(bad.acquire().await.expect_err("a bad name").kind(), ErrorKind::Config);
            assert_eq!(bad.release().await.expect_err("a bad name").kind(), ErrorKind::Config);
        }
    });
}

/// The same with a key that is not a string: an error, and not *taken*.
#[test]
fn a_key_of_another_type_is_an_error_and_stays() {
    play(async |world| {
        world.tell(&["HSET", "job", "field", "value"]);
        let mine = lock(world, 5).await;
        let error = mine.acquire().await.expect_err("no lock");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        mine.release().await.expect_err("no lock");
        assert_eq!(world.tell(&["TYPE", "job"]).text(), "hash");
    });
}

/// In go-zero, a server that lost its data grants what another client may still rely on.
#[test]
fn a_strict_server_that_may_have_forgotten_is_an_error_and_not_another_holder() {
    play(async |world| {
        let store = world.store_by("?strict=yes").await;
        let mine = RedisLock::new_on(store, "job", world.host());
        mine.set_expire(5);
        let error = mine.acquire().await.expect_err("it may have been granted before");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, Some("job")));
        assert_eq!(
            error.to_string(),
            "`job`: the store is new, was restarted, or forgot its data (noticed 0 s ago); \
             no new locks for 65 s more; nothing was granted; try again then"
        );
        assert_eq!(world.value("job"), None);
        world.pass(ms(65_001)).await;
        assert!(mine.acquire().await.expect("an answer"));
        world.tell(&["DEL", ":lh:epoch"]);
        assert!(mine.acquire().await.expect("an answer"), "the known holder goes on");
        let another = RedisLock::new_on(world.store_by("?strict=yes").await, "job", world.host());
        assert!(!another.acquire().await.expect("an answer"), "and this is taken");
        assert!(mine.release().await.expect("an answer"));
        let error = another.acquire().await.expect_err("it forgot something");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    });
}

/// X6: the reply is lost. Asking again finds that the key is ours, and not another's.
#[test]
fn a_lost_answer_is_repaired_by_asking_again() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let store = faults.decorate(MemoryStore::new(host.clone()));
        let mine = RedisLock::new_on(store, "job", host.clone());
        mine.set_expire(5);
        faults.next(Request::Acquire, Fault::LoseReply);
        let error = mine.acquire().await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(mine.acquire().await.expect("an answer"), "ours, and no orphan");
        faults.next(Request::Release, Fault::LoseReply);
        mine.release().await.expect_err("no answer");
        assert!(!mine.release().await.expect("an answer"), "it is free already");
    });
}

#[test]
fn a_timeout_ends_the_wait_for_an_answer_that_does_not_come() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let store = faults.decorate(MemoryStore::new(host.clone()));
        let mine = RedisLock::new_on(store, "job", host.clone());
        mine.set_expire(5);
        faults.next(Request::Acquire, Fault::Late(ms(500)));
        let began = host.now();
        let error = mine.acquire_within(ms(100)).await.expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert_eq!(host.now().since(began), ms(100));
        assert!(mine.acquire_within(ms(100)).await.expect("an answer"), "it was ours anyway");
        faults.next(Request::Release, Fault::Late(ms(500)));
        let error = mine.release_within(ms(100)).await.expect_err("too late");
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(!mine.release_within(ms(100)).await.expect("an answer"), "free anyway");
    });
}

/// X13: scripts that the server forgot are sent again.
#[test]
fn a_server_that_forgets_scripts_is_told_them_again() {
    play(async |world| {
        let mine = lock(world, 5).await;
        for _ in 0..3 {
            for _ in 0..2 {
                assert!(mine.acquire().await.expect("an answer"));
                world.tell(&["SCRIPT", "FLUSH"]);
            }
            assert!(mine.release().await.expect("an answer"));
            world.tell(&["SCRIPT", "FLUSH"]);
        }
    });
}

#[test]
fn its_value_is_not_shown() {
    play(async |world| {
        let mine = lock(world, 5).await;
        assert!(mine.acquire().await.expect("an answer"));
        let shown = format!("{mine:?}");
        let value = world.value("job").expect("it is held");
        assert!(shown.contains("job") && !shown.contains(&value), "{shown}");
    });
}

/// A quorum releases late grants of a node in the background. That would end a lock with the same
/// value that was granted meanwhile.
#[test]
fn a_quorum_is_refused_before_anything_is_asked() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let nodes = (0..3).map(|_| faults.decorate(MemoryStore::new(host.clone())));
        let quorum = Quorum::connect(nodes, host.clone()).await.expect("all are there");
        let asked = || [Request::Acquire, Request::Release].map(|request| faults.count(request));
        let before = asked();
        let mine = RedisLock::new_on(quorum, "job", host.clone());
        for error in [
            mine.acquire().await.expect_err("a quorum"),
            mine.acquire_within(ms(100)).await.expect_err("a quorum"),
            mine.release().await.expect_err("a quorum"),
        ] {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("job")));
            assert!(error.to_string().contains("use `redsync`"), "{error}");
        }
        assert_eq!(asked(), before);
    });
}

/// A grant without enough copies is released, and that release may come late.
#[test]
fn a_store_with_copies_is_refused_before_anything_is_asked() {
    play(async |world| {
        let store = world.store_by("?replicas=1").await;
        let mine = RedisLock::new_on(store, "job", world.host());
        let error = mine.acquire().await.expect_err("it gives back");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("job")));
        assert!(error.to_string().contains("one with copies"), "{error}");
        assert_eq!(world.value("job"), None);
    });
}
