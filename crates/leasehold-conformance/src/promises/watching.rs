//! Places that are woken and never become the owner. A quorum uses them.

use leasehold::core::line::GIVES_WAY_FOR;
use leasehold::store::{Capabilities, Evicted, Released};

use crate::check::{granted, may_be_free, released, renewed, taken};
use crate::world::{SLACK, World, key, ms};

pub(crate) const PROMISE: &str = "a client that only watches is woken, and never becomes the owner";
pub(crate) const CONTRACT: &str = "`Capabilities::watching` and `Line::Watch`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.watching
}

/// The woken client then asks for the key.
pub(crate) async fn a_release_before_a_watching_place_frees_the_key_and_wakes_it(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).watch(3_000).send().await);
    taken(carl.ask(&key("a")).watch(3_000).send().await);
    world.settle().await;
    assert!(renewed(anna.renew(&key("a"), 1_000).await).1, "a watching place waits too");
    released(anna.release(&key("a")).await, Released::Freed);
    assert!(world.inspect(&key("a")).await.holders.is_empty());
    bert.expect_hint(may_be_free).await;
    granted(bert.ask(&key("a")).watch(3_000).send().await);
}

/// The release has woken the head alone. If the head leaves, nobody else knows that the key is
/// free.
pub(crate) async fn the_next_watching_place_is_woken_when_a_woken_head_leaves(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    taken(carl.ask(&key("a")).watch(9_000).send().await);
    world.settle().await;
    released(anna.release(&key("a")).await, Released::Freed);
    bert.expect_hint(may_be_free).await;
    world.forget_extra_hints(&carl).await;
    released(bert.release(&key("a")).await, Released::NotHeld);
    carl.expect_hint(may_be_free).await;
    granted(carl.ask(&key("a")).watch(9_000).send().await);
}

/// The woken head died, so its place has ended. The next one leaves.
pub(crate) async fn a_watching_place_behind_a_dead_head_is_woken_when_the_place_before_it_leaves(
    world: &World,
) {
    world.fine_only("such a store keeps a place for longer than half a second").await;
    let (anna, dora) = (world.actor(), world.actor());
    let (bert, carl) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(dora.ask(&key("a")).watch(500).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    taken(carl.ask(&key("a")).watch(9_000).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    world.pass(ms(600)).await;
    let _ = carl.hints();
    released(bert.release(&key("a")).await, Released::NotHeld);
    carl.expect_hint(may_be_free).await;
    granted(carl.ask(&key("a")).watch(9_000).send().await);
}

/// The head knows already that the key is free, and nobody can use a key that is held.
pub(crate) async fn a_watching_place_that_leaves_wakes_nobody_in_vain(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let (carl, dora) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    for actor in [&dora, &bert, &carl] {
        taken(actor.ask(&key("a")).watch(9_000).send().await);
    }
    world.settle().await;
    released(dora.release(&key("a")).await, Released::NotHeld);
    world.pass(SLACK).await;
    assert_eq!((bert.hints(), carl.hints()), (vec![], vec![]), "the key is held");
    released(anna.release(&key("a")).await, Released::Freed);
    bert.expect_hint(may_be_free).await;
    world.forget_extra_hints(&bert).await;
    released(carl.release(&key("a")).await, Released::NotHeld);
    world.pass(SLACK).await;
    assert_eq!(bert.hints(), [], "it was woken before");
}

/// An eviction does the same as a release here.
pub(crate) async fn an_eviction_wakes_a_client_that_watches(world: &World) {
    if !world.capabilities().browse {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).watch(3_000).send().await);
    world.settle().await;
    let seen = anna.owner().as_str().as_bytes().to_vec();
    let evicted = world.browse().evict(key("a"), seen, "a test".to_owned()).await;
    assert_eq!(evicted.expect("answered"), Evicted::Evicted);
    bert.expect_hint(may_be_free).await;
    granted(bert.ask(&key("a")).watch(3_000).send().await);
}

/// Keeping the key for that place could block the line for ever.
pub(crate) async fn a_watching_place_holds_nobody_up(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(carl.ask(&key("a")).send().await);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].token, carl.owner().as_str().as_bytes());
    assert_eq!(snapshot.waiting, 1, "it waits on");
}

/// The release has woken the head, which should ask soon. But it may be dead.
pub(crate) async fn a_newcomer_gives_way_once_to_a_client_that_watches(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let (carl, dora) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    let (retry_in, ahead) = taken(carl.ask(&key("a")).watch(9_000).send().await);
    assert_eq!((retry_in, ahead), (Some(GIVES_WAY_FOR), 1));
    if world.capabilities().line {
        assert_eq!(taken(dora.ask(&key("a")).join().send().await).0, Some(GIVES_WAY_FOR));
    }
    assert!(world.inspect(&key("a")).await.holders.is_empty());
    granted(carl.ask(&key("a")).watch(9_000).send().await);
    released(carl.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).watch(9_000).send().await);
}

/// Nobody was woken, or it was long ago.
pub(crate) async fn a_newcomer_gives_way_only_to_a_client_that_is_about_to_ask(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(carl.ask(&key("a")).watch(9_000).send().await);
    released(carl.release(&key("a")).await, Released::Freed);
    world.pass(GIVES_WAY_FOR + world.slack()).await;
    granted(world.actor().ask(&key("a")).watch(9_000).send().await);
}

/// The grant ends its place.
pub(crate) async fn a_watching_place_is_granted_by_asking_and_leaves_the_line(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).watch(9_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(bert.ask(&key("a")).watch(9_000).send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
}

/// `Keep` works only if nobody waits.
pub(crate) async fn a_lease_is_not_kept_while_somebody_watches(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).watch(3_000).send().await);
    released(anna.keep_for(&world.actor(), &key("a"), 10_000, 1).await, Released::Freed);
    granted(bert.ask(&key("a")).watch(3_000).send().await);
}
