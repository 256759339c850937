//! A held lock stays held until the program ends it.

use leasehold::store::Hint;
use leasehold::{ErrorKind, Key, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play, play_on};
use crate::stores;

/// The duration of the work does not matter.
#[test]
fn a_lock_is_held_for_as_long_as_its_guard_lives() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.delay_up_to(ms(200));
        let guard = client.mutex("a").lock().await.expect("free");
        for _ in 0..30 {
            scene.pass(ms(1_000)).await;
            assert!(guard.is_held());
            assert!(guard.remaining() >= ms(1_000 - 32), "{:?}", guard.remaining());
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        }
        assert!(scene.faults.count(Request::Renew) <= 31, "a third of the ttl apart");
    });
}

/// The guard keeps the parts of the client alive that it needs.
#[test]
fn a_guard_outlives_the_last_client() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        drop(client);
        scene.pass(ms(20_000)).await;
        assert!(guard.is_held());
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        drop(guard);
        scene.host.settle().await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// A process with the token may go on with the lease.
#[test]
fn a_detached_lease_is_renewed_no_more_and_goes_on_by_its_token() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let token = client.mutex("a").lock().await.expect("free").detach();
        let renewals = scene.faults.count(Request::Renew);
        scene.pass(ms(2_900)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        let lease = other.lease("a", token);
        lease.renew(ms(20_000)).await.expect("it is still held");
        scene.pass(ms(19_900)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(scene.faults.count(Request::Renew), renewals, "not by the first client");
        assert_eq!(lease.release().await.expect("asked"), Release::Released);
        assert_eq!(lease.release().await.expect("asked"), Release::NotHeld);
        assert_eq!(lease.renew(ms(1_000)).await.expect_err("gone").kind(), ErrorKind::Lost);
    });
}

/// The lease belongs to another process now, so this client must not release it.
#[test]
fn a_late_hint_ends_no_detached_lease_however_many_were_detached_after_it() {
    play_on(stores::memory, 1, async |scene: &Scene| {
        let client = scene.client_of(ms(120_000)).await;
        let detach = async |name: String| client.mutex(name).lock().await.expect("free").detach();
        let owner = detach("first".to_owned()).await;
        for number in 0..2_000 {
            let _token = detach(format!("key {number}")).await;
        }
        scene.pass(ms(58_000)).await;
        let _token = detach("last".to_owned()).await;
        let key = Key::new("first").expect("a name");
        scene.faults.forge(&Hint::Granted { key, owner, fencing: None, ask_no: 1 });
        scene.pass(ms(50)).await;
        assert_eq!(client.inspect("first").await.expect("asked").holders.len(), 1);
    });
}

/// Without renewals, the lease expires.
#[test]
fn a_detached_lease_that_nobody_renews_is_free_after_its_ttl() {
    play(0..5, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _token = client.mutex("a").lock().await.expect("free").detach();
        scene.pass(ms(3_001)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// Other lock recipes use a re-entrant acquire for this.
#[test]
fn renewing_by_hand_restarts_the_ttl() {
    play(0..5, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.pass(ms(900)).await;
        let before = guard.remaining();
        guard.renew().await.expect("held");
        assert!(guard.remaining() > before + ms(800));
        assert_eq!(client.inspect("a").await.expect("asked").holders.len(), 1);
    });
}

/// A drop needs no runtime of the user.
#[test]
fn a_guard_is_dropped_without_any_runtime() {
    for &setup in super::stores_here() {
        play_on(setup, 1, async |scene| {
            let client = scene.client().await;
            let guard = client.mutex("a").lock().await.expect("free");
            // Drop the guard on a thread without any executor.
            std::thread::scope(|scope| {
                scope.spawn(move || drop(guard)).join().expect("dropping never panics");
            });
            assert!(client.mutex("a").try_lock().await.expect("asked").is_some());
        });
    }
}

/// One driver serves all leases, and it ends when there is nothing to do.
#[test]
fn the_driver_goes_when_nothing_is_held_and_comes_back() {
    play_on(stores::memory, 1, async |scene: &Scene| {
        let client = scene.client().await;
        for _ in 0..3 {
            let guards: Vec<_> = {
                let mut guards = Vec::new();
                for number in 0..10 {
                    guards.push(client.mutex(format!("key {number}")).lock().await.expect("free"));
                }
                guards
            };
            scene.pass(ms(5_000)).await;
            assert!(guards.iter().all(leasehold::Guard::is_held));
            assert_eq!(scene.host.tasks(), 1, "the driver");
            drop(guards);
            scene.pass(ms(5_000)).await;
            assert_eq!(scene.host.tasks(), 0);
        }
    });
}

/// The store keeps the lease for the ttl and the lock delay, and the client tries for as long.
#[test]
fn a_lease_with_a_lock_delay_is_released_after_an_outage_that_is_longer_than_its_ttl() {
    let cases = super::stores_here().iter().flat_map(|setup| [(true, *setup), (false, *setup)]);
    for (has_guard, setup) in cases {
        play_on(setup, 0, async |scene: &Scene| {
            let client = scene.client_with_delay(ms(60_000)).await;
            let other = scene.calm_client().await;
            let mutex = client.mutex("a");
            if has_guard {
                let guard = mutex.lock().await.expect("free");
                scene.faults.all_from_now_on(Fault::Refuse);
                drop(guard);
            } else {
                // The store grants the lease, and the client does not know.
                scene.faults.next(Request::Acquire, Fault::LoseReply);
                scene.faults.from_now_on(Request::Release, Fault::Refuse);
                let trying = scene.host.within(ms(10), mutex.try_lock()).await;
                assert!(trying.is_none(), "its future is dropped before an answer");
            }
            scene.pass(ms(10_000)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "{has_guard}");
            scene.faults.heal();
            scene.pass(ms(2_000)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "{has_guard}");
        });
    }
}

/// The program ends after the shutdown, and the store would keep the lock for the whole delay.
#[test]
fn a_shutdown_waits_for_a_lost_guard_whose_lock_stays_taken() {
    play(0..3, async |scene| {
        let client = scene.client_with_delay(ms(60_000)).await;
        let other = scene.calm_client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::Refuse);
        guard.lost().await;
        scene.faults.heal();
        // A future of the guard may outlive it.
        let revoked = guard.revoked();
        let ending = scene.host.task(async move { client.shutdown(ms(5_000)).await });
        scene.pass(ms(1_000)).await;
        assert!(!ending.is_finished(), "the guard is still there");
        drop(guard);
        scene.pass(ms(1_000)).await;
        assert!(ending.is_finished(), "the guard has ended");
        assert_eq!(ending.await.not_released, 0);
        drop(revoked);
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// After a pause of its process, a holder may be in the middle of a write.
#[test]
fn a_lost_lock_stays_taken_for_its_delay_until_its_guard_ends() {
    for ends_early in [false, true] {
        play(0..3, async |scene| {
            let client = scene.client_with_delay(ms(2_000)).await;
            let other = scene.calm_client().await;
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.all_from_now_on(Fault::Refuse);
            guard.lost().await;
            scene.faults.heal();
            let is_free = async || other.mutex("a").try_lock().await.expect("asked").is_some();
            scene.pass(ms(1_000)).await;
            assert!(!is_free().await, "the guard is still there");
            if ends_early {
                drop(guard);
                scene.pass(ms(50)).await;
            } else {
                scene.pass(ms(900)).await;
                assert!(!is_free().await, "the delay goes on");
                scene.pass(ms(250)).await;
            }
            assert!(is_free().await, "{ends_early}");
        });
    }
}

/// The store keeps the key for the lock delay, but the holder must not rely on that.
#[test]
fn a_lock_delay_keeps_the_key_for_longer_than_its_holder_holds_it() {
    for held_for in [ms(0), ms(10_000)] {
        play(0..3, async |scene| {
            let client = scene.client_with_delay(ms(2_000)).await;
            let other = scene.calm_client().await;
            let guard = client.mutex("a").lock().await.expect("free");
            scene.pass(held_for).await;
            scene.faults.all_from_now_on(Fault::Refuse);
            guard.lost().await;
            scene.pass(ms(2_000)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "{held_for:?}");
            scene.pass(ms(40)).await;
            assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "{held_for:?}");
        });
    }
}
