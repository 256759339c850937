//! The guard of several locks: what it says of all of them together.

use leasehold::{ErrorKind, Guard, MultiRelease};
use leasehold_testkit::faults::{Fault, Request};

use super::{ms, play, play_on};
use crate::stores;

#[test]
fn several_locks_are_held_for_as_long_as_the_one_that_would_end_first() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client().await;
        let guard = client.lock_all(["a", "b"]).lock().await.expect("free");
        for renewed in [0, 1] {
            scene.pass(ms(300)).await;
            guard.guards()[renewed].renew().await.expect("held");
            let [ours, other] = [renewed, 1 - renewed].map(|at| guard.guards()[at].remaining());
            assert_eq!((ours, guard.remaining()), (other + ms(300), other));
        }
    });
}

#[test]
fn each_of_several_locks_has_a_fencing_token_of_its_own() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client().await;
        for _ in 0..3 {
            drop(client.mutex("b").lock().await.expect("free"));
        }
        let guard = client.lock_all(["a", "b"]).lock().await.expect("free");
        let tokens: Vec<_> = guard.guards().iter().map(Guard::fencing_token).collect();
        assert_eq!([guard.fencing_token("a"), guard.fencing_token("b")], tokens[..]);
        assert_ne!(tokens[0], tokens[1]);
    });
}

/// The other locks are free all the same, and the client repeats the release that failed.
#[test]
fn a_release_of_several_locks_that_fails_for_one_says_so() {
    play(0..2, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.lock_all(["a", "b"]).lock().await.expect("free");
        scene.faults.next(Request::Release, Fault::Refuse);
        let error = guard.release().await.expect_err("it is refused");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, Some("a")));
        assert!(other.mutex("b").try_lock().await.expect("asked").is_some());
        scene.pass(ms(300)).await;
        let again = other.lock_all(["a", "b"]).try_lock().await.expect("asked").expect("free");
        assert_eq!(again.release().await.expect("asked"), MultiRelease::Released);
    });
}

/// Otherwise one lock that fails would cost the others their next renewal.
#[test]
fn a_renewal_of_several_locks_that_fails_for_one_renews_the_others() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client().await;
        let guard = client.lock_all(["a", "b"]).lock().await.expect("free");
        scene.pass(ms(300)).await;
        scene.faults.next(Request::Renew, Fault::Refuse);
        let error = guard.renew().await.expect_err("it is refused");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, Some("a")));
        let [refused, renewed] = [0, 1].map(|at| guard.guards()[at].remaining());
        assert_eq!(renewed, refused + ms(300));
    });
}

/// The loss is known by the clock before the driver has told it.
#[test]
fn a_try_for_several_takes_a_lock_again_that_was_lost_before_it_had_the_last() {
    play(0..2, async |scene| {
        let client = scene.client_of(ms(300)).await;
        scene.faults.from_now_on(Request::Renew, Fault::Refuse);
        scene.faults.next(Request::Acquire, Fault::Late(ms(0)));
        scene.faults.next(Request::Acquire, Fault::Late(ms(400)));
        let guard = client.lock_all(["a", "b"]).try_lock().await.expect("asked").expect("free");
        assert!(guard.is_held());
        assert!(scene.faults.count(Request::Acquire) >= 4, "both were asked for again");
        scene.faults.heal();
    });
}
