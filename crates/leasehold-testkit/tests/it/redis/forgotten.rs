//! The answer of `release()` after the server has forgotten a lease that tasks of one client share.

use leasehold::Release::{NotHeld, Released};
use leasehold::{Client, Guard};
use leasehold_testkit::virtual_host::Joined;

use super::clients::{Scene, ms, play};

/// Tasks of `client` that wait for the lock, in this order.
async fn tasks(scene: &Scene, client: &Client, count: usize) -> Vec<Joined<Guard>> {
    let mut tasks = Vec::new();
    for _ in 0..count {
        tasks.push(scene.wait(client).await);
    }
    tasks
}

#[test]
fn a_release_that_passes_a_forgotten_lease_on_answers_released_and_the_last_one_not_held() {
    play(async |scene| {
        let (client, other) = (scene.client().await, scene.client().await);
        let held = client.mutex("a").lock().await.expect("free");
        let mut tasks = tasks(scene, &client, 3).await.into_iter();
        let mut next = || tasks.next().expect("three");
        // Fencing tokens for all of them can be reserved, since the clock has gone on.
        scene.pass(ms(10)).await;
        assert_eq!(held.release().await.expect("kept for the tasks"), Released);
        let first = next().await;
        scene.tell(&["FLUSHALL"]);
        assert_eq!(first.release().await.expect("passed on"), Released);
        // Each task still has its window, and another client may have one too. Only fencing tokens
        // tell which window came later.
        let second = next().await;
        let stranger = other.mutex("a").try_lock().await.expect("asked").expect("forgotten");
        assert!(second.is_held() && stranger.is_held());
        assert!(second.fencing_token() < stranger.fencing_token());
        assert_eq!(second.release().await.expect("passed on"), Released);
        let third = next().await;
        assert!(third.is_held());
        assert!(third.fencing_token() < stranger.fencing_token());
        assert_eq!(third.release().await.expect("asked"), NotHeld);
        assert_eq!(stranger.release().await.expect("asked"), Released);
    });
}

/// A holder that found no waiter has reserved only its own fencing token. So its release asks the
/// server, and the next task gets a new lease.
#[test]
fn a_release_that_needs_fencing_tokens_for_the_next_task_answers_not_held() {
    play(async |scene| {
        let client = scene.client().await;
        let held = client.mutex("a").lock().await.expect("free");
        let mut tasks = tasks(scene, &client, 2).await.into_iter();
        let mut next = || tasks.next().expect("two");
        scene.pass(ms(10)).await;
        scene.tell(&["FLUSHALL"]);
        assert_eq!(held.release().await.expect("asked"), NotHeld);
        let first = next().await;
        let seen = client.inspect("a").await.expect("asked");
        let holder = seen.holders.first().expect("the server knows the new lease");
        assert_eq!(holder.token, first.token().as_str().as_bytes());
        drop(first);
        assert_eq!(next().await.release().await.expect("asked"), Released);
    });
}
