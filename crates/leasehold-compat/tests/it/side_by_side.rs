//! All locks on one key, together with Leasehold's own clients.

use leasehold::Coexist;
use leasehold_compat::gozero::RedisLock;
use leasehold_compat::jedis::RedisDistributedLock;

use crate::inside::Inside;
use crate::world::{World, ms, play, raw};

#[test]
fn a_release_wakes_a_waiter_of_leaseholds_mutex() {
    play(async |world| {
        let client = world.client().await;
        let lock = RedisLock::new_on(world.store().await, "a", world.host());
        lock.set_expire(60);
        for coexists in [false, true] {
            assert!(lock.acquire().await.expect("an answer"));
            let mutex = client.mutex("a");
            let mutex = if coexists { mutex.coexist(Coexist::On) } else { mutex };
            let waiting = world.host.task(async move { mutex.lock().await.expect("in turn") });
            world.pass(ms(350)).await;
            assert!(!waiting.is_finished());
            assert!(lock.release().await.expect("an answer"));
            // With `coexist`, a waiter leaves the key alone for a while.
            world.pass(ms(if coexists { 10 } else { 0 })).await;
            assert!(waiting.is_finished(), "woken, not found by a poll");
            let guard = waiting.await;
            assert!(!lock.acquire().await.expect("an answer"), "it is the mutex's");
            let _released = guard.release().await.expect("asked");
        }
    });
}

async fn with_mutex(world: &World, inside: &Inside) {
    let mutex = world.client().await.mutex("a").coexist(Coexist::On);
    let (host, inside) = (world.host.clone(), inside.clone());
    let _goes_on = world.host.task(async move {
        loop {
            let guard = mutex.lock().await.expect("in turn");
            inside.enter(0);
            host.advance(ms(3)).await;
            inside.leave();
            let _released = guard.release().await.expect("asked");
        }
    });
}

async fn with_gozero(world: &World, inside: &Inside) {
    let lock = RedisLock::new_on(world.store().await, "a", world.host());
    lock.set_expire(5);
    let (host, inside) = (world.host.clone(), inside.clone());
    let _goes_on = world.host.task(async move {
        loop {
            if lock.acquire().await.expect("an answer") {
                inside.enter(1);
                host.advance(ms(3)).await;
                inside.leave();
                assert!(lock.release().await.expect("an answer"));
            }
            host.advance(ms(4)).await;
        }
    });
}

async fn with_jedis(world: &World, inside: &Inside) {
    let lock = RedisDistributedLock::new_on(world.store().await, "a", world.host());
    let (host, inside) = (world.host.clone(), inside.clone());
    let _goes_on = world.host.task(async move {
        loop {
            if let Some(value) = lock.lock().await.expect("an answer") {
                inside.enter(2);
                host.advance(ms(3)).await;
                inside.leave();
                assert!(lock.release(&value).await.expect("an answer"));
            }
            host.advance(ms(4)).await;
        }
    });
}

/// X0: no two participants are ever inside together, and each has its turns.
#[test]
fn all_of_them_and_the_recipe_itself_take_turns_on_one_key() {
    play(async |world| {
        let inside = Inside::of(4);
        for _ in 0..2 {
            with_mutex(world, &inside).await;
            with_gozero(world, &inside).await;
            with_jedis(world, &inside).await;
        }
        for _ in 0..400 {
            if raw::takes(world, "a", "theirs", 5_000) {
                inside.enter(3);
                world.pass(ms(3)).await;
                inside.leave();
                assert!(raw::releases(world, "a", "theirs"));
            }
            world.pass(ms(5)).await;
        }
        inside.assert_shared();
    });
}
