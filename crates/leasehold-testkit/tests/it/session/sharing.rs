//! Readers and writers: `RwLock`, as clients see it.

use leasehold::host::Host;
use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{TOLD, ms, play, play_on};
use crate::stores;

/// This holds within one client and between clients.
#[test]
fn readers_hold_a_lock_together_and_a_writer_holds_it_alone() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let (lock, others) = (client.rwlock("a"), other.rwlock("a"));
        let readers = [lock.read().await, lock.read().await, others.read().await];
        let readers = readers.map(|reader| reader.expect("readers share it"));
        assert!(readers.iter().all(|reader| reader.fencing_token().is_none()));
        assert!(others.try_write().await.expect("asked").is_none());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it is a writer");
        for reader in readers {
            assert_eq!(reader.release().await.expect("asked"), Release::Released);
        }
        let writer = lock.write().await.expect("free");
        assert!(writer.fencing_token().is_some());
        assert!(lock.try_read().await.expect("asked").is_none());
        assert!(others.try_read().await.expect("asked").is_none());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
    });
}

#[test]
fn the_settings_of_a_lock_are_those_of_its_readers_and_of_its_writers() {
    play(0..2, async |scene| {
        let client = scene.client().await;
        let lock = client.rwlock("a").ttl(ms(600)).why("a report").fencing(false);
        for writes in [false, true] {
            let guard = if writes { lock.write().await } else { lock.read().await };
            let guard = guard.expect("free");
            assert!(guard.remaining() <= ms(600), "{writes}: {:?}", guard.remaining());
            assert_eq!(guard.fencing_token(), None, "{writes}");
            let seen = client.inspect("a").await.expect("asked");
            assert_eq!(seen.holders[0].why.as_deref(), Some("a report"), "{writes}");
            assert_eq!(guard.release().await.expect("asked"), Release::Released);
        }
    });
}

/// Readers that keep coming must not starve the writer.
#[test]
fn a_writer_waits_for_the_readers_before_it_and_for_no_others() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let first = client.rwlock("a").read().await.expect("free");
        let lock = other.rwlock("a");
        let writing = scene.host.task(async move { lock.write().await.expect("in turn") });
        scene.pass(ms(50)).await;
        let lock = client.rwlock("a");
        assert!(lock.try_read().await.expect("asked").is_none(), "a writer waits");
        let reading = scene.host.task(async move { lock.read().await.expect("in turn") });
        scene.pass(ms(50)).await;
        assert!(!reading.is_finished() && !writing.is_finished());
        drop(first);
        let writer = scene.host.within(ms(1_000), writing).await.expect("it is its turn");
        assert!(!reading.is_finished());
        drop(writer);
        assert!(scene.host.within(ms(1_000), reading).await.expect("its turn").is_held());
    });
}

/// Each writer has its own place, as readers do. Without fencing tokens, a client that passes a
/// lease on asks no store.
#[test]
fn writers_of_one_client_pass_no_reader_that_came_before_them() {
    for (is_ours, counts) in [(true, true), (true, false), (false, true), (false, false)] {
        play(0..3, async |scene| {
            let (client, other) = (scene.client().await, scene.calm_client().await);
            let lock = |client: &Client| client.rwlock("a").fencing(counts);
            let writer = lock(&client).write().await.expect("free");
            let readers = lock(if is_ours { &client } else { &other });
            let reading = scene.host.task(async move { readers.read().await.expect("in turn") });
            scene.host.settle().await;
            let writers = lock(&client);
            let writing = scene.host.task(async move { writers.write().await.expect("in turn") });
            scene.host.settle().await;
            drop(writer);
            let reader = scene.host.within(ms(100), reading).await.expect("its turn");
            assert!(!writing.is_finished(), "the reader came before");
            drop(reader);
            assert!(scene.host.within(ms(1_000), writing).await.expect("its turn").is_held());
        });
    }
}

/// Readers get the lock by a message, and not at their next ask.
#[test]
fn readers_that_wait_in_a_row_get_the_lock_together() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let writer = client.rwlock("a").write().await.expect("free");
        let read = || {
            let lock = other.rwlock("a");
            scene.host.task(async move { lock.read().await.expect("in turn") })
        };
        let reading = [read(), read(), read()];
        scene.pass(ms(100)).await;
        drop(writer);
        let mut readers = Vec::new();
        for reader in reading {
            readers.push(scene.host.within(ms(100), reader).await.expect("all at once"));
        }
        assert!(readers.iter().all(leasehold::Guard::is_held));
    });
}

/// The driver renews each of them.
#[test]
fn leases_of_readers_outlive_their_ttl() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client_of(ms(300)).await, scene.calm_client().await);
        let readers = [client.rwlock("a").read().await, client.rwlock("a").read().await];
        let readers = readers.map(|reader| reader.expect("free"));
        for _ in 0..10 {
            scene.pass(ms(200)).await;
            assert!(readers.iter().all(leasehold::Guard::is_held));
            assert!(other.rwlock("a").try_write().await.expect("asked").is_none());
        }
        drop(readers);
        scene.pass(ms(10)).await;
        assert!(other.rwlock("a").try_write().await.expect("asked").is_some());
    });
}

/// Only one reader's client is cut off. The other readers go on.
#[test]
fn a_reader_that_cannot_renew_knows_it_before_a_writer_comes() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let sent = scene.host.now();
        let reader = client.rwlock("a").read().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let lost = scene.host.task(reader.lost());
        let lock = other.rwlock("a");
        let writing = scene.host.task(async move { lock.write().await.expect("in turn") });
        scene.host.advance((sent + TOLD).since(scene.host.now())).await;
        assert!(lost.is_finished(), "it is told in time");
        assert!(!reader.is_held());
        scene.faults.end_outage();
        assert!(scene.host.within(ms(2_000), writing).await.expect("it ran out").is_held());
    });
}

/// No other writer comes in between, and readers come in at once.
#[test]
fn a_writer_becomes_a_reader_without_a_gap() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let lock = client.rwlock("a");
        let writer = lock.write().await.expect("free");
        let (token, others) = (writer.token().clone(), other.rwlock("a"));
        let reading = scene.host.task(async move { others.read().await.expect("in turn") });
        scene.pass(ms(50)).await;
        let reader = lock.downgrade(writer).await.expect("asked");
        assert!(reader.is_held() && *reader.token() != token && reader.fencing_token().is_none());
        assert!(scene.host.within(ms(100), reading).await.expect("at once").is_held());
        assert!(other.rwlock("a").try_write().await.expect("asked").is_none());
        scene.pass(ms(10_000)).await;
        assert!(reader.is_held(), "it is renewed");
    });
}

/// The caller then holds nothing, and others wait no longer than for an answer.
#[test]
fn a_downgrade_whose_answer_is_lost_frees_the_lock() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client_of(ms(10_000)).await, scene.calm_client().await);
        for fault in [Fault::LoseReply, Fault::LoseRequest] {
            let lock = client.rwlock("a");
            let writer = lock.write().await.expect("free");
            scene.faults.next(Request::Release, fault);
            let error = lock.downgrade(writer).await.expect_err("no answer");
            assert_eq!(error.kind(), ErrorKind::Unknown);
            let others = other.rwlock("a");
            let writing = scene.host.task(async move { others.write().await.expect("in turn") });
            let writer = scene.host.within(ms(2_000), writing).await;
            drop(writer.expect("both leases are released"));
            scene.pass(ms(10)).await;
        }
    });
}

#[test]
fn a_downgrade_whose_answer_comes_too_late_is_lost_by_time_and_not_by_the_store() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let lock = client.rwlock("a");
        let writer = lock.write().await.expect("free");
        scene.faults.next(Request::Release, Fault::Late(ms(2_500)));
        let error = lock.downgrade(writer).await.expect_err("too late to use");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Lost, Some("a")));
        assert!(error.to_string().contains("its validity ended"), "{error}");
        scene.pass(ms(100)).await;
        assert!(other.rwlock("a").try_write().await.expect("asked").is_some(), "released");
    });
}

/// The lock is released, even if the request had no effect.
#[test]
fn a_downgrade_that_is_dropped_frees_the_lock() {
    play(0..3, async |scene| {
        let (client, other) = (scene.client_of(ms(10_000)).await, scene.calm_client().await);
        let lock = client.rwlock("a");
        let writer = lock.write().await.expect("free");
        scene.faults.next(Request::Release, Fault::Late(ms(50)));
        assert!(scene.host.within(ms(10), lock.downgrade(writer)).await.is_none());
        scene.pass(ms(100)).await;
        assert!(other.rwlock("a").try_write().await.expect("asked").is_some());
    });
}

/// Such a mistake must not leave a lock behind.
#[test]
fn a_guard_of_another_lock_is_not_downgraded() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let guard = client.rwlock("b").write().await.expect("free");
        let error = client.rwlock("a").downgrade(guard).await.expect_err("another lock");
        assert_eq!(error.kind(), ErrorKind::Config);
        scene.pass(ms(10)).await;
        assert!(client.rwlock("b").try_write().await.expect("asked").is_some());
        let reader = client.rwlock("a").read().await.expect("free");
        let error = client.rwlock("a").downgrade(reader).await.expect_err("a reader");
        assert_eq!(error.kind(), ErrorKind::Config);
        // The other client may use another store, which would not know of this lock.
        let writer = client.rwlock("b").write().await.expect("free");
        let other = scene.calm_client().await;
        let error = other.rwlock("b").downgrade(writer).await.expect_err("another client");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("b")));
    });
}

/// Two readers that both waited for that would wait for ever.
#[test]
fn a_reader_that_wants_to_write_is_told_why_it_cannot() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let lock = client.rwlock("a");
        let readers = [lock.read().await, lock.read().await].map(|reader| reader.expect("free"));
        for reader in &readers {
            let error = lock.upgrade(reader).expect_err("never");
            assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("a")));
            assert!(error.to_string().contains("wait for each other"), "{error}");
            assert!(reader.is_held());
        }
        assert!(lock.try_write().await.expect("asked").is_none(), "they are still in the way");
        let held = lock.upgrade(&readers[0]).expect_err("never").to_string();
        assert!(held.contains("still has the lock"), "{held}");
        scene.host.suspend(ms(3_000));
        let lost = lock.upgrade(&readers[0]).expect_err("never").to_string();
        assert!(lost.contains("has lost the lock"), "{lost}");
    });
}

/// It promises no shared keys, and does not imitate them.
#[test]
fn a_store_that_shares_no_keys_says_so() {
    for setup in [stores::strict, stores::copies, stores::quorum] {
        play_on(setup, 0, async |scene| {
            let client = scene.calm_client().await;
            for error in [
                client.rwlock("a").read().await.expect_err("not promised"),
                client.semaphore("b", 2).acquire().await.expect_err("not promised"),
                client.semaphore("b", 2).resize(3).await.expect_err("not promised"),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
            assert!(client.rwlock("a").write().await.expect("as a mutex").is_held());
        });
    }
}
