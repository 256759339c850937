//! The behaviour of the Jedis recipe.

use leasehold::ErrorKind;
use leasehold::host::Host as _;
use leasehold::store::{MemoryStore, Quorum, RedisStore};
use leasehold_compat::jedis::RedisDistributedLock;
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, Request};

use crate::world::{World, ms, play, raw};

async fn lock(world: &World) -> RedisDistributedLock<RedisStore> {
    RedisDistributedLock::new_on(world.store().await, "stock", world.host())
}

#[test]
fn a_free_key_is_locked_at_once_for_five_seconds_by_a_value_of_its_own() {
    play(async |world| {
        let lock = lock(world).await;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let began = world.host.now();
            let value = lock.lock().await.expect("an answer").expect("it is free");
            assert_eq!(world.host.now(), began);
            assert_eq!(world.value("stock").as_ref(), Some(&value));
            assert_eq!(world.lasts("stock"), 5_000);
            assert!(lock.release(&value).await.expect("an answer"));
            assert_eq!(world.value("stock"), None);
            assert!(!seen.contains(&value), "every call is an owner of its own");
            seen.push(value);
        }
    });
}

#[test]
fn a_key_of_another_is_tried_every_10_ms_for_a_second_and_no_longer() {
    play(async |world| {
        let (one, other) = (lock(world).await, lock(world).await);
        let value = one.lock().await.expect("an answer").expect("it is free");
        let began = world.host.now();
        assert_eq!(other.lock().await.expect("an answer"), None);
        assert_eq!(world.host.now().since(began), ms(1_000));
        assert_eq!(world.value("stock"), Some(value), "its owner keeps it");
        assert_eq!(world.lasts("stock"), 4_000, "and is not made longer");
        assert_eq!(one.lock().await.expect("an answer"), None, "not even for its holder");
    });
}

#[test]
fn a_waiter_gets_the_lock_within_10_ms_of_its_release() {
    play(async |world| {
        let (one, other) = (lock(world).await, lock(world).await);
        let value = one.lock().await.expect("an answer").expect("it is free");
        let waiting = world.host.task(async move { other.lock().await });
        world.pass(ms(333)).await;
        assert!(!waiting.is_finished());
        assert!(one.release(&value).await.expect("an answer"));
        world.pass(ms(10)).await;
        assert!(waiting.is_finished());
        let taken = waiting.await.expect("an answer").expect("it was free");
        assert_ne!(taken, value);
    });
}

#[test]
fn a_key_that_expires_goes_to_the_next_owner_and_stays_there() {
    play(async |world| {
        let (one, other) = (lock(world).await, lock(world).await);
        let late = one.lock().await.expect("an answer").expect("it is free");
        world.pass(ms(4_500)).await;
        let value = other.lock().await.expect("an answer").expect("within its second");
        assert!(!one.release(&late).await.expect("an answer"));
        assert_eq!(world.value("stock"), Some(value));
    });
}

/// X11: whole values are compared.
#[test]
fn only_the_very_value_releases() {
    play(async |world| {
        let lock = lock(world).await;
        let value = lock.lock().await.expect("an answer").expect("it is free");
        let upper = value.to_uppercase();
        for other in [&value[..35], &format!("{value}0"), &upper, "", "no value of ours", "\u{e9}"]
        {
            assert!(!lock.release(other).await.expect("an answer"), "{other:?}");
        }
        assert_eq!(world.value("stock").as_ref(), Some(&value));
        assert!(lock.release(&value).await.expect("an answer"));
        assert!(!lock.release(&value).await.expect("an answer"), "once");
    });
}

/// X5: nobody would know the value, so nobody could release it.
#[test]
fn a_dropped_call_leaves_no_key_behind() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let store = MemoryStore::new(host.clone());
        let other = RedisDistributedLock::new_on(store.clone(), "stock", host.clone());
        let lock = RedisDistributedLock::new_on(faults.decorate(store), "stock", host.clone());
        faults.next(Request::Acquire, Fault::Late(ms(500)));
        {
            let mut locking = std::pin::pin!(lock.lock());
            std::future::poll_fn(|context| {
                assert!(locking.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            let began = host.now();
            assert_eq!(other.lock().await.expect("an answer"), None, "granted, and not told yet");
            assert_eq!(host.now().since(began), ms(1_000));
        }
        let began = host.now();
        assert!(other.lock().await.expect("an answer").is_some());
        assert_eq!(host.now(), began, "given back at once");
    });
}

#[test]
fn a_lost_answer_is_an_error_and_leaves_no_key_behind() {
    let host = VirtualHost::new(1);
    host.run(async {
        let faults = Faults::new(host.clone());
        let store = faults.decorate(MemoryStore::new(host.clone()));
        let lock = RedisDistributedLock::new_on(store, "stock", host.clone());
        faults.next(Request::Acquire, Fault::LoseReply);
        let error = lock.lock().await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown);
        let began = host.now();
        assert!(lock.lock().await.expect("an answer").is_some());
        assert_eq!(host.now(), began, "given back at once");
    });
}

#[test]
fn a_bad_key_is_refused_before_anything_is_asked() {
    play(async |world| {
        let lock = RedisDistributedLock::new_on(world.store().await, "", world.host());
        assert_eq!(lock.lock().await.expect_err("a bad name").kind(), ErrorKind::Config);
        assert_eq!(lock.release("x").await.expect_err("a bad name").kind(), ErrorKind::Config);
    });
}

#[test]
fn the_recipe_of_another_client_is_waited_for() {
    play(async |world| {
        assert!(raw::takes(world, "stock", "theirs", 300));
        let lock = lock(world).await;
        let began = world.host.now();
        let value = lock.lock().await.expect("an answer").expect("within its second");
        let waited = world.host.now().since(began);
        assert!((ms(300)..=ms(310)).contains(&waited), "{waited:?}");
        assert!(!raw::takes(world, "stock", "theirs", 300));
        assert!(!raw::releases(world, "stock", "theirs"), "it ended before");
        assert!(lock.release(&value).await.expect("an answer"));
        assert!(raw::takes(world, "stock", "theirs", 300));
    });
}

#[test]
fn a_strict_server_that_may_have_forgotten_is_an_error_at_once() {
    play(async |world| {
        let store = world.store_by("?strict=yes").await;
        let lock = RedisDistributedLock::new_on(store, "stock", world.host());
        let began = world.host.now();
        let error = lock.lock().await.expect_err("it may have been granted before");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(world.host.now(), began);
        world.pass(ms(65_001)).await;
        assert!(lock.lock().await.expect("an answer").is_some());
    });
}

#[test]
fn a_quorum_is_refused() {
    let host = VirtualHost::new(1);
    host.run(async {
        let nodes = (0..3).map(|_| MemoryStore::new(host.clone()));
        let quorum = Quorum::connect(nodes, host.clone()).await.expect("all are there");
        let lock = RedisDistributedLock::new_on(quorum, "stock", host.clone());
        assert_eq!(lock.lock().await.expect_err("a quorum").kind(), ErrorKind::Config);
        assert_eq!(lock.release("x").await.expect_err("a quorum").kind(), ErrorKind::Config);
    });
}
