//! Work that holds a lock and wants it again shares the guard. Other libraries count in the store,
//! and make these mistakes.

use std::sync::Arc;

use futures_util::FutureExt;
use leasehold::{Lost, Release};
use leasehold_testkit::faults::Request;

use super::{ms, play};

#[test]
fn every_handle_has_the_same_lease_and_fencing_token_and_costs_no_request() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let outer = Arc::new(ours.mutex("account").lock().await.expect("free"));
        let inner = Arc::clone(&outer);
        assert_eq!(scene.faults.count(Request::Acquire), 1);
        assert!(inner.fencing_token().is_some());
        assert_eq!(inner.fencing_token(), outer.fencing_token());
        assert_eq!(ours.inspect("account").await.expect("asked").holders.len(), 1);
    });
}

/// In other libraries, a second lock with a shorter ttl shortens the lease of the outer holder.
#[test]
fn an_inner_handle_never_shortens_the_lease_not_even_by_a_renewal() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let outer = Arc::new(ours.mutex("account").ttl(ms(60_000)).lock().await.expect("free"));
        let before = outer.remaining();
        let inner = Arc::clone(&outer);
        inner.renew().await.expect("held");
        drop(inner);
        assert!(outer.remaining() >= before - ms(50));
        let seen = scene.calm_client().await.inspect("account").await.expect("asked");
        assert!(seen.holders[0].ttl_left.expect("it ends") >= before - ms(50));
    });
}

/// In other libraries, an inner unlock deletes the lock of the outer holder.
#[test]
fn only_the_last_handle_releases_in_whatever_order_they_end() {
    play(0..6, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let mutex = other.mutex("account");
        let mut handles = vec![Arc::new(ours.mutex("account").lock().await.expect("free"))];
        handles.extend([Arc::clone(&handles[0]), Arc::clone(&handles[0])]);
        for at in [1, 0] {
            drop(handles.remove(at));
            scene.host.settle().await;
            assert!(mutex.try_lock().await.expect("asked").is_none(), "still held");
        }
        let last = handles.pop().and_then(Arc::into_inner).expect("the last");
        assert_eq!(last.release().await.expect("confirmed"), Release::Released);
        assert!(mutex.try_lock().await.expect("asked").is_some());
    });
}

#[test]
fn each_handle_learns_of_a_loss_and_no_handle_revives_the_lock() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let outer = Arc::new(ours.mutex("account").lock().await.expect("free"));
        let inner = Arc::clone(&outer);
        let (lost, also) = (outer.lost(), inner.lost());
        let _ended = other.evict("account", outer.token().as_str().as_bytes(), "a test").await;
        let following = other.mutex("account").lock().await.expect("free");
        inner.renew().await.expect_err("it is lost");
        assert_eq!((lost.await, also.now_or_never()), (Lost::NotOurs, Some(Lost::NotOurs)));
        assert!(!outer.is_held() && !inner.is_held());
        drop((outer, inner));
        scene.host.settle().await;
        assert!(other.mutex("account").try_lock().await.expect("asked").is_none());
        assert!(following.is_held());
    });
}

/// Locking again is not reentrant by itself, because the guard is the owner, and not the thread. A
/// lock that counts by thread lets another task of that thread in.
#[test]
fn another_task_of_the_same_client_is_kept_out() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let _guard = ours.mutex("account").lock().await.expect("free");
        assert!(ours.mutex("account").try_lock().await.expect("asked").is_none());
    });
}
