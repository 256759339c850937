//! Each kind of lock keeps all of its settings, in whatever order they were set.

use leasehold::{Client, CountDown, Guard};

use super::{Scene, ms, play_on};
use crate::stores;

const WHY: &str = "a report";

async fn why(client: &Client, name: &str) -> Option<String> {
    client.inspect(name).await.expect("asked").holders[0].why.clone()
}

/// Asserts that a guard has a lease of 600 ms with a reason and without a fencing token.
async fn assert_set(client: &Client, guard: &Guard) {
    let name = guard.name();
    assert!(guard.remaining() <= ms(600), "{name}: {:?}", guard.remaining());
    assert_eq!(guard.fencing_token(), None, "{name}");
    assert_eq!(why(client, name).await.as_deref(), Some(WHY), "{name}");
}

#[test]
fn a_permit_keeps_its_weight_over_all_other_settings() {
    play_on(stores::memory, 0, async |scene: &Scene| {
        let client = scene.client().await;
        let semaphore = client.semaphore("a", 3).weight(2);
        let set = semaphore.clone().ttl(ms(600)).why(WHY).fencing(false);
        let permits = set.acquire().await.expect("free");
        assert_set(&client, &permits).await;
        let seen = client.inspect("a").await.expect("asked").permits.expect("a semaphore");
        assert_eq!((seen.taken, seen.of), (2, 3));
        drop(permits);
        let permits = semaphore.acquire().await.expect("free");
        assert!(permits.fencing_token().is_some() && permits.remaining() > ms(600));
    });
}

#[test]
fn all_of_several_locks_have_the_settings_of_all() {
    play_on(stores::memory, 0, async |scene: &Scene| {
        let client = scene.client().await;
        let all = client.lock_all(["a", "b"]).ttl(ms(600)).why(WHY).fencing(false);
        for guard in all.lock().await.expect("free").guards() {
            assert_set(&client, guard).await;
        }
    });
}

#[test]
fn every_kind_of_lock_says_why_it_was_taken() {
    play_on(stores::memory, 0, async |scene: &Scene| {
        let client = scene.client().await;
        let run = client.once("once", ms(10_000)).ttl(ms(600)).why(WHY).start().await;
        let run = run.expect("asked").expect("nobody did it");
        assert!(run.guard().remaining() <= ms(600));
        let leader = client.election("election").ttl(ms(600)).why(WHY).campaign().await;
        let leader = leader.expect("nobody leads");
        assert!(leader.guard().remaining() <= ms(600));
        client.rate_limit("limit", 1, ms(10_000)).why(WHY).start().await.expect("the first");
        let counted = client.latch("latch", 2).keep(ms(10_000)).why(WHY).count_down().await;
        assert_eq!(counted.expect("asked"), CountDown::Counted);
        for name in ["once", "election", "limit", "latch"] {
            assert_eq!(why(&client, name).await.as_deref(), Some(WHY), "{name}");
        }
        scene.pass(ms(9_000)).await;
        assert_eq!(client.inspect("latch").await.expect("asked").holders.len(), 1);
        scene.pass(ms(2_000)).await;
        assert!(client.inspect("latch").await.expect("asked").holders.is_empty(), "it ended");
    });
}
