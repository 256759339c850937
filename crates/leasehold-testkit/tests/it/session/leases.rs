//! A lease that another process detached, by its token.

use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard, Identity, Release};

use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play};

/// A lock delay that is longer than the ttl, so that the test can tell whether it was added.
const DELAY: Duration = Duration::from_secs(5);

async fn client(scene: &Scene, namespace: &str, lock_delay: Duration) -> Client {
    let store = scene.faults.decorate(scene.store().await);
    let builder = Client::with_store(store).host(scene.host.clone());
    let builder = builder.identity(Identity::anonymous()).ttl(ms(1_000)).lock_delay(lock_delay);
    builder.namespace(namespace).connect().await.expect("connected")
}

#[test]
fn a_lease_by_its_token_is_in_the_namespace_of_its_client() {
    play(0..3, async |scene| {
        let (taker, keeper) =
            (client(scene, "shop", ms(0)).await, client(scene, "shop", ms(0)).await);
        let token = taker.mutex("a").lock().await.expect("free").detach();
        let elsewhere = client(scene, "bakery", ms(0)).await.lease("a", token.clone());
        assert_eq!(elsewhere.renew(ms(1_000)).await.expect_err("another").kind(), ErrorKind::Lost);
        let lease = keeper.lease("a", token);
        lease.renew(ms(3_000)).await.expect("it is the lease of that name and namespace");
        scene.pass(ms(2_900)).await;
        assert!(taker.mutex("a").try_lock().await.expect("asked").is_none());
        assert_eq!(lease.release().await.expect("asked"), Release::Released);
        assert!(taker.mutex("a").try_lock().await.expect("asked").is_some());
    });
}

/// Otherwise the first renewal would remove the margin that the client asked for.
#[test]
fn a_lease_that_is_renewed_by_its_token_keeps_the_lock_delay() {
    play(0..3, async |scene| {
        let (taker, other) = (client(scene, "n", DELAY).await, client(scene, "n", DELAY).await);
        let token = taker.mutex("a").lock().await.expect("free").detach();
        scene.pass(DELAY).await;
        other.lease("a", token).renew(ms(1_000)).await.expect("the store has it still");
        scene.pass(DELAY + ms(900)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it is kept");
        scene.pass(ms(200)).await;
        assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "it has run out");
    });
}

/// Otherwise the caller would work beside the next holder.
#[test]
fn a_renewal_by_the_token_that_is_answered_after_the_ttl_is_not_confirmed() {
    for (late, kind) in [(5, None), (12, Some(ErrorKind::Unknown))] {
        play(0..3, async |scene| {
            let taker = client(scene, "n", ms(0)).await;
            let token = taker.mutex("a").lock().await.expect("free").detach();
            scene.faults.next(Request::Renew, Fault::Late(ms(late)));
            let renewed = taker.lease("a", token).renew(ms(10)).await;
            assert_eq!(renewed.err().map(|error| error.kind()), kind, "{late}");
        });
    }
}

/// A waiter is handed the key for a short time only, and `leasehold acquire` ends at once.
#[test]
fn a_lease_that_is_detached_right_after_a_hand_over_lasts_for_its_ttl() {
    play(0..3, async |scene| {
        let (holder, taker) = (client(scene, "n", ms(0)).await, client(scene, "n", ms(0)).await);
        let guard = holder.mutex("a").lock().await.expect("free");
        let mutex = taker.mutex("a").ttl(ms(20_000));
        let taking = scene.host.task(async move { mutex.lock().await.map(Guard::detach) });
        scene.host.settle().await;
        // The first request to lengthen the lease is lost, so it is repeated.
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
        let token = taking.await.expect("handed over");
        scene.pass(ms(500)).await;
        scene.faults.heal();
        scene.pass(ms(18_500)).await;
        assert!(holder.mutex("a").try_lock().await.expect("asked").is_none(), "a whole ttl");
        assert_eq!(taker.lease("a", token).release().await.expect("asked"), Release::Released);
    });
}
