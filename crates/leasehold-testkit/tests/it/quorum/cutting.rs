//! Drops the caller's future at each of its polls.

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::{cut_after, cut_when_woken};

use super::{Scene, ms, play_on};

const POLLS_MAX: usize = 200;

/// The distances from a client to each node. A far node grants late.
const WAYS: [[Duration; 5]; 3] = [
    [ms(1), ms(2), ms(40), ms(3), ms(90)],
    [ms(5), ms(5), ms(5), ms(5), ms(5)],
    [ms(90), ms(1), ms(60), ms(30), ms(2)],
];

/// A future, and the poll at which it is dropped.
type Cut = fn(&Client, usize) -> std::pin::Pin<Box<dyn Future<Output = bool> + '_>>;

const CUTS: [(&str, Cut); 4] = [
    ("lock", |client, polls| {
        Box::pin(async move { cut_after(polls, client.mutex("a").lock()).await.is_some() })
    }),
    ("lock, when woken", |client, polls| {
        Box::pin(async move { cut_when_woken(polls, client.mutex("a").lock()).await.is_some() })
    }),
    ("try_lock", |client, polls| {
        Box::pin(async move { cut_after(polls, client.mutex("a").try_lock()).await.is_some() })
    }),
    ("unqueued", |client, polls| {
        let mutex = client.mutex("a").unqueued();
        Box::pin(async move { cut_when_woken(polls, mutex.try_lock()).await.is_some() })
    }),
];

fn at_every_poll(scene: impl AsyncFn(&Scene, &Client, Cut, usize, &str) -> bool) {
    for nodes in [3, 4, 5] {
        for ways in WAYS {
            for (name, cut) in CUTS {
                let ended = (0..POLLS_MAX).position(|polls| {
                    play_on(nodes, polls as u64, async |set| {
                        let client = set.far_client(ways).await;
                        scene(set, &client, cut, polls, name).await
                    })
                });
                assert!(ended.expect("the future ends") > 0, "it was dropped somewhere");
            }
        }
    }
}

#[test]
fn a_lock_dropped_at_any_poll_leaves_nothing_on_any_node() {
    at_every_poll(async |scene, client, cut, polls, name| {
        let ended = cut(client, polls).await;
        // This is the time for the ask, and for the release behind it.
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", &format!("{name} after {polls} polls")).await;
        ended
    });
}

#[test]
fn a_lock_dropped_while_others_split_the_votes_leaves_nothing() {
    at_every_poll(async |scene, client, cut, polls, name| {
        // This client is near to other nodes, and gets their votes first.
        let other = scene.far_client([ms(50), ms(50), ms(1), ms(1), ms(1)]).await;
        let other = scene.host.task(async move {
            let guard = other.mutex("a").lock().await.expect("it becomes free");
            let released = guard.release().await.expect("a majority lets go of it");
            assert_eq!(released, leasehold::Release::Released);
        });
        let ended = cut(client, polls).await;
        assert!(scene.host.within(ms(10_000), other).await.is_some(), "{name} {polls}");
        scene.pass(ms(200)).await;
        scene.assert_nothing_is_left("a", &format!("{name} after {polls} polls")).await;
        ended
    });
}
