//! Locks that stay taken for some time after each grant.

use leasehold::host::Host;
use leasehold::store::Hint;
use leasehold::{Client, ErrorKind, Key, Mutex, Release};
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play, play_on};
use crate::stores;

const INTERVAL: std::time::Duration = ms(10_000);

fn mail(client: &Client) -> Mutex {
    client.mutex("mail").min_hold(INTERVAL)
}

#[test]
fn grants_are_an_interval_apart_however_the_guards_end() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let mut granted = Vec::new();
        let guard = mail(&ours).lock().await.expect("free");
        granted.push(scene.host.now());
        let mut tasks = Vec::new();
        // Two of the tasks belong to the holder's own client, which would pass a lease on to them.
        for client in [&ours, &ours, &other] {
            let (mutex, host) = (mail(client), scene.host.clone());
            tasks.push(scene.host.task(async move {
                let guard = mutex.lock().await.expect("in its turn");
                let at = host.now();
                drop(guard);
                at
            }));
            scene.pass(ms(10)).await;
        }
        assert_eq!(guard.release().await.expect("confirmed"), Release::Released);
        for task in tasks {
            granted.push(task.await);
        }
        for pair in granted.windows(2) {
            let apart = pair[1].since(pair[0]);
            assert!((INTERVAL..INTERVAL + ms(2_000)).contains(&apart), "{granted:?}");
        }
    });
}

#[test]
fn a_lock_that_was_held_for_longer_is_free_at_once() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = mail(&ours).lock().await.expect("free");
        scene.pass(INTERVAL + ms(1)).await;
        assert_eq!(guard.release().await.expect("confirmed"), Release::Released);
        assert!(mail(&other).try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn a_guard_that_keeps_its_lock_for_less_keeps_it_for_the_interval() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = mail(&ours).lock().await.expect("free");
        let began = scene.host.now();
        guard.keep_for(ms(4_000)).await.expect("confirmed");
        drop(mail(&other).lock().await.expect("in its turn"));
        let apart = scene.host.now().since(began);
        assert!((INTERVAL..INTERVAL + ms(2_000)).contains(&apart), "{apart:?}");
    });
}

#[test]
fn a_writer_that_becomes_a_reader_keeps_the_lock_for_another_interval() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let writer = mail(&ours).lock().await.expect("free");
        scene.pass(INTERVAL / 2).await;
        let reader = ours.rwlock("mail").downgrade(writer).await.expect("asked");
        let began = scene.host.now();
        assert_eq!(reader.release().await.expect("confirmed"), Release::Released);
        drop(mail(&other).lock().await.expect("in its turn"));
        let apart = scene.host.now().since(began);
        assert!((INTERVAL..INTERVAL + ms(2_000)).contains(&apart), "{apart:?}");
    });
}

/// A quorum has no readers.
#[test]
fn a_writer_that_cannot_become_a_reader_leaves_the_lock_taken_for_the_interval() {
    play_on(stores::quorum, 0, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let writer = mail(&ours).lock().await.expect("free");
        let began = scene.host.now();
        let refused = ours.rwlock("mail").downgrade(writer).await.expect_err("no readers");
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        drop(mail(&other).lock().await.expect("in its turn"));
        let apart = scene.host.now().since(began);
        assert!(apart >= INTERVAL - ms(100), "{apart:?}");
    });
}

#[test]
fn a_lost_lock_does_not_stay_taken() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = mail(&ours).lock().await.expect("free");
        let seen = other.inspect("mail").await.expect("asked").holders[0].token.clone();
        let _ended = other.evict("mail", &seen, "a test").await.expect("asked");
        assert_eq!(guard.release().await.expect("an answer"), Release::NotHeld);
        assert!(mail(&other).try_lock().await.expect("asked").is_some());
    });
}

/// Otherwise the caller would believe that nobody else had the lock until now.
#[test]
fn a_lock_that_was_taken_away_is_not_kept_even_if_its_time_is_over() {
    play(0..2, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let guard = ours.mutex("a").lock().await.expect("free");
        guard.keep_for(ms(0)).await.expect("it was held until now");
        let guard = ours.mutex("a").lock().await.expect("free again");
        let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
        let _ended = other.evict("a", &seen, "a test").await.expect("asked");
        let failed = guard.keep_for(ms(0)).await.expect_err("it was taken away");
        assert_eq!((failed.kind(), failed.name()), (ErrorKind::Lost, Some("a")));
    });
}

#[test]
fn a_lock_that_was_detached_is_free_after_its_ttl() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let _token = mail(&ours).lock().await.expect("free").detach();
        assert!(mail(&other).try_lock().await.expect("asked").is_none());
        scene.pass(ms(3_050)).await;
        assert!(mail(&other).try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn a_release_that_is_not_confirmed_says_so() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let guard = mail(&ours).lock().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let failed = guard.release().await.expect_err("no answer");
        assert_eq!((failed.kind(), failed.name()), (ErrorKind::Unknown, Some("mail")));
        scene.faults.heal();
    });
}

/// The guard held the lock until its end. Afterwards, the lease ended by itself in the outage, and
/// the store does not know it any more.
#[test]
fn a_guard_whose_lease_ended_in_an_outage_after_it_is_not_said_to_have_lost_it() {
    play_on(stores::memory, 0, async |scene| {
        let ours = scene.client_of(ms(10_000)).await;
        let mail = ours.mutex("mail").min_hold(ms(30_000));
        let guard = mail.lock().await.expect("free");
        // The next renewal would leave soon.
        scene.pass(ms(29_200)).await;
        assert!(guard.is_held());
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let ending = scene.host.task(guard.release());
        scene.pass(ms(8_000)).await;
        scene.faults.heal();
        let failed = ending.await.expect_err("the store does not know the lease any more");
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
        assert!(failed.to_string().contains("the lease ended before"), "{failed}");
    });
}

#[test]
fn an_interval_out_of_bounds_and_a_strict_store_are_refused_before_anything_is_asked() {
    play(0..1, async |scene| {
        let ours = scene.client().await;
        for interval in [ms(1), ms(2_999), ms(24 * 3_600_000 + 1)] {
            let mutex = ours.mutex("mail").min_hold(interval);
            let refused = mutex.try_lock().await.expect_err("out of bounds");
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("mail")));
            assert_eq!(mutex.lock().await.expect_err("as well").kind(), ErrorKind::Config);
        }
        let refused = mail(&scene.client_with_delay(ms(7_001)).await).lock().await;
        let refused = refused.expect_err("the store would keep it for longer");
        assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("mail")));
        assert_eq!(scene.faults.count(Request::Acquire), 0);
    });
    play_on(stores::strict, 0, async |scene| {
        let refused = mail(&scene.client().await).lock().await.expect_err("it is strict");
        assert_eq!((refused.kind(), refused.name()), (ErrorKind::Unsupported, Some("mail")));
        assert_eq!(scene.faults.count(Request::Acquire), 0);
    });
}

/// Otherwise the client would release the lease before its time.
#[test]
fn a_late_hint_leaves_a_lease_that_stays_taken_untouched() {
    play(0..10, async |scene| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        let owner = guard.token().clone();
        guard.keep_for(ms(20_000)).await.expect("kept");
        scene.faults.forge(&Hint::Granted {
            key: Key::new("a").expect("a name"),
            owner,
            fencing: None,
            ask_no: 1,
        });
        scene.pass(ms(50)).await;
        assert_eq!(client.inspect("a").await.expect("asked").holders.len(), 1);
    });
}
