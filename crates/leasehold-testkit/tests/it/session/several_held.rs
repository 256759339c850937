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
